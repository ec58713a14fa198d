"""Bad input of each estimator of vispark.ml, family by case; docs/development/testing.md has the table of both.

What MLlib has its own words for is left to it, so here is the reason for which a fit was left; that MLlib's words come
is tested beside this for one case of each family, and for all of them with ``VISPARK_BAD_INPUT=mllib``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.ml import classification as mllib_classification
from pyspark.ml import clustering as mllib_clustering
from pyspark.ml import feature as mllib_feature
from pyspark.ml import recommendation as mllib_recommendation
from pyspark.ml import regression as mllib_regression
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark.errors import PlanError, RecordError, TaskError, VisparkError
from vispark.ml import (
    classification,
    clustering,
    decomposition,
    feature,
    loads,
    neighbors,
    recommendation,
    regression,
)
from vispark.ml.optim.admm import consensus
from vispark.runtime.driver.session import Session

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"

#: Whether each fit that is left to MLlib is compared with MLlib's own, which takes several times as long.
WITH_MLLIB = os.environ.get("VISPARK_BAD_INPUT") == "mllib"
pytestmark = pytest.mark.timeout(3600 if WITH_MLLIB else 300)

#: The families by name: vispark's module, MLlib's, and parameters.
LABELLED = {"LinearRegression": (regression, mllib_regression, {"weightCol": "w"}),
            "GeneralizedLinearRegression": (regression, mllib_regression, {"weightCol": "w", "maxIter": 2}),
            "LogisticRegression": (classification, mllib_classification, {"weightCol": "w", "maxIter": 2}),
            "LinearSVC": (classification, mllib_classification, {"weightCol": "w", "maxIter": 2}),
            "FMClassifier": (classification, mllib_classification, {"maxIter": 1, "seed": 1, "factorSize": 1}),
            "FMRegressor": (regression, mllib_regression, {"maxIter": 1, "seed": 1, "factorSize": 1})}
CLUSTERED = {"KMeans": (clustering, mllib_clustering, {"weightCol": "w", "seed": 1, "maxIter": 2}),
             "BisectingKMeans": (clustering, mllib_clustering, {"weightCol": "w", "k": 2, "seed": 1, "maxIter": 2}),
             "GaussianMixture": (clustering, mllib_clustering, {"weightCol": "w", "seed": 1, "maxIter": 2})}
COLUMNS = {"PCA": (feature, mllib_feature, {"k": 1}), "StandardScaler": (feature, mllib_feature, {}),
           "MinMaxScaler": (feature, mllib_feature, {}), "MaxAbsScaler": (feature, mllib_feature, {}),
           "NMF": (decomposition, None, {"k": 1})}
FAMILIES = {**LABELLED, **CLUSTERED, **COLUMNS}
WEIGHTED = {name for name, (_, _, params) in FAMILIES.items() if "weightCol" in params}
#: One family for each kind of load.
LOADS = {"LinearRegression", "KMeans", "PCA", "NMF"}
CLASSIFIERS = {"LogisticRegression", "LinearSVC", "FMClassifier"}

NAN, INF = float("nan"), float("inf")
#: By case: rows of label, weight and vector, the families that it is bad for, and the reason to leave the fit.
REFUSED: dict[str, tuple[list[Any], set[str], str]] = {
    "no rows": ([], set(FAMILIES), "no rows"),
    "null label": ([(None, 1.0, [1.0]), (1.0, 1.0, [2.0])], set(LABELLED), "null"),
    "null vector": ([(1.0, 1.0, None), (0.0, 1.0, [2.0])], set(FAMILIES), "null"),
    "null weight": ([(1.0, None, [1.0]), (0.0, 1.0, [2.0])], WEIGHTED, "null"),
    "NaN label": ([(NAN, 1.0, [1.0]), (1.0, 1.0, [2.0])], set(LABELLED), "NaN or infinite"),
    "NaN": ([(1.0, 1.0, [NAN]), (0.0, 1.0, [2.0])], set(FAMILIES), "NaN or infinite"),
    "infinity": ([(1.0, 1.0, [INF]), (0.0, 1.0, [2.0])], set(FAMILIES), "NaN or infinite"),
    "NaN weight": ([(1.0, NAN, [1.0]), (0.0, 1.0, [2.0])], WEIGHTED, "NaN or infinite"),
    "negative weight": ([(1.0, -1.0, [1.0]), (0.0, 3.0, [2.0])], WEIGHTED, "negative weights"),
    "no weight": ([(1.0, 0.0, [1.0]), (0.0, 0.0, [2.0])], WEIGHTED, "all weights are 0"),
    "lengths": ([(1.0, 1.0, [1.0, 4.0]), (0.0, 1.0, [2.0, 3.0, 4.0])], set(FAMILIES), "length"),
    "one class": ([(1.0, 1.0, [1.0]), (1.0, 1.0, [2.0])], CLASSIFIERS - {"FMClassifier"}, "one class"),
    "squares": ([(1.0, 1.0, [1e200]), (0.0, 1.0, [2.0])],
                {*LABELLED, *CLUSTERED} - {"FMClassifier", "FMRegressor"}, "beyond float64"),
    "labels of no class": ([(0.5, 1.0, [1.0]), (1.0, 1.0, [2.0])], CLASSIFIERS, "labels are to be")}
SCHEMA = StructType([StructField("y", DoubleType()), StructField("w", DoubleType()), StructField("x", VectorUDT())])


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="error") as context:
        yield context


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Iterator[Callable[[str], DataFrame]]:
    """Make DataFrames of the refused cases, which families share, with an empty partition each."""
    cached: dict[str, DataFrame] = {}

    def frame(case: str) -> DataFrame:
        if case not in cached:
            rows = [(label, weight, x if x is None else Vectors.dense(x)) for label, weight, x in REFUSED[case][0]]
            cached[case] = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), SCHEMA)
        return cached[case]
    yield frame
    loads.unload()


def estimator(name: str, *, is_mllib: bool = False, **more: Any) -> Any:
    """Return an estimator of a family with its columns named."""
    learner = getattr(FAMILIES[name][is_mllib], name)(**FAMILIES[name][2] | more)
    for param, value in {"featuresCol": "x", "inputCol": "x", "labelCol": "y", "outputCol": "out"}.items():
        if learner.hasParam(param):
            learner._set(**{param: value})
    return learner


@contextmanager
def left_to_mllib(sc: SparkContext) -> Iterator[None]:
    """Leave fits that are not for the workers to MLlib, without a word."""
    session = Session.of(sc)
    before = session.credentials
    session.credentials = replace(before, options=replace(session.options, fallback="silent"))
    try:
        yield
    finally:
        session.credentials = before


def words(fit: Callable[[], Any]) -> str:
    """Return the end of a fit: its numbers, or the last of Java's reasons, without a row's numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(numbers(fit()))
        except (PySparkException, Py4JError) as error:
            lines = [line.strip().rpartition("Exception: ")[2] for line in str(error).splitlines()
                     if "Exception: " in line and not line.startswith("\tat")]
            reasons = [line for line in lines if "Job aborted" not in line]
            reason = reasons[-1] if reasons else str(error).splitlines()[0]
            return reason.partition(", found")[0].partition("calling o")[0]


