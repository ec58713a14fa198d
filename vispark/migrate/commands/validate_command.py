"""``vispark validate``: a program on the CPU and its port on the GPU are run, and their results compared."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.capture.run_traces import RunFolder
from vispark.migrate.capture.stored_results import ResultFrame, read_results
from vispark.migrate.commands.script_argument import ScriptPath
from vispark.migrate.errors import NO, UNKNOWN, YES, ValidationError, error_line
from vispark.migrate.record.shared_jvm import FirstRun, JvmGateway, process_with_jvm, with_python
from vispark.migrate.source.statements import recorded_statements
from vispark.migrate.store.history import History
from vispark.migrate.store.run_store import saying_what_is_not_kept
from vispark.migrate.store.validations import keep_validation
from vispark.migrate.validate.compare import DIFFERS, NOT_KNOWN, TERMS, Tolerance
from vispark.migrate.validate.noise import dealt_anew
from vispark.migrate.validate.validation import (
    StatementResults,
    Validation,
    grouped,
    validated,
    with_nearer,
    with_order_not_known,
)

STATUSES = {DIFFERS: NO, NOT_KNOWN: UNKNOWN}
_SCRIPT = ScriptPath()

#: What is said where random numbers of tasks were seeded.
_DRAWS = "its tasks draw at random, seeded by partition: its noise with other partitions is not known"


def recorded_run(script: Path, args: tuple[str, ...], folder: Path, name: str, more: int = 0,
                 samples: Path | None = None, timeout: float | None = None, traces: Path | None = None,
                 jvm: JvmGateway | None = None, wider: bool = False) -> Path:
    """Run a script in a process of its own, and return the file with its results.

    Parameters
    ----------
    script : Path
        A program of PySpark's.
    args : tuple of str
        Its arguments.
    folder, name : Path and str
        Where results go.
    more : int
        Partitions that sources make beyond those that they are asked for.
    samples : Path, optional
        Results of another run, whose random samples are given again.
    timeout : float, optional
        Seconds until the run is ended.
    traces : Path, optional
        Folder in which the run gets one of its name, for :mod:`.run_traces`.
    jvm : JvmGateway, optional
        Of Spark's JVM that another run started. [default: the run starts one]
    wider : bool
        Whether its records have wider floats, by :mod:`.wider_floats`.

    Raises
    ------
    ValidationError
        If the script fails; the message has the last line that it wrote.
    """
    results = folder / f"{name}.results"
    command, environment = _command(script, args, results, more, samples, wider), _environment(name, traces)
    # Modules beside a port go before those beside the program.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(script.resolve().parent),
                                                              environment.get("PYTHONPATH", "")]))
    environment = jvm.environment(environment) if jvm else environment
    try:
        ended = subprocess.run([sys.executable, "-m", *command], stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, errors="replace", timeout=timeout, env=environment)
    except subprocess.TimeoutExpired as error:
        raise ValidationError(f"{script} did not end within {timeout:g} s") from error
    if ended.returncode:
        raise ValidationError(f"{script} ended with status {ended.returncode}: "
                              f"{error_line(ended.stderr or ended.stdout)}")
    return results


@contextmanager
def first_run(script: Path, args: tuple[str, ...], folder: Path, timeout: float | None = None,
              traces: Path | None = None) -> Iterator[FirstRun]:
    """Run a script as :func:`recorded_run` does, as "cpu"; its JVM stays for the block.

    Raises
    ------
    ValidationError
        If it fails.
    """
    results = folder / "cpu.results"
    with process_with_jvm(script, _command(script, args, results), _environment("cpu", traces), folder / "cpu.log",
                          timeout, is_kept=False) as jvm:
        yield FirstRun(results, jvm)


def _command(script: Path, args: tuple[str, ...], results: Path, more: int = 0,
             samples: Path | None = None, wider: bool = False) -> list[str]:
    recorded_statements(script.read_text(encoding="utf-8"), str(script))
    return ["vispark.migrate.record.result_recorder", str(results), str(more), str(samples or "-"),
            "wider" if wider else "-", str(script), *args]


def _environment(name: str, traces: Path | None) -> dict[str, str]:
    return with_python(RunFolder(traces / name).environment() if traces else os.environ)


def statement_results(path: Path) -> list[StatementResults]:
    """Return the results that a file has, by statements; their values stay in the file until they are compared."""
    frames = [each for each in read_results(path) if each.kind in ("result", "sorted", "final")]
    in_order = {(each.where[1], each.where[3]) for each in frames if each.kind == "sorted"}
    return [replace(each, is_sorted=(each.line, each.name[1]) in in_order) for each in _by_statements(frames)]


def made_results(path: Path) -> list[StatementResults]:
    """Return the results that a run made of records of actions, by statements."""
    frames = [each for each in read_results(path) if each.kind == "made"]
    sources = {each.where[0]: tuple(each.where[4]) for each in frames}
    return [replace(each, sources=sources[each.number]) for each in _by_statements(frames)]


def compared_results(path: Path) -> list[StatementResults]:
    """Return all that is compared of a run."""
    return [*statement_results(path), *made_results(path)]


def _by_statements(frames: Sequence[ResultFrame]) -> list[StatementResults]:
    return grouped([((each.where[2], each.where[3]), each.where[0], each.where[1], each.seconds, each.result)
                    for each in frames])


def draws_in_tasks(path: Path) -> bool:
    """Return whether tasks of a run drew random numbers, which were seeded by partition."""
    return any(each.kind == "draws" for each in read_results(path))


def drawn_statements(path: Path) -> Iterator[str]:
    """Yield the statements whose records ``takeSample`` drew, which are not compared."""
    for where in dict.fromkeys((each.where[1], each.where[3]) for each in read_results(path) if each.kind == "drawn"):
        yield (f"line {where[0]}: {where[1]}: not compared: takeSample gives in all runs what it gave in the first one")


def run_seconds(path: Path) -> float | None:
    """Return the seconds of a run, from the script's first line to its last; None of a run that was cut."""
    return next((each.seconds for each in read_results(path) if each.kind == "end"), None)


