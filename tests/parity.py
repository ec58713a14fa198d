"""Sweep over the parameters of vispark.ml's estimators, beside MLlib's, on several kinds of rows.

Each draw takes a value of each parameter of an estimator and a kind of rows, fits both to them, and compares the
models: their numbers to 1e-6 where the optimum is unique or both take the same steps, the objective where not. Printed
is a line for each estimator: the draws, how many of them differ, how many were judged by the objective, how many both
refuse, how many vispark leaves to MLlib, and the largest difference of the others; under it are the draws that differ
and those that are left. The exit status is 0 where none differs. CI takes a few draws
(``tests/system/test_ml_parity.py``), and checks there that each parameter is swept or named with a reason.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.ml import classification as mllib_classification
from pyspark.ml import clustering as mllib_clustering
from pyspark.ml import feature as mllib_feature
from pyspark.ml import recommendation as mllib_recommendation
from pyspark.ml import regression as mllib_regression
from pyspark.ml.linalg import Matrices, Vectors
from pyspark.sql import DataFrame, SparkSession

import tests.conftest  # It sets the environment before Spark is started.
from tests.system import topology
from tests.system.vrdd_tools import host_context
from vispark.errors import PlanError, VisparkError
from vispark.ml import classification, clustering, feature, loads, recommendation, regression

__all__ = ["main", "tests"]

#: Reasons for which parameters are in no sweep.
COLUMN = "a column that a model's transform adds, which is MLlib's"
WORK = "how MLlib deals its work out, of which the model does not depend"
#: Parameters that are in no sweep, of whatever estimator.
UNSWEPT = {**dict.fromkeys(["predictionCol", "rawPredictionCol", "probabilityCol", "linkPredictionCol"], COLUMN),
           **dict.fromkeys(["aggregationDepth", "maxBlockSizeInMB", "blockSize", "checkpointInterval",
                            "intermediateStorageLevel", "finalStorageLevel"], WORK)}
FLAG = [False, True]

#: Kinds of rows with labels. Of "plain" ones a feature is constant, and some are sparse; those of "groups" are not.
POINTS = ("plain", "scales", "zeros", "correlated", "far", "few", "wide", "constant", "repeated", "one class",
          "one row", "huge", "tiny")
#: Kinds of rows without labels, in three places; in "few places" all rows of one are equal.
GROUPS = ("apart", "close", "unequal", "few places", "unweighed", "one group row")


@dataclass(frozen=True)
class Sweep:
    """Values of an estimator's parameters, and how its models are compared.

    Parameters
    ----------
    ours, theirs : modules
        With the estimators.
    values : dict
        Values by parameter, among which None leaves the default; each column is named other than by default.
    fixed : dict
        What all draws have.
    numbers : function
        Gives a model's numbers, and its objective where those need not be equal.
    adjust : function
        Makes of drawn values some that go together, for rows of a width.
    data : tuple of str
        The kinds of rows, of ``DATA``.
    unswept : dict
        Parameters without values, and why.
    prepare : function
        Is given both estimators and the rows before the fits, and gives a difference or nothing.
    """

    ours: Any
    theirs: Any
    values: Mapping[str, list[Any]]
    fixed: Mapping[str, Any]
    numbers: Callable[[Any, DataFrame], list[Any]]
    adjust: Callable[[dict[str, Any], random.Random, int], dict[str, Any]] = lambda params, draws, width: params
    unswept: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = POINTS
    tolerance: float = 1e-6
    prepare: Callable[[Any, Any, DataFrame], str] = lambda ours, theirs, df: ""


def linear(model: Any, df: DataFrame) -> list[Any]:
    """Return the numbers of a linear model."""
    if hasattr(model, "coefficientMatrix"):
        return [model.coefficientMatrix.toArray(), model.interceptVector.toArray()]
    return [model.coefficients.toArray(), model.intercept, getattr(model, "scale", 1.0)]


def regressed(params: dict[str, Any], draws: random.Random, width: int) -> dict[str, Any]:
    """Give Huber's loss an L2 term and L-BFGS, with which alone it goes; where it is at hand, the optimum is compared.
    """
    if params.get("loss") == "huber":
        return params | {"elasticNetParam": 0.0, "solver": "l-bfgs", "maxIter": 200, "tol": 1e-13, "regParam": .3}
    return params


def classified(params: dict[str, Any], draws: random.Random, width: int) -> dict[str, Any]:
    """Give a binomial family two classes, bounds an L2 term, with which alone they go, and each the coefficients'
    shape.
    """
    if params.get("family") == "binomial":
        params = params | {"labelCol": "two"}
    classes = 3 if params["labelCol"] == "three" else 2
    if params.get("thresholds"):
        params = params | {"thresholds": [.2 + .1 * number for number in range(classes)], "threshold": None}
    sets = classes if params.get("family") == "multinomial" or classes > 2 else 1
    bounds = {"lowerBoundsOnCoefficients": Matrices.dense(sets, width, [-.3] * (width * sets)),
              "upperBoundsOnCoefficients": Matrices.dense(sets, width, [.4] * (width * sets)),
              "lowerBoundsOnIntercepts": Vectors.dense([-.5] * sets),
              "upperBoundsOnIntercepts": Vectors.dense([.5] * sets)}
    chosen = {name: bounds[name] if params.get(name) else None for name in bounds}
    if any(params.get(name) for name in bounds):
        chosen |= {"elasticNetParam": 0.0, "regParam": .1, "maxIter": 500, "tol": 1e-13}
        if not params["fitIntercept"]:
            chosen |= {"lowerBoundsOnIntercepts": None, "upperBoundsOnIntercepts": None}
    return params | chosen


#: By family: its links, and labels that it may have.
LINKS = {"gaussian": (["identity", "log", "inverse"], "positive"), "binomial": (["logit", "cloglog"], "two"),
         "poisson": (["log", "identity", "sqrt"], "positive"), "gamma": (["inverse", "identity", "log"], "positive")}


def generalized(params: dict[str, Any], draws: random.Random, width: int) -> dict[str, Any]:
    """Give a family a link and labels that a family may have; Tweedie's link is a power."""
    if params["family"] == "tweedie":
        return params | {"link": None, "labelCol": "positive"}
    links, label = LINKS[params["family"]]
    return params | {"link": draws.choice([None, *links]), "labelCol": label, "variancePower": None, "linkPower": None}