def numbers(model: Any) -> list[Any]:
    """Return a model's numbers, rounded; of clusters in ascending order."""
    if hasattr(model, "gaussians"):
        return sorted((round(share, 6), *np.round(one.mean.toArray(), 6), *np.round(one.cov.toArray(), 6).ravel())
                      for share, one in zip(model.weights, model.gaussians, strict=True))
    if hasattr(model, "clusterCenters"):
        return sorted(np.round(each, 6).tolist() for each in model.clusterCenters())
    for name in ("factors", "coefficientMatrix", "coefficients", "pc", "std", "originalMin", "maxAbs"):
        if hasattr(model, name):
            return (np.round(getattr(model, name).toArray(), 6) + 0.0).tolist()
    raise AssertionError(f"{model} has no numbers that are known")


@pytest.mark.parametrize("case", REFUSED)
def test_what_mllib_has_words_for_is_left_to_it(sc: SparkContext, frames: Callable[[str], DataFrame], case: str):
    _, families, reason = REFUSED[case]
    if case.startswith("null") and not WITH_MLLIB:
        # Each is a load that fails anew, in the same way for those that load the same fields.
        families = families & LOADS
    for name in (one for one in FAMILIES if one in families):
        with pytest.raises(VisparkError, match=reason) as raised:
            estimator(name).fit(frames(case))
        assert type(raised.value) is (RecordError if name == "NMF" else PlanError), name
        if WITH_MLLIB and name != "NMF":
            with left_to_mllib(sc):
                ours = words(lambda name=name: estimator(name).fit(frames(case)))
            assert ours == words(lambda name=name: estimator(name, is_mllib=True).fit(frames(case))), name