def validate(cpu: Path, gpu: Path, args: tuple[str, ...] = (), tolerance: Tolerance | None = None,
             noise: bool = True, timeout: float | None = None, traces: Path | None = None,
             first: FirstRun | None = None) -> Validation:
    """Run a program and its port, and compare what their statements took from actions.

    Parameters
    ----------
    cpu, gpu : Path
        The program and its port.
    args : tuple of str
        Arguments of both.
    tolerance : Tolerance, optional
        What counts as rounding.
    noise : bool
        Whether the program is run once more on the CPU, its partitions dealt anew.
    timeout : float, optional
        Seconds for each run.
    traces : Path, optional
        Folder of what the runs write of themselves, below ``cpu`` and ``gpu``.
    first : FirstRun, optional
        A run of the program that was there already; its JVM is used for the others.

    Raises
    ------
    ValidationError
        If a run fails.
    """
    with tempfile.TemporaryDirectory(prefix="vispark-validate-") as folder, (
            nullcontext(first) if first else first_run(cpu, args, Path(folder), timeout, traces)) as done:
        place, jvm, reference = Path(folder), done.jvm, done.results
        draws = draws_in_tasks(reference)
        again = recorded_run(cpu, args, place, "again", dealt_anew(0), reference, timeout, jvm=jvm) \
            if noise and not draws else None
        ported = recorded_run(gpu, args, place, "gpu", samples=reference, timeout=timeout, traces=traces, jvm=jvm)
        one, two, three = (compared_results(each) if each else [] for each in (reference, again, ported))
        validation = validated(one, two, three, tolerance or Tolerance())
        if any(each.first for each in (*validation.statements, *validation.made)):
            validation = _nearer(validation, cpu, args, place, reference, timeout, jvm)
        if again is None:
            validation = with_order_not_known(validation)
        notes = ((_DRAWS,) if draws else ()) + tuple(drawn_statements(reference))
        # The first run of a shared JVM starts it cold, and the others do not.
        runs = [run_seconds(each) for each in (reference, *([again] if again else []))]
        seconds = min([each for each in runs if each is not None], default=None)
        return replace(validation, cpu_seconds=seconds, gpu_seconds=run_seconds(ported), notes=notes)


def _nearer(validation: Validation, cpu: Path, args: tuple[str, ...], folder: Path, reference: Path,
            timeout: float | None, jvm: JvmGateway | None) -> Validation:
    """Run the program once more, in wider floats, and say which of two differing runs is nearer to that one."""
    try:
        wide = recorded_run(cpu, args, folder, "wider", 0, reference, timeout, jvm=jvm, wider=True)
    except ValidationError as error:
        return with_nearer(validation, [], f"with wider floats {error.message.partition(chr(10))[0]}")
    if not any(each.kind == "wider" for each in read_results(wide)):
        return with_nearer(validation, [], "no float was seen in what the program makes by parallelize, or caches")
    return with_nearer(validation, compared_results(wide))


@click.command("validate")
@click.argument("cpu", type=_SCRIPT)
@click.argument("gpu", type=_SCRIPT)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--noise/--no-noise", default=True, help="Run CPU twice, with other partitions, to see its own noise.")
@click.option("--allow-narrower", is_flag=True, help="Rounding of float32 is rounding, though the CPU has float64.")
@click.option("--terms", type=click.IntRange(1), default=TERMS, show_default=True, help="Terms of the largest sum.")
@click.option("--timeout", type=click.FloatRange(1), default=None, help="Seconds for each run.")
@click.option("--history/--no-history", default=True, help="Keep the answer for vispark report.")
@json_option
def command(cpu: Path, gpu: Path, args: tuple[str, ...], noise: bool, allow_narrower: bool, terms: int,
            timeout: float | None, history: bool, as_json: bool) -> None:
    """Run CPU and GPU, a program and its port, and compare their results pass by pass.

    ARGS are the arguments of both. Exit status: 0 where no result differs, 3 where one does, 4 where it is not known.
    """
    with tempfile.TemporaryDirectory(prefix="vispark-traces-") as folder:
        traces = Path(folder) if history else None
        validation = validate(cpu, gpu, args, Tolerance(0.0, terms, allow_narrower), noise, timeout, traces)
        emit(validation.as_json(), as_json, validation.as_text)
        if history:
            with saying_what_is_not_kept():
                keep_validation(History(), cpu, gpu, validation, traces=traces)
    click.get_current_context().exit(STATUSES.get(validation.verdict, YES))
