"""A run of a script that records the results of its actions: a process of its own, started by :mod:`.validate_command`.

``python -m vispark.migrate.record.result_recorder FILE PARTITIONS SAMPLES FLOATS SCRIPT ARGS...``: results go to FILE;
sources get PARTITIONS more than they ask for; SAMPLES is a file whose random samples are given again, or "-"; FLOATS
is "wider", or "-" for those of the program.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from vispark._utils.callers import call_site, user_call
from vispark.migrate.capture.packed_values import whole
from vispark.migrate.capture.stored_results import ResultFile, opened_results, read_results
from vispark.migrate.record.seeded_tasks import seed_tasks
from vispark.migrate.record.shared_jvm import adopt_settings, offer_jvm
from vispark.migrate.record.wider_floats import widen
from vispark.migrate.rules.typed_verdicts import as_dicts
from vispark.migrate.source.derived_statements import is_plain, record_what_is_made
from vispark.migrate.source.statements import RECORD, RecordedStatement, loop_variables, recorded_statements


class _Repeated:
    """Context in which records are drawn that all runs are given again, so that this draw is none of its own."""

    entered, asked = 0, False

    def was_asked(self) -> bool:
        """Return whether records were drawn since this was asked last."""
        was_asked, self.asked = self.asked, False
        return was_asked

    def __enter__(self) -> None:
        self.entered += 1
        self.asked = True

    def __exit__(self, *_: object) -> None:
        self.entered -= 1


_REPEATED = _Repeated()


class _DriversRecorder:
    """Recorder that the program's functions find among its names; in a task it gives values as they are."""

    def __init__(self, record: Callable[[int, Any], Any]) -> None:
        self._record = record

    def __call__(self, number: int, value: Any) -> Any:
        return self._record(number, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("lambda number, value: value",)


def run(script: Path, results: ResultFile, more: int, samples: Iterator[Any] | None) -> None:
    """Run a script as ``__main__``; SystemExit is its own."""
    tree, statements = recorded_statements(script.read_text(encoding="utf-8"), str(script))
    record_what_is_made(tree, statements)
    with_records = set[int]()

    def record(number: int, value: Any) -> Any:
        if sources := statements[number].sources:
            # What there is one of has no order, and what cannot be compared is none of the program's numbers.
            if not with_records.isdisjoint(sources) and is_plain(value):
                results.write("made", [*_head_of(statements[number]), sources], value)
            return value
        if isinstance(value, list | dict) and len(value) > 1:
            with_records.add(number)
        kind = "drawn" if _REPEATED.was_asked() else "sorted" if statements[number].is_sorted else "result"
        results.write(kind, _head_of(statements[number]), value)
        return value

    _seed()
    noted = functools.partial(results.write, "draws", [0, 0, "", ""], None)
    seed_tasks(noted)
    _note_draws(noted)
    _make_more_partitions(more)
    _repeat_samples(results, samples)
    module = ModuleType("__main__")
    module.__file__ = str(script)
    setattr(module, RECORD, _DriversRecorder(record))
    sys.modules["__main__"] = module
    sys.path.insert(0, str(script.parent))
    try:
        exec(compile(tree, str(script), "exec"), module.__dict__)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    finally:
        passing = loop_variables(tree)
        for name, value in list(vars(module).items()):
            if not name.startswith("_") and name not in passing and _has_arrays(value):
                results.write("final", [0, 0, "", name], value)
        results.write("end", [0, 0, "", ""], None)


def _head_of(statement: RecordedStatement) -> list[Any]:
    return [statement.number, statement.line, statement.scope, statement.target]


def _has_arrays(value: Any, depth: int = 3) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    if depth and isinstance(value, list | tuple | dict):
        return any(_has_arrays(each, depth - 1) for each in (value.values() if isinstance(value, dict) else value))
    return False


def _seed() -> None:
    """Have the driver draw the same random numbers in each run, as far as the program does not seed them itself."""
    random.seed(0)
    np.random.seed(0)
    numbers, original = itertools.count(), np.random.default_rng

    def seeded(seed: Any = None) -> np.random.Generator:
        return original(next(numbers) if seed is None else seed)

    np.random.default_rng = seeded


def _make_more_partitions(more: int) -> None:
    """Have SparkContext's sources, and files that a session reads, make more partitions than they are asked for."""
    if not more:
        return
    _cut_files_smaller(more)
    for name, argument in (("parallelize", "numSlices"), ("textFile", "minPartitions"), ("range", "numSlices")):
        original = getattr(SparkContext, name)

        def dealt(self: SparkContext, *args: Any, _original: Callable[..., Any] = original, _argument: str = argument,
                  **options: Any) -> Any:
            bound = inspect.signature(_original).bind(self, *args, **options)
            bound.arguments[_argument] = (bound.arguments.get(_argument) or self.defaultParallelism) + more
            return _original(*bound.args, **bound.kwargs)

        setattr(SparkContext, name, functools.wraps(original)(dealt))


def _cut_files_smaller(more: int) -> None:
    """Have sessions cut files into more parts than there are cores; a small one is a single part otherwise."""
    original = SparkSession.Builder.getOrCreate

    def created(self: SparkSession.Builder) -> SparkSession:
        session = original(self)
        parts = session.sparkContext.defaultParallelism + more
        session.conf.set("spark.sql.files.openCostInBytes", "1")
        session.conf.set("spark.sql.files.minPartitionNum", str(parts))
        return session

    setattr(SparkSession.Builder, "getOrCreate", functools.wraps(original)(created))      # noqa: B010 - as below


def _repeat_samples(results: ResultFile, samples: Iterator[Any] | None) -> None:
    """Write what ``takeSample`` gives, or give what was written: it depends on the partitions."""
    original = RDD.takeSample

    def takeSample(self: RDD[Any], *args: Any, **options: Any) -> Any:
        sample = next(samples, None) if samples is not None else None
        with _REPEATED, call_site(SparkContext.getOrCreate(), user_call()):
            sample = original(self, *args, **options) if sample is None else as_records_of(
                functools.partial(original, self, False, 1, 0), [_writable(each) for each in sample])
        results.write("sample", [0, 0, "", ""], sample)
        return sample

    setattr(RDD, "takeSample", functools.wraps(original)(takeSample))      # noqa: B010 - mypy lets nobody assign to methods


def as_records_of(one: Callable[[], list[Any]], records: list[Any]) -> list[Any]:
    """Return records of a program's RDD as its port's RDD has them: dicts with key and value in place of pairs, if so.

    Parameters
    ----------
    one : callable
        Gives a record of the port's RDD in a list, by a job; it is called where the program's records are pairs.
    records : list
        The program's.
    """
    if not records or not all(isinstance(each, tuple) and len(each) == 2 for each in records):
        return records
    return as_dicts(records) if any(isinstance(each, dict) for each in one()) else records


def _note_draws(noted: Callable[[], None]) -> None:
    """Have RDDs note that they draw records, which depends on the partitions."""
    for name in ("sample", "randomSplit", "sampleByKey"):
        original = getattr(RDD, name)

        def drawn(self: RDD[Any], *args: Any, _original: Callable[..., Any] = original, **options: Any) -> Any:
            if not _REPEATED.entered:
                noted()
            return _original(self, *args, **options)

        setattr(RDD, name, functools.wraps(original)(drawn))
    ranged = RDD.sortByKey

    @functools.wraps(ranged)
    def in_order(self: RDD[Any], *args: Any, **options: Any) -> Any:
        # It samples the keys, by a seed of its own, to deal the ranges.
        _REPEATED.entered += 1
        try:
            return ranged(self, *args, **options)
        finally:
            _REPEATED.entered -= 1

    setattr(RDD, "sortByKey", in_order)      # noqa: B010 - as above


def _writable(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def main(file: str, more: str, samples: str, floats: str, script: str, *args: str) -> None:
    """Run a script, with results to a file that only its user reads, and end its Spark."""
    sys.argv = [script, *args]
    adopt_settings()
    repeated = None if samples == "-" else (whole(frame.result.value()) for frame in read_results(Path(samples))
                                            if frame.kind == "sample")
    try:
        with opened_results(Path(file)) as results:
            if floats == "wider":
                widen(functools.partial(results.write, "wider", [0, 0, "", ""], None))
            run(Path(script).resolve(), results, int(more), repeated)
    finally:
        # A JVM that other runs have, too, takes no second context.
        if (active := SparkContext._active_spark_context) is not None:
            active.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
    offer_jvm()
