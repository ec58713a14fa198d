"""vispark.ml's evaluators and searches beside MLlib's: the same numbers, without a Spark job for each metric."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.ml import evaluation as mllib
from pyspark.ml import tuning
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession, functions

from tests.system.topology import Topology
from tests.system.vrdd_tools import EagerPool, cost, host_context
from vispark.api.rdds import fallback
from vispark.errors import FallbackWarning
from vispark.ml import classification, clustering, evaluation, loads, regression
from vispark.ml import tuning as selection

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(300)

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"

CLASSES = {"predictionCol": "guess", "labelCol": "class", "probabilityCol": "shares", "metricLabel": 2.0, "beta": .7,
           "eps": .01}
#: Metrics by evaluator: values of its parameters.
METRICS: dict[str, dict[str, list[Any]]] = {
    "BinaryClassificationEvaluator": {
        "metricName": ["areaUnderROC", "areaUnderPR"], "numBins": [0, 7, 1000], "rawPredictionCol": ["raw", "score"]},
    "MulticlassClassificationEvaluator": {
        **{name: [value] for name, value in CLASSES.items()}, "metricName": [
            "f1", "accuracy", "weightedPrecision", "weightedRecall", "weightedTruePositiveRate",
            "weightedFalsePositiveRate", "weightedFMeasure", "truePositiveRateByLabel", "falsePositiveRateByLabel",
            "precisionByLabel", "recallByLabel", "fMeasureByLabel", "logLoss", "hammingLoss"]},
    "RegressionEvaluator": {"metricName": ["rmse", "mse", "r2", "mae", "var"], "throughOrigin": [False, True],
                            "predictionCol": ["score"]},
    "ClusteringEvaluator": {"distanceMeasure": ["squaredEuclidean", "cosine"]}}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="warn") as context:
        yield context


@pytest.fixture(scope="module")
def predicted(sc: SparkContext) -> Iterator[DataFrame]:
    """Make scores, classes, clusters, and weights of which some are 0, in one partition, as MLlib bins by partition."""
    rng = np.random.default_rng(2)
    z, cluster, weights = rng.normal(size=3000), rng.integers(0, 4, 3000), rng.integers(0, 3, 3000)
    guess = np.where(rng.random(3000) < .7, cluster, rng.integers(0, 4, 3000))
    score, label = np.round(1 / (1 + np.exp(-z)), 4), z + rng.normal(size=3000) > 0
    x, shares = rng.normal(size=(3000, 3)) + 2 * cluster[:, None], rng.dirichlet(np.ones(4), 3000)
    rows = [(Vectors.dense(1 - one, one), float(one), float(*yes), float(*weight), Vectors.dense(row), int(*group),
             float(*group), float(*other), Vectors.dense(share)) for one, yes, weight, row, group, other, share
            in zip(score, label[:, None], weights[:, None], x, cluster[:, None], guess[:, None], shares, strict=True)]
    df = SparkSession(sc).createDataFrame(sc.parallelize(rows, 1), [
        "raw", "score", "label", "weight", "features", "prediction", "class", "guess", "shares"]).cache()
    df.count()
    yield df
    loads.unload()
    df.unpersist()


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("weights", [{}, {"weightCol": "weight"}], ids=["alike", "weighed"])
def test_metrics_are_mllibs(sc: SparkContext, predicted: DataFrame, name: str, weights: dict[str, str]):
    loads.unload()
    jobs = []
    for values in itertools.product(*METRICS[name].values()):
        params = {**dict(zip(METRICS[name], values, strict=True)), **weights}
        ours, theirs = (getattr(module, name)(**params) for module in (evaluation, mllib))
        metrics: list[float] = []
        jobs.append(cost(sc, lambda ours=ours, metrics=metrics: metrics.append(ours.evaluate(predicted))).jobs)
        assert metrics == pytest.approx([theirs.evaluate(predicted)], rel=1e-12, abs=0), params
        assert ours.isLargerBetter() == theirs.isLargerBetter()
        assert ours._java_obj.getMetricName() == ours.getMetricName()
    # One job for each set of columns.
    assert sum(jobs) == {"BinaryClassificationEvaluator": 2, "MulticlassClassificationEvaluator": 2}.get(name, 1)


def test_evaluators_are_saved_and_loaded(tmp_path: Any):
    for name in METRICS:
        evaluator = getattr(evaluation, name)()
        evaluator.save(str(tmp_path / name))
        for module in (evaluation, mllib):
            kind = getattr(module, name)
            read = kind.load(str(tmp_path / name))
            assert type(read) is kind and read.uid == evaluator.uid


#: Data that is left to Spark, by case: evaluator, parameters, expression of a column that is replaced, and the reason.
LEFT = {"a NaN": ("RegressionEvaluator", {"predictionCol": "score", "metricName": "r2"}, "score",
                  "double('NaN')", "NaN"),
        "an infinity": ("RegressionEvaluator", {"predictionCol": "score", "metricName": "var"}, "score",
                        "if(score > 0.5, double('Infinity'), score)", "not finite"),
        "negative weights": ("RegressionEvaluator", {"predictionCol": "score", "weightCol": "weight"}, "weight",
                             "weight - 1", "negative weights"),
        "half a class": ("MulticlassClassificationEvaluator", CLASSES, "class", "class / 2", "whole numbers"),
        "a null": ("RegressionEvaluator", {"predictionCol": "score"}, "label", "cast(null as double)", "null"),
        "one cluster": ("ClusteringEvaluator", {}, "prediction", "1", "fewer than two clusters"),
        "no such label": ("MulticlassClassificationEvaluator", {
            **CLASSES, "metricLabel": 9.0, "metricName": "recallByLabel"}, "class", "class", "no row has the label")}


@pytest.mark.parametrize("case", LEFT)
def test_what_spark_evaluates_is_named(predicted: DataFrame, case: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fallback, "_warned", set())
    name, params, column, expression, reason = LEFT[case]
    df = predicted.limit(50).withColumn(column, functions.expr(expression))
    ended = []
    for module in (evaluation, mllib):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                ended.append(getattr(module, name)(**params).evaluate(df))
            except (Py4JError, PySparkException) as error:
                # Numbers are of jobs, stages and tasks.
                ended.append(re.sub(r"\d+", "", str(error).partition("\n")[0]))
        reported = [str(each.message) for each in warned if issubclass(each.category, FallbackWarning)]
        assert [reason in text for text in reported] == [True] * (module is evaluation and case != "a NaN"), reported
    assert ended[0] == ended[1] or (case in ("a NaN", "an infinity") and np.isnan(ended).all())


def test_columns_of_other_types_are_refused_in_sparks_words(predicted: DataFrame):
    df = predicted.limit(5).withColumn("label", functions.lit("a"))
    for module in (evaluation, mllib):
        with pytest.raises(PySparkException, match="label must be of type numeric"):
            module.RegressionEvaluator(predictionCol="score").evaluate(df)


def models(name: str) -> tuple[Any, Any, Any]:
    """Return an estimator, a parameter of it and its values."""
    learner = {
        "binary": lambda: classification.LogisticRegression(labelCol="two", maxIter=5),
        "classes": lambda: classification.LogisticRegression(labelCol="three", weightCol="weight", maxIter=5),
        "thresholds": lambda: classification.LogisticRegression(labelCol="three", thresholds=[.5, .2, .3], maxIter=5),
        "shares": lambda: classification.LogisticRegression(labelCol="three", maxIter=5),
        "margins": lambda: classification.LinearSVC(labelCol="two", maxIter=5),
        "numbers": lambda: regression.LinearRegression(labelCol="y", weightCol="weight"),
        "counts": lambda: regression.GeneralizedLinearRegression(labelCol="three", family="poisson", maxIter=5),
        "machine": lambda: regression.FMRegressor(labelCol="y", factorSize=2, maxIter=5, seed=1),
        "classified": lambda: classification.FMClassifier(labelCol="two", factorSize=2, maxIter=5, seed=1),
        "clusters": lambda: clustering.KMeans(seed=1, maxIter=5),
        "directions": lambda: clustering.KMeans(seed=1, maxIter=5, distanceMeasure="cosine")}[name]()
    param = learner.k if "k" in {each.name for each in learner.params} else learner.regParam
    return learner, param, [2, 3] if param.name == "k" else [.01, .3]


#: Evaluators of searches, by the estimator's name.
EVALUATORS: dict[str, Any] = {
    "binary": lambda module: module.BinaryClassificationEvaluator(labelCol="two", weightCol="weight"),
    "classes": lambda module: module.MulticlassClassificationEvaluator(labelCol="three"),
    "thresholds": lambda module: module.MulticlassClassificationEvaluator(labelCol="three", metricName="accuracy"),
    "shares": lambda module: module.MulticlassClassificationEvaluator(labelCol="three", metricName="logLoss"),
    "margins": lambda module: module.BinaryClassificationEvaluator(labelCol="two", metricName="areaUnderPR"),
    "numbers": lambda module: module.RegressionEvaluator(labelCol="y", weightCol="other"),
    "counts": lambda module: module.RegressionEvaluator(labelCol="three", metricName="mae"),
    "machine": lambda module: module.RegressionEvaluator(labelCol="y", metricName="r2"),
    "classified": lambda module: module.BinaryClassificationEvaluator(labelCol="two", rawPredictionCol="probability"),
    "clusters": lambda module: module.ClusteringEvaluator(),
    "directions": lambda module: module.ClusteringEvaluator(distanceMeasure="cosine")}


@pytest.fixture(scope="module")
def rows(sc: SparkContext) -> Iterator[DataFrame]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(150, 3)) * [1, 2, .5] + 3 * rng.integers(0, 3, (150, 1))
    y = x @ [1, -.5, 2] + rng.normal(size=150)
    df = SparkSession(sc).createDataFrame(sc.parallelize(
        [(float(one), float(one > 6), float((one > 4) + 0) + float(one > 8), float(number % 3), float(number % 2 + 1),
          Vectors.dense(row)) for number, (row, one) in enumerate(zip(x, y, strict=True))], 2),
        ["y", "two", "three", "weight", "other", "features"]).cache()
    df.count()
    yield df
    loads.unload()
    df.unpersist()


@pytest.mark.parametrize("name", EVALUATORS)
def test_searches_evaluate_without_jobs(sc: SparkContext, rows: DataFrame, name: str, monkeypatch: pytest.MonkeyPatch):
    # The metrics are those that Spark finds of the same models; all is one load, and no job of Spark's beside it.
    monkeypatch.setattr(tuning, "ThreadPool", EagerPool)
    learner, param, values = models(name)
    grid = tuning.ParamGridBuilder().addGrid(param, values).build()
    module = mllib if name in ("binary", "clusters") else evaluation       # pyspark's own are found in the workers too
    search = selection.CrossValidator(estimator=learner, estimatorParamMaps=grid, numFolds=2, seed=5,
                                      evaluator=EVALUATORS[name](module), collectSubModels=True)
    loads.unload()
    fitted: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert cost(sc, lambda: fitted.append(search.fit(rows))).jobs == 1
    spark = EVALUATORS[name](mllib)
    expected = [[spark.evaluate(model.transform(validation)) for model in fold] for fold, (_, validation)
                in zip(fitted[0].subModels, search._kFold(rows), strict=True)]
    np.testing.assert_allclose(fitted[0].avgMetrics, np.mean(expected, axis=0), rtol=1e-12)


def test_a_search_whose_metric_is_sparks_says_so(rows: DataFrame):
    learner = clustering.BisectingKMeans(k=2, maxIter=2, seed=1)
    search = selection.TrainValidationSplit(estimator=learner, estimatorParamMaps=[{}], seed=5,
                                            evaluator=evaluation.ClusteringEvaluator())
    with pytest.warns(FallbackWarning, match="ClusteringEvaluator is done by Spark.*what BisectingKMeansModel makes"):
        assert search.fit(rows).validationMetrics[0] > 0


def test_scores_of_one_class_are_refused_by_spark(rows: DataFrame):
    search = selection.TrainValidationSplit(estimator=classification.LogisticRegression(labelCol="none", maxIter=2),
                                            estimatorParamMaps=[{}], seed=5,
                                            evaluator=evaluation.BinaryClassificationEvaluator(labelCol="none"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with pytest.raises(PySparkException, match="length=2, but got 1"):
            search.fit(rows.withColumn("none", functions.lit(0.0)))
