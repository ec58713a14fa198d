"""Fits of each estimator of vispark.ml with kills under them, and a model's numbers as bits."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession

from gpu_worker.system.failpoints import VARIABLE
from tests import leaks
from tests.chaos.arena import Arena
from vispark.ml import (
    Pipeline,
    classification,
    clustering,
    decomposition,
    feature,
    loads,
    recommendation,
    regression,
    tuning,
)
from vispark.ml.optim.admm import consensus, losses_by_part


def rows(arena: Arena, count: int = 60) -> DataFrame:
    """Return rows of labels, vectors, ratings and words, in three partitions."""
    rng = np.random.default_rng(3)
    data = [(float(index % 2), Vectors.dense(row), index % 5, index % 7, float(index % 4)) for index, row
            in enumerate(rng.random((count, 3)))]
    return SparkSession(arena.sc).createDataFrame(
        arena.sc.parallelize(data, 3), ["label", "features", "user", "item", "rating"]).selectExpr(
        "*", "array(string(user), string(item), string(user % 3)) as words")


def numbers(model: Any) -> list[np.ndarray]:
    """Return a model's numbers, of whatever kind it is."""
    if hasattr(model, "stages"):
        return [each for stage in model.stages for each in numbers(stage)]
    if hasattr(model, "bestModel"):
        metrics = model.avgMetrics if hasattr(model, "avgMetrics") else model.validationMetrics
        return [np.array(metrics), *numbers(model.bestModel)]
    if hasattr(model, "userFactors"):
        return [np.array(row.features) for row in model.userFactors.orderBy("id").collect()]
    if hasattr(model, "getVectors"):
        return [row.vector.toArray() for row in model.getVectors().orderBy("word").collect()]
    if hasattr(model, "gaussians"):
        return [np.array(model.weights), *(each for one in model.gaussians for each in (one.mean.toArray(),
                                                                                        one.cov.toArray()))]
    if hasattr(model, "userFeatures"):
        return [factors for _, factors in model.userFeatures().collect()]
    if hasattr(model, "clusterCenters"):
        return model.clusterCenters() if callable(model.clusterCenters) else model.clusterCenters
    for name in ("x", "weights", "components", "coefficients", "factors", "pc", "std", "originalMin", "maxAbs"):
        if hasattr(model, name):
            value = getattr(model, name)
            return [value if isinstance(value, np.ndarray) else value.toArray()]
    raise AssertionError(f"{model} has no numbers that are known")


@dataclass(frozen=True)
class OfRecords:
    """Fit of the records of an RDD in place of a DataFrame's."""

    train: Callable[[Any], Any]

    def fit(self, df: DataFrame) -> Any:
        return self.train(df.rdd)


def agreed(records: Any) -> Any:
    """Return the consensus of two parts about a line."""
    points = records.map(lambda row: {
        "x": row.features.toArray()[:3], "y": row.rating, "part": row.user % 2}).cache("GPU")
    try:
        return consensus(losses_by_part(points, _squares, parts=2), parts=2, size=3, l2=.1, iterations=2)
    finally:
        points.unpersist()


def _squares(x: Any, y: Any, part: Any, w: Any) -> Any:
    rest = np.dot(w[part], x) - y
    return part, (0.5 * rest * rest, rest * x)


#: Fits of RDDs.
OF_RECORDS: dict[str, Callable[[], Any]] = {
    "LogisticRegression.train": lambda: OfRecords(lambda records: classification.LogisticRegression.train(
        records.map(lambda row: (row.label, row.features)), iterations=4)),
    "KMeans.train": lambda: OfRecords(lambda records: clustering.KMeans.train(
        records.map(lambda row: row.features), 3, 3, seed=1)),
    "ALS.train": lambda: OfRecords(lambda records: recommendation.ALS.train(
        records.map(lambda row: (row.user, row.item, row.rating)), 2, 2, seed=1)),
    "consensus": lambda: OfRecords(agreed)}

