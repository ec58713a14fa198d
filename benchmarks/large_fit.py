"""A logistic regression on many rows of a DataFrame: seconds of the load, and milliseconds of an iteration.

``python -m benchmarks.large_fit DEVICE ROWS [FEATURES [CACHED [HELD]]]``: Spark makes ROWS x FEATURES random numbers,
and caches them first where CACHED is yes. Fits hold them in float64, or in what HELD says. They are loaded as a fit
loads them; a hundredth of as many go through ``df.rdd`` for comparison. A fit of few and one of more iterations are
timed on what is loaded; their difference is that of the iterations, of which the histories of the objective tell how
many there were. Behind them are evaluations alone of the records that fits have and, where those are of float64, of
float32: from the driver, and what of it kernels take.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession, functions

from benchmarks.measure import in_kernels
from benchmarks.session import context, environment
from vispark.ml import loads
from vispark.ml.classes import logistic
from vispark.ml.classification import LogisticRegression
from vispark.ml.moments import totals

FEW, MORE = 2, 22


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def made(spark: SparkSession, rows: int, features: int, cores: int) -> DataFrame:
    """Return rows of a label and a vector."""
    x = functions.array(*(functions.randn(seed) for seed in range(features)))
    df = spark.range(0, rows, 1, cores).select(x.alias("x"), functions.rand(99).alias("u"))
    label = (functions.col("x")[0] - functions.col("x")[1] > functions.col("u")).cast("double")
    return df.select(label.alias("label"), array_to_vector("x").alias("features"))


def load(df: DataFrame, rows: int, features: int) -> Any:
    """Return the records that a fit loads, with the time of their load printed."""
    fields = {"x": loads.plain("features"), "y": loads.number("label"), "w": loads.one()}
    points = loads.load(df, fields, can_round=True)
    taken, _ = seconds(points.count)
    print(f"load {taken:.2f} s: {rows / taken / 1e6:.3f} M rows/s, {rows * (features + 1) * 8 / taken / 1e9:.2f} GB/s",
          flush=True)
    return points


def through_rdd(df: DataFrame, rows: int) -> None:
    """Print how fast cached rows come through ``df.rdd``, once all processes that it takes are there."""
    df.cache().count()
    for _ in range(2):
        points: Any = df.rdd.map(_whole).cache("GPU")
        taken, _ = seconds(points.count)
        points.unpersist()
    print(f"through df.rdd {rows:,} rows in {taken:.2f} s: {rows / taken / 1e6:.3f} M rows/s", flush=True)
    df.unpersist()


def _whole(row: Any) -> np.ndarray:
    return np.concatenate([[row.label], row.features.toArray()])


def fits(df: DataFrame) -> None:
    """Print the milliseconds of an iteration."""
    seconds(lambda: LogisticRegression(maxIter=FEW, tol=0.0).fit(df))
    few, short = min((seconds(lambda: LogisticRegression(maxIter=FEW, tol=0.0).fit(df)) for _ in range(3)),
                     key=operator.itemgetter(0))
    more, long = min((seconds(lambda: LogisticRegression(maxIter=MORE, tol=0.0).fit(df)) for _ in range(3)),
                     key=operator.itemgetter(0))
    iterations = len(long.summary.objectiveHistory) - len(short.summary.objectiveHistory)
    print(f"a fit of {FEW} iterations {few:.3f} s, of {MORE} {more:.3f} s: "
          f"{(more - few) / max(iterations, 1) * 1e3:.3f} ms an iteration, {iterations} of them", flush=True)


def evaluation(points: Any, name: str, rows: int, features: int) -> None:
    """Print the milliseconds of an evaluation, those of its kernels, and bytes a second."""
    dtype = np.dtype(name.rpartition(" ")[2])
    # What is held in float32 is computed with in float64.
    one = np.linspace(-0.1, 0.1, features), np.float64(0.1)
    if name == "float32":
        one = one[0].astype(dtype), dtype.type(0.1)

    def evaluate() -> Any:
        return totals(points, logistic, *one)

    shortest = min(seconds(evaluate)[0] for _ in range(15))
    kernels = min(map(float, (in_kernels(evaluate)() for _ in range(5))))
    wide = dtype if name == "float32" else np.dtype(float)
    nbytes = rows * (features * dtype.itemsize + 2 * wide.itemsize)
    print(f"{name}: an evaluation {shortest * 1e3:.3f} ms, {nbytes / shortest / 1e12:.3f} TB/s; its kernels "
          f"{kernels * 1e3:.3f} ms, {nbytes / kernels / 1e12:.3f} TB/s", flush=True)


def narrowed(x: Any, y: Any, w: Any) -> Any:
    """Return a record in float32."""
    return {"x": x.astype(np.float32), "y": np.float32(y), "w": np.float32(w)}


@click.command(help=__doc__)
@click.argument("device")
@click.argument("rows", type=int)
@click.argument("features", type=int, default=40)
@click.argument("cached", type=bool, default=False)
@click.argument("held", default="float64")
def main(device: str, rows: int, features: int, cached: bool, held: str) -> None:
    cores = len(os.sched_getaffinity(0))
    with environment(), context(device, cores, {"spark.vispark.features": held}) as sc:
        df = made(SparkSession(sc), rows, features, cores)
        if cached:
            df = df.cache()
            print(f"cached by Spark in {seconds(df.count)[0]:.2f} s", flush=True)
        print(f"{rows:,} x {features} on {device}, {cores} cores", flush=True)
        few = max(rows // 100, 1)
        through_rdd(made(SparkSession(sc), few, features, cores), few)
        points = load(df, rows, features)
        fits(df)
        evaluation(points, f"held in {held}", rows, features)
        if held == "float64":
            evaluation(points.vmap(narrowed).cache("GPU"), "float32", rows, features)


if __name__ == "__main__":
    main()