#: Parameters that MLlib refuses, by family.
INVALID = {"LinearRegression": {"regParam": -1.0}, "GeneralizedLinearRegression": {"family": "gauss"},
           "LogisticRegression": {"elasticNetParam": 2.0}, "LinearSVC": {"maxIter": -1},
           "FMClassifier": {"factorSize": 0}, "FMRegressor": {"solver": "sgd"}, "KMeans": {"initSteps": 0},
           "BisectingKMeans": {"minDivisibleClusterSize": 0.0}, "GaussianMixture": {"k": 1}, "PCA": {"k": 0},
           "MinMaxScaler": {"min": 2.0, "max": 1.0}}


@pytest.mark.parametrize("name", INVALID)
def test_parameters_end_with_mllibs_words(frames: Callable[[str], DataFrame], name: str):
    ours, theirs = (words(lambda kind=kind: estimator(name, is_mllib=kind, **INVALID[name]).fit(frames("one class")))
                    for kind in (False, True))
    # An estimator's name has its number.
    assert [each.partition("_")[0] for each in ours.split()] == [each.partition("_")[0] for each in theirs.split()]
    assert "invalid value" in ours or "must be" in ours or "requirement failed" in ours


@pytest.fixture(scope="module")
def odd(spark: SparkSession) -> Iterator[DataFrame]:
    """Three groups of rows with a constant feature, rows of weight 0, sparse ones, and empty partitions."""
    rng = np.random.default_rng(3)
    places = np.repeat([[9.0, 0, 0, 2], [0, 9, 0, 2], [0, 0, 9, 2]], 9, axis=0)
    x = places + rng.normal(size=(27, 4)) * [.1, .1, .1, 0]
    rows = [(float(number % 2), float(number % 3), Vectors.sparse(4, range(4), row) if number % 5 == 0
             else Vectors.dense(row)) for number, row in enumerate(x)]
    parts = spark.sparkContext.parallelize(rows, 2).union(spark.sparkContext.parallelize([], 2))
    df = spark.createDataFrame(parts, SCHEMA).cache()
    df.count()
    yield df
    loads.unload()
    df.unpersist()


#: Families that other tests fit to such rows (``numbers`` of test_ml.py) are not here.
@pytest.mark.parametrize(("name", "params"), [("KMeans", {"k": 3}), ("BisectingKMeans", {"k": 3}),
                                              ("GaussianMixture", {"k": 3}), ("FMClassifier", {})], ids=str)
def test_odd_rows_are_fitted_as_by_mllib(odd: DataFrame, name: str, params: dict[str, Any]):
    ours, theirs = (numbers(estimator(name, is_mllib=kind, **{"maxIter": 3} | params).fit(odd))
                    for kind in (False, True))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


