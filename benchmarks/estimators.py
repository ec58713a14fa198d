"""Fits of vispark.ml beside MLlib's and scikit-learn's: seconds, and processor seconds of all processes.

``python -m benchmarks.estimators [DEVICE [ROWS [FEATURES [FILE [SECONDS]]]]]`` prints a table, and keeps the samples as
JSON. MLlib and vispark fit the same DataFrame, which Spark has cached, with the same parameters, scikit-learn the same
numbers as NumPy arrays, and jitted JAX does the same passes over them on a GPU, where it is installed. MLlib has had a
short fit before; vispark's "first" loads what is not loaded yet and compiles. Of hashes and neighbours a search of a
fitted model is timed. Evaluators load the DataFrame of predictions each time, as those of a model are new. Fits of RDDs
(``KMeans.train``) are beside those of pyspark.mllib, and each loads its RDD; ``consensus`` is of records that are on
the devices. Processor seconds are those of the driver, the JVM, Python workers and device processes. The floor of a fit
is as many sums over its rows, by NumPy, as it takes plans. After SECONDS no further estimator begins; ``--only NAME``
leaves out the others, and adds to what FILE has.
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
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.ml import (
    classification,
    clustering,
    evaluation,
    feature,
    pipeline,
    recommendation,
    regression,
    tuning,
)
from pyspark.ml.linalg import Vectors
from pyspark.mllib import clustering as rdd_clustering
from pyspark.mllib import recommendation as rdd_recommendation
from pyspark.mllib.classification import LogisticRegressionWithLBFGS
from pyspark.mllib.regression import LabeledPoint
from pyspark.sql import SparkSession

from benchmarks import jax_fits, machine
from benchmarks.measure import Series
from benchmarks.results import Group, document
from vispark.ml import classification as our_classification
from vispark.ml import clustering as our_clustering
from vispark.ml import decomposition, loads, neighbors
from vispark.ml import evaluation as our_evaluation
from vispark.ml import feature as our_feature
from vispark.ml import pipeline as our_pipeline
from vispark.ml import recommendation as our_recommendation
from vispark.ml import regression as our_regression
from vispark.ml import tuning as our_tuning
from vispark.ml.optim.admm import consensus, losses_by_part
from vispark.runtime.driver.session import Session

try:
    from benchmarks import scikit
except ModuleNotFoundError:
    scikit = None

MARK = "VISPARK_BENCHMARK_RUN"

#: Parts of the data that come to a consensus.
PARTS = 4

#: Fits of each that are timed.
_FITS = 2


@dataclass(frozen=True)
class Contest:
    """Estimator of both, by name, with parameters and the data that it is fitted to; MLlib's may be missing."""

    name: str
    ours: Any
    theirs: Any
    params: dict[str, Any]
    data: str = "points"

    @property
    def searches(self) -> bool:
        """Whether a search of the fitted model is timed, and not the fit."""
        return self.name in ("BucketedRandomProjectionLSH", "MinHashLSH", "NearestNeighbors")

    @property
    def evaluates(self) -> bool:
        """Whether it is a metric of predictions."""
        return self.data == "predictions"

    @property
    def is_of_rdds(self) -> bool:
        """Whether it is a class, or a function, whose data are RDDs."""
        return self.data in ("labelled", "vectors", "rated", "parts")


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
    Contest("BucketedRandomProjectionLSH", our_feature, feature, {
        "bucketLength": 4.0, "numHashTables": 3, "seed": 1, "inputCol": "features", "outputCol": "out"}),
    Contest("MinHashLSH", our_feature, feature, {
        "numHashTables": 3, "seed": 1, "inputCol": "features", "outputCol": "out"}),
    Contest("NearestNeighbors", neighbors, None, {"k": 10, "inputCol": "features"}),
    Contest("NMF", decomposition, None, {"k": 4, "maxIter": 5, "inputCol": "positives"}),
    Contest("Pipeline", our_pipeline, pipeline, {}, "points"),
    Contest("CrossValidator", our_tuning, tuning, {"numFolds": 3, "seed": 1}, "points"),
    Contest("TrainValidationSplit", our_tuning, tuning, {"seed": 1}, "points"),
    Contest("BinaryClassificationEvaluator", our_evaluation, evaluation, {"labelCol": "class"}, "predictions"),
    Contest("MulticlassClassificationEvaluator", our_evaluation, evaluation, {
        "labelCol": "class", "predictionCol": "side"}, "predictions"),
    Contest("RegressionEvaluator", our_evaluation, evaluation, {"metricName": "r2"}, "predictions"),
    Contest("ClusteringEvaluator", our_evaluation, evaluation, {"predictionCol": "side"}, "predictions"),
    Contest("LogisticRegression.train", our_classification.LogisticRegression, LogisticRegressionWithLBFGS, {
        "iterations": 10, "intercept": True}, "labelled"),
    Contest("KMeans.train", our_clustering.KMeans, rdd_clustering.KMeans, {
        "k": 10, "maxIterations": 10, "seed": 1}, "vectors"),
    Contest("ALS.train", our_recommendation.ALS, rdd_recommendation.ALS, {
        "rank": 8, "iterations": 3, "seed": 1}, "rated"),
    Contest("consensus", None, None, {"parts": PARTS, "l2": 1.0, "iterations": 5}, "parts"),
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
class EstimatorData:
    """The same data for all: cached DataFrames and RDDs by name, and rows with their labels as arrays."""

    frames: dict[str, Any]
    rows: np.ndarray
    labels: dict[str, np.ndarray]