def factored(params: dict[str, Any], draws: random.Random, width: int) -> dict[str, Any]:
    return params | ({"thresholds": [.4, .6]} if params.get("thresholds") else {})


def machine(model: Any, df: DataFrame) -> list[Any]:
    return [model.intercept, model.linear.toArray(), model.factors.toArray()]


def centers(model: Any, df: DataFrame) -> list[Any]:
    """Return the centres in ascending order, and their cost."""
    points = np.array(sorted(map(tuple, np.round(model.clusterCenters(), 9))))
    return [points, model.summary.trainingCost, sorted(model.summary.clusterSizes)]


def start_of_mllib(ours: Any, theirs: Any, df: DataFrame) -> str:
    """Let K-means begin with MLlib's first centres; one of ten draws of its own is to end with no greater cost."""
    most = theirs.fit(df).summary.trainingCost * (1 + 1e-6)
    least = min(_costs(ours, df, most))
    first = np.array(theirs.copy({theirs.maxIter: 0}).fit(df).clusterCenters())
    if ours.getDistanceMeasure() == "cosine":
        first /= np.linalg.norm(first, axis=1, keepdims=True)
    ours._first = lambda points, by_cosine: first
    return "" if least <= most else f"the least cost of ten starts is {least}, MLlib's is {most}"


