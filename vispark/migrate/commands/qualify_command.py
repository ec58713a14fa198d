"""Command ``vispark qualify``: what of a program runs on the device, by its source, an event log or a recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.capture.run_capture import RunCapture, digest_of, is_capture
from vispark.migrate.commands.prediction_options import prediction_options
from vispark.migrate.errors import NO, UNKNOWN, YES
from vispark.migrate.port.ported_program import PortedProgram, port
from vispark.migrate.predict.loop_prediction import PredictionTarget
from vispark.migrate.qualify.from_capture import qualify_capture
from vispark.migrate.qualify.from_log import qualify_log
from vispark.migrate.qualify.from_source import qualify_source
from vispark.migrate.rules.advice import Qualification
from vispark.migrate.source.joined_modules import with_modules
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import keep_qualification
from vispark.migrate.store.run_store import saying_what_is_not_kept


@click.command()
@click.argument("what", metavar="SCRIPT|LOG|CAPTURE")
@click.option("--source", type=click.Path(exists=True, path_type=Path),
              help="The program of a log, or a folder with it: verdicts on its lines.")
@click.option("--import/--no-import", "imports", default=True,
              help="Whether the script's imports and definitions may be executed, which the translator needs. The rest "
                   "of the script never is. [default: import]")
@prediction_options
@click.option("--history/--no-history", default=True, help="Keep the answer for vispark report.")
@json_option
@click.pass_context
def command(ctx: click.Context, what: str, source: Path | None, imports: bool, target: PredictionTarget,
            history: bool, as_json: bool) -> None:
    """Say which operations of each loop run on the device, and why the others stay.

    Exit status: 0 if a loop gains, which vispark port takes; 3 if none does; 4 if that is not known.
    """
    if not is_capture(Path(what)):
        if target.devices:
            raise click.UsageError("--on predicts the loops of a recording: vispark record SCRIPT first")
        if what.endswith((".py", ".ipynb")) and not Path(what).exists():
            raise click.BadParameter(f"{what} does not exist", param_hint="SCRIPT|LOG|CAPTURE")
    answer = qualification(what, source, imports, target if target.devices else None)
    emit(answer.document(), as_json, answer.text)
    if history:
        with saying_what_is_not_kept():
            keep(what, answer)
    ctx.exit(status_of(answer))


def qualification(what: str, source: Path | None, imports: bool,
                  target: PredictionTarget | None = None) -> Qualification:
    """Return the answer for a script, a recording, or an event log; ``target`` is for recordings."""
    if what.endswith((".py", ".ipynb")):
        program = SourceProgram.read(Path(what))
        return with_port(qualify_source(program, imports), port(with_modules(program), None, imports))
    if is_capture(Path(what)):
        capture = RunCapture.read(Path(what))
        answer = qualify_capture(capture, target)
        script = Path(capture.script)
        # Of a script that is gone, or has changed, there is no port.
        if not script.is_file() or digest_of(SourceProgram.read(script).source) != capture.digest:
            return answer
        return with_port(answer, port(with_modules(SourceProgram.read(script)), capture))
    return qualify_log(what, source, imports)


def with_port(answer: Qualification, ported: PortedProgram) -> Qualification:
    """Return an answer that says no where nothing of the program is ported, and why."""
    if ported.loops or not ported.refused:
        return answer
    return replace(answer, refused=ported.refused, known=answer.known and not ported.is_open)


def keep(what: str, answer: Qualification) -> None:
    """Write an answer to the store, where it is of a script or a recording; a log's script is on another machine."""
    if what.endswith((".py", ".ipynb")):
        keep_qualification(History(), Path(what), SourceProgram.read(Path(what)).source, answer)
    elif is_capture(Path(what)):
        capture = RunCapture.read(Path(what))
        source = next((text for text in capture.sources.values() if digest_of(text) == capture.digest), "")
        keep_qualification(History(), Path(capture.script), source, answer)


def status_of(answer: Qualification) -> int:
    """Return the exit status that says the same as an answer."""
    if answer.qualifies:
        return YES
    return NO if answer.known else UNKNOWN