def drawn(spark: SparkSession, rows: int, features: int) -> EstimatorData:
    """Return the data: vectors with labels, and ratings."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, features)) + 3 * rng.integers(0, 3, rows)[:, None]
    y = x @ rng.normal(size=features) / features
    labels = {"label": y, "class": (y > np.median(y)).astype(float), "positive": np.exp(y / 9)}
    points = spark.createDataFrame(
        spark.sparkContext.parallelize([(*map(float, each), Vectors.dense(row), Vectors.dense(abs(row))) for *each, row
                                        in zip(*labels.values(), x, strict=True)], 2),
        [*labels, "features", "positives"]).cache()
    ids = rng.integers(0, max(rows // 50, 2), (rows, 2)).tolist()
    ratings = spark.createDataFrame([(user, item, float((user * item) % 5)) for user, item in ids],
                                    ["user", "item", "rating"]).cache()
    words = np.char.add("w", rng.zipf(1.3, (rows // 20, 20)).clip(max=5000).astype(str))
    sentences = spark.createDataFrame([(each,) for each in words.tolist()], ["words"]).repartition(64).cache()
    sc = spark.sparkContext
    guess = x[:, 0]
    predictions = spark.createDataFrame(
        spark.sparkContext.parallelize([(*map(float, each), Vectors.dense(-each[0], each[0]), Vectors.dense(row))
                                        for *each, row in zip(guess, guess > np.median(guess), y, labels["class"], x,
                                                              strict=True)], 2),
        ["prediction", "side", "label", "class", "rawPrediction", "features"]).cache()
    frames = {"points": points, "ratings": ratings, "sentences": sentences, "predictions": predictions,
              "labelled": sc.parallelize(list(map(LabeledPoint, labels["class"], x)), 2).cache(),
              "vectors": sc.parallelize(list(x), 2).cache(),
              "rated": sc.parallelize([(user, item, float((user * item) % 5)) for user, item in ids], 2).cache(),
              "parts": sc.parallelize([{"x": row, "y": 2 * label - 1, "part": place % PARTS} for place, (row, label)
                                       in enumerate(zip(x, labels["class"], strict=True))], 2).cache()}
    for frame in frames.values():
        frame.count()
    return EstimatorData(frames, x, labels)


def sampled(mark: str, name: str, fit: Callable[[], object], **notes: Any) -> Series:
    """Return the seconds of some fits, with processor seconds among the notes."""
    times = [spent(mark, fit) for _ in range(_FITS)]
    return Series(name, tuple(wall for wall, _ in times), notes={
        "cpu_seconds": [cpu for _, cpu in times], "fewer_samples": f"{_FITS} fits take long enough", **notes})


def made(contest: Contest, *, is_ours: bool) -> Any:
    """Return an estimator of a contest."""
    module = contest.ours if is_ours else contest.theirs
    learners, scalers = (our_classification, our_feature) if is_ours else (classification, feature)
    if contest.name == "Pipeline":
        return module.Pipeline(stages=[scalers.StandardScaler(inputCol="features", outputCol="scaled"), learners.
                               LogisticRegression(featuresCol="scaled", labelCol="class", maxIter=10)])
    if contest.name in ("CrossValidator", "TrainValidationSplit"):
        learner = learners.LogisticRegression(labelCol="class", maxIter=10)
        grid = tuning.ParamGridBuilder().addGrid(learner.regParam, [0.0, 0.1]).build()
        return getattr(module, contest.name)(
            estimator=learner, estimatorParamMaps=grid,
            evaluator=evaluation.BinaryClassificationEvaluator(labelCol="class"), **contest.params)
    return getattr(module, contest.name)(**contest.params)


def work_of(contest: Contest, data: EstimatorData, *, is_ours: bool) -> Callable[[], object]:
    """Return a fit to a contest's data, a metric of it, or a search for the neighbours of its first row."""
    frame = data.frames[contest.data]
    if contest.name == "consensus":
        losses, size = losses_by_part(frame.cache("GPU"), apart, PARTS), data.rows.shape[1]
        return lambda: consensus(losses, size=size, **contest.params)
    if contest.is_of_rdds:
        return lambda: (contest.ours if is_ours else contest.theirs).train(frame, **contest.params)
    estimator = made(contest, is_ours=is_ours)
    if contest.evaluates:
        return lambda: (loads.unload(frame), estimator.evaluate(frame))
    if not contest.searches:
        return lambda: estimator.fit(frame)
    model, key = estimator.fit(frame), Vectors.dense(abs(data.rows[0]))
    if contest.name == "NearestNeighbors":
        return lambda: model.search([key.toArray()])
    return lambda: model.approxNearestNeighbors(frame, key, 10).collect()