def _costs(estimator: Any, df: DataFrame, enough: float) -> Iterator[float]:
    for seed in range(10):
        cost = estimator.copy({estimator.seed: seed}).fit(df).summary.trainingCost
        yield cost
        if cost <= enough:
            return


def densities(model: Any, df: DataFrame) -> list[Any]:
    """Return the numbers of a mixture, and the logarithm of its likelihood, unless that is of rounding alone.

    It has the determinants of the covariances. Of a singular one, as of a density that has one row left, that is the
    product of what rounding leaves, and the likelihood of MLlib's iterations goes up and down by half.
    """
    covariances = [each.cov.toArray() for each in model.gaussians]
    spectra = [np.linalg.eigvalsh(each) for each in covariances]
    is_singular = any(each[0] < 1e-10 * each[-1] for each in spectra)
    return [np.array(model.weights), *(each.mean.toArray() for each in model.gaussians), *covariances,
            0.0 if is_singular else model.summary.logLikelihood]


def components(model: Any, df: DataFrame) -> list[Any]:
    return [abs(model.pc.toArray()), model.explainedVariance.toArray()]


def scaled(model: Any, df: DataFrame) -> list[Any]:
    return [np.array([row.out.toArray() for row in model.transform(df).select("out").collect()])]


def factors(model: Any, df: DataFrame) -> list[Any]:
    tables = ({row.id: row.features for row in each.collect()} for each in (model.userFactors, model.itemFactors))
    shown = sorted(row.prediction for row in model.transform(df).collect() if not np.isnan(row.prediction))
    return [*(np.array([table[key] for key in sorted(table)]) for table in tables), shown]


def vectors_of_words(model: Any, df: DataFrame) -> list[Any]:
    vectors = {row.word: row.vector.toArray() for row in model.getVectors().collect()}
    return [np.array([vectors[word] for word in sorted(vectors)])]


def nearest(model: Any, df: DataFrame) -> list[Any]:
    key = Vectors.dense(df.first()[model.getInputCol()].toArray() * .9)
    return [[row.distCol for row in model.approxNearestNeighbors(df, key, 5).collect()]]


PENALTY = {"regParam": [0.0, .05, .5], "elasticNetParam": [0.0, .4, 1.0], "fitIntercept": FLAG,
           "standardization": FLAG, "weightCol": [None, "weight"], "maxIter": [3, 40], "tol": [1e-6, 1e-10]}
MACHINE = {"factorSize": [1, 3], "fitIntercept": FLAG, "fitLinear": FLAG, "regParam": [0.0, .05], "initStd": [.01, .2],
           "maxIter": [1, 6], "stepSize": [.02, .1], "tol": [1e-6, .1], "solver": ["adamW", "gd"], "seed": [1, -7],
           "weightCol": [None, "weight"]}
OTHER_ROWS = {"miniBatchFraction": "the mini-batches are other rows than MLlib's"}
CLUSTERS = {"k": [2, 3], "maxIter": [1, 8], "seed": [1, 9], "distanceMeasure": ["euclidean", "cosine"],
            "weightCol": [None, "weight"]}
X = {"featuresCol": "x"}
COLUMN_TO_COLUMN = {"inputCol": "x", "outputCol": "out"}

