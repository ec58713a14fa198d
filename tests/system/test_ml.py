"""vispark.ml's fits beside MLlib's: the same models, in one job, from data that is loaded once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.ml import Pipeline, evaluation, tuning
from pyspark.ml import classification as mllib_classification
from pyspark.ml import clustering as mllib_clustering
from pyspark.ml import feature as mllib_feature
from pyspark.ml import recommendation as mllib_recommendation
from pyspark.ml import regression as mllib_regression
from pyspark.ml.linalg import Matrices, Vectors, VectorUDT
from pyspark.mllib import clustering as rdd_clustering
from pyspark.mllib.classification import LogisticRegressionWithLBFGS
from pyspark.mllib.regression import LabeledPoint
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import DoubleType, StructField, StructType

import vispark.ml
from tests.chaos.fits import OF_RECORDS
from tests.system.topology import Topology
from tests.system.vrdd_tools import EagerPool, cost, host_context
from vispark.errors import FallbackWarning, RecordError
from vispark.ml import (
    classification,
    clustering,
    decomposition,
    feature,
    first_centers,
    loads,
    neighbors,
    recommendation,
    regression,
)
from vispark.ml import tuning as selection_in_workers
from vispark.ml.base import Unsuited
from vispark.ml.optim.normal_equations import solve_nonnegative
from vispark.runtime.driver.session import Session

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(300)

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture(scope="module")
def numbers(spark: SparkSession) -> Iterator[DataFrame]:
    """Cache rows with a constant feature, some of them sparse, in four partitions of which one is empty."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 5)) * [1, 2, 3, 0, .1] + 3
    y = x @ rng.normal(size=5) + rng.normal(size=300)
    rows = [(float(label), float(weight), _vector(row, number)) for number, (row, label, weight)
            in enumerate(zip(x, y, rng.integers(0, 3, 300), strict=True))]
    parts = spark.sparkContext.parallelize(rows, 3).union(spark.sparkContext.parallelize([], 1))
    df = spark.createDataFrame(parts, ["label", "weight", "features"]).cache()
    df.count()
    yield df
    loads.unload()
    df.unpersist()


def _vector(row: np.ndarray, number: int):
    return Vectors.sparse(len(row), range(len(row)), row) if number % 7 == 0 else Vectors.dense(row)


SCHEMA = StructType([StructField("label", DoubleType()), StructField("weight", DoubleType()),
                     StructField("features", VectorUDT())])
LINEAR = [{}, {"regParam": .5}, {"regParam": .1, "elasticNetParam": .5, "weightCol": "weight"},
          {"fitIntercept": False, "regParam": .1, "elasticNetParam": 1.0}, {"standardization": False, "regParam": .3},
          {"solver": "l-bfgs", "regParam": .2, "elasticNetParam": .5, "standardization": False}]


@pytest.mark.parametrize("params", LINEAR, ids=str)
def test_linear_regression(numbers: DataFrame, params):
    params = {"tol": 1e-10, **params}
    ours = regression.LinearRegression(**params).fit(numbers)
    theirs = mllib_regression.LinearRegression(**params).fit(numbers)
    np.testing.assert_allclose(ours.coefficients.toArray(), theirs.coefficients.toArray(), rtol=1e-6, atol=1e-7)
    assert ours.intercept == pytest.approx(theirs.intercept, rel=1e-6)
    assert ours.summary.r2 == pytest.approx(theirs.summary.r2, rel=1e-9)


@pytest.mark.parametrize("params", [{"fitIntercept": False, "epsilon": 2.0, "weightCol": "weight"},
                                    {"regParam": .3, "standardization": False}], ids=str)
def test_huber_regression(numbers: DataFrame, params):
    params = {"loss": "huber", "tol": 1e-12, **params}
    ours, theirs = (module.LinearRegression(**params).fit(numbers) for module in (regression, mllib_regression))
    # MLlib's own optimiser ends before the optimum.
    np.testing.assert_allclose(ours.coefficients.toArray(), theirs.coefficients.toArray(), atol=1e-3)
    assert [ours.intercept, ours.scale] == pytest.approx([theirs.intercept, theirs.scale], abs=1e-3)
    assert ours.summary.objectiveHistory[-1] <= theirs.summary.objectiveHistory[-1] * (1 + 1e-9)


@pytest.fixture(scope="module")
def classes(numbers: DataFrame) -> Iterator[DataFrame]:
    df = numbers.withColumn("two", (numbers.label > 5).cast("double")) \
        .withColumn("three", (numbers.label > 3).cast("double") + (numbers.label > 9).cast("double")).cache()
    # Spark 3.5 fills the cache before a load, by a job of its own.
    df.count()
    yield df
    df.unpersist()


LOGISTIC = [{}, {"regParam": .05, "weightCol": "weight"}, {"regParam": .05, "elasticNetParam": .7},
            {"regParam": .05, "elasticNetParam": 1.0, "standardization": False}, {"fitIntercept": False, "maxIter": 4},
            {"labelCol": "three", "regParam": .02, "elasticNetParam": .5}, {"family": "multinomial", "maxIter": 0}]


@pytest.mark.parametrize("params", LOGISTIC, ids=str)
def test_logistic_regression(classes: DataFrame, params):
    params = {"labelCol": "two", **params}
    ours = classification.LogisticRegression(**params).fit(classes)
    theirs = mllib_classification.LogisticRegression(**params).fit(classes)
    for name in ("coefficientMatrix", "interceptVector"):
        np.testing.assert_allclose(getattr(ours, name).toArray(), getattr(theirs, name).toArray(), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.summary.objectiveHistory, theirs.summary.objectiveHistory, rtol=1e-9)


def constant_bounds(rows: int, number: float):
    return Matrices.dense(rows, 5, [number] * (rows * 5))


BOUNDED = [{"lowerBoundsOnCoefficients": constant_bounds(1, 0.0), "regParam": .01, "weightCol": "weight"},
           {"labelCol": "three", "lowerBoundsOnCoefficients": constant_bounds(3, -.02), "standardization": False,
            "upperBoundsOnCoefficients": constant_bounds(3, .05), "regParam": .05,
            "upperBoundsOnIntercepts": Vectors.dense(0, 0, 0)}]


@pytest.mark.parametrize("params", BOUNDED, ids=["non-negative", "multinomial"])
def test_bounds_on_coefficients(classes: DataFrame, params):
    params = {"labelCol": "two", "tol": 1e-10, **params}
    ours, theirs = (module.LogisticRegression(**params).fit(classes)
                    for module in (classification, mllib_classification))
    for name in ("coefficientMatrix", "interceptVector"):
        # MLlib's own optimiser ends before the optimum.
        np.testing.assert_allclose(getattr(ours, name).toArray(), getattr(theirs, name).toArray(), rtol=1e-3, atol=1e-3)
    assert ours.summary.objectiveHistory[-1] <= theirs.summary.objectiveHistory[-1] * (1 + 1e-9)