def apart(x: Any, y: Any, part: Any, w: Any) -> Any:
    """Return a record's part, and its logistic loss and gradient at the part's point."""
    margin = y * np.dot(w[part], x)
    least = np.exp(-np.abs(margin))
    share = (1 if margin < 0 else least) / (1 + least)
    return part, (np.maximum(-margin, 0) + np.log1p(least), -y * share * x)


def plans_of(sc: SparkContext, work: Callable[[], object]) -> int:
    """Return the number of plans that the workers run in a call."""
    workers = Session.of(sc).workers
    before = sum(worker.plans for worker in workers.known())
    work()
    return sum(worker.plans for worker in workers.known()) - before


def compared(mark: str, data: EstimatorData, sc: SparkContext, contest: Contest) -> Group:
    """Return the samples of one estimator."""
    group = Group(contest.name, {"rows": len(data.rows), "features": data.rows.shape[1], **contest.params})
    if contest.theirs is None:
        group.skipped["MLlib"] = "it has none"
    else:
        if contest.is_of_rdds or contest.evaluates:
            work_of(contest, data, is_ours=False)()
        elif not contest.searches:
            made(contest, is_ours=False).fit(data.frames[contest.data].limit(50))
        group.series.append(sampled(mark, "MLlib", work_of(contest, data, is_ours=False)))
    loads.unload()
    ours = work_of(contest, data, is_ours=True)
    first = spent(mark, ours)
    plans = plans_of(sc, ours)
    group.series += [sampled(mark, "vispark", ours, first_fit=list(first), plans=plans),
                     sampled(mark, "floor", lambda: [data.rows.sum(axis=0) for _ in range(plans)])]
    if scikit is not None and contest.name in scikit.FITS:
        group.series.append(sampled(mark, "scikit-learn", lambda: scikit.fit(contest.name, data.rows, data.labels)))
    else:
        group.skipped["scikit-learn"] = "it has none" if scikit is not None else "not installed"
    if jax_fits.found() and contest.name in jax_fits.PASSES:
        passes = jax_fits.on_gpu(contest.name, data.rows, data.labels["class"])
        passes()
        group.series.append(sampled(mark, "JAX", passes))
    return group


