"""Command ``vispark tune``: a ported program under a few settings, of which the best is kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.commands import script_argument
from vispark.migrate.commands.port_command import surroundings
from vispark.migrate.commands.validate_command import statement_results
from vispark.migrate.errors import NO, UNKNOWN, YES
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import keep_source
from vispark.migrate.tune.search import (
    RunFacts,
    Setting,
    SourceCall,
    TuneAnswer,
    TuneRun,
    TuneSearch,
    knobs_of,
    recommendations,
)
from vispark.migrate.validate.compare import Tolerance
from vispark.migrate.validate.validation import StatementResults, validated

#: What --allow takes.
ALLOWED = ("float32", "no-snapshots")


@click.command("tune", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--runs", type=click.IntRange(2), default=6, show_default=True, help="Runs at most, with two as it is.")
@click.option("--limit", type=click.IntRange(2), default=5, show_default=True, help="Passes that a run makes at most.")
@click.option("--passes", type=click.IntRange(1), default=None, help="Passes that the program has. [default: as "
                                                                     "many as a run makes]")
@click.option("--allow", "allowed", multiple=True, type=click.Choice(ALLOWED), help="What changes results, or safety.")
@click.option("--device", default="", help="As spark.vispark.device. [default: the program's own]")
@click.option("--timeout", type=click.FloatRange(1), default=None, help="Seconds for each run.")
@click.option("--history/--no-history", default=True, help="Keep the runs for vispark report.")
@json_option
@script_argument.script
@script_argument.arguments
@click.pass_context
def command(ctx: click.Context, script: Path, arguments: tuple[str, ...], runs: int, limit: int, passes: int | None,
            allowed: tuple[str, ...], device: str, timeout: float | None, history: bool, as_json: bool) -> None:
    """Run a ported program under a few settings, and say which changes make it faster.

    Options of vispark come before SCRIPT; everything behind it is the program's. Each run ends after --limit passes, so
    that what the program does after its loop is not done. Exit status: 0 if it was tuned, though nothing may be better
    than it is; 3 if the program has no plans of vispark's; 4 if it fails as it is.
    """
    with tempfile.TemporaryDirectory(prefix="vispark-tune-") as folder:
        measured = MeasuredProgram(script.resolve(), arguments, Path(folder), limit, device, timeout)
        answer = TuneSearch(measured.run, runs, passes).run(lambda facts: knobs_of(facts, frozenset(allowed)))
    has_plans = bool(answer.base.facts.operations)
    emit(_document(answer, passes), as_json, lambda: _text(script, answer, passes, has_plans))
    if history:
        _keep(History(), script, answer)
    ctx.exit(UNKNOWN if answer.base.failed or answer.again.failed else YES if has_plans else NO)


class MeasuredProgram:
    """Program that is run under settings, each time in a process of its own.

    Parameters
    ----------
    script, arguments : Path and tuple of str
    folder : Path
        For results, facts and journals.
    limit : int
        Passes of a run at most.
    device : str
        ``spark.vispark.device``; the program's own where it is empty.
    timeout : float, optional
        Seconds for a run.
    """

    def __init__(self, script: Path, arguments: tuple[str, ...], folder: Path, limit: int, device: str = "",
                 timeout: float | None = None):
        self._script, self._arguments, self._folder = script, arguments, folder
        self._limit, self._device, self._timeout = limit, device, timeout
        self._number, self._reference = 0, None

    _reference: list[StatementResults] | None

    def run(self, setting: Setting) -> TuneRun:
        """Run the program under a setting, and compare its results with those of the first run."""
        self._number += 1
        results, facts, journal = (self._folder / f"{self._number}.{kind}" for kind in ("results", "facts", "journal"))
        conf = dict(setting.conf) | {"spark.vispark.journal": str(journal)}
        conf |= {"spark.vispark.device": self._device} if self._device else {}
        document = asdict(setting) | {"conf": sorted(conf.items())}
        line = [sys.executable, "-m", "vispark.migrate.tune.tune_runner", str(results), str(facts),
                json.dumps(document), str(self._limit), str(self._script), *self._arguments]
        try:
            with surroundings(self._script, os.getcwd(), self._device or "auto"):
                ended = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                       timeout=self._timeout)
        except subprocess.TimeoutExpired:
            return TuneRun(setting, failed=f"it did not end within {self._timeout:g} s")
        if ended.returncode:
            output = [each for each in (ended.stderr or ended.stdout).splitlines() if each.strip()]
            errors = [each for each in output if re.match(r"[A-Za-z_][\w.]*: ", each)] or output
            return TuneRun(setting, failed=errors[-1] if errors else f"status {ended.returncode}")
        return self._measured(setting, statement_results(results), facts_of(facts, journal))

    def _measured(self, setting: Setting, results: list[StatementResults], facts: RunFacts) -> TuneRun:
        load, passes = times_of(results)
        verdict = ""
        if self._reference is None:
            self._reference = results
        else:
            tolerance = Tolerance(allow_narrower=setting.float32)
            verdict = validated(self._reference, [], results, tolerance).verdict
        if not results:
            return TuneRun(setting, failed="it has no statement with an action, whose times could be compared")
        return TuneRun(setting, load, passes, verdict, "", facts)


def times_of(results: list[StatementResults]) -> tuple[float, tuple[float, ...]]:
    """Return the seconds until the first result of the loop, and those between its later ones.

    The loop is the statement with the most results; of a program without one all is loading.

    Examples
    --------
    >>> loop, after = ("", "w"), ("", "n")
    >>> times_of([StatementResults(loop, 7, (1, 2, 3), (2.0, 2.5, 3.5)), StatementResults(after, 9, (1,), (4,))])
    (2.0, (0.5, 1.0))
    """
    loop = max((each for each in results if each.line), key=lambda each: len(each.seconds), default=None)
    if loop is None or not loop.seconds:
        return 0.0, ()
    if len(loop.seconds) == 1:
        return max(each.seconds[-1] for each in results if each.line and each.seconds), ()
    return loop.seconds[0], tuple(after - before for before, after in zip(loop.seconds, loop.seconds[1:], strict=False))


def facts_of(path: Path, journal: Path) -> RunFacts:
    """Return the facts that a run wrote, with the operations of its journal."""
    written = json.loads(path.read_text(encoding="utf-8"))
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return RunFacts(written.get("master", ""), written["cores"], written.get("parallelism", 1),
                    tuple(SourceCall(*each) for each in written["sources"]),
                    tuple((line, kind, wide, block) for line, kind, wide, block in written["cached"]),
                    frozenset(name for line in lines for name in json.loads(line)["operations"]),
                    written.get("conf", {}), written["is_cut"])


def _keep(history: History, script: Path, answer: TuneAnswer) -> None:
    job = keep_source(history, script, script.read_text(encoding="utf-8"))
    tried = [each.run for each in answer.outcomes if each.run is not None]
    for run in [answer.base, *([answer.again] if answer.again is not answer.base else []), *tried]:
        history.add_run(job, kind="tune", state="failed" if run.failed else "done", conf=run.setting.as_json(),
                        seconds=None if run.failed else run.seconds())


def _document(answer: TuneAnswer, passes: int | None) -> dict[str, Any]:
    def as_json(run: TuneRun) -> dict[str, Any]:
        return {"setting": run.setting.as_json(), "seconds": None if run.failed else run.seconds(passes),
                "load": run.load, "passes": list(run.passes), "verdict": run.verdict, "failed": run.failed}
    return {"runs": answer.runs, "noise": answer.noise, "stopped": answer.stopped, "as_it_is": as_json(answer.base),
            "best": as_json(answer.best), "recommended": recommendations(answer),
            "tried": [{"knob": each.knob, "change": each.change, "said": each.said,
                       **({"run": as_json(each.run)} if each.run else {})} for each in answer.outcomes]}


def _text(script: Path, answer: TuneAnswer, passes: int | None, has_plans: bool) -> str:
    if answer.base.failed or answer.again.failed:
        return f"{script.name}: {answer.stopped}"
    base = answer.base
    ran = len(base.passes) + 1
    count = f"{ran} passes" if passes is None else f"{passes} passes, {ran} of them run"

    def shown(run: TuneRun) -> str:
        return "" if run.failed else f"{run.seconds(passes):.3g} s"

    lines = [f"{script.name}: {answer.runs} runs, {count}; as it is {shown(base)} and {shown(answer.again)}"]
    for outcome in answer.outcomes:
        change = f"{outcome.knob} {outcome.change}".rstrip()
        lines.append(f"  {change:32}  {shown(outcome.run) if outcome.run else '':>8}  {outcome.said}".rstrip())
    lines.append(f"  {answer.stopped}")
    if not has_plans:
        lines.append("no plan of vispark's ran: vispark port makes a program that has some")
    recommended = recommendations(answer)
    lines += [f"recommended, {shown(answer.best)}:", *(f"  {each}" for each in recommended)] if recommended else \
        ["nothing is better than it is"]
    return "\n".join(lines)
