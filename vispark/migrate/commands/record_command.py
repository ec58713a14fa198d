"""Command ``vispark record``: one run of a program on the CPU, with its operations, types and results."""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.errors import VisparkError
from vispark.migrate.capture.run_capture import prepare_folder
from vispark.migrate.commands import script_argument
from vispark.migrate.errors import YES
from vispark.migrate.record.recorder import Recorder
from vispark.migrate.source.notebooks import SUFFIX, write_script


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="The capture. [default: SCRIPT.capture]")
@click.option("--no-samples", is_flag=True, help="Keep neither records nor results, only types, times and verdicts.")
@click.option("--only-on", "master", default="", help="End the program where its master is another one.")
@click.option("--skip-saves", is_flag=True, help="Leave the program's save... actions out.")
@click.option("--probe", default="", metavar="DEVICE", help="Run each action that would be on the device there, as "
              "spark.vispark.device has it, on few records, for vispark qualify --calibration.")
@json_option
@script_argument.script
@script_argument.arguments
@click.pass_context
def command(ctx: click.Context, script: Path, arguments: tuple[str, ...], out: Path | None, no_samples: bool,
            master: str, skip_saves: bool, probe: str, as_json: bool) -> None:
    """Run a program once, as it is, and write what it did into a folder for its owner alone.

    Options of vispark come before SCRIPT; everything behind it is the program's.
    """
    folder = out or Path(f"{script.stem}.capture")
    prepare_folder(folder)
    with tempfile.TemporaryDirectory(prefix="vispark-record-") as place:
        if is_notebook := script.suffix == SUFFIX:
            sys.path.insert(0, str(script.resolve().parent))
        path = write_script(script, Path(place)) if is_notebook else script
        recorder = Recorder(path, list(arguments), samples=not no_samples, saves=not skip_saves, master=master,
                            probed=probe)
        try:
            recorder.run()
        except VisparkError:
            raise
        except Exception as error:
            traceback.print_exception(error.with_traceback(_from_script(error, path)))
            ctx.exit(1)         # as Python ends the program itself
        finally:
            # What a program did until it failed is worth having, too.
            recorder.capture.write(folder)
            if recorder.capture.failed:
                click.echo(f"{len(recorder.capture.calls)} operations of {script.name} until then are in {folder}",
                           err=True)
    capture = recorder.capture
    document = {"capture": str(folder), "seconds": capture.seconds, "operations": len(capture.calls),
                "failed": capture.failed}
    emit(document, as_json, lambda: f"{len(capture.calls)} operations of {script.name}, {capture.seconds:.1f} s, are "
         f"in {folder}; vispark qualify {folder} says what of them runs on the device")
    ctx.exit(YES)


def _from_script(error: Exception, script: Path) -> TracebackType | None:
    """Return an error's traceback from the script's first frame on, without those of what runs it."""
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).resolve() != script.resolve():
        trace = trace.tb_next
    return trace or error.__traceback__