#: Rows that are no more than odd, by case; a fit of each family ends as MLlib's, with numbers or with words.
ROWS = [(float(number % 2), 1.0 + number % 3, [9.0 * (number % 2) + number / 7, 8.0 * (number % 2) + number**2 / 99])
        for number in range(12)]
ODD = {"constant": [(y, w, [x[0], 0.0]) for y, w, x in ROWS], "all constant": [(y, w, [2.0, 5.0]) for y, w, _ in ROWS],
       "zeros": [(y, w, [0.0, 0.0]) for y, w, _ in ROWS], "no features": [(y, w, []) for y, w, _ in ROWS],
       "one row": ROWS[:1], "two rows": [(y, w, [x[0], 5.0]) for y, w, x in ROWS[:2]],
       "twice a column": [(y, w, x[:1] * 2) for y, w, x in ROWS],
       "tiny": [(y, w, [x[0] * 1e-200, x[1]]) for y, w, x in ROWS], "one class": [(0.0, w, x) for _, w, x in ROWS],
       "huge": [(y, w, [x[0] * 1e200, x[1]]) for y, w, x in ROWS],
       "empty classes": [(3.0 * y, w, x) for y, w, x in ROWS]}


def ended(fit: Any, df: DataFrame) -> Any:
    """Return a fitted model's numbers, or MLlib's words without the number of the estimator."""
    models: list[Any] = []
    message = words(lambda: models.append(fit.fit(df)) or models[0])
    return numbers(models[0]) if models else message.replace(fit.uid, "")


@pytest.mark.parametrize("case", ODD)
def test_odd_rows_end_as_with_mllib(sc: SparkContext, spark: SparkSession, case: str):
    rows = [(y, w, Vectors.sparse(len(x), range(len(x)), x) if number % 5 == 0 else Vectors.dense(x))
            for number, (y, w, x) in enumerate(ODD[case])]
    parts = sc.parallelize(rows, 1).union(sc.parallelize([], 1))
    df = spark.createDataFrame(parts, SCHEMA).cache()
    with left_to_mllib(sc):
        # Of one row MLlib makes one centre, and its own summary of two fails.
        for name in ("LinearRegression", "LogisticRegression", "StandardScaler", *["KMeans"] * (case != "one row")):
            ours, theirs = (ended(estimator(name, is_mllib=kind), df) for kind in (False, True))
            assert type(ours) is type(theirs), name
            if isinstance(ours, str):
                assert ours == theirs, name
            else:
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=name)
    loads.unload()
    df.unpersist()


@pytest.mark.parametrize("name", ["KMeans", "BisectingKMeans", "GaussianMixture"])
def test_more_clusters_than_rows_end_as_with_mllib(sc: SparkContext, frames: Callable[[str], DataFrame], name: str):
    with left_to_mllib(sc):
        ours, theirs = (words(lambda kind=kind: estimator(name, is_mllib=kind, k=5).fit(frames("one class")))
                        for kind in (False, True))
    assert ours == theirs


#: By case: ratings, parameters, and the reason to leave them to MLlib.
RATINGS = {"no rows": ([], {}, "no rows"), "null id": ([(None, 1.0, 2.0)], {}, "null"),
           "null rating": ([(1.0, 1.0, None)], {}, "null"), "NaN rating": ([(1.0, 1.0, NAN)], {}, "NaN or infinite"),
           "fraction": ([(1.5, 1.0, 2.0)], {}, "whole numbers"), "large id": ([(3e9, 1.0, 2.0)], {}, "32 bits"),
           "no iteration": ([(1.0, 1.0, 2.0)], {"maxIter": 0}, "maxIter is 0"),
           "singular": ([(1.0, 1.0, 0.0)], {"regParam": 0.0}, "singular")}