def row(group: Group) -> str:
    """Return a line of the table: medians of seconds and of processor seconds."""
    medians = {each.name: (each.median, statistics.median(each.notes["cpu_seconds"])) for each in group.series}
    shown = [f"{medians[name][0]:.2f}, {medians[name][1]:.2f}" if name in medians else "not there"
             for name in ("MLlib", "scikit-learn", "JAX", "vispark")]
    notes = next(each.notes for each in group.series if each.name == "vispark")
    first = notes["first_fit"]
    ratio = "" if "MLlib" not in medians else (f"{medians['MLlib'][0] / medians['vispark'][0]:.1f}, "
                                               f"{medians['MLlib'][1] / max(medians['vispark'][1], 0.01):.1f}")
    return (f"| {group.name} | {' | '.join(shown)}; first {first[0]:.2f}, {first[1]:.2f} | {notes['plans']}; "
            f"{medians['floor'][0]:.2f}, {medians['floor'][1]:.2f} | {ratio} |")


def marked(module: str) -> str:
    """Return the mark of the processes of this run; where it has none, start a module's program anew with one."""
    if MARK not in os.environ:
        # Each process that is started from here on has the mark, and this one too, as it is started anew.
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]],
                  {"PYSPARK_PYTHON": sys.executable, **os.environ, MARK: uuid.uuid4().hex})
    return os.environ[MARK]


def write(file: Path, groups: list[Group], about: dict[str, Any], *, others: bool) -> None:
    """Write the document of some groups, beside the others that the file has."""
    content = document(groups, **about)
    if others and file.exists():
        names = {group.name for group in groups}
        before = json.loads(file.read_text())["benchmarks"]
        content["benchmarks"] = [each for each in before if each["name"] not in names] + content["benchmarks"]
    file.write_text(json.dumps(content, indent=1) + "\n")


@click.command(help=__doc__)
@click.argument("device", default="host")
@click.argument("rows", type=int, default=100_000)
@click.argument("features", type=int, default=20)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("seconds", type=float, default=float("inf"))
@click.option("--only", multiple=True, help="Name of an estimator; may come several times.")
def main(device: str, rows: int, features: int, file: Path | None, seconds: float, only: tuple[str, ...]) -> None:
    mark = marked("benchmarks.estimators")
    conf = SparkConf().set("spark.vispark.device", device).set("spark.ui.enabled", "false") \
        .set("spark.ui.showConsoleProgress", "false").set("spark.driver.memory", "8g")
    groups: list[Group] = []
    about = {"command": ["python", "-m", "benchmarks.estimators", device, str(rows), str(features)], "scale": "small",
             "device": device, "machine": machine.description(), **machine.commit()}
    with SparkContext("local[*]", "estimators", conf=conf) as sc:
        sc.setLogLevel("ERROR")
        data, begin = drawn(SparkSession(sc), rows, features), time.monotonic()
        print("| estimator | MLlib s, cpu s | scikit-learn s, cpu s | JAX s, cpu s | vispark s, cpu s "
              "| plans; floor s, cpu s | MLlib / vispark s, cpu |\n|---|---|---|---|---|---|---|", flush=True)
        for contest in [each for each in CONTESTS if not only or each.name in only]:
            if time.monotonic() - begin > seconds:
                print("no time is left for the others")
                break
            groups.append(compared(mark, data, sc, contest))
            print(row(groups[-1]), flush=True)
            if file:
                write(file, groups, about, others=bool(only))


if __name__ == "__main__":
    main()
