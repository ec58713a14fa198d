"""Validations in the store: the job of a program, its runs with their loops, the port's diff, and the verdict."""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vispark.migrate.capture.run_traces import RunFolder
from vispark.migrate.qualify.from_source import qualify_source
from vispark.migrate.rules.advice import Qualification
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import advice_rows, keep_source
from vispark.migrate.store.traces import keep_trace
from vispark.migrate.validate.validation import StatementResults, Validation


def keep_validation(history: History, cpu: Path, gpu: Path, validation: Validation,
                    answer: Qualification | None = None, traces: Path | None = None, cluster: str = "") -> int:
    """Write a validation, the runs that it rests on and the advice to the store, and return the job's id.

    Parameters
    ----------
    history : History
        The store.
    cpu, gpu : Path
        The program, whose path names the job, and its port.
    validation : Validation
        Their comparison.
    answer : Qualification, optional
        The advice. [default: that by the source]
    traces : Path, optional
        Folder of what the runs wrote of themselves, below ``cpu`` and ``gpu``.
    cluster : str
        On which they were.
    """
    source, port = cpu.read_text(encoding="utf-8"), gpu.read_text(encoding="utf-8")
    job = keep_source(history, cpu, source)
    history.job(str(cpu.resolve()), diff=diff_of(source, port, cpu.name, gpu.name))
    # Of the script, which has run, imports and functions are made once more.
    history.set_advice(job, advice_rows(answer or qualify_source(SourceProgram(str(cpu), source))))
    runs = [_keep_run(history, job, kind, script, [getattr(each, side) for each in validation.statements], traces,
                      seconds=seconds, cluster=cluster)
            for kind, side, seconds, script in (("cpu", "reference", validation.cpu_seconds, cpu),
                                                ("gpu", "other", validation.gpu_seconds, gpu))]
    history.add_validation(job, validation.as_json(), *runs)
    return job


def keep_first_run(history: History, job: int, script: Path, results: Sequence[StatementResults],
                   traces: Path | None = None, **columns: Any) -> int:
    """Write a program's run to the store, before any run of a port is compared with it, and return the run's id.

    Parameters
    ----------
    history, job : History and int
        The store, and the program's job there.
    script : Path
        The program.
    results : sequence of StatementResults
        What its statements took from actions, by which its loops are known.
    traces : Path, optional
        Folder of what the run wrote of itself, below ``cpu``.
    **columns
        ``state``, ``seconds``, ``cluster`` and ``conf``, as :meth:`.History.add_run` has them.
    """
    return _keep_run(history, job, "cpu", script, results, traces, **columns)


def _keep_run(history: History, job: int, kind: str, script: Path, results: Sequence[StatementResults],
              traces: Path | None, **columns: Any) -> int:
    """Add a run with its loops and its trace to the store, and return its id."""
    run = history.add_run(job, kind=kind, **{"state": "done", **columns})
    for statement in results:
        loop = loop_of(statement)
        if loop:
            history.add_loop(run, file=script.name, **loop)
    if traces is not None:
        keep_trace(history, run, RunFolder(traces / kind))
    return run


def diff_of(source: str, port: str, name: str, port_name: str) -> str:
    """Return the unified diff of a program and its port.

    Examples
    --------
    >>> print(diff_of("a = 1\\n", "a = 2\\n", "job.py", "port.py"))
    --- job.py
    +++ port.py
    @@ -1 +1 @@
    -a = 1
    +a = 2
    <BLANKLINE>
    """
    return "".join(difflib.unified_diff(source.splitlines(keepends=True), port.splitlines(keepends=True), name,
                                        port_name))


def loop_of(results: StatementResults) -> dict[str, Any] | None:
    """Return passes and their seconds, of a statement that ran more than once.

    Examples
    --------
    >>> loop_of(StatementResults(("", "w"), 7, (1, 2, 3), (2.0, 2.5, 3.5)))
    {'line': 7, 'passes': 3, 'first': None, 'quartile1': 0.625, 'median': 0.75, 'quartile3': 0.875}
    """
    if len(results.seconds) < 2:
        return None
    passes = [after - before for before, after in zip(results.seconds, results.seconds[1:], strict=False)]
    low, middle, high = _quartiles(passes)
    return {"line": results.line, "passes": len(results.values), "first": None, "quartile1": low, "median": middle,
            "quartile3": high}


def _quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    if len(seconds) == 1:
        return seconds[0], seconds[0], seconds[0]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, middle, high

