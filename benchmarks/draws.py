"""Samples and statistics of cached numbers beside plain PySpark's: ``python -m benchmarks.draws [DEVICE [RECORDS]]``.

Both have the same numbers: vispark on the device, PySpark in its own cache. Each line has seconds, processor seconds of
all processes, and Spark jobs of one call; what both find is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import numpy as np
from pyspark import SparkConf, SparkContext

from benchmarks.estimators import marked, spent

#: Calls of a line: the same of a VRDD and of an RDD.
CALLS: dict[str, Callable[[Any, int], Any]] = {
    "sample(False, 0.1, seed), sum": lambda rdd, seed: rdd.sample(False, 0.1, seed).sum(),
    "sample(True, 0.1, seed), sum": lambda rdd, seed: rdd.sample(True, 0.1, seed).sum(),
    "randomSplit([3, 1], seed), counts": lambda rdd, seed: [part.count() for part in rdd.randomSplit([3, 1], seed)],
    "takeSample(False, 100, seed)": lambda rdd, seed: rdd.takeSample(False, 100, seed),
    "zipWithIndex, count": lambda rdd, seed: rdd.zipWithIndex().count(),
    "histogram(20)": lambda rdd, seed: rdd.histogram(20),
    "stats": lambda rdd, seed: rdd.stats(),
}


def jobs(context: SparkContext) -> int:
    """Return the number of jobs that Spark has run."""
    return len(context.statusTracker().getJobIdsForGroup(None))


def measured(mark: str, context: SparkContext, rdd: Any, call: Callable[[Any, int], Any]) -> tuple[str, Any]:
    """Return seconds, processor seconds and jobs of one call, the one after the first, and what it found."""
    answers: list[Any] = []
    call(rdd, 1)
    before = jobs(context)
    wall, cpu = spent(mark, lambda: answers.append(call(rdd, 2)))
    return f"{wall:.2f}, {cpu:.2f}; {jobs(context) - before}", answers[0]


@click.command(help=__doc__)
@click.argument("device", default="host")
@click.argument("records", type=int, default=2_000_000)
def main(device: str, records: int) -> None:
    mark = marked("benchmarks.draws")
    conf = SparkConf().set("spark.vispark.device", device).set("spark.ui.enabled", "false") \
        .set("spark.ui.showConsoleProgress", "false")
    with SparkContext("local[*]", "draws", conf=conf) as context:
        context.setLogLevel("ERROR")
        numbers = np.random.default_rng(1).normal(size=records).tolist()
        plain = context.parallelize(numbers, 4).cache()
        held = context.parallelize(numbers, 4).cache("GPU")
        print(plain.count(), held.count(), "numbers")
        print("| call | PySpark s, cpu s; jobs | vispark s, cpu s; jobs | same |\n|---|---|---|---|")
        for name, call in CALLS.items():
            theirs, expected = measured(mark, context, plain, call)
            ours, drawn = measured(mark, context, held, call)
            same = bool(np.allclose(*(each if isinstance(each, float | list) else 0.0 for each in (drawn, expected)))) \
                if name != "histogram(20)" else drawn == expected
            print(f"| {name} | {theirs} | {ours} | {same} |", flush=True)
        quantile, drawn = measured(mark, context, held, lambda rdd, seed: rdd.quantile([0.1, 0.5, 0.9]))
        same = bool((drawn == np.quantile(numbers, [0.1, 0.5, 0.9])).all())
        print(f"| quantile([0.1, 0.5, 0.9]) | not there | {quantile} | as NumPy's: {same} |")


if __name__ == "__main__":
    main()