def test_bounds_that_mllib_refuses_end_with_its_words(classes: DataFrame):
    for rows, params, reason in ((2, {}, "shape of LowerBounds"),
                                 (1, {"regParam": .1, "elasticNetParam": .5}, "only supports L2|L2 regularization")):
        estimator = classification.LogisticRegression(lowerBoundsOnCoefficients=constant_bounds(rows, 0.0), **params)
        with pytest.raises(PySparkException, match=reason):
            estimator.setLabelCol("two").fit(classes)


def test_a_logistic_regression_is_one_job(sc: SparkContext, classes: DataFrame):
    loads.unload()
    estimator = classification.LogisticRegression(labelCol="two", maxIter=5)
    assert cost(sc, lambda: estimator.fit(classes)).jobs == 1
    assert cost(sc, lambda: estimator.fit(classes)).jobs == 0


@pytest.mark.parametrize("params", [{"regParam": .1, "weightCol": "weight"},
                                    {"fitIntercept": False, "standardization": False, "regParam": .3}], ids=str)
def test_linear_support_vectors(classes: DataFrame, params):
    params = {"labelCol": "two", "maxIter": 8, **params}
    ours, theirs = (module.LinearSVC(**params).fit(classes) for module in (classification, mllib_classification))
    np.testing.assert_allclose(ours.coefficients.toArray(), theirs.coefficients.toArray(), rtol=1e-6, atol=1e-8)
    assert ours.intercept == pytest.approx(theirs.intercept, rel=1e-6, abs=1e-8)
    np.testing.assert_allclose(ours.summary().objectiveHistory, theirs.summary().objectiveHistory, rtol=1e-9)


def test_support_vectors_whose_first_coefficient_is_rounding_alone(sc: SparkContext):
    # It is 0 by symmetry; in MLlib a few 1e-16 of either sign, by the order of its sums, and OWL-QN keeps the sign. So
    # its models differ, but have the same objective.
    rows = [(Vectors.dense(1 + i % 3, 7 * i % 5), float(i % 2)) for i in range(12)]
    df = SparkSession(sc).createDataFrame(sc.parallelize(rows, 2), ["features", "label"])
    model = classification.LinearSVC().fit(df)
    losses = [max(0, 1 - (2 * label - 1) * (model.coefficients.dot(x) + model.intercept)) for x, label in rows]
    assert np.mean(losses) == pytest.approx(11 / 12, rel=1e-6)
    assert model.summary().objectiveHistory[-1] == pytest.approx(np.mean(losses), rel=1e-12)


MACHINES = [("FMRegressor", {"solver": "gd", "stepSize": 1e-4, "fitIntercept": False}),
            ("FMClassifier", {"regParam": .01, "fitLinear": False})]


