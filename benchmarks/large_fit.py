"""A logistic regression on many rows of a DataFrame: seconds of the load, and milliseconds of an iteration.

``python -m benchmarks.large_fit DEVICE ROWS [FEATURES [CACHED]]``: Spark makes ROWS x FEATURES random numbers, and
caches them first where CACHED is yes. A fit of few and one of more iterations are timed on what is loaded; their
difference is that of the iterations, each of which is an evaluation where the step of length 1 is taken. Behind them
evaluations alone of records of float64, which fits have, and of float32.
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

from benchmarks.session import context, environment
from vispark.data.tables.dataframe import from_dataframe
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


def fits(df: DataFrame) -> None:
    """Print the seconds of a first fit with its load, and the milliseconds of an iteration."""
    first, _ = seconds(lambda: LogisticRegression(maxIter=FEW, tol=0.0).fit(df))
    few, short = min((seconds(lambda: LogisticRegression(maxIter=FEW, tol=0.0).fit(df)) for _ in range(2)),
                     key=operator.itemgetter(0))
    more, long = seconds(lambda: LogisticRegression(maxIter=MORE, tol=0.0).fit(df))
    iterations = len(long.summary.objectiveHistory) - len(short.summary.objectiveHistory)
    print(f"first fit with load {first:.2f} s, a fit of {FEW} iterations {few:.3f} s, of {MORE} {more:.3f} s: "
          f"{(more - few) / max(iterations, 1) * 1e3:.3f} ms an iteration, {iterations} of them", flush=True)


def evaluation(df: DataFrame, dtype: str, rows: int, features: int) -> None:
    """Print the milliseconds of an evaluation of float64 or float32, with bytes a second."""
    fields = {"x": "features", "y": "label", "w": "w"}
    columns = df.select("features", "label", functions.lit(1.0).alias("w"))
    points: Any = from_dataframe(columns, fields, dtype=dict.fromkeys(fields, dtype)).cache("GPU")
    load, _ = seconds(points.count)
    one = np.linspace(-0.1, 0.1, features).astype(dtype), np.dtype(dtype).type(0.1)
    shortest = min(seconds(lambda: totals(points, logistic, *one))[0] for _ in range(7))
    nbytes = rows * (features + 2) * np.dtype(dtype).itemsize
    print(f"{dtype}: load {load:.2f} s, {nbytes / load / 1e9:.2f} GB/s; an evaluation {shortest * 1e3:.3f} ms, "
          f"{nbytes / shortest / 1e12:.3f} TB/s", flush=True)
    points.unpersist()


@click.command(help=__doc__)
@click.argument("device")
@click.argument("rows", type=int)
@click.argument("features", type=int, default=40)
@click.argument("cached", type=bool, default=False)
def main(device: str, rows: int, features: int, cached: bool) -> None:
    cores = len(os.sched_getaffinity(0))
    with environment(), context(device, cores) as sc:
        df = made(SparkSession(sc), rows, features, cores)
        if cached:
            df = df.cache()
            print(f"cached by Spark in {seconds(df.count)[0]:.2f} s", flush=True)
        print(f"{rows:,} x {features} on {device}, {cores} cores", flush=True)
        fits(df)
        loads.unload()
        for dtype in ("float64", "float32"):
            evaluation(df, dtype, rows, features)


if __name__ == "__main__":
    main()
