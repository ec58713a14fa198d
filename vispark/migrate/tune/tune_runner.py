"""A run of a program under a setting of ``vispark tune``: a process of its own, started by :mod:`.tune_command`.

``python -m vispark.migrate.tune.tune_runner RESULTS FACTS SETTING PASSES SCRIPT ARGS...``: results go to RESULTS, facts
of the run to FACTS, both as files; SETTING is JSON; the program ends when a statement has given PASSES results.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

from vispark.api.vrdd import VRDD
from vispark.migrate.capture.stored_results import ResultFile
from vispark.migrate.record.result_recorder import run
from vispark.migrate.tune.search import Setting
from vispark.migrate.tune.tuned_records import block_probe, is_wide, narrowed_blocks, one_block

_SOURCES = {"parallelize": "numSlices", "textFile": "minPartitions", "range": "numSlices"}


class CutResultFile(ResultFile):
    """File of results that ends the program when one statement has given enough of them."""

    def __init__(self, file: Any, passes: int, facts: dict[str, Any]):
        super().__init__(file)
        self._passes, self._facts = passes, facts
        self._results: Counter[int] = Counter()

    def write(self, kind: str, where: list[Any], value: Any) -> None:
        """Write a result, and end the program where that was the last one."""
        # The looks at what is cached are none of the program's.
        self._start += self._facts.pop("looked", 0.0)
        super().write(kind, where, value)
        if kind == "result":
            self._results[where[0]] += 1
            if self._results[where[0]] >= self._passes:
                self._facts["is_cut"] = True
                raise SystemExit


def prepare(script: Path, setting: Setting, facts: dict[str, Any]) -> None:
    """Have programs of this process run under a setting, and note facts of them.

    Parameters
    ----------
    script : Path
        Only what its own lines call is changed.
    setting : Setting
        The knobs.
    facts : dict
        ``sources``, ``cached``, ``master``, ``parallelism`` and ``conf`` are added.
    """
    facts |= {"sources": [], "cached": [], "is_cut": False, "cores": os.cpu_count() or 1}
    _configure(setting, facts)
    for name, argument in _SOURCES.items():
        _source(name, argument, script, setting, facts)
    for name in ("cache", "persist"):
        _cached(name, script, setting, facts)


def _configure(setting: Setting, facts: dict[str, Any]) -> None:
    original, initialized = SparkContext._initialize_context, SparkContext._do_init

    def initialize(self: SparkContext, jconf: Any) -> Any:
        for name, value in setting.conf:
            jconf.set(name, value)
        if setting.partitions is not None:
            jconf.setIfMissing("spark.sql.files.minPartitionNum", str(setting.partitions))
        return original(self, jconf)

    def do_init(self: SparkContext, *args: Any, **options: Any) -> None:
        initialized(self, *args, **options)
        conf = dict(self.getConf().getAll())
        facts.update(master=conf.get("spark.master", ""), parallelism=self.defaultParallelism, conf=conf)

    SparkContext._initialize_context = initialize  # type: ignore[method-assign]
    SparkContext._do_init = do_init  # type: ignore[method-assign]


def _line_of(script: Path) -> int:
    """Return the line of the script that called what called this; 0 where another file did."""
    frame = sys._getframe(2)
    return frame.f_lineno if frame.f_code.co_filename == str(script) else 0


def _source(name: str, argument: str, script: Path, setting: Setting, facts: dict[str, Any]) -> None:
    original = getattr(SparkContext, name)

    @functools.wraps(original)
    def source(self: SparkContext, *args: Any, **options: Any) -> Any:
        line = _line_of(script)
        bound = inspect.signature(original).bind(self, *args, **options)
        if line and setting.partitions is not None:
            bound.arguments[argument] = setting.partitions
        rdd = original(*bound.args, **bound.kwargs)
        if line:
            facts["sources"].append([line, name, rdd.getNumPartitions()])
        return rdd

    setattr(SparkContext, name, source)


def _cached(name: str, script: Path, setting: Setting, facts: dict[str, Any]) -> None:
    original = getattr(RDD, name)

    @functools.wraps(original)
    def cached(self: RDD[Any], *args: Any, **options: Any) -> Any:
        line, level = _line_of(script), next(iter((*args, *options.values())), None)
        if not line or not isinstance(level, str) or isinstance(self, VRDD):
            return original(self, *args, **options)
        before = time.perf_counter()
        kind, wide, is_block = _described(self)
        facts["cached"].append([line, kind, wide, is_block])
        facts["looked"] = facts.get("looked", 0.0) + time.perf_counter() - before
        changed = self
        if setting.float32 and wide:
            changed = changed.mapPartitions(narrowed_blocks)
        if setting.blocks and kind == "array" and not is_block:
            changed = changed.mapPartitions(one_block)
        return original(changed, *args, **options)

    setattr(RDD, name, cached)


def _described(rdd: RDD[Any]) -> tuple[str, bool, bool]:
    """Return the kind of an RDD's records, whether they have float64, and whether they come as Rows."""
    first = next(iter(rdd.take(1)), None)
    is_block = bool(next(iter(rdd.mapPartitions(block_probe).take(1)), False))
    kind = "array" if isinstance(first, np.ndarray) else type(first).__name__
    return kind, is_wide(first), is_block


def main(results: str, facts_file: str, setting: str, passes: str, script: str, *args: str) -> None:
    """Run a script under a setting."""
    sys.argv, path = [script, *args], Path(script).resolve()
    document = json.loads(setting)
    facts: dict[str, Any] = {}
    conf = tuple(map(tuple, document["conf"]))
    prepare(path, Setting(document["partitions"], document["blocks"], document["float32"], conf), facts)
    descriptor = os.open(results, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as output:
            run(path, CutResultFile(output, int(passes), facts), 0, None)
    finally:
        Path(facts_file).write_text(json.dumps(facts), encoding="utf-8")
        if (active := SparkContext._active_spark_context) is not None:
            active.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