#: An estimator of each family.
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "GaussianMixture": lambda: clustering.GaussianMixture(k=2, seed=2, maxIter=4),
    "FMClassifier": lambda: classification.FMClassifier(factorSize=2, seed=1, maxIter=4),
    "NMF": lambda: decomposition.NMF(k=2, inputCol="features", maxIter=4),
    "KMeans": lambda: clustering.KMeans(k=3, seed=1, maxIter=3),
    "Word2Vec": lambda: feature.Word2Vec(vectorSize=6, minCount=1, maxIter=3, seed=2, inputCol="words"),
    "GeneralizedLinearRegression": lambda: regression.GeneralizedLinearRegression(family="binomial", maxIter=4),
    "BisectingKMeans": lambda: clustering.BisectingKMeans(k=3, maxIter=3, seed=1),
    "LinearSVC": lambda: classification.LinearSVC(maxIter=4),
    "LinearRegression": lambda: regression.LinearRegression(),
    "PCA": lambda: feature.PCA(k=2, inputCol="features", outputCol="out"),
    "StandardScaler": lambda: feature.StandardScaler(inputCol="features", outputCol="out"),
    "LogisticRegression": lambda: classification.LogisticRegression(maxIter=4),
    "ALS": lambda: recommendation.ALS(rank=2, maxIter=2, seed=1),
    "MinMaxScaler": lambda: feature.MinMaxScaler(inputCol="features", outputCol="out"),
    "MaxAbsScaler": lambda: feature.MaxAbsScaler(inputCol="features", outputCol="out"),
    "FMRegressor": lambda: regression.FMRegressor(factorSize=2, seed=1, maxIter=4),
    "Huber": lambda: regression.LinearRegression(loss="huber", maxIter=4),
    "Pipeline": lambda: Pipeline(stages=[feature.StandardScaler(inputCol="features", outputCol="scaled"),
                                         classification.LogisticRegression(featuresCol="scaled", maxIter=3)]),
    "CrossValidator": lambda: search(tuning.CrossValidator, numFolds=2),
    "TrainValidationSplit": lambda: search(tuning.TrainValidationSplit), **OF_RECORDS}


def search(kind: Any, **params: Any) -> Any:
    """Return a search of one of two regularisations."""
    learner = regression.LinearRegression()
    grid = ParamGridBuilder().addGrid(learner.regParam, [0.0, 0.1]).build()
    return kind(estimator=learner, estimatorParamMaps=grid, evaluator=RegressionEvaluator(), seed=1, **params)


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in arrays]


def python_workers(arena: Arena) -> list[int]:
    """Return the processes in which this arena's tasks of Python run, not the server that forks them."""
    processes = leaks.processes_with(VARIABLE, str(arena.failpoints))
    servers = {process.pid for process in processes if "daemon" in process.command and "pyspark" in process.command}
    return [process.pid for process in processes if process.parent in servers]


#: Tasks that Spark runs again, which a local master would not do; what is left to MLlib is an error.
OPTIONS = {"spark.master": "local[2,4]", "spark.vispark.fallback": "error"}
#: What is killed, by name.
VICTIMS: dict[str, Callable[[Arena], list[int]]] = {
    "device process": Arena.device_processes, "daemon": Arena.daemons,
    "both": lambda arena: arena.daemons() + arena.device_processes(), "Python worker": python_workers}


@dataclass
class FitKill:
    """A kill under a fit: of what, by whom it was missed, and whether the model was the same to the bit.

    Parameters
    ----------
    estimator, victim : str
        The estimator's name, and the victim's.
    moment, seconds : float
        Seconds from the fit's beginning to the kill, and to its end.
    killed : int
        Processes that were ended.
    missed : list of str
        "plan": a plan of the driver lost its worker; "task": a task of Spark's failed; "started": a process of the kind
        was started before the fit's end, as the fit needed it.
    is_same : bool
        Whether the model's bits were those of a fit without a kill.
    """

    estimator: str
    victim: str
    moment: float
    seconds: float = 0.0
    killed: int = 0
    missed: list[str] = field(default_factory=list)
    is_same: bool = False


def struck(arena: Arena, df: DataFrame, blow: FitKill, expected: list[bytes]) -> FitKill:
    """Fit with a kill at a moment of it, all data to be loaded first, and fill in how it ended."""
    loads.unload()
    victims, killed = VICTIMS[blow.victim], []

    def strike() -> None:
        for pid in victims(arena):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    fit = ESTIMATORS[blow.estimator]().fit
    failed = failed_tasks(arena)
    with lost_plans() as plans:
        timer, began = threading.Timer(blow.moment, strike), time.monotonic()
        timer.start()
        model = fit(df)
        blow.seconds, after = time.monotonic() - began, set(victims(arena))
        is_late = blow.seconds < blow.moment
        timer.join()
    blow.killed, blow.is_same = len(killed), bits(numbers(model)) == expected
    losses = {"plan": bool(plans), "task": failed_tasks(arena) > failed, "started": bool(after - set(killed))}
    blow.missed = [] if is_late or not killed else [name for name, is_so in losses.items() if is_so]
    return blow


def failed_tasks(arena: Arena) -> int:
    """Return the number of attempts of tasks that failed in this context."""
    executors = arena.sc._jsc.sc().statusStore().executorList(False)
    return sum(executors.apply(place).failedTasks() for place in range(executors.size()))


@contextlib.contextmanager
def lost_plans() -> Iterator[list[str]]:
    """Collect the messages of plans of the driver that lost their worker in the block."""
    messages: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("lost under a plan"):
                messages.append(record.getMessage())

    log, handler = logging.getLogger("vispark.runtime.driver.retry"), Noting()
    log.addHandler(handler)
    try:
        yield messages
    finally:
        log.removeHandler(handler)
