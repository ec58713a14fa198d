"""Ways that keep blocks in the globals of Spark's Python workers, which live as long as they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark import SparkContext

from benchmarks import machine
from benchmarks.measure import Series
from benchmarks.results import Group
from gpu_worker.device.host.memory import host_memory

#: Most seconds, and iterations, until every Python worker of Spark has met every partition.
_WARM_UP = 25.0, 80

#: What the Python workers together may keep: the JVM, the other ways and the tasks' temporaries need the rest.
_HOST_SHARE, _GPU_SHARE = 0.4, 0.7


@dataclass
class CachedWay:
    """A way that keeps blocks in Spark's Python workers, and how often these had to make one.

    Attributes
    ----------
    job : callable
        Takes what changes from one iteration to the next, and gives a tuple: the result's parts, then the misses.
    """

    job: Callable[[Any], tuple]
    misses: int = 0
    before: int = 0

    def __call__(self, changing: Any) -> Any:
        *results, misses = self.job(changing)
        self.misses += misses
        return results[0] if len(results) == 1 else tuple(results)

    def warm_up(self, changing: Any) -> None:
        """Iterate until nothing is missing, or it takes too long."""
        seconds, iterations = _WARM_UP
        end, before = time.monotonic() + seconds, -1
        for _ in range(iterations):
            if self.misses == before or time.monotonic() > end:
                break
            before = self.misses
            # As a task of one partition may come to any worker, a few iterations without a miss are asked for.
            for _ in range(3):
                self(changing)
        self.before = self.misses

    def noted(self, series: Series) -> Series:
        """Return the samples of this way, with the number of blocks that were made before them, and meanwhile."""
        return replace(series, notes={"blocks_made_before": self.before,
                                      "blocks_made_meanwhile": self.misses - self.before})


def cached_ways(sc: SparkContext, partitions: int, nbytes: int, tasks: dict[str, Callable[[int, Any], tuple]],
                kind: str, group: Group) -> dict[str, CachedWay]:
    """Return the ways for which there is room; the others are put down as skipped.

    Parameters
    ----------
    nbytes : int
        Of all partitions. Any Python worker may get any of them, so that each comes to have all.
    tasks : dict of str to callable
        Takes a partition's number and what changes; gives what :class:`CachedWay` says. Those whose names have
        "Spark-G" keep blocks on the device.
    """
    numbers = sc.parallelize(range(partitions), partitions)
    needed, ways = nbytes * sc.defaultParallelism, {}
    for name, task in tasks.items():
        available = machine.gpus()[0].memory * _GPU_SHARE if kind == "cuda" and "Spark-G" in name else \
            host_memory() * _HOST_SHARE
        if needed > available:
            group.skipped[name] = (f"{sc.defaultParallelism} workers that keep all of it need {needed / 1e9:.0f} GB, "
                                   f"and may take {available / 1e9:.0f}")
        else:
            ways[name] = CachedWay(lambda changing, task=task: numbers.map(
                lambda index: task(index, changing)).reduce(_added))
    return ways


def _added(a: tuple, b: tuple) -> tuple:
    return tuple(one + other for one, other in zip(a, b, strict=True))