@pytest.mark.parametrize("case", RATINGS)
def test_bad_ratings_are_left_to_mllib(sc: SparkContext, spark: SparkSession, case: str):
    rows, params, reason = RATINGS[case]
    df = spark.createDataFrame(sc.parallelize(rows, 2), "user double, item double, rating double")
    with pytest.raises(PlanError, match=reason):
        recommendation.ALS(**{"rank": 2, "maxIter": 1, "seed": 1} | params).fit(df)
    if WITH_MLLIB:
        with left_to_mllib(sc):
            ours, theirs = (words(lambda module=module: rated(module, params).fit(df))
                            for module in (recommendation, mllib_recommendation))
        assert ours == theirs


def rated(module: Any, params: dict[str, Any]) -> Any:
    return module.ALS(**{"rank": 2, "maxIter": 1, "seed": 1} | params)


def test_bad_sentences_and_sets(spark: SparkSession, frames: Callable[[str], DataFrame]):
    words_of = feature.Word2Vec(inputCol="words", minCount=1)
    for rows in ([], [(["a", None],)], [(None,)]):
        with pytest.raises(PlanError, match=r"no word|null"):
            words_of.fit(spark.createDataFrame(rows, "words array<string>"))
    rows = frames("one class")
    for kind, params in (("BucketedRandomProjectionLSH", {"bucketLength": 10.0}), ("MinHashLSH", {})):
        model = getattr(feature, kind)(inputCol="x", outputCol="out", seed=1, **params).fit(rows)
        assert len(model.approxNearestNeighbors(rows, Vectors.dense(1.0), 9).collect()) == 2
        with pytest.raises(PlanError, match="below 1"):
            model.approxNearestNeighbors(rows, Vectors.dense(1.0), 0)
        with pytest.raises(PlanError, match="length"):
            model.approxNearestNeighbors(rows, Vectors.dense(1.0, 2.0), 1)
    assert neighbors.NearestNeighbors(k=9, inputCol="x").fit(rows).search([[1.0]])[0].tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("kind", ["BucketedRandomProjectionLSH", "MinHashLSH"])
def test_rows_beside_numbers_that_are_not_finite_are_found_by_mllib(sc: SparkContext, spark: SparkSession, kind: str):
    for number in (np.nan, np.inf):
        rows = spark.createDataFrame([(Vectors.dense(1.0, x),) for x in (2.0, number, 3.0)], ["x"])
        params = {"bucketLength": 100.0} if kind != "MinHashLSH" else {}
        model = getattr(feature, kind)(inputCol="x", outputCol="out", seed=1, **params).fit(rows)
        with pytest.raises(PlanError, match="NaN or infinite"):
            model.approxNearestNeighbors(rows, Vectors.dense(1.0, 2.5), 2)
        with left_to_mllib(sc):
            assert model.approxNearestNeighbors(rows, Vectors.dense(1.0, 2.5), 2).count() > 0


def test_trainings_of_rdds_take_defaults_and_refuse_what_mllib_does(sc: SparkContext):
    vectors, ratings = sc.parallelize([[0.0], [1.0], [8.0], [9.0]], 2), sc.parallelize([(0, 0, 4.0), (0, 1, 2.0)], 2)
    pairs = sc.parallelize([(0.0, [-1.0]), (1.0, [1.0])], 2)
    # Without a seed it is the default one.
    assert sorted(each.tolist() for each in clustering.KMeans.train(vectors, 2).clusterCenters) == [[0.5], [8.5]]
    assert recommendation.ALS.train(ratings, 1).rank == recommendation.ALS.trainImplicit(ratings, 1).rank == 1
    for train, parameter in ((lambda: clustering.KMeans.train(vectors, 0), "k"),
                             (lambda: clustering.KMeans.train(vectors, 2, initializationMode="far"), "initMode"),
                             (lambda: recommendation.ALS.train(ratings, 0), "rank"),
                             (lambda: classification.LogisticRegression.train(pairs, -1), "maxIter")):
        with pytest.raises(IllegalArgumentException, match=f"parameter {parameter} given invalid value"):
            train()
    for train, word in ((lambda: clustering.KMeans.train(sc.parallelize([1.0, 2.0]), 2), "vector"),
                        (lambda: classification.LogisticRegression.train(vectors), "LabeledPoint"),
                        (lambda: recommendation.ALS.train(sc.parallelize([(1, 2)], 1), 2), "Rating")):
        with pytest.raises(TaskError, match=f"TypeError: a {word}"):
            train()


