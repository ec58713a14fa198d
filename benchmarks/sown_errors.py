"""Errors sown into ported programs that run on Spark and on workers, and correct runs that are to raise no alarm.

``python -m benchmarks.sown_errors --out FILE``: each program of ``benchmarks/sown`` runs on the CPU twice, the second
time with other partitions, and is ported by ``vispark port``. Then its port runs many times, with an error or correct
in another way, and each run's results are compared as ``vispark validate`` does. A line of JSON a run.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from benchmarks import machine
from benchmarks.session import context, environment
from vispark.errors import VisparkError
from vispark.migrate.capture.stored_results import opened_results
from vispark.migrate.commands.validate_command import compared_results
from vispark.migrate.port.ported_program import port
from vispark.migrate.record.result_recorder import run
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.validate.compare import DIFFERS, NOT_KNOWN, Tolerance
from vispark.migrate.validate.noise import dealt_anew
from vispark.migrate.validate.validation import StatementResults, Validation, validated

FOLDER = Path(__file__).parent / "sown"
_DATA = "data = sc.parallelize(_rows, 4)"
#: Errors that one which is sown may end a program with.
ENDS = (ArithmeticError, LookupError, TypeError, ValueError, VisparkError)
#: Errors in the data: statements between making it and sending it. ``i`` and ``j`` are drawn, ``k`` is a column.
OF_DATA = {
    "a record is dropped": "del _rows[{i}]",
    "the last record is left out": "del _rows[-1]",
    "a record is there twice": "_rows.insert({i}, _rows[{i}])",
    "a record stands for another": "_rows[{i}] = _rows[{j}] * 1.0001",
    "a partition is lost": "del _rows[{q}:{q} + 60]",
    "a partition is lost and another doubled": "_rows[{q}:{q} + 60] = _rows[({q} + 60) % 240:][:60]",
    "values of two records are swapped": "_rows[{i}], _rows[{j}] = (np.append(_rows[{i}][:2], _rows[{j}][2:]), "
                                         "np.append(_rows[{j}][:2], _rows[{i}][2:]))",
    "a sign": "_rows[{i}] = np.where(np.arange(4) == {k}, -_rows[{i}], _rows[{i}])",
    "one NaN": "_rows[{i}] = np.where(np.arange(4) == {k}, np.nan, _rows[{i}])",
    "one infinity": "_rows[{i}] = np.where(np.arange(4) == {k}, np.inf, _rows[{i}])",
    "one value is 1e-6 off": "_rows[{i}] = np.where(np.arange(4) == {k}, _rows[{i}] * (1 + 1e-6) + 1e-6, _rows[{i}])",
    "data in float32": "_rows = [each.astype(np.float32).astype(np.float64) for each in _rows]",
    "data in float16": "_rows = [each.astype(np.float16).astype(np.float64) for each in _rows]",
}
#: Errors in the text: what stands there, and what in its place.
OF_TEXT = {
    "a pass too few": ("range(4)", "range(3)"),
    "a pass too many": ("range(4)", "range(5)"),
    "the fold forgets": ("a + b)", "b)"),
    "the fold is 1e-9 off": ("a + b)", "a + b * (1 + 1e-9))"),
    "the fold subtracts": ("a + b)", "a - b)"),
    "a sum by key is off": ("a[0] + b[0]", "a[0] + b[0] * (1 + 1e-9)"),
    "a sum by key forgets": ("a[1] + b[1]", "b[1]"),
    "the constant is off by one": ("240", "239"),
    "the step's sign": ("w = w - ", "w = w + "),
    "the step is 1e-9 off": ("w = w - ", "w = w * (1 + 1e-9) - "),
    "the row begins one later": ("p[1:]", "p[[0, 1, 2, 3]]"),
    "weights in float32": ("range(4):\n", "range(4):\n    w = (w * (1 / 3)).astype(np.float32) * 3.0\n"),
    "the function's constant is off": ("np.tanh(", "1.000001 * np.tanh("),
    "squares are of the size": ("** 2", "** 2.000001"),
    "the key is one off": ("best, least = i, distance", "best, least = min(i + 1, 2), distance"),
    "the nearest is the farthest": ("distance < least", "distance > least or i == 0"),
}
#: Errors in one pass: statements that end the body of the loop there. ``n`` is the pass.
OF_PASSES = {
    "a stale pass": "    if _number == {n}: {v} = _before\n    _before = {v}\n",
    "a pass is done from the beginning": "    if _number == {n}: {v} = _first\n",
}


@dataclass(frozen=True)
class SownProgram:
    """Program of PySpark's and its port, as texts."""

    name: str
    text: str
    ported: str

    @staticmethod
    def read(path: Path) -> SownProgram:
        """Return a program with what ``vispark port`` makes of it by its source."""
        answer = port(SourceProgram.read(path))
        if not answer.loops:
            raise click.ClickException(f"{path} is not ported: {answer.refused}")
        return SownProgram(path.stem, path.read_text(encoding="utf-8"), answer.text)

    def errors(self) -> list[str]:
        """Return the kinds of errors that there are for it."""
        state = "centres" if self.name == "kmeans" else "w"
        # A swap within a cluster changes no sum of K-means.
        of_data = [kind for kind in OF_DATA if self.name != "kmeans" or "swapped" not in kind]
        return [*of_data, *(kind for kind, (before, after) in OF_TEXT.items() if before in self.ported
                            and (self.name != "kmeans" or "w" not in after.split())),
                *(OF_PASSES if f"\n{state} = " in self.ported else ())]

    def with_error(self, kind: str, rng: random.Random) -> str:
        """Return the port with an error of a kind."""
        i = rng.randrange(240)
        # The next one is of another cluster, and has another label and another key.
        j = (i + 1) % 240
        drawn = {"i": i, "j": j, "k": rng.randrange(1, 4), "q": 60 * rng.randrange(3), "n": rng.randrange(1, 4)}
        if kind in OF_DATA:
            return self._before_data(OF_DATA[kind].format(**drawn))
        if kind in OF_TEXT:
            before, after = OF_TEXT[kind]
            return self.ported.replace(before, after)
        state = "centres" if self.name == "kmeans" else "w"
        text = self.ported.replace("for _number in", f"_first = _before = {self._copied(state)}\nfor _number in")
        return text.rstrip("\n") + "\n" + OF_PASSES[kind].format(v=state, **drawn).replace(
            f"_before = {state}", f"_before = {self._copied(state)}")

    def _copied(self, state: str) -> str:
        return f"list({state})" if state == "centres" else f"{state}.copy()"

    def correct(self, rng: random.Random) -> tuple[str, str, bool]:
        """Return the port that is correct in another way, in what way, and whether it is narrower."""
        partitions, kind = rng.randrange(1, 12), rng.randrange(4)
        text = self.ported.replace(_DATA, _DATA.replace("4", str(partitions)))
        change = f"{partitions} partitions"
        if kind == 1 and self.name != "scores":
            seed = rng.randrange(1000)
            return text.replace("data = sc", f"_rows = [_rows[_i] for _i in np.random.default_rng({seed})"
                                ".permutation(240)]\ndata = sc", 1), f"{change}, another order", False
        if kind == 2:
            return text.replace("data = sc", "_rows = [_each.astype(np.float32) for _each in _rows]\ndata = sc", 1), \
                f"{change}, float32 is allowed", True
        if kind == 3 and ".reduce(" in text:
            return text.replace(".reduce(", ".treeReduce("), f"{change}, treeReduce", False
        return text, change, False

    def _before_data(self, statement: str) -> str:
        return self.ported.replace("data = sc", f"{statement}\ndata = sc", 1)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Have PySpark, NumPy and this process be as they were when the block ends, though a recorded run changed them."""
    names = [(SparkContext, ("parallelize", "textFile", "range")), (np.random, ("default_rng",)),
             (RDD, ("takeSample", "sample", "randomSplit", "sampleByKey", "sortByKey", "mapPartitionsWithIndex")),
             (SparkSession.Builder, ("getOrCreate",))]
    before = [(owner, name, getattr(owner, name)) for owner, each in names for name in each]
    main_module, path = sys.modules["__main__"], list(sys.path)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        sys.modules["__main__"], sys.path[:] = main_module, path


def results_of(text: str, folder: Path, name: str, more: int = 0) -> list[StatementResults]:
    """Return the results of a program, which runs in this process and on its context."""
    script, results = folder / f"{name}.py", folder / f"{name}.results"
    script.write_text(text, encoding="utf-8")
    with _as_it_was(), opened_results(results) as file:
        run(script, file, more, None)
    return compared_results(results)


def counted(reference: list[StatementResults], other: list[StatementResults]) -> list[tuple[int, ...]]:
    """Return the number of passes and records of each side, which is all that comparisons of row counts see."""
    return [tuple(sum(_records(value.value()) for value in each.values) for each in side if not each.sources)
            for side in (reference, other)]


def _records(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


class PortCampaign:
    """Runs of ports against their programs, each of which is a line of the record."""

    def __init__(self, folder: Path, record: Any):
        self._folder, self._record, self._number = folder, record, 0
        self.lines: list[dict[str, Any]] = []
        self._references: dict[str, tuple[list[StatementResults], list[StatementResults]]] = {}

    def run(self, program: SownProgram, text: str, sown: str, way: str, narrower: bool = False) -> None:
        """Run a port, compare it, and note what came of it."""
        if program.name not in self._references:
            self._references[program.name] = (results_of(program.text, self._folder, f"{program.name}-cpu"),
                                              results_of(program.text, self._folder, f"{program.name}-again",
                                                         dealt_anew(0)))
        reference, again = self._references[program.name]
        self._number += 1
        began = time.monotonic()
        failed = ""
        try:
            other = results_of(text, self._folder, "port")
        except ENDS as error:
            failed = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            other = []
        validation = validated(reference, again, other, Tolerance(0.0, allow_narrower=narrower))
        line = {"number": self._number, "program": program.name, "sown": sown, "way": way, "failed": failed,
                "verdict": "failed" if failed else validation.verdict, "seconds": round(time.monotonic() - began, 3),
                "row_counts_differ": not failed and len(set(counted(reference, other))) > 1, **_where(validation)}
        self.lines.append(line)
        self._record.write(json.dumps(line) + "\n")
        self._record.flush()


def _where(validation: Validation) -> dict[str, Any]:
    """Return the place of the first difference."""
    differing = [(each.first, not each.reference.line, each) for each in validation.statements if each.first]
    if not differing:
        return {"worst": max((each.worst for each in validation.statements), default=0.0)}
    number, _, statement = min(differing, key=lambda each: (each[1], each[0]))
    one = statement.passes[number - 1]
    return {"statement": statement.reference.name[1], "pass": number, "place": str(one.place or ""), "why": one.why}


def summary(lines: list[dict[str, Any]]) -> str:
    """Return the outcome of a campaign, as a few lines."""
    sown = [each for each in lines if each["sown"]]
    correct = [each for each in lines if not each["sown"]]
    is_found = [each["verdict"] in (DIFFERS, "failed") for each in sown]
    alarms = [each for each in correct if each["verdict"] in (DIFFERS, NOT_KNOWN, "failed")]
    missed = Counter((each["program"], each["sown"]) for each, one in zip(sown, is_found, strict=True) if not one)
    verdicts = Counter(each["verdict"] for each in correct)
    return "\n".join([
        f"{len(sown)} errors of {len({each['sown'] for each in sown})} kinds in {len({e['program'] for e in sown})} "
        f"programs: {sum(is_found)} found, {sum(each['row_counts_differ'] for each in sown)} by row counts",
        *(f"  missed: {program}: {kind}, {count} times" for (program, kind), count in missed.items()),
        f"{len(correct)} correct runs: {len(alarms)} alarms; "
        + ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items()),
        *(f"  alarm: {each['program']}: {each['way']}: {each.get('why', each['failed'])}" for each in alarms)])


@click.command(help=__doc__)
@click.option("--errors", default=200, show_default=True, help="Runs with an error.")
@click.option("--correct", default=200, show_default=True, help="Runs without one.")
@click.option("--only", default="", help="A part of the programs' names.")
@click.option("--device", default="host", show_default=True, help="As spark.vispark.device.")
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Lines of JSON.")
def main(errors: int, correct: int, only: str, device: str, seed: int, out: Path) -> None:
    rng = random.Random(seed)
    with environment(), context(device, 2), tempfile.TemporaryDirectory(prefix="vispark-sown-") as place, \
            out.open("w", encoding="utf-8") as record:
        programs = [SownProgram.read(path) for path in sorted(FOLDER.glob("*.py"))
                    if not path.stem.startswith("_") and only in path.stem]
        record.write(json.dumps({"machine": machine.description(), "seed": seed}) + "\n")
        campaign = PortCampaign(Path(place), record)
        kinds = [(program, kind) for program in programs for kind in program.errors()]
        rng.shuffle(kinds)
        for number in range(errors):
            program, kind = kinds[number % len(kinds)]
            campaign.run(program, program.with_error(kind, rng), kind, "")
        for number in range(correct):
            program = programs[number % len(programs)]
            text, way, narrower = program.correct(rng)
            campaign.run(program, text, "", way, narrower)
    click.echo(summary(campaign.lines))
    is_right = all((each["verdict"] in (DIFFERS, "failed")) == bool(each["sown"]) for each in campaign.lines)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