SWEEPS: dict[str, Sweep] = {
    "LinearRegression": Sweep(regression, mllib_regression, {
        **PENALTY, "solver": ["auto", "normal", "l-bfgs"], "loss": ["squaredError", "squaredError", "huber"],
        "epsilon": [1.35, 2.0]}, X | {"labelCol": "y"}, linear, regressed),
    "GeneralizedLinearRegression": Sweep(regression, mllib_regression, {
        "family": [*LINKS, "tweedie"], "link": [None], "labelCol": ["positive"], "variancePower": [1.2, 1.6],
        "linkPower": [None, 0.0, 1.0], "regParam": [0.0, .1], "fitIntercept": FLAG, "maxIter": [2, 25],
        "tol": [1e-6, 1e-10], "weightCol": [None, "weight"], "offsetCol": [None, "offset"], "solver": ["irls"]},
        X, linear, generalized),
    "LogisticRegression": Sweep(classification, mllib_classification, {
        **PENALTY, "labelCol": ["two", "three"], "family": ["auto", "binomial", "multinomial"],
        "threshold": [None, .3], "thresholds": [False, False, True],
        **{f"{side}BoundsOn{what}": [False] * 4 + [True] for side in ("lower", "upper")
           for what in ("Coefficients", "Intercepts")}}, X, linear, classified),
    "LinearSVC": Sweep(classification, mllib_classification, {
        **{name: PENALTY[name] for name in PENALTY if name != "elasticNetParam"}, "threshold": [None, .3]},
        X | {"labelCol": "two"}, linear),
    "FMClassifier": Sweep(classification, mllib_classification, {**MACHINE, "thresholds": [False, True]},
                          X | {"labelCol": "two"}, machine, factored, OTHER_ROWS),
    "FMRegressor": Sweep(regression, mllib_regression, MACHINE, X | {"labelCol": "y"}, machine, factored, OTHER_ROWS),
    "KMeans": Sweep(clustering, mllib_clustering, {
        **CLUSTERS, "k": [3], "maxIter": [30], "tol": [1e-4, 1e-9], "initMode": ["k-means||", "random"],
        "initSteps": [1, 4], "solver": ["auto", "row", "block"]}, X, centers,
        data=(*(kind for kind in GROUPS if kind != "one group row"), "floats"),  # MLlib finds no centre of one row.
        prepare=start_of_mllib),
    "BisectingKMeans": Sweep(clustering, mllib_clustering, {
        **CLUSTERS, "minDivisibleClusterSize": [1.0, .2, 30.0]}, X, centers, data=(*GROUPS, "floats")),
    "GaussianMixture": Sweep(clustering, mllib_clustering, {
        **{name: CLUSTERS[name] for name in CLUSTERS if name != "distanceMeasure"}, "tol": [.01, 1e-6]},
        X, densities, data=GROUPS),
    "PCA": Sweep(feature, mllib_feature, {"k": [1, 2, 4]}, COLUMN_TO_COLUMN, components),
    "StandardScaler": Sweep(feature, mllib_feature, {"withMean": FLAG, "withStd": FLAG}, COLUMN_TO_COLUMN, scaled),
    "MinMaxScaler": Sweep(feature, mllib_feature, {"min": [0.0, -2.0], "max": [1.0, 3.0]}, COLUMN_TO_COLUMN, scaled),
    "MaxAbsScaler": Sweep(feature, mllib_feature, {}, COLUMN_TO_COLUMN, scaled),
    "ALS": Sweep(recommendation, mllib_recommendation, {
        "rank": [1, 3], "maxIter": [1, 4], "regParam": [.01, .3], "numUserBlocks": [1, 3], "numItemBlocks": [1, 4],
        "implicitPrefs": FLAG, "alpha": [.5, 3.0], "nonnegative": FLAG, "seed": [5, -2],
        "coldStartStrategy": ["nan", "drop"]},
        # Without a column of ratings, which its documentation allows, MLlib does not find the column "" either.
        {"userCol": "who", "itemCol": "what", "ratingCol": "stars"}, factors,
        data=("ratings", "many ratings"), tolerance=2e-4),
    "Word2Vec": Sweep(feature, mllib_feature, {
        "vectorSize": [3, 8], "minCount": [1, 4], "stepSize": [.025, .1], "maxIter": [1, 2], "seed": [4, -1],
        "windowSize": [2, 5], "maxSentenceLength": [7, 1000]}, {"inputCol": "words", "outputCol": "out"},
        vectors_of_words, unswept={"numPartitions": "MLlib's partitions are other sentences"}, data=("sentences",),
        tolerance=1e-2),
    "BucketedRandomProjectionLSH": Sweep(feature, mllib_feature, {
        "bucketLength": [.5, 2.0], "numHashTables": [1, 4], "seed": [3, 8]}, COLUMN_TO_COLUMN, nearest),
    "MinHashLSH": Sweep(feature, mllib_feature, {"numHashTables": [1, 4], "seed": [3, 8]}, COLUMN_TO_COLUMN, nearest,
                        data=GROUPS),
}


