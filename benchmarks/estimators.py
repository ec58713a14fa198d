"""Fits of vispark.ml beside MLlib's and scikit-learn's: seconds, and processor seconds of all processes.

``python -m benchmarks.estimators [DEVICE [ROWS [FEATURES [FILE [SECONDS]]]]]`` prints a table, and keeps the samples as
JSON. MLlib and vispark fit the same DataFrame, which Spark has cached, with the same parameters, scikit-learn the same
numbers as NumPy arrays, and jitted JAX does the same passes over them on a GPU, where it is installed. MLlib has had a
short fit before; vispark's "first" loads what is not loaded yet and compiles. Processor seconds are those of the
driver, the JVM, Python workers and device processes. After SECONDS no further estimator begins.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.ml import classification, clustering, feature, recommendation, regression
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from benchmarks import jax_fits, machine
from benchmarks.measure import Series
from benchmarks.results import Group, document
from vispark.ml import classification as our_classification
from vispark.ml import clustering as our_clustering
from vispark.ml import decomposition, loads
from vispark.ml import feature as our_feature
from vispark.ml import recommendation as our_recommendation
from vispark.ml import regression as our_regression

try:
    from benchmarks import scikit
except ModuleNotFoundError:
    scikit = None

MARK = "VISPARK_BENCHMARK_RUN"

#: Fits of each that are timed.
_FITS = 2


@dataclass(frozen=True)
class Contest:
    """Estimator of both, by name, with parameters and the data that it is fitted to."""

    name: str
    ours: Any
    theirs: Any
    params: dict[str, Any]
    data: str = "points"


CONTESTS = [
    Contest("Word2Vec", our_feature, feature, {"vectorSize": 32, "maxIter": 1, "numPartitions": 64, "seed": 1,
                                               "minCount": 1, "inputCol": "words"}, "sentences"),
    Contest("GaussianMixture", our_clustering, clustering, {"k": 3, "maxIter": 5, "seed": 1}),
    Contest("LogisticRegression", our_classification, classification, {"labelCol": "class", "maxIter": 10}),
    Contest("LinearSVC", our_classification, classification, {"labelCol": "class", "maxIter": 10}),
    Contest("FMClassifier", our_classification, classification, {"labelCol": "class", "maxIter": 5}),
    Contest("LinearRegression", our_regression, regression, {"regParam": 0.1, "elasticNetParam": 0.5}),
    Contest("GeneralizedLinearRegression", our_regression, regression, {"family": "gaussian", "link": "log",
                                                                       "labelCol": "positive", "maxIter": 5}),
    Contest("FMRegressor", our_regression, regression, {"maxIter": 5}),
    Contest("KMeans", our_clustering, clustering, {"k": 10, "maxIter": 10, "seed": 1}),
    Contest("BisectingKMeans", our_clustering, clustering, {"k": 4, "maxIter": 5, "seed": 1}),
    Contest("PCA", our_feature, feature, {"k": 3, "inputCol": "features", "outputCol": "out"}),
    Contest("StandardScaler", our_feature, feature, {"inputCol": "features", "outputCol": "out"}),
    Contest("MinMaxScaler", our_feature, feature, {"inputCol": "features", "outputCol": "out"}),
    Contest("MaxAbsScaler", our_feature, feature, {"inputCol": "features", "outputCol": "out"}),
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


@dataclass(frozen=True)
class Data:
    """The same data for all: cached DataFrames by name, and rows with their labels as arrays."""

    frames: dict[str, DataFrame]
    rows: np.ndarray
    labels: dict[str, np.ndarray]


def drawn(spark: SparkSession, rows: int, features: int) -> Data:
    """Return the data: vectors with labels, and ratings."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, features)) + 3 * rng.integers(0, 3, rows)[:, None]
    y = x @ rng.normal(size=features) / features
    labels = {"label": y, "class": (y > np.median(y)).astype(float), "positive": np.exp(y / 9)}
    points = spark.createDataFrame(
        spark.sparkContext.parallelize([(*map(float, each), Vectors.dense(row)) for *each, row
                                        in zip(*labels.values(), x, strict=True)], 2),
        [*labels, "features"]).cache()
    ids = rng.integers(0, max(rows // 50, 2), (rows, 2)).tolist()
    ratings = spark.createDataFrame([(user, item, float((user * item) % 5)) for user, item in ids],
                                    ["user", "item", "rating"]).cache()
    words = np.char.add("w", rng.zipf(1.3, (rows // 20, 20)).clip(max=5000).astype(str))
    sentences = spark.createDataFrame([(each,) for each in words.tolist()], ["words"]).repartition(64).cache()
    for frame in (points, ratings, sentences):
        frame.count()
    return Data({"points": points, "ratings": ratings, "sentences": sentences}, x, labels)


def sampled(mark: str, name: str, fit: Callable[[], object], **notes: Any) -> Series:
    """Return the seconds of some fits, with processor seconds among the notes."""
    found = [spent(mark, fit) for _ in range(_FITS)]
    return Series(name, tuple(wall for wall, _ in found), notes={
        "cpu_seconds": [cpu for _, cpu in found], "fewer_samples": f"{_FITS} fits take long enough", **notes})


def compared(mark: str, data: Data, contest: Contest) -> Group:
    """Return the samples of one estimator."""
    frame = data.frames[contest.data]
    theirs, ours = (getattr(module, contest.name)(**contest.params) for module in (contest.theirs, contest.ours))
    theirs.fit(frame.limit(50))
    first = spent(mark, lambda: ours.fit(frame))
    series = [sampled(mark, "MLlib", lambda: theirs.fit(frame)),
              sampled(mark, "vispark", lambda: ours.fit(frame), first_fit=list(first))]
    group = Group(contest.name, {"rows": len(data.rows), "features": data.rows.shape[1], **contest.params}, series)
    if scikit is not None and contest.name in scikit.FITS:
        series.append(sampled(mark, "scikit-learn", lambda: scikit.fit(contest.name, data.rows, data.labels)))
    else:
        group.skipped["scikit-learn"] = "it has none" if scikit is not None else "not installed"
    if jax_fits.found() and contest.name in jax_fits.PASSES:
        passes = jax_fits.on_gpu(contest.name, data.rows, data.labels["class"])
        passes()
        series.append(sampled(mark, "JAX", passes))
    return group


def factors(mark: str, data: Data) -> Group:
    """Return the samples of NMF, which MLlib does not have, of features scaled to 0 to 1."""
    loads.unload()
    scaled = our_feature.MinMaxScaler(inputCol="features", outputCol="scaled").fit(data.frames["points"]).transform(
        data.frames["points"]).select("scaled").cache()
    fit = decomposition.NMF(k=4, inputCol="scaled", maxIter=5)
    first = spent(mark, lambda: fit.fit(scaled))
    return Group("NMF", {"rows": len(data.rows), "features": data.rows.shape[1], "k": 4, "maxIter": 5},
                 [sampled(mark, "vispark", lambda: fit.fit(scaled), first_fit=list(first))],
                 skipped={"MLlib": "it has none"})


def row(group: Group) -> str:
    """Return a line of the table: medians of seconds and of processor seconds."""
    found = {each.name: (each.median, statistics.median(each.notes["cpu_seconds"])) for each in group.series}
    shown = [f"{found[name][0]:.2f}, {found[name][1]:.2f}" if name in found else "not there"
             for name in ("MLlib", "scikit-learn", "JAX", "vispark")]
    first = next(each.notes["first_fit"] for each in group.series if each.name == "vispark")
    ratio = "" if "MLlib" not in found else (f"{found['MLlib'][0] / found['vispark'][0]:.1f}, "
                                             f"{found['MLlib'][1] / max(found['vispark'][1], 0.01):.1f}")
    return f"| {group.name} | {' | '.join(shown)}; first {first[0]:.2f}, {first[1]:.2f} | {ratio} |"


def marked(module: str) -> str:
    """Return the mark of the processes of this run; where it has none, start a module's program anew with one."""
    if MARK not in os.environ:
        # Each process that is started from here on has the mark, and this one too, as it is started anew.
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]],
                  {"PYSPARK_PYTHON": sys.executable, **os.environ, MARK: uuid.uuid4().hex})
    return os.environ[MARK]


@click.command(help=__doc__)
@click.argument("device", default="host")
@click.argument("rows", type=int, default=100_000)
@click.argument("features", type=int, default=20)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("seconds", type=float, default=float("inf"))
def main(device: str, rows: int, features: int, file: Path | None, seconds: float) -> None:
    mark = marked("benchmarks.estimators")
    conf = SparkConf().set("spark.vispark.device", device).set("spark.ui.enabled", "false") \
        .set("spark.ui.showConsoleProgress", "false").set("spark.driver.memory", "8g")
    groups = []
    about = {"command": ["python", "-m", "benchmarks.estimators", device, str(rows), str(features)], "scale": "small",
             "device": device, "machine": machine.description(), **machine.commit()}
    with SparkContext("local[*]", "estimators", conf=conf) as sc:
        sc.setLogLevel("ERROR")
        data, begin = drawn(SparkSession(sc), rows, features), time.monotonic()
        print("| estimator | MLlib s, cpu s | scikit-learn s, cpu s | JAX s, cpu s | vispark s, cpu s "
              "| MLlib / vispark s, cpu |\n|---|---|---|---|---|---|", flush=True)
        for make in (*(partial(compared, contest=contest) for contest in CONTESTS), factors):
            if time.monotonic() - begin > seconds:
                print("no time is left for the others")
                break
            groups.append(make(mark, data))
            print(row(groups[-1]), flush=True)
            if file:
                file.write_text(json.dumps(document(groups, **about), indent=1) + "\n")


if __name__ == "__main__":
    main()
