"""Fits of vispark.ml beside MLlib's: seconds, and processor seconds of all processes.

``python -m benchmarks.estimators [DEVICE [ROWS [FEATURES]]]`` prints a table. Both fit the same DataFrame, which Spark
has cached, with the same parameters. MLlib has had a short fit before; vispark's "first" loads what is not loaded yet
and compiles. Processor seconds are those of the driver, the JVM, Python workers and device processes.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.ml import classification, clustering, feature, recommendation, regression
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from vispark.ml import classification as our_classification
from vispark.ml import clustering as our_clustering
from vispark.ml import decomposition, loads
from vispark.ml import feature as our_feature
from vispark.ml import recommendation as our_recommendation
from vispark.ml import regression as our_regression

_MARK = "VISPARK_BENCHMARK_RUN"


@dataclass(frozen=True)
class Contest:
    """Estimator of both, by name, with parameters and the data that it is fitted to."""

    name: str
    ours: Any
    theirs: Any
    params: dict[str, Any]
    data: str = "points"


CONTESTS = [
    Contest("LogisticRegression", our_classification, classification, {"labelCol": "class", "maxIter": 10}),
    Contest("LinearSVC", our_classification, classification, {"labelCol": "class", "maxIter": 10}),
    Contest("FMClassifier", our_classification, classification, {"labelCol": "class", "maxIter": 5}),
    Contest("LinearRegression", our_regression, regression, {"regParam": 0.1, "elasticNetParam": 0.5}),
    Contest("GeneralizedLinearRegression", our_regression, regression, {"family": "gaussian", "link": "log",
                                                                       "labelCol": "positive", "maxIter": 5}),
    Contest("FMRegressor", our_regression, regression, {"maxIter": 5}),
    Contest("KMeans", our_clustering, clustering, {"k": 10, "maxIter": 10, "seed": 1}),
    Contest("BisectingKMeans", our_clustering, clustering, {"k": 4, "maxIter": 5, "seed": 1}),
    Contest("GaussianMixture", our_clustering, clustering, {"k": 3, "maxIter": 5, "seed": 1}),
    Contest("PCA", our_feature, feature, {"k": 3, "inputCol": "features", "outputCol": "out"}),
    Contest("StandardScaler", our_feature, feature, {"inputCol": "features", "outputCol": "out"}),
    Contest("ALS", our_recommendation, recommendation, {"rank": 8, "maxIter": 3, "seed": 1}, "ratings"),
]


def processor_seconds(mark: str) -> float:
    """Return the processor time of all processes that have a mark in their environment, and of their dead children."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    ticks += sum(map(int, (entry / "stat").read_text().rpartition(")")[2].split()[11:15]))
            except OSError:
                continue
    return ticks / os.sysconf("SC_CLK_TCK")


def spent(mark: str, work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of a call."""
    begin, processor = time.perf_counter(), processor_seconds(mark)
    work()
    return time.perf_counter() - begin, processor_seconds(mark) - processor


def frames(spark: SparkSession, rows: int, features: int) -> dict[str, DataFrame]:
    """Return the cached data: vectors with labels, and ratings."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, features)) + 3 * rng.integers(0, 3, rows)[:, None]
    y = x @ rng.normal(size=features) / features
    points = spark.createDataFrame(
        spark.sparkContext.parallelize([(float(label), float(label > np.median(y)), float(np.exp(label / 9)),
                                         Vectors.dense(row)) for label, row in zip(y, x, strict=True)], 2),
        ["label", "class", "positive", "features"]).cache()
    ids = rng.integers(0, max(rows // 50, 2), (rows, 2)).tolist()
    ratings = spark.createDataFrame([(user, item, float((user * item) % 5)) for user, item in ids],
                                    ["user", "item", "rating"]).cache()
    for frame in (points, ratings):
        frame.count()
    return {"points": points, "ratings": ratings}


def measured(mark: str, data: dict[str, DataFrame]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| estimator | MLlib s, cpu s | vispark s, cpu s | ratio s, cpu |"
    yield "|---|---|---|---|"
    for contest in CONTESTS:
        frame = data[contest.data]
        theirs, ours = (getattr(module, contest.name)(**contest.params) for module in (contest.theirs, contest.ours))
        theirs.fit(frame.limit(50))
        load = spent(mark, lambda ours=ours, frame=frame: ours.fit(frame))
        (wall, cpu), (our_wall, our_cpu) = (spent(mark, lambda one=one, frame=frame: one.fit(frame))
                                            for one in (theirs, ours))
        yield (f"| {contest.name} | {wall:.2f}, {cpu:.2f} | {our_wall:.2f}, {our_cpu:.2f}; first "
               f"{load[0]:.2f}, {load[1]:.2f} | {wall / our_wall:.1f}, {cpu / max(our_cpu, 0.01):.1f} |")
    loads.unload()
    wall, cpu = spent(mark, lambda: decomposition.NMF(k=4, inputCol="features", maxIter=5).fit(
        our_feature.MinMaxScaler(inputCol="features", outputCol="scaled").fit(data["points"])
        .transform(data["points"]).select(data["points"]["label"], "scaled").withColumnRenamed("scaled", "features")))
    yield f"| NMF, with MinMaxScaler | not there | {wall:.2f}, {cpu:.2f} | |"


def main(device: str = "host", rows: str = "100000", features: str = "20") -> None:
    """Print the table of all estimators."""
    mark = os.environ[_MARK]
    conf = SparkConf().set("spark.vispark.device", device).set("spark.ui.enabled", "false")
    with SparkContext("local[*]", "estimators", conf=conf) as sc:
        sc.setLogLevel("ERROR")
        for line in measured(mark, frames(SparkSession(sc), int(rows), int(features))):
            print(line, flush=True)


if __name__ == "__main__":
    if _MARK not in os.environ:
        # Each process that is started from here on has the mark, and this one too, as it is started anew.
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.estimators", *sys.argv[1:]],
                  {**os.environ, _MARK: uuid.uuid4().hex})
    main(*sys.argv[1:])
