"""Processes are killed in the middle of fits: the models are the same to the bit.

``VISPARK_CHAOS_FITS`` is how often each process is killed under each estimator's fit, at random moments; left out, each
estimator meets one kill, of one process after another.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from tests.chaos.arena import Arena, kill, opened
from tests.system.topology import Topology
from vispark.ml import classification, clustering, decomposition, feature, loads, recommendation, regression
from vispark.ml.classification import LogisticRegression
from vispark.ml.recommendation import ALS

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.chaos

#: By estimator: a fit, and the function that each of its iterations calls in the driver.
FITS: dict[str, tuple[Callable[[DataFrame], list[np.ndarray]], str]] = {
    "LogisticRegression": (lambda df: [LogisticRegression(maxIter=4).fit(df).coefficients.toArray()],
                           "vispark.ml.classes.totals"),
    "ALS": (lambda df: [np.array(row.features) for row in
                        ALS(rank=2, maxIter=2, seed=1).fit(df).userFactors.orderBy("id").collect()],
            "vispark.ml.recommendation.solve"),
}


def rows(arena: Arena) -> DataFrame:
    rng = np.random.default_rng(3)
    data = [(float(index % 2), Vectors.dense(row), index % 5, index % 7, float(index % 4)) for index, row
            in enumerate(rng.random((60, 3)))]
    return SparkSession(arena.sc).createDataFrame(arena.sc.parallelize(data, 3),
                                                  ["label", "features", "user", "item", "rating"])


def test_a_fit_whose_process_is_killed_gives_the_same_bits(local: Topology, monkeypatch: pytest.MonkeyPatch):
    """In the pass after a third iteration begins the device process is killed, with all that it holds."""
    with opened(local, {}) as arena:
        df = rows(arena)
        for name, (fit, place) in FITS.items():
            expected = fit(df)
            armed, calls = [], []
            really = resolve_name(place.rpartition(".")[0] + ":" + place.rpartition(".")[2])

            def called(*arguments, calls=calls, armed=armed, really=really):
                calls.append(arguments)
                if len(calls) == 3:
                    armed.append(arena.arm("computed"))
                return really(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(place, called)
                found = fit(df)
            assert not armed[0].exists(), name
            for one, other in zip(found, expected, strict=True):
                assert one.tobytes() == other.tobytes(), name
        loads.unload(df)
        arena.check_empty()


def numbers(model: Any) -> list[np.ndarray]:
    """A model's numbers, of whatever kind it is."""
    if hasattr(model, "userFactors"):
        return [np.array(row.features) for row in model.userFactors.orderBy("id").collect()]
    if hasattr(model, "getVectors"):
        return [row.vector.toArray() for row in model.getVectors().orderBy("word").collect()]
    if hasattr(model, "gaussians"):
        return [np.array(model.weights), *(each for one in model.gaussians for each in (one.mean.toArray(),
                                                                                        one.cov.toArray()))]
    if hasattr(model, "clusterCenters"):
        return model.clusterCenters()
    for name in ("components", "coefficients", "factors", "pc", "std", "originalMin"):
        if hasattr(model, name):
            found = getattr(model, name)
            return [found if isinstance(found, np.ndarray) else found.toArray()]
    raise AssertionError(f"{model} has no numbers that are known")


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
    "MinMaxScaler": lambda: feature.MinMaxScaler(inputCol="features", outputCol="out")}
#: Which of them CI meets; with ``VISPARK_CHAOS_FITS`` all are.
IN_CI = ("GaussianMixture", "NMF", "Word2Vec")
PROCESSES = {"device process": Arena.device_processes, "daemon": Arena.daemons}


@contextlib.contextmanager
def killed(arena: Arena, name: str, seconds: float) -> Iterator[None]:
    """A process is killed after some seconds of what runs in the block, or a task's at its next load."""
    if name not in PROCESSES:
        armed = arena.arm(name)
        yield
        armed.unlink(missing_ok=True)
        return
    timer = threading.Timer(seconds, lambda: kill(PROCESSES[name](arena)))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.timeout(3600 if "VISPARK_CHAOS_FITS" in os.environ else 600)
def test_a_fit_under_which_processes_are_killed_at_random_gives_the_same_bits(local: Topology):
    times = int(os.environ.get("VISPARK_CHAOS_FITS", "0"))
    with opened(local, {"spark.vispark.fallback": "error"}) as arena:
        df = rows(arena).selectExpr("*", "array(string(user), string(item), string(user % 3)) as words").cache()
        moments, victims = random.Random(7), [*PROCESSES, "packed"]
        for place, name in enumerate(ESTIMATORS if times else IN_CI):
            fit = ESTIMATORS[name]().fit
            expected = numbers(fit(df))
            loads.unload()
            started = time.monotonic()
            assert bits(numbers(fit(df))) == bits(expected), f"{name}, undisturbed"
            longest = time.monotonic() - started
            for victim in victims * times or [victims[place % len(victims)]]:
                loads.unload()
                moment = moments.random() * longest
                with killed(arena, victim, moment):
                    found = numbers(fit(df))
                assert bits(found) == bits(expected), f"{name}: {victim} after {moment:.3f} of {longest:.3f} s"
        df.unpersist()
        loads.unload()
        arena.check_empty()


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in arrays]
