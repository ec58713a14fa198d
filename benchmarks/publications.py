"""Speed at which one application attaches what another one has published, and folds it, against the owner and Spark's
way.

Run as a program, this module is the owner: it publishes as many rows as its first argument says, and answers each line
of its standard input with the seconds that a fold took it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import click
import numpy as np
from pyspark import RDD, SparkContext

import vispark
from benchmarks.measure import Case, interleave, load_seconds
from benchmarks.results import Group
from benchmarks.session import context

NAME = "benchmark rows"
COLUMNS = 8
ROW_BYTES = 4 * COLUMNS

ATTACH, FOLD, OWNER, STORED = "attach", "a fold by a reader", "a fold by the owner", "loaded from Spark's cache instead"


def run(sc: SparkContext, device: str, nbytes: int, samples: int, done: Callable[[str], None]) -> Group:
    """Measure on about so many bytes of float32."""
    count, partitions = nbytes // ROW_BYTES, sc.defaultParallelism
    command = [sys.executable, "-m", "benchmarks.publications", str(count), device, str(partitions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdin is not None and owner.stdout is not None
        ask, heard = owner.stdin, owner.stdout

        def asked() -> float:
            print("fold", file=ask, flush=True)
            return float(heard.readline())

        assert heard.readline() == "published\n"
        first = _attached(sc)
        reader = vispark.attach(sc, NAME)
        group = Group(f"Publications, {count:,} rows", {"rows": count, "columns": COLUMNS, "dtype": "float32",
                                                       "samples": samples, "first attach, s": first})
        group.checks["rows"] = {"equal": reader.count() == count}
        stored = rows(sc, count, partitions).cache()
        stored.count()
        cases = [Case(ATTACH, lambda: _attached(sc), repeat=False, times_itself=True),
                 Case(OWNER, asked, nbytes, repeat=False, times_itself=True),
                 Case(FOLD, lambda: fold(reader), nbytes, (OWNER,), repeat=False, times_itself=True),
                 Case(STORED, lambda: load_seconds(stored.map(lambda row: row)), nbytes, (ATTACH,), repeat=False,
                      times_itself=True)]
        group.series = interleave(cases, samples, done=done)
        reader.unpersist(), stored.unpersist()
        ask.close()
    return group


def rows(sc: SparkContext, count: int, partitions: int) -> RDD[np.ndarray]:
    """Return rows of numbers."""
    return sc.range(0, count, 1, partitions).map(lambda row: np.full(COLUMNS, row % 1000, np.float32))


def fold(points: vispark.VRDD) -> float:
    """Fold rows once, and return the seconds."""
    start = time.perf_counter()
    points.vmap(lambda row: row.sum()).sum()
    return time.perf_counter() - start


def _attached(sc: SparkContext) -> float:
    start = time.perf_counter()
    vispark.attach(sc, NAME)
    return time.perf_counter() - start


@click.command(help=__doc__)
@click.argument("count", type=int)
@click.argument("device")
@click.argument("partitions", type=int)
def main(count: int, device: str, partitions: int) -> None:
    with context(device, partitions) as sc:
        held = rows(sc, count, partitions).cache("GPU").publish(NAME, lease="10s")
        print("published", flush=True)
        for _ in sys.stdin:
            print(fold(held), flush=True)


if __name__ == "__main__":
    main()
