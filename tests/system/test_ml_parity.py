"""A few draws of the sweep over all parameters (``python -m tests.parity``), that each is in it, and floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

from tests.parity import SWEEPS, UNSWEPT, outcomes
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark.ml import Pipeline, classification, clustering, loads
from vispark.ml.installation import ESTIMATORS
from vispark.runtime.driver.session import Session

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"

#: Estimators of which CI takes a draw.
IN_CI = ["LinearRegression", "LogisticRegression", "GeneralizedLinearRegression", "BisectingKMeans", "ALS"]
#: Replaced names that are no estimators with numbers of their own; what they take is tested in test_ml_searches.py.
OTHERS = {"Pipeline", "CrossValidator", "TrainValidationSplit", "BucketedRandomProjectionLSHModel", "MinHashLSHModel"}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="error") as context:
        yield context


def test_each_parameter_of_each_estimator_is_swept_or_named(sc: SparkContext):
    assert set(SWEEPS) == {each.__name__ for each in ESTIMATORS} - OTHERS
    for name, sweep in SWEEPS.items():
        params = {param.name for param in getattr(sweep.theirs, name)().params}
        named = {*sweep.values, *sweep.fixed, *sweep.unswept, *UNSWEPT}
        assert params <= named, f"{name}: neither swept nor named: {params - named}"
        assert {*sweep.values, *sweep.fixed, *sweep.unswept} <= params, name


def test_models_are_mllibs_whatever_the_parameters(sc: SparkContext):
    for outcome in outcomes(SparkSession(sc), IN_CI, 1, seed=13):
        assert not (outcome.text or outcome.left or outcome.refused), outcome


def test_floats_are_held_as_floats_and_fitted_as_doubles(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    spark, rng = SparkSession(sc), np.random.default_rng(6)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    rows = [(float(row[0] > row[1]), *row.tolist(), Vectors.dense(row * np.float64(1 + 1e-9))) for row in x]
    wide = spark.createDataFrame(sc.parallelize(rows, 2), ["y", "a", "b", "c", "v"])
    df = wide.selectExpr("y", "float(a)", "float(b)", "float(c)", "v")
    session, models = Session.of(sc), []
    loads.unload()
    for frame, name in ((df, "float32"), (wide, "float64")):
        fit = Pipeline(stages=[
            VectorAssembler(inputCols=["a", "b", "c"], outputCol="x"),
            classification.LogisticRegression(labelCol="y", featuresCol="x", regParam=.1)]).fit
        models.append(fit(frame).stages[1].coefficients.toArray())
        of_vectors = classification.LogisticRegression(labelCol="y", featuresCol="v", regParam=.1)
        options = replace(session.options, features=name)
        monkeypatch.setattr(session, "credentials", replace(session.credentials, options=options))
        models.append(of_vectors.fit(frame).coefficients.toArray())
    assembled, rounded, doubles, exact = models
    np.testing.assert_array_equal(assembled, doubles)
    np.testing.assert_array_equal(assembled, rounded)
    assert (exact != rounded).any()
    np.testing.assert_allclose(exact, rounded, rtol=1e-6)
    points = sc.parallelize([*(x + 9), *(x - 9)], 2)
    ours = clustering.KMeans.train(points, 2, seed=1)
    theirs = clustering.KMeans.train(points.map(lambda row: row.astype(float)), 2, seed=1)
    np.testing.assert_array_equal(ours.clusterCenters, theirs.clusterCenters)
