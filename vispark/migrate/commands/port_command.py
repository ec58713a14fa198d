"""Command ``vispark port``: a program with its loops on the device, as a diff that was run and compared first."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.capture.run_capture import RunCapture, digest_of
from vispark.migrate.commands.validate_command import validate
from vispark.migrate.errors import NO, UNKNOWN, YES, CaptureError, ValidationError
from vispark.migrate.port.ported_program import PortedProgram, port
from vispark.migrate.qualify.dataframes import answers
from vispark.migrate.qualify.from_capture import qualify_capture
from vispark.migrate.source.joined_modules import with_modules
from vispark.migrate.source.notebooks import SUFFIX, notebook_with, write_script
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import keep_port
from vispark.migrate.store.run_store import saying_what_is_not_kept
from vispark.migrate.store.validations import keep_validation
from vispark.migrate.validate.compare import DIFFERS, NOT_KNOWN
from vispark.migrate.validate.unrepeatable import unrepeatable
from vispark.migrate.validate.validation import Validation
from vispark.migrate.written_files import check_file, write_file

#: Says of a port that it did not run.
NOT_EXECUTED = "not executed"
#: Says of a program why there is nothing to port.
NO_LOOP = "no loop has operations of an RDD, and what runs once gains nothing"


@click.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--capture", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="A recording of the script: types and keys, and the arguments with which the port is tried.")
@click.option("--write", is_flag=True, help="Change the script itself, if the port computes the same.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the port there, if it does.")
@click.option("--execute/--no-execute", default=True, help="Run script and port with the recording's arguments on the "
                                                           "host device, and compare. [default: execute]")
@click.option("--history/--no-history", default=True, help="Keep the port for vispark report.")
@json_option
@click.pass_context
def command(ctx: click.Context, script: Path, folder: Path | None, write: bool, out: Path | None, execute: bool,
            history: bool, as_json: bool) -> None:
    """Print the changes that bring a script's loops onto the device, as a unified diff.

    Exit status: 0 if the port was run and computes the same; 3 if nothing is ported, or it differs; 4 if it was not
    run, or if only a recording can say whether there is one.
    """
    targets = [*([script] if write else []), *([out] if out else [])]
    for path in targets:
        check_file(path)
    program = with_modules(SourceProgram.read(script))
    source = program.parts[-1].source
    capture = RunCapture.read(folder) if folder else None
    if capture is not None and capture.digest != digest_of(source):
        raise CaptureError(f"{folder} is a recording of another script, or of another version of it "
                           f"({capture.script}): record it again")
    ported, validation = port(program, capture), None
    if capture is not None and execute:
        ported, validation = ported_as_far(program, ported, capture, history)
    verdict = validation.verdict if validation is not None else NOT_EXECUTED
    if history and ported.loops and verdict == NOT_EXECUTED:
        with saying_what_is_not_kept():
            keep_port(History(), script, source, ported.diff)
    status = UNKNOWN if ported.is_open else NO if not ported.loops else YES
    if ported.loops and verdict in (NOT_EXECUTED, NOT_KNOWN):
        status = UNKNOWN
    elif ported.loops and verdict == DIFFERS:
        status = NO
    if status == YES:
        for path in targets:
            is_notebook = script.suffix == path.suffix == SUFFIX
            if is_notebook:
                write_file(path, notebook_with(script, ported.text))
            else:
                ported.write(path)
    if not ported.loops and not ported.refused:
        ported = replace(ported, refused=(NO_LOOP,) if ported.program.calls else tuple(answers(ported.program)))
    document = {"ported": list(ported.loops), "refused": list(ported.refused), "verdict": verdict, "diff": ported.diff}
    emit(document, as_json, lambda: "\n".join([_text(ported, verdict, bool(capture)), *_where(validation)]))
    ctx.exit(status)


def ported_as_far(program: SourceProgram, ported: PortedProgram, capture: RunCapture,
                  history: bool = False) -> tuple[PortedProgram, Validation | None]:
    """Return a port and its validation, by :func:`tried`, without the loops with which it differs.

    Where there is but one loop, that is ported, and the port differs.
    """
    without = dict[int, str]()
    while True:
        validation = tried(ported, capture, history) if ported.loops else None
        wrong = _loop_that_differs(program, ported, validation)
        if wrong is None or len(ported.loops) < 2:
            return ported, validation
        without[wrong] = "the port differs with it: " + "; ".join(each.strip("# ") for each in _where(validation))
        ported = port(program, capture, without=without)


def _loop_that_differs(program: SourceProgram, ported: PortedProgram, validation: Validation | None) -> int | None:
    """Return the line of the ported loop that has the first statement with other results; None where none has."""
    lines = [each.reference.line for each in validation.statements if each.first is not None] if validation else []
    for loop in program.loops():
        file, first = program.located(loop.lineno)
        last = first + (loop.end_lineno or loop.lineno) - loop.lineno
        if file == program.file and first in ported.loops and any(first <= line <= last for line in lines[:1]):
            return first
    return None


def _where(validation: Validation | None) -> list[str]:
    """Return the lines that say where a port differs first, or what of it is not known."""
    if validation is None or validation.verdict not in (DIFFERS, NOT_KNOWN):
        return []
    lines = validation.as_text().splitlines()[1:]
    if validation.verdict == NOT_KNOWN:
        return [f"# {line}" for line in lines if f": {NOT_KNOWN}: " in line]
    return [f"# {line}" for line in lines if line.strip().startswith(("first:", "nearer"))]


def tried(ported: PortedProgram, capture: RunCapture, history: bool = False) -> Validation | None:
    """Return the validation of a port: script and port run with a recording's arguments, on the ``host`` device.

    A program that writes is not run a second time: there is none. The validation goes to the store where ``history``
    says so.
    """
    if unrepeatable(capture):
        return None
    script = Path(ported.program.file).resolve()
    with tempfile.TemporaryDirectory(prefix="vispark-port-") as folder, surroundings(script, capture.folder):
        changed = Path(folder) / f"{script.stem}.py"
        ported.write(changed)
        if script.suffix == SUFFIX:
            # The store names jobs by paths of scripts, of which a notebook has none.
            history = False
            (Path(folder) / "before").mkdir()
            script = write_script(script, Path(folder) / "before")
        try:
            traces = Path(folder) / "traces" if history else None
            validation = validate(script, changed, tuple(capture.arguments), noise=False, traces=traces)
        except ValidationError as error:
            raise ValidationError(f"the port was not compared: {error.message}") from error
        if history:
            with saying_what_is_not_kept():
                keep_validation(History(), script, changed, validation, qualify_capture(capture), traces)
        return validation


@contextmanager
def surroundings(script: Path, ran_in: str, device: str = "host", **options: str) -> Iterator[None]:
    """Run programs where the recording ran, with the modules beside the script.

    Parameters
    ----------
    script : Path
        The program.
    ran_in : str
        Folder of the recording's run; it is left out where it is no longer there.
    device : str
        ``spark.vispark.device`` of what runs.
    **options : str
        Further options of vispark, as ``journal``.
    """
    names = ("PYSPARK_SUBMIT_ARGS", "PYTHONPATH")
    before, folder = {name: os.environ.get(name) for name in names}, os.getcwd()
    paths = [str(script.parent), os.environ.get("PYTHONPATH", "")]
    conf = " ".join(f"--conf {shlex.quote(f'spark.vispark.{name}={value}')}"
                    for name, value in {"device": device, **options}.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{conf} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        if ran_in and Path(ran_in).is_dir():
            os.chdir(ran_in)
        yield
    finally:
        os.chdir(folder)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _text(ported: PortedProgram, verdict: str, has_capture: bool) -> str:
    lines = [ported.diff.rstrip("\n")] if ported.loops else []
    lines += [f"# {each}" for each in ported.refused]
    if not ported.loops:
        lines.append("# nothing is ported")
    elif verdict == NOT_EXECUTED:
        lines.append("# not executed" + ("" if has_capture else ": --capture DIR names a recording to try it with"))
    else:
        lines.append(f"# executed on the host device with the recording's arguments: {verdict}")
    return "\n".join(lines)
