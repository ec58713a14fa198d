"""Validations in the store: the job of a program, its runs with their loops, the port's diff, and the verdict."""

from __future__ import annotations

import difflib
import hashlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vispark.migrate.from_source import qualify_source
from vispark.migrate.history import History
from vispark.migrate.sites import SourceProgram
from vispark.migrate.validation import StatementResults, Validation


def keep_validation(history: History, cpu: Path, gpu: Path, found: Validation) -> int:
    """Write a validation, the runs that it rests on and the source's advice to the store, and return the job's id.

    Parameters
    ----------
    history : History
        The store.
    cpu, gpu : Path
        The program, whose path names the job, and its port.
    found : Validation
        Their comparison.
    """
    source, port = cpu.read_text(encoding="utf-8"), gpu.read_text(encoding="utf-8")
    job = history.job(str(cpu.resolve()), source=source, digest=hashlib.sha256(source.encode()).hexdigest(),
                      diff=diff_of(source, port, cpu.name, gpu.name))
    history.set_advice(job, _advice(source, cpu))
    runs = []
    for kind, seconds, script in (("cpu", found.cpu_seconds, cpu), ("gpu", found.gpu_seconds, gpu)):
        run = history.add_run(job, kind=kind, state="done", seconds=seconds)
        for each in found.statements:
            loop = loop_of(each.reference if kind == "cpu" else each.other)
            if loop:
                history.add_loop(run, file=script.name, **loop)
        runs.append(run)
    history.add_validation(job, found.as_json(), *runs)
    return job


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


def _advice(source: str, script: Path) -> list[dict[str, Any]]:
    """Return the verdicts by the source; of the script, which has run, imports and functions are made once more."""
    answer = qualify_source(SourceProgram(str(script), source))
    return [{"file": script.name, "line": each.line, "column_": each.column, "call": each.call, "verdict": each.verdict,
             "why": each.detail} for loop in answer.loops for each in loop.advice]