def drawn(sweep: Sweep, draws: random.Random, width: int) -> dict[str, Any]:
    """Return the parameters of one draw, without those that are left as they are by default."""
    params = sweep.adjust({name: draws.choice(values) for name, values in sweep.values.items()}, draws, width)
    return {name: value for name, value in {**sweep.fixed, **params}.items()
            if value is not None and not (name.endswith("olds") and value is False)
            and not (name[:5] in ("lower", "upper") and value is False)}


def points(spark: SparkSession, rng: np.random.Generator, kind: str) -> DataFrame:
    """Return rows with labels: some of weight 0, and an empty partition among them."""
    count, width = {"few": 24, "one row": 1}.get(kind, 90), 20 if kind == "wide" else 4
    noise = rng.normal(size=(count, width))
    if kind == "repeated":
        noise = noise[np.arange(count) // 10]
    x = {"plain": noise[:, :4] * [1, 2, .5, 0] + [1, 0, 2, 1], "scales": noise[:, :4] * [1e-3, 1, 1e2, 1e4],
         "zeros": noise * (rng.random(noise.shape) < .3), "far": noise + 1000, "constant": noise * 0 + 3,
         "huge": noise * 1e50, "tiny": noise * 1e-50,
         "correlated": noise[:, np.arange(width) // 2] + noise / 10}.get(kind, noise)
    spread = x.std(axis=0)
    slopes = np.resize([1, -.5, 2, 0], width) / np.where(spread > 0, spread, 1)
    y = (x - x.mean(axis=0)) @ slopes + rng.normal(size=count)
    half, most = np.quantile(y, [.5, .8])
    if kind == "one class":
        half, most = -np.inf, np.inf
    rows = [(float(label), float(label > half), float(label > half) + float(label > most), float(abs(label) / 4 + .5),
             float(number % 3), float(number % 2) / 4, vector(row, number, is_sparse=kind == "zeros"))
            for number, (row, label) in enumerate(zip(x, y, strict=True))]
    context = spark.sparkContext
    parts = context.parallelize(rows, 2).union(context.parallelize([], 1))
    return spark.createDataFrame(parts, ["y", "two", "three", "positive", "weight", "offset", "x"])


def groups(spark: SparkSession, rng: np.random.Generator, kind: str) -> DataFrame:
    """Return rows without labels or negative numbers, in three places that are far apart, or within each other."""
    places = np.repeat([[9.0, 1, 0, 0], [0, 9, 1, 0], [1, 0, 9, 0]], [5, 15, 40] if kind == "unequal" else 20, axis=0)
    spread = {"close": 3, "few places": 0}.get(kind, .1)
    z = np.maximum(places + rng.normal(size=(60, 4)) * spread, 0)[:1 if kind == "one group row" else None]
    z[:, 3] += 1
    rows = [(float(number % 3 + (kind != "unweighed")), vector(row, number), row.tolist())
            for number, row in enumerate(z)]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), ["weight", "x", "array"]).selectExpr(
        # MLlib takes arrays that cannot have nulls.
        "weight", f"array({', '.join(f'float(ifnull(array[{place}], 0))' for place in range(4))}) as x"
        if kind == "floats" else "x")


def ratings(spark: SparkSession, rng: np.random.Generator, kind: str) -> DataFrame:
    """Return ratings of some users and items, none and twice among them."""
    count, users, items = (400, 40, 25) if kind.startswith("many") else (60, 9, 7)
    return spark.createDataFrame([(int(user) - 3, int(item) * 1000, float(stars)) for user, item, stars in zip(
        rng.integers(0, users, count), rng.integers(0, items, count), rng.integers(-1, 6, count), strict=True)],
        "who int, what int, stars float")


def sentences(spark: SparkSession, rng: np.random.Generator, kind: str) -> DataFrame:
    """Return sentences of words of which none occur equally often."""
    shares = 1 / np.arange(2, 9) / (1 / np.arange(2, 9)).sum()
    return spark.createDataFrame([([f"w{i}" for i in rng.choice(7, 12, p=shares)],) for _ in range(40)], ["words"])


#: What makes rows of each kind.
DATA: dict[str, Callable[[SparkSession, np.random.Generator, str], DataFrame]] = {
    **dict.fromkeys(POINTS, points), **dict.fromkeys([*GROUPS, "floats"], groups),
    **dict.fromkeys(["ratings", "many ratings"], ratings), "sentences": sentences}


def vector(row: np.ndarray, number: int, *, is_sparse: bool = False) -> Any:
    """Return a row as a vector: a sparse one without its zeros, or, each seventh, with them."""
    if is_sparse:
        return Vectors.sparse(len(row), row.nonzero()[0], row[row.nonzero()])
    return Vectors.sparse(len(row), range(len(row)), row) if number % 7 == 0 else Vectors.dense(row)


@dataclass(frozen=True)
class DrawOutcome:
    """A draw, and in what the models of both differ.

    Parameters
    ----------
    name, data : str
        The estimator, and the kind of rows.
    params : dict
        Its parameters.
    text : str
        In what the models differ; empty where they agree.
    apart : float
        The largest difference of numbers, over the largest number of the array that they are in, where that is above 1,
        or below 1e-20.
    by_objective : bool
        Whether numbers differ, at an objective that is not above MLlib's.
    refused : bool
        Whether neither fits the rows.
    left : str
        Why vispark leaves to MLlib what that fits.
    """

    name: str
    data: str
    params: dict[str, Any]
    text: str = ""
    apart: float = 0.0
    by_objective: bool = False
    refused: bool = False
    left: str = ""


#: Errors of a fit: MLlib's, and vispark's.
RefusalErrors = (Py4JJavaError, PySparkException, VisparkError)


def reason_in(error: Exception) -> str:
    """Return the reason among the lines of an error of Spark's."""
    lines = str(error).splitlines() or [type(error).__name__]
    return next((line for line in lines if "Exception: " in line or "requirement" in line), lines[0])[:200]


def tried(make: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return a function's result, or its refusal."""
    try:
        return make(), None
    except RefusalErrors as error:
        return None, error


def compared(draw: DrawOutcome, df: DataFrame) -> DrawOutcome:
    """Return the outcome of a draw."""
    sweep = SWEEPS[draw.name]
    # Of some parameters, such as the weights of factorization machines, constructors do not know.
    ours, theirs = (getattr(module, draw.name)()._set(**draw.params) for module in (sweep.ours, sweep.theirs))
    theirs_model, refusal = tried(lambda: theirs.fit(df))
    text, error = tried(lambda: "" if refusal else sweep.prepare(ours, theirs, df))
    if text:
        return replace(draw, text=text)
    model, error = (None, error) if error else tried(lambda: ours.fit(df))
    if refusal and error:
        return replace(draw, refused=True)
    if refusal:
        return replace(draw, text=f"MLlib refuses ({reason_in(refusal)}), vispark gives a model")
    if error:
        is_left = isinstance(error, PlanError) and "is done by MLlib" in str(error)
        reason = reason_in(error)
        return replace(draw, left=reason) if is_left else replace(draw, text=f"vispark refuses: {reason}")
    models, most = (model, theirs_model), 0.0
    for place, (actual, expected) in enumerate(zip(*(sweep.numbers(model, df) for model in models), strict=True)):
        actual, expected = np.asarray(actual, float), np.asarray(expected, float)
        if actual.shape != expected.shape:
            return replace(draw, text=f"number {place}: shape {actual.shape} for {expected.shape}")
        largest = float(np.abs(expected).max(initial=0))
        scale = largest if 0 < largest < 1e-20 else max(1.0, largest)
        apart = float(np.abs(actual - expected).max(initial=0)) / scale
        if not np.allclose(actual, expected, rtol=sweep.tolerance, atol=sweep.tolerance * scale, equal_nan=True):
            goals = [objective(model) for model in models]
            if goals[0] is not None and goals[0] <= goals[1] * (1 + 1e-8):
                return replace(draw, by_objective=True)
            return replace(draw, text=f"number {place}: {apart:.2g} apart; objectives {goals[0]}, {goals[1]}")
        most = max(most, apart)
    return replace(draw, apart=most)


def objective(model: Any) -> float | None:
    """Return the last of a training's objective, of fits that end elsewhere than MLlib's: with bounds, and by Huber's
    loss.
    """
    if not (model.hasParam("loss") and model.getOrDefault("loss") == "huber") and not any(
            model.hasParam(name) and model.isSet(name) for name in ("lowerBoundsOnCoefficients",
            "upperBoundsOnCoefficients", "lowerBoundsOnIntercepts", "upperBoundsOnIntercepts")):
        return None
    return float(model.summary.objectiveHistory[-1])


def outcomes(spark: SparkSession, names: list[str], times: int, seed: int) -> Iterator[DrawOutcome]:
    """Yield the outcomes of some draws of each estimator."""
    tables: dict[str, DataFrame] = {}
    for name in names:
        draws, sweep = random.Random(f"{name} {seed}"), SWEEPS[name]
        for number in range(times):
            kind = sweep.data[(number + seed) % len(sweep.data)]
            if kind not in tables:
                tables[kind] = DATA[kind](spark, np.random.default_rng([seed, *kind.encode()]), kind).cache()
                tables[kind].count()
            draw = DrawOutcome(name, kind, drawn(sweep, draws, 20 if kind == "wide" else 4))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield compared(draw, tables[kind])
    loads.unload()
    for df in tables.values():
        df.unpersist()


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--draws", default=10, help="draws of each estimator")
@click.option("--seed", default=0)
@click.option("--device", default="host", help="device of the fits")
@click.option("--out", type=click.Path(path_type=Path), help="file that gets what is printed, too")
def main(names: tuple[str, ...], draws: int, seed: int, device: str, out: Path | None) -> None:
    lines = [f"PySpark {pyspark.__version__}, device {device}, {draws} draws of each estimator, seed {seed}", "",
             f"{'estimator':30}{'draws':>6}{'differ':>8}{'by objective':>14}{'refused':>9}{'left':>6}"
             f"{'apart':>10}  rows"]
    print("\n".join(lines), flush=True)
    differs = 0
    with topology.local() as place, host_context(place, fallback="error", device=device) as sc:
        sc.setLogLevel("OFF")
        for name in names or SWEEPS:
            results = list(outcomes(SparkSession(sc), [name], draws, seed))
            differ = [each for each in results if each.text]
            left = [each for each in results if each.left]
            lines.append(f"{name:30}{len(results):6}{len(differ):8}{sum(each.by_objective for each in results):14}"
                         f"{sum(each.refused for each in results):9}{len(left):6}"
                         f"{max(each.apart for each in results):10.1e}  {', '.join(SWEEPS[name].data)}")
            lines += [f"    {each.data}: {each.text}: {each.params}" for each in differ]
            lines += [f"    left, {each.data}: {each.left}: {each.params}" for each in left]
            differs += len(differ)
            print("\n".join(lines[-1 - len(differ) - len(left):]), flush=True)
            if out:
                out.write_text("\n".join(lines) + "\n")
    sys.exit(differs > 0)


if __name__ == "__main__":
    main()
