"""Programs that shuffle what a VRDD holds, beside the same on Spark's cache: ``python -m benchmarks.shuffles``.

Prints, for each, the median of the seconds with Spark's cache and with vispark's, their ratio (above 1: vispark is the
slower), and how many Python workers the samples used; a Python worker that is given up is the cost looked for.
"""

from __future__ import annotations

import operator
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import click
from pyspark import RDD, SparkContext

import vispark  # noqa: F401 - adds cache("GPU")
from benchmarks import machine
from benchmarks.session import context, environment

#: The vertices of the chain whose transitive closure is looked for, and of how many edges each is the start.
_VERTICES, _STEPS = 60, 3


@dataclass(frozen=True)
class RunCost:
    """Cost of one run of a program: seconds, and the Python workers that Spark started for it."""

    seconds: float
    workers: int


def _pair(x: int) -> tuple[int, int]:
    return x % 3, x


def _keyed(x: int) -> tuple[int, int]:
    return x, x + 1


def _closure(sc: SparkContext, keep: Callable[[RDD], RDD]) -> int:
    """Run the example of PySpark's: paths of length one more in each round, until there are no more."""
    edges = keep(sc.parallelize([(at, at + step) for at in range(_VERTICES) for step in range(1, _STEPS)], 2))
    backwards = edges.map(lambda pair: (pair[1], pair[0]))
    paths, before, count = edges, 0, edges.count()
    while count != before:
        before = count
        longer = paths.join(backwards).map(lambda found: (found[1][1], found[1][0]))
        paths = keep(paths.union(longer).distinct(2))
        count = paths.count()
        if count > _VERTICES * _STEPS * 4:
            break
    return count


def programs(sc: SparkContext, keep: Callable[[RDD], RDD], rows: int) -> dict[str, Callable[[], object]]:
    """Return each program by its name, over ``rows`` numbers that ``keep`` caches."""
    numbers = keep(sc.parallelize(list(range(rows)), 2))
    numbers.count()
    return {
        "reduceByKey": lambda: sorted(numbers.map(_pair).reduceByKey(operator.add).collect()),
        "groupByKey": lambda: sorted(numbers.map(_pair).groupByKey().mapValues(len).collect()),
        "join": lambda: numbers.map(_keyed).join(numbers.map(_keyed)).count(),
        "distinct": lambda: numbers.map(lambda x: x % 7).distinct().count(),
        "sortBy": lambda: numbers.sortBy(lambda x: -x).first(),
        "transitive closure": lambda: _closure(sc, keep),
    }


def measured(sc: SparkContext, program: Callable[[], object]) -> tuple[RunCost, object]:
    """Run a program once; its answer beside what it took."""
    before, began = _started(), time.perf_counter()
    answer = program()
    return RunCost(time.perf_counter() - began, _started() - before), answer


def _started() -> int:
    """Return the number of processes that this machine has started so far: nothing else is to run."""
    with open("/proc/stat", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("processes "))


@click.command(help=__doc__)
@click.option("--rows", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--samples", type=click.IntRange(1), default=3, show_default=True)
@click.option("--device", type=click.Choice(["auto", "host", "cuda"]), default="auto", show_default=True)
@click.option("--only", multiple=True, help="A program's name; may be given several times.")
def main(rows: int, samples: int, device: str, only: tuple[str, ...]) -> None:
    with environment(), context(device, min(2, machine.cores())) as sc:
        plain = programs(sc, RDD.cache, rows)
        ours = programs(sc, lambda rdd: rdd.cache("GPU"), rows)
        print(f"{rows:,} rows, Spark {sc.version}, load {os.getloadavg()[0]:.1f}")
        print(f"{'program':20}{'Spark s':>9}{'vispark s':>11}{'ratio':>7}{'processes':>12}")
        for name in only or plain:
            sides = []
            for program in (plain[name], ours[name]):
                measured(sc, program)
                runs = [measured(sc, program) for _ in range(samples)]
                sides.append((statistics.median(sample.seconds for sample, _ in runs),
                              statistics.median(sample.workers for sample, _ in runs), runs[0][1]))
            (spark, started, expected), (gpu, ours_started, answer) = sides
            assert answer == expected, f"{name}: {answer} for {expected}"
            print(f"{name:20}{spark:9.2f}{gpu:11.2f}{gpu / spark:7.2f}{started:6.0f}{ours_started:6.0f}", flush=True)


if __name__ == "__main__":
    main()