@pytest.mark.parametrize(("name", "params"), MACHINES, ids=str)
def test_factorization_machines(classes: DataFrame, name: str, params):
    modules = (regression, mllib_regression) if name == "FMRegressor" else (classification, mllib_classification)
    params = {"labelCol": "label" if name == "FMRegressor" else "two", "maxIter": 4, "seed": 3, "factorSize": 3,
              "stepSize": .1, **params}
    ours, theirs = (getattr(module, name)(**params).fit(classes) for module in modules)
    np.testing.assert_allclose(ours.factors.toArray(), theirs.factors.toArray(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.linear.toArray(), theirs.linear.toArray(), rtol=1e-6, atol=1e-9)
    assert ours.intercept == pytest.approx(theirs.intercept, rel=1e-6)
    if name == "FMClassifier":
        np.testing.assert_allclose(ours.summary().objectiveHistory, theirs.summary().objectiveHistory, rtol=1e-6)


def test_mini_batches_are_chosen_by_the_seed(numbers: DataFrame):
    whole, part, again = (regression.FMRegressor(maxIter=1, seed=3, miniBatchFraction=fraction).fit(numbers).factors
                          for fraction in (1.0, .3, .3))
    assert part == again and part != whole


@pytest.mark.parametrize(("name", "attributes"), [
    ("StandardScaler", ("mean", "std")), ("MinMaxScaler", ("originalMin", "originalMax")),
    ("MaxAbsScaler", ("maxAbs",))])
def test_scalers(numbers: DataFrame, name: str, attributes):
    ours, theirs = (getattr(module, name)(inputCol="features", outputCol="out").fit(numbers)
                    for module in (feature, mllib_feature))
    for one in attributes:
        np.testing.assert_allclose(getattr(ours, one).toArray(), getattr(theirs, one).toArray(), rtol=1e-9, atol=1e-12)


def test_vectors_are_sparse_where_mllibs_are(spark: SparkSession):
    rows = [(float(i % 2), Vectors.sparse(9, {1: float(i)})) for i in range(4)]
    df = spark.createDataFrame(rows, ["two", "features"]).coalesce(1)
    scaler = {"inputCol": "features", "outputCol": "out"}
    for name, params, attribute in (("StandardScaler", scaler, "std"), ("MinMaxScaler", scaler, "originalMax"),
                                    ("MaxAbsScaler", scaler, "maxAbs"),
                                    ("LinearSVC", {"labelCol": "two", "maxIter": 1}, "coefficients")):
        modules = (classification, mllib_classification) if name == "LinearSVC" else (feature, mllib_feature)
        ours, theirs = (type(getattr(getattr(module, name)(**params).fit(df), attribute)) for module in modules)
        assert ours is theirs, name


def test_principal_components(numbers: DataFrame):
    names = {"k": 3, "inputCol": "features", "outputCol": "out"}
    ours, theirs = feature.PCA(**names).fit(numbers), mllib_feature.PCA(**names).fit(numbers)
    # A constant column leaves the signs to LAPACK's version.
    signs = np.sign((ours.pc.toArray() * theirs.pc.toArray()).sum(axis=0))
    np.testing.assert_allclose(ours.pc.toArray() * signs, theirs.pc.toArray(), atol=1e-9)
    np.testing.assert_allclose(ours.explainedVariance.toArray(), theirs.explainedVariance.toArray(), rtol=1e-9)


# -- the frame of all estimators --------------------------------------------------------------------------------------

def test_a_fit_is_one_job_and_a_second_one_loads_nothing(sc: SparkContext, numbers: DataFrame):
    # The one job is the load.
    def jobs(df: DataFrame) -> int:
        return cost(sc, lambda: regression.LinearRegression().fit(df)).jobs

    loads.unload()
    assert (jobs(numbers), jobs(numbers)) == (1, 0)
    one, again = (numbers.select("label", "features").where("label > 0") for _ in range(2))
    assert (jobs(one), jobs(again)) == (1, 0)
    assert cost(sc, lambda: feature.PCA(k=2, inputCol="features", outputCol="out").fit(numbers)).jobs == 1


def test_a_summary_is_made_when_it_is_asked_for(sc: SparkContext, classes: DataFrame, tmp_path):
    model = regression.LinearRegression(labelCol="two", predictionCol="before").fit(classes)
    assert type(model).__name__ == "LinearRegressionModel" and isinstance(model, mllib_regression.LinearRegressionModel)
    copied = model.copy({model.predictionCol: "after"})
    assert model.hasSummary and copied.hasSummary
    copied.transform(classes)
    seen = copied.summary
    # It is of the parameters that the fit had.
    assert "before" in seen.predictions.columns and "after" not in seen.predictions.columns
    assert model.summary.r2 == seen.r2 == model.copy().summary.r2
    assert cost(sc, lambda: (model.summary, copied.summary)).jobs == 0
    model.save(str(tmp_path / "model"))
    assert not mllib_regression.LinearRegressionModel.load(str(tmp_path / "model")).hasSummary
    two = classification.LogisticRegression(labelCol="two", maxIter=1).fit(classes)
    assert two.hasSummary and type(two.summary).__name__ == "BinaryLogisticRegressionTrainingSummary"


#: Spark jobs of a first fit, with its load, and of a second one, by estimator; the mixture draws its first rows by one.
JOBS = {"clustering.KMeans": (1, 0), "clustering.BisectingKMeans": (1, 0), "clustering.GaussianMixture": (2, 1),
        "classification.LogisticRegression": (1, 0), "classification.LinearSVC": (1, 0),
        "classification.FMClassifier": (1, 0), "regression.FMRegressor": (1, 0), "regression.LinearRegression": (1, 0),
        "regression.GeneralizedLinearRegression": (1, 0), "feature.PCA": (1, 0), "feature.StandardScaler": (1, 0),
        "feature.MinMaxScaler": (1, 0), "feature.MaxAbsScaler": (1, 0), "recommendation.ALS": (1, 0),
        "decomposition.NMF": (1, 0), "feature.BucketedRandomProjectionLSH": (1, 1), "feature.MinHashLSH": (1, 1),
        "neighbors.NearestNeighbors": (0, 0)}


def test_no_fit_takes_more_than_two_jobs(sc: SparkContext, classes: DataFrame):
    # Word2Vec and pipelines have tests of their own, searches are in test_ml_evaluation.py; models of hashes are
    # MLlib's, which looks at a row's length.
    df = classes.selectExpr("two as label", "features", "cast(label as int) user", "cast(weight as int) item",
                            "weight as rating", "transform(array(1.0, 2.0), each -> each * weight) as parts").cache()
    df.count()
    modules = {each.__name__.rpartition(".")[2]: each for each in
               (clustering, classification, regression, feature, recommendation, decomposition, neighbors)}
    jobs = {}
    for name in JOBS:
        module, _, kind = name.partition(".")
        estimator = getattr(modules[module], kind)()
        for param, value in {"inputCol": "parts" if kind == "NMF" else "features", "outputCol": "out", "k": 2,
                             "maxIter": 2, "seed": 1, "rank": 2, "factorSize": 2, "bucketLength": 1.0}.items():
            if estimator.hasParam(param):
                estimator._set(**{param: value})
        loads.unload()
        jobs[name] = tuple([cost(sc, lambda fit=estimator.fit: fit(df)).jobs for _ in range(2)])
    assert jobs == JOBS
    # Each fit of an RDD loads it.
    assert {name: cost(sc, lambda make=make: make().fit(df)).jobs for name, make in OF_RECORDS.items()} \
        == dict.fromkeys(OF_RECORDS, 1)
    loads.unload()
    df.unpersist()


def test_a_load_goes_with_the_last_of_its_dataframes(spark: SparkSession, numbers: DataFrame):
    loads.unload()
    regression.LinearRegression().fit(numbers.limit(50))
    assert len(loads._loads) == 0


def test_files_that_were_written_anew_are_loaded_anew(spark: SparkSession, tmp_path):
    def fitted(slope: float):
        rows = [(slope * x, Vectors.dense(float(x))) for x in range(9)]
        spark.createDataFrame(rows, ["label", "features"]).write.mode("overwrite").parquet(str(tmp_path))
        df = spark.read.parquet(str(tmp_path))
        return df, regression.LinearRegression().fit(df).coefficients[0]

    before, first = fitted(2.0)
    after, second = fitted(3.0)
    assert (round(first, 9), round(second, 9)) == (2.0, 3.0)
    assert len(loads._loads) == 2 and before is not after


def test_estimators_are_saved_and_loaded(numbers: DataFrame, tmp_path):
    path = str(tmp_path / "estimator")
    regression.LinearRegression(regParam=.25).save(path)
    ours, theirs = regression.LinearRegression.load(path), mllib_regression.LinearRegression.load(path)
    assert type(ours) is regression.LinearRegression and type(theirs) is mllib_regression.LinearRegression
    assert ours.getRegParam() == theirs.getRegParam() == .25
    model = ours.fit(numbers)
    model.save(str(tmp_path / "model"))
    read = mllib_regression.LinearRegressionModel.load(str(tmp_path / "model"))
    assert read.coefficients == model.coefficients and read.intercept == model.intercept


MODELS = {"BisectingKMeans": (clustering, mllib_clustering, {"k": 2, "maxIter": 2}),
          "FMRegressor": (regression, mllib_regression, {"factorSize": 2, "maxIter": 2, "fitLinear": False}),
          "BucketedRandomProjectionLSH": (feature, mllib_feature, {"inputCol": "features", "bucketLength": 2.0})}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_saved_for_mllib_and_loaded(numbers: DataFrame, tmp_path, name: str):
    module, theirs, params = MODELS[name]
    model = getattr(module, name)(**params).fit(numbers)
    model.save(str(tmp_path / "model"))
    read = getattr(theirs, type(model).__name__).load(str(tmp_path / "model"))
    assert read.transform(numbers).collect() == model.transform(numbers).collect()
    assert [read.getOrDefault(param) for param in params] == list(params.values())


def test_what_mllib_does_is_named(sc: SparkContext, numbers: DataFrame, monkeypatch: pytest.MonkeyPatch):
    session = Session.of(sc)
    options = replace(session.options, fallback="warn")
    monkeypatch.setattr(session, "credentials", replace(session.credentials, options=options))
    estimator = regression.GeneralizedLinearRegression(family="binomial", link="probit", maxIter=1, labelCol="zero")
    with pytest.warns(FallbackWarning, match=r"fit\(\) of GeneralizedLinearRegression is done by MLlib.*link='probit'"):
        estimator.fit(numbers.withColumn("zero", functions.lit(0.5)))


NAN = float("nan")
BAD = {"no rows": [], "null label": [(None, 1.0, Vectors.dense(1.0)), (1.0, 1.0, Vectors.dense(2.0))],
       "null vector": [(1.0, 1.0, None), (1.0, 1.0, Vectors.dense(2.0))],
       "NaN label": [(NAN, 1.0, Vectors.dense(1.0)), (1.0, 1.0, Vectors.dense(2.0))],
       "NaN": [(2.0, 1.0, Vectors.dense(NAN)), (1.0, 1.0, Vectors.dense(2.0))],
       "infinity": [(2.0, 1.0, Vectors.dense(float("inf"))), (1.0, 1.0, Vectors.dense(2.0))],
       "negative weight": [(2.0, -1.0, Vectors.dense(1.0)), (1.0, 1.0, Vectors.dense(2.0))],
       "no weight": [(2.0, 0.0, Vectors.dense(1.0)), (1.0, 0.0, Vectors.dense(2.0))],
       "lengths": [(2.0, 1.0, Vectors.dense(1.0)), (1.0, 1.0, Vectors.dense(2.0, 3.0))],
       "one label": [(2.0, 1.0, Vectors.dense(1.0)), (2.0, 1.0, Vectors.dense(2.0))]}


def outcome(estimator, df: DataFrame) -> object:
    """Return the model's numbers, or the first line of the reason that there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = estimator.fit(df)
        except (PySparkException, Py4JError) as error:
            assert not isinstance(error.__context__, Unsuited)      # a trace of ours before MLlib's
            # Spark 3.5 names the stage and the task before its own words.
            lines = [line.strip().rpartition("Exception: ")[2] for line in str(error).splitlines()]
            return [line for line in lines if "requirement failed" in line or "MUST" in line][:1]
    coefficients = model.linear if hasattr(model, "linear") else model.coefficients
    return np.round([*coefficients.toArray(), model.intercept], 6).tolist()


LABELS = {"fractions": [.5, 1.0, 0.0], "negative": [-1.0, 0.0, 1.0], "one class": [1.0, 1.0, 1.0],
          "class 0": [0.0, 0.0, 0.0], "null": [None, 1.0, 0.0], "NaN": [NAN, 1.0, 0.0]}


@pytest.mark.parametrize("bad", LABELS)
def test_bad_labels_end_as_with_mllib(spark: SparkSession, bad: str):
    rows = [(label, 1.0, Vectors.dense(float(number))) for number, label in enumerate(LABELS[bad])]
    df = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), SCHEMA)
    name, params = ("FMClassifier", {"maxIter": 1, "seed": 1}) if bad == "fractions" else ("LogisticRegression", {})
    ours, theirs = [outcome(getattr(module, name)(**params), df) for module in (classification, mllib_classification)]
    assert ours == theirs


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_ends_as_with_mllib(spark: SparkSession, bad: str):
    df = spark.createDataFrame(spark.sparkContext.parallelize(BAD[bad], 2), SCHEMA)
    ours, theirs = [outcome(module.LinearRegression(weightCol="weight"), df)
                    for module in (regression, mllib_regression)]
    assert ours == theirs


# -- folds ------------------------------------------------------------------------------------------------------------

def searched(module, estimator, **params):
    grid = tuning.ParamGridBuilder().addGrid(estimator.regParam, [0.0, .3]).build()
    names = {"estimator": estimator, "estimatorParamMaps": grid, "seed": 5, "collectSubModels": True, **params}
    return getattr(module, "CrossValidator" if "numFolds" in names else "TrainValidationSplit")(**names)


SEARCHES = {"linear": (regression, mllib_regression, "LinearRegression", "label", {"numFolds": 3}),
            "logistic": (classification, mllib_classification, "LogisticRegression", "two", {"trainRatio": .6}),
            "column": (classification, mllib_classification, "LogisticRegression", "three",
                       {"numFolds": 2, "foldCol": "fold"})}


@pytest.mark.parametrize("case", SEARCHES)
def test_folds_share_one_load_and_give_mllibs_metrics(classes: DataFrame, case: str, monkeypatch: pytest.MonkeyPatch):
    ours, theirs, name, label, params = SEARCHES[case]
    evaluator = evaluation.RegressionEvaluator(labelCol=label)
    df = classes.withColumn("fold", (functions.rand(1) > .5).cast("int")).cache()
    loads.unload()
    loaded, really = [], loads._loaded
    monkeypatch.setattr(loads, "_loaded", lambda *load: loaded.append(load) or really(*load))
    # pyspark's own search leaves its threads behind.
    monkeypatch.setattr(tuning, "ThreadPool", EagerPool)
    fitted, expected = [searched(selection, getattr(module, name)(labelCol=label, weightCol="weight"), **params,
                                 evaluator=evaluator).fit(df)
                        for selection, module in ((selection_in_workers, ours), (tuning, theirs))]
    for one in ("avgMetrics", "validationMetrics"):
        np.testing.assert_allclose(getattr(fitted, one, 0), getattr(expected, one, 0), rtol=1e-6)
    assert fitted.bestModel.getRegParam() == expected.bestModel.getRegParam()
    assert len(loaded) == 1
    df.unpersist()


def stages_of(module, learner, **params):
    """Return an assembler, all scalers, principal components, and a learner."""
    return [mllib_feature.VectorAssembler(inputCols=["label", "features", "weight"], outputCol="raw"),
            module.StandardScaler(inputCol="raw", outputCol="standard", withMean=True),
            module.MinMaxScaler(inputCol="standard", outputCol="range", min=-1.0),
            module.MaxAbsScaler(inputCol="range", outputCol="scaled"),
            module.PCA(k=3, inputCol="scaled", outputCol="components"),
            learner.LogisticRegression(featuresCol="components", labelCol="two", **params)]


def test_stages_of_a_pipeline_share_one_load(sc: SparkContext, classes: DataFrame):
    loads.unload()
    for weights in ({}, {"weightCol": "weight"}):
        ours = vispark.ml.Pipeline(stages=stages_of(feature, classification, regParam=.1, **weights))
        theirs = Pipeline(stages=stages_of(mllib_feature, mllib_classification, regParam=.1, **weights))
        # The assembler looks at a row for the length of a column of vectors.
        assert [cost(sc, lambda ours=ours: ours.fit(classes)).jobs for _ in range(2)] == [2, 1]
        rows = [pipeline.fit(classes).transform(classes).select("probability").collect() for pipeline in (ours, theirs)]
        np.testing.assert_allclose(*[[row.probability.toArray() for row in each] for each in rows], rtol=1e-6)


def test_a_search_over_a_pipeline_loads_once(classes: DataFrame, monkeypatch: pytest.MonkeyPatch):
    loads.unload()
    loaded, really = [], loads._loaded
    monkeypatch.setattr(loads, "_loaded", lambda *load: loaded.append(load) or really(*load))
    monkeypatch.setattr(tuning, "ThreadPool", EagerPool)
    metrics = []
    for kind, search, modules in ((vispark.ml.Pipeline, selection_in_workers, (feature, classification)),
                                  (Pipeline, tuning, (mllib_feature, mllib_classification))):
        stages = stages_of(*modules, weightCol="weight", maxIter=5)[:2]
        stages.append(modules[1].LogisticRegression(featuresCol="standard", labelCol="two", weightCol="weight"))
        grid = tuning.ParamGridBuilder().addGrid(stages[-1].regParam, [.01, .1]).build()
        metrics.append(search.TrainValidationSplit(
            estimator=kind(stages=stages), estimatorParamMaps=grid, seed=3,
            evaluator=evaluation.RegressionEvaluator(labelCol="two")).fit(classes).validationMetrics)
    np.testing.assert_allclose(*metrics, rtol=1e-6)
    assert len(loaded) == 1


def test_stages_that_cannot_share_load_for_themselves(spark: SparkSession, numbers: DataFrame):
    two, theirs = ([module.StandardScaler(inputCol="features", outputCol="a"),
                    module.MinMaxScaler(inputCol="b", outputCol="c"),
                    mllib_feature.VectorAssembler(inputCols=["a", "c"], outputCol="x"),
                    learner.LinearRegression(featuresCol="x")]
                   for module, learner in ((feature, regression), (mllib_feature, mllib_regression)))
    assembler = mllib_feature.VectorAssembler(inputCols=["weight"], outputCol="b")
    df = assembler.transform(numbers)
    models = [kind(stages=each).fit(df) for kind, each in ((vispark.ml.Pipeline, two), (Pipeline, theirs))]
    rows = [model.transform(df).select("prediction").collect() for model in models]
    np.testing.assert_allclose(*rows, rtol=1e-6)
    skipping = mllib_feature.VectorAssembler(inputCols=["weight"], outputCol="x", handleInvalid="skip")
    holes = spark.createDataFrame([(1.0, 2.0), (NAN, 3.0), (3.0, 4.0), (4.0, 7.0)], ["weight", "label"])
    fits = [kind(stages=[skipping, module.LinearRegression(featuresCol="x")]).fit(holes).stages[1].coefficients
            for kind, module in ((vispark.ml.Pipeline, regression), (Pipeline, mllib_regression))]
    np.testing.assert_allclose(*fits, rtol=1e-9)
    with pytest.raises(TypeError, match="Cannot recognize a pipeline stage"):
        vispark.ml.Pipeline(stages=[3]).fit(holes)


def test_pipelines_are_saved_for_mllib_and_loaded(spark: SparkSession, tmp_path):
    stages = [feature.StandardScaler(inputCol="x", outputCol="y"), classification.LogisticRegression(featuresCol="y"),
              mllib_feature.VectorAssembler(inputCols=["a"], outputCol="x")]
    vispark.ml.Pipeline(stages=stages).save(str(tmp_path / "stage"))
    kinds = [[type(stage).__module__ for stage in kind.load(str(tmp_path / "stage")).getStages()]
             for kind in (vispark.ml.Pipeline, Pipeline)]
    assert kinds == [["vispark.ml.feature", "vispark.ml.classification", "pyspark.ml.feature"],
                     ["pyspark.ml.feature", "pyspark.ml.classification", "pyspark.ml.feature"]]


@pytest.mark.parametrize("name", ["CrossValidator", "TrainValidationSplit"])
def test_searches_over_estimators_of_python_are_saved_and_loaded(spark: SparkSession, tmp_path, name: str):
    # PySpark tells by the class's package whether its Python or Java wrote the files.
    learner = decomposition.NMF(k=2, inputCol="x")
    grid = tuning.ParamGridBuilder().addGrid(learner.maxIter, [0, 1]).build()
    search = getattr(selection_in_workers, name)(estimator=learner, estimatorParamMaps=grid, seed=3,
                                                 evaluator=evaluation.RegressionEvaluator())
    search.save(str(tmp_path / "search"))
    for module in (selection_in_workers, tuning):
        read = getattr(module, name).load(str(tmp_path / "search"))
        assert type(read) is getattr(module, name) and read.uid == search.uid and read.getSeed() == 3
        assert [list(each.values()) for each in read.getEstimatorParamMaps()] == [[0], [1]]


def test_vectors_of_words(sc: SparkContext, spark: SparkSession, tmp_path):
    # Words of a subject are neighbours; with one block the numbers are MLlib's.
    rng = np.random.default_rng(0)
    counts = 1 / np.arange(2, 9) / (1 / np.arange(2, 9)).sum()
    texts = [([f"{'ab'[n % 2]}{i}" for i in rng.choice(7, 20, p=counts)],) for n in range(60)]
    df = spark.createDataFrame(spark.sparkContext.parallelize(texts, 3), ["words"]).cache()
    names = {"vectorSize": 8, "seed": 4, "maxIter": 2, "stepSize": .1, "minCount": 3, "windowSize": 3,
             "maxSentenceLength": 15, "inputCol": "words", "outputCol": "vector"}
    fits = [module.Word2Vec(**names).fit(df) for module in (feature, mllib_feature)]
    vectors, expected = ({row.word: row.vector.toArray() for row in fit.getVectors().collect()} for fit in fits)
    assert vectors.keys() == expected.keys()
    for word, vector in vectors.items():
        np.testing.assert_allclose(vector, expected[word], atol=5e-3)     # a table of logistic numbers
    several = feature.Word2Vec(**{**names, "numPartitions": 5, "maxIter": 4, "stepSize": .2})
    models = []
    assert cost(sc, lambda: models.append(several.fit(df))).jobs == 2
    near = [word for word, _ in models[0].findSynonymsArray("a1", 3)]
    assert [word[0] for word in near] == ["a"] * 3
    models[0].save(str(tmp_path / "stage"))
    read = mllib_feature.Word2VecModel.load(str(tmp_path / "stage"))
    assert read.transform(df).collect() == models[0].transform(df).collect()
    df.unpersist()


@pytest.mark.parametrize(("rows", "reason"), [([(["a"],)], "The vocabulary size should be > 0"), ([], "should be > 0")])
def test_words_that_are_too_few_are_mllibs(spark: SparkSession, rows, reason: str):
    with pytest.raises(PySparkException, match=reason):
        feature.Word2Vec(inputCol="words").fit(spark.createDataFrame(rows, "words array<string>"))


def test_a_pipeline_fits_in_the_workers(sc: SparkContext, numbers: DataFrame):
    stages = [feature.PCA(k=2, inputCol="features", outputCol="out"), regression.LinearRegression(featuresCol="out")]
    theirs = [mllib_feature.PCA(k=2, inputCol="features", outputCol="out"),
              mllib_regression.LinearRegression(featuresCol="out")]
    models = [Pipeline(stages=each).fit(numbers) for each in (stages, theirs)]
    rows = [model.transform(numbers).select("prediction").collect() for model in models]
    np.testing.assert_allclose(*rows, rtol=1e-6)


@pytest.mark.parametrize("params", [
    {"k": 3, "weightCol": "weight"}, {"k": 3, "distanceMeasure": "cosine", "tol": 1e-12}], ids=str)
def test_k_means(groups: DataFrame, params):
    theirs, ours = (module.KMeans(seed=4, **params).fit(groups) for module in (mllib_clustering, clustering))
    assert isinstance(ours, mllib_clustering.KMeansModel)
    centers = [np.array(sorted(map(tuple, model.clusterCenters()))) for model in (theirs, ours)]
    assert centers[1] == pytest.approx(centers[0], rel=1e-6, abs=1e-9)
    assert ours.summary.trainingCost == pytest.approx(theirs.summary.trainingCost, rel=1e-6)
    assert sorted(ours.summary.clusterSizes) == sorted(theirs.summary.clusterSizes)


def test_first_centers_are_drawn_in_rounds(sc: SparkContext, monkeypatch):
    # Groups that are far apart all get one; three different rows are as many centres, whatever is asked for.
    random = np.random.default_rng(7)
    groups = random.normal(size=(12, 3)) * 100
    rows = np.repeat(groups, 50, axis=0) + random.normal(size=(600, 3))
    records = [{"x": row, "w": 1.0, "i": number} for number, row in enumerate(rows)]
    points = sc.parallelize(records, 3).cache("GPU")
    calls: list[int] = []
    genuine = first_centers.RowDraws._more
    monkeypatch.setattr(first_centers.RowDraws, "_more", lambda draws, rows, *rest, **named: (
        calls.append(len(rows)), genuine(draws, rows, *rest, **named))[1])
    counts = []
    for rounds in (1, 3):
        centers = first_centers.RowDraws(points, by_cosine=False, seed=5).parallel(12, rounds)
        apart = np.linalg.norm(groups[:, None] - centers, axis=2).min(axis=1)
        counts.append(int((apart < 2).sum()))
    assert calls == [0, 1, 0, 1, 25, 49] and counts[1] == 12, counts
    few = sc.parallelize([{"x": rows[number % 3], "w": 1.0, "i": number} for number in range(100)], 2).cache("GPU")
    for way in (lambda draws: draws.parallel(7, 2), lambda draws: draws.random(7)):
        assert sorted(map(tuple, way(first_centers.RowDraws(few, by_cosine=False, seed=1)))) == sorted(
            map(tuple, rows[:3]))


def test_k_means_of_fewer_rows_than_centers(spark: SparkSession):
    df = spark.createDataFrame([(Vectors.dense(float(x)),) for x in (1, 1, 5)], ["features"])
    model = clustering.KMeans(k=4, initMode="random").fit(df)
    assert sorted(center[0] for center in model.clusterCenters()) == [1, 5] and model.summary.trainingCost == 0
    with pytest.raises(Py4JError, match="Cosine distance is not defined for zero-length vectors"):
        clustering.KMeans(k=2, distanceMeasure="cosine").fit(spark.createDataFrame([(Vectors.dense(0.0),)] * 2,
                                                                                   ["features"]))


@pytest.mark.parametrize("params", [{"k": 5, "minDivisibleClusterSize": .3, "weightCol": "weight"},
                                    {"k": 2, "distanceMeasure": "cosine"}], ids=str)
def test_bisected_clusters(groups: DataFrame, params):
    ours, theirs = (module.BisectingKMeans(seed=4, maxIter=3, **params).fit(groups)
                    for module in (clustering, mllib_clustering))
    assert np.array(ours.clusterCenters()) == pytest.approx(np.array(theirs.clusterCenters()), rel=1e-6, abs=1e-9)
    assert ours.summary.trainingCost == pytest.approx(theirs.summary.trainingCost, rel=1e-9)
    assert ours.summary.clusterSizes == theirs.summary.clusterSizes


def test_clusters_are_not_bisected_beyond_their_rows(spark: SparkSession):
    df = spark.createDataFrame([(Vectors.dense(float(x)),) for x in (1, 1, 5)], ["features"])
    model = clustering.BisectingKMeans(k=9, maxIter=2).fit(df)
    assert [center[0] for center in model.clusterCenters()] == [1, 5] and model.summary.trainingCost == 0


@pytest.mark.parametrize("params", [{}, {"weightCol": "weight"}], ids=str)
def test_a_mixture_of_densities(groups: DataFrame, params):
    ours, theirs = (module.GaussianMixture(k=3, seed=2, maxIter=6, **params).fit(groups)
                    for module in (clustering, mllib_clustering))
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=1e-6)
    for gaussian, expected in zip(ours.gaussians, theirs.gaussians, strict=True):
        np.testing.assert_allclose(gaussian.mean.toArray(), expected.mean.toArray(), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(gaussian.cov.toArray(), expected.cov.toArray(), rtol=1e-6, atol=1e-9)
    assert ours.summary.logLikelihood == pytest.approx(theirs.summary.logLikelihood, rel=1e-9)
    assert ours.summary.numIter == theirs.summary.numIter


GENERALIZED = [{"family": "poisson", "weightCol": "weight"}, {"family": "gamma", "link": "log", "regParam": .1},
               {"family": "binomial", "labelCol": "two", "link": "cloglog", "regParam": .01},
               {"family": "tweedie", "variancePower": 1.5, "linkPower": 0.0, "fitIntercept": False},
               {"family": "gaussian", "offsetCol": "weight", "regParam": .2}, {"family": "poisson", "link": "sqrt"}]


def positive(classes: DataFrame) -> DataFrame:
    """Return rows with a label that each family may have, and vectors with the constant feature and without it."""
    slicer = mllib_feature.VectorSlicer(inputCol="features", outputCol="varying", indices=[0, 1, 2, 4])
    return slicer.transform(classes.withColumn("positive", functions.abs("label") / 10 + .5))


@pytest.mark.parametrize("params", GENERALIZED, ids=str)
def test_generalized_linear_regression(classes: DataFrame, params):
    params = {"labelCol": "positive", "featuresCol": "varying", **params}
    ours, theirs = (module.GeneralizedLinearRegression(**params).fit(positive(classes))
                    for module in (regression, mllib_regression))
    np.testing.assert_allclose(ours.coefficients.toArray(), theirs.coefficients.toArray(), rtol=1e-6, atol=1e-8)
    assert ours.intercept == pytest.approx(theirs.intercept, rel=1e-6, abs=1e-8)
    assert ours.summary.numIterations == theirs.summary.numIterations
    assert ours.summary.deviance == pytest.approx(theirs.summary.deviance, rel=1e-6)


@pytest.mark.parametrize("params", [GENERALIZED[0], GENERALIZED[3]], ids=str)
def test_a_constant_feature_has_no_part_in_a_generalized_model(classes: DataFrame, params):
    """MLlib solves singular systems by a search that ends by rounding: after 4 to 19 iterations of the same rows."""
    with_it, without = (regression.GeneralizedLinearRegression(labelCol="positive", featuresCol=column, **params)
                        .fit(positive(classes)) for column in ("features", "varying"))
    np.testing.assert_allclose(np.delete(with_it.coefficients.toArray(), 3), without.coefficients.toArray(), rtol=1e-5)
    assert with_it.coefficients[3] == 0
    assert with_it.summary.numIterations == without.summary.numIterations


@pytest.fixture(scope="module")
def groups(spark: SparkSession) -> DataFrame:
    """Three groups of rows that are far from each other, by distance and by angle."""
    rng = np.random.default_rng(3)
    places = np.repeat([[9.0, 0, 0], [0, 9, 0], [0, 0, 9]], 40, axis=0)
    rows = [(Vectors.dense(row), float(weight)) for row, weight
            in zip(places + rng.normal(size=(120, 3)) / 10, rng.integers(1, 4, 120), strict=True)]
    return spark.createDataFrame(rows, ["features", "weight"]).coalesce(3)


@pytest.mark.parametrize("params", [{}, {"implicitPrefs": True, "alpha": 2.0}, {"nonnegative": True}], ids=str)
def test_factors_of_ratings(spark: SparkSession, params):
    rng = np.random.default_rng(3)
    rows = [(int(u) - 3, int(i), float(r)) for u, i, r in zip(rng.integers(0, 9, 60), rng.integers(0, 7, 60) * 1000,
                                                             rng.integers(-1, 6, 60), strict=True)]
    df = spark.createDataFrame(rows, ["user", "item", "rating"])
    ours, theirs = [module.ALS(rank=3, maxIter=3, seed=7, **params).fit(df)
                    for module in (recommendation, mllib_recommendation)]
    for name in ("userFactors", "itemFactors"):
        factors, expected = [{row.id: row.features for row in getattr(model, name).collect()}
                             for model in (ours, theirs)]
        assert list(factors) == list(expected)    # which rows come first, too
        np.testing.assert_allclose([factors[key] for key in sorted(factors)],
                                   [expected[key] for key in sorted(factors)], atol=1e-4)


def test_components_without_negative_numbers(sc: SparkContext, spark: SparkSession, tmp_path):
    rng = np.random.default_rng(3)
    x = rng.random((60, 2)) @ rng.random((2, 6))
    df = spark.createDataFrame([(Vectors.dense(row),) for row in x], ["x"]).coalesce(2)
    estimator = decomposition.NMF(k=2, inputCol="x", outputCol="weights", seed=5, tol=1e-5)
    estimator.save(str(tmp_path / "estimator"))
    model = decomposition.NMF.load(str(tmp_path / "estimator")).fit(df)
    history = model.objectiveHistory
    assert max(np.diff(history)) < 1e-9 and history[-1] < 1e-3 * (x ** 2).sum()
    weights = np.array([row.weights.toArray() for row in model.transform(df).collect()])
    gram = np.broadcast_to(model.components @ model.components.T, (60, 2, 2))
    np.testing.assert_allclose(weights, solve_nonnegative(gram, x @ model.components.T), rtol=1e-6, atol=1e-7)
    model.save(str(tmp_path / "model"))
    read = decomposition.NMFModel.load(str(tmp_path / "model"))
    assert read.getOutputCol() == "weights" and read.objectiveHistory == history
    assert read.transform(df).collect() == model.transform(df).collect()


@pytest.mark.parametrize(("rows", "reason"), [
    ([[1.0, -2.0]], "1 rows have negative ones"), ([[1.0, NAN]], "NaN or infinite"),
    ([[1.0], [1.0, 2.0]], "must be of one length"), ([], "no rows")], ids=str)
def test_what_has_no_components_is_named(spark: SparkSession, rows, reason: str):
    df = spark.createDataFrame([(Vectors.dense(row),) for row in rows], StructType([StructField("x", VectorUDT())]))
    with pytest.raises(RecordError, match=reason):
        decomposition.NMF(k=1, inputCol="x").fit(df.coalesce(1))


SEARCHES_OF_ROWS = {"BucketedRandomProjectionLSH": ({"bucketLength": .4, "numHashTables": 3}, [1.0, 0.5, 0.0, 1.0]),
                    "MinHashLSH": ({"numHashTables": 2}, [1.0, 0.0, 0.0, 1.0])}


@pytest.mark.parametrize("name", SEARCHES_OF_ROWS)
def test_nearest_rows_of_shared_buckets(spark: SparkSession, name: str):
    rng = np.random.default_rng(4)
    x = np.maximum(rng.normal(size=(80, 4)), 0) + np.eye(4)[rng.integers(0, 4, 80)]
    df = spark.createDataFrame([(number, _vector(row, number)) for number, row in enumerate(np.append(x, x[:4], 0))],
                               ["id", "x"]).repartition(3, "id").cache()
    params, key = SEARCHES_OF_ROWS[name]
    ours, theirs = (getattr(module, name)(inputCol="x", outputCol="hashes", seed=3, **params).fit(df)
                    for module in (feature, mllib_feature))
    assert type(ours).__module__ == "vispark.ml.feature"
    distances, expected = ([row.distCol for row in model.approxNearestNeighbors(df, Vectors.dense(key), 7).collect()]
                           for model in (ours, theirs))
    assert distances == pytest.approx(expected, rel=1e-12) and len(distances) == 7
    assert ours.approxNearestNeighbors(df, Vectors.dense(key), 3).columns == ["id", "x", "hashes", "distCol"]
    df.unpersist()


def test_sets_without_members_are_mllibs(spark: SparkSession):
    df = spark.createDataFrame([(Vectors.dense(0.0, 0.0),), (Vectors.dense(1.0, 0.0),)], ["x"])
    model = feature.MinHashLSH(inputCol="x", outputCol="hashes", seed=3).fit(df)
    with pytest.raises(Py4JError, match="at least 1 non zero"):
        model.approxNearestNeighbors(df, Vectors.dense(1.0, 0.0), 1).collect()


def test_nearest_rows_of_all(sc: SparkContext, spark: SparkSession):
    x = np.random.default_rng(4).normal(size=(50, 3))
    df = spark.createDataFrame([(number, Vectors.dense(row)) for number, row in enumerate(x)], ["id", "x"])
    model = neighbors.NearestNeighbors(k=4, inputCol="x").fit(df)
    distances = np.linalg.norm(x[:, None] - x[None, :2], axis=2)
    order = np.argsort(distances, axis=0)[:4]
    assert cost(sc, lambda: model.search(x[:2])).jobs == 1
    np.testing.assert_allclose(model.search(x[:2])[0], np.sort(distances, axis=0)[:4].T, rtol=1e-12)
    np.testing.assert_array_equal(model.search(x[:2])[1], x[order.T])
    assert [row.id for row in model.nearest(Vectors.dense(x[1])).collect()] == order[:, 1].tolist()
    for queries, reason in (([[1.0]], "a query has 1 numbers, and the rows 3"),):
        with pytest.raises(RecordError, match=reason):
            model.search(queries)
    nothing = neighbors.NearestNeighbors(k=4, inputCol="x").fit(df.limit(0))
    with pytest.raises(RecordError, match="nothing to search: there are no rows"):
        nothing.search([[1.0, 2.0, 3.0]])


def test_rdds_are_fitted_as_by_mllib(sc: SparkContext):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 3))
    y = (x @ [1, -2, 0] + rng.normal(size=60) > 0).astype(float)
    data = sc.parallelize([LabeledPoint(*row) for row in zip(y, x, strict=True)], 3)
    ours, theirs = (learner.train(data, intercept=True, regParam=.1) for learner in
                    (classification.LogisticRegression, LogisticRegressionWithLBFGS))
    np.testing.assert_allclose([*ours.weights, ours.intercept], [*theirs.weights, theirs.intercept], rtol=1e-5)
    three = sc.parallelize([(float(label), row) for label, row in zip(np.digitize(x[:, 0], [-.3, .6]), x, strict=True)])
    ours = classification.LogisticRegression.train(three, numClasses=3, intercept=True, regParam=.001)
    assert np.mean([ours.predict(row) == label for label, row in three.collect()]) > .95
    model = clustering.KMeans.train(sc.parallelize([*(x + 9), *(x - 9)], 3), 2, seed=1)
    np.testing.assert_allclose(sorted(map(tuple, model.clusterCenters)), [x.mean(axis=0) - 9, x.mean(axis=0) + 9])
    with pytest.raises(RecordError, match="the records cannot be fitted: there are no rows"):
        clustering.KMeans.train(sc.parallelize([], 2), 2)
    directions = sc.parallelize([[9.0, 1.0], [8.0, 0.0], [1.0, 3.0], [0.0, 2.0], [2.0, 5.0]], 2)
    for first in ([[10.0, 0.0], [0.0, 1.0]], [[10.0, 0.0], [0.0, 0.0]]):
        options = {"initialModel": rdd_clustering.KMeansModel(list(map(np.array, first))), "distanceMeasure": "cosine"}
        if not all(map(any, first)):
            with pytest.raises(RecordError, match="not defined for centres of length 0"):
                clustering.KMeans.train(directions, 2, **options)
            continue
        ours, theirs = (learner.train(directions, 2, **options)
                        for learner in (clustering.KMeans, rdd_clustering.KMeans))
        np.testing.assert_allclose(ours.clusterCenters, theirs.clusterCenters, rtol=1e-12)


def test_ratings_of_rdds(sc: SparkContext, spark: SparkSession):
    rows = [(u, 10 * i, float((u * i) % 5)) for u in range(6) for i in range(5) if (u + i) % 3]
    model = recommendation.ALS.train(sc.parallelize(rows, 3), 3, 4, .05, seed=2)
    fitted = recommendation.ALS(rank=3, maxIter=4, regParam=.05, seed=2).fit(
        spark.createDataFrame(rows, ["user", "item", "rating"]))
    expected = {row.id: row.features for row in fitted.userFactors.collect()}
    for user, factors in model.userFeatures().collect():
        np.testing.assert_allclose(factors, expected[user], atol=1e-6)
    best, = model.recommendProducts(2, 1)
    assert model.predict(best.user, best.product) == best.rating
    assert model.predictAll(sc.parallelize([(2, best.product), (2, 11)])).collect() == [best]
    assert [each.product for each in model.recommendUsers(10, 2)] == [10, 10] and model.rank == 3
    with pytest.raises(KeyError, match="user 77 has no ratings"):
        model.predict(77, 10)


def test_a_fold_without_rows_is_pysparks_error(classes: DataFrame):
    df = classes.withColumn("fold", functions.lit(0))
    search = searched(selection_in_workers, classification.LogisticRegression(labelCol="two"), numFolds=2,
                      foldCol="fold", evaluator=evaluation.RegressionEvaluator(labelCol="two"))
    with pytest.raises(ValueError, match="data at fold 0 is empty"):
        search.fit(df)


def test_an_estimator_of_another_version_is_loaded(spark: SparkSession, tmp_path):
    path = tmp_path / "estimator"
    classification.LogisticRegression(regParam=.25).save(str(path))
    part, = (path / "metadata").glob("part-*")
    text = part.read_text()
    part.write_text(text.replace('"sparkVersion":"', '"sparkVersion":"2.'))
    for checksum in (path / "metadata").glob(".*.crc"):
        checksum.unlink()
    assert '"sparkVersion":"2.' in part.read_text()
    assert classification.LogisticRegression.load(str(path)).getRegParam() == .25