def test_estimators_of_vispark_alone_refuse_what_they_are_not_of(spark: SparkSession):
    x = Vectors.dense
    rows = spark.createDataFrame([(x(1, 2), 1.0), (x(2, 1), 2.0)], ["x", "n"])
    lengths = spark.createDataFrame([(x(1),), (x(1, 2, 3),)], ["x"])
    nearest = neighbors.NearestNeighbors(inputCol="x")
    for fit, kind, text in (
            (lambda: decomposition.NMF(k=1).fit(rows), ValueError, "NMF needs inputCol"),
            (lambda: decomposition.NMF(k=1, inputCol="n").fit(rows), TypeError, "column 'n' is double: NMF is of vec"),
            (lambda: decomposition.NMF(k=1, inputCol="x", maxIter=-1).fit(rows), ValueError, "maxIter is -1"),
            (lambda: decomposition.NMF(k=1, inputCol="x", tol=NAN).fit(rows), ValueError, "tol nan"),
            (lambda: neighbors.NearestNeighbors(inputCol="y").fit(rows), AnalysisException, "y"),
            (lambda: nearest.fit(rows).nearest([NAN, 1.0]), RecordError, "a query with NaN"),
            (lambda: nearest.fit(lengths).nearest([1.0, 2.0]), RecordError, "several lengths")):
        with pytest.raises(kind, match=text):
            fit()
    null = spark.createDataFrame([(1.0, x(1.0)), (None, x(2.0))], ["y", "x"])
    with pytest.raises(PlanError, match=r"column 'y0: double\(y\)' is null"):
        regression.LinearRegression(featuresCol="x", labelCol="y").fit(null)


def test_a_consensus_refuses_numbers_and_losses_that_are_none():
    def squares(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (points ** 2).sum(axis=1), 2 * points
    for changes in ({"parts": 0}, {"size": 0}, {"l2": -1.0}, {"rho": NAN}, {"inner": 0}):
        with pytest.raises(ValueError, match="are to be at least"):
            consensus(squares, **{"parts": 1, "size": 2} | changes)
    with pytest.raises(ValueError, match="shapes"):
        consensus(lambda points: (np.zeros(2), points), parts=1, size=2)
    with pytest.raises(ValueError, match="not finite at 0"):
        consensus(lambda points: (np.full(1, NAN), points), parts=1, size=2)
    met = []

    def barrier(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(invalid="ignore"):
            values = (-np.log(0.5 - points) - 20 * points)[:, 0]
        met.append(np.isnan(values).any())
        return values, 1 / (0.5 - points) - 20
    # A step to where the loss is no number is shortened.
    np.testing.assert_allclose(consensus(barrier, parts=1, size=1).x, [0.45], atol=1e-4)
    assert any(met)


def test_a_covariance_beyond_float64_is_an_error(frames: Callable[[str], DataFrame]):
    # MLlib's own fit does not end.
    with pytest.raises(ValueError, match="no covariance: the squares"):
        estimator("PCA").fit(frames("squares"))


def test_a_model_of_another_version_is_loaded(odd: DataFrame, tmp_path: Any):
    # Files name the version of Spark that wrote them.
    model = estimator("KMeans", k=3).fit(odd)
    model.save(str(tmp_path / "model"))
    part, = (tmp_path / "model/metadata").glob("part-*")
    part.write_text(part.read_text().replace(f'"sparkVersion":"{odd.sparkSession.version}"', '"sparkVersion":"3.0.0"'))
    for checksum in (tmp_path / "model/metadata").glob(".*.crc"):
        checksum.unlink()
    read = mllib_clustering.KMeansModel.load(str(tmp_path / "model"))
    assert numbers(read) == numbers(model)
