"""Sweep over the parameters of vispark.ml's estimators, beside MLlib's: ``python -m tests.parity [DRAWS [NAME...]]``.

Each draw takes a value of each parameter of an estimator, fits both to the same rows, and compares the models: their
numbers to 1e-6 where the optimum is unique or both take the same steps, the objective where not. Printed are the draws
that differ, and for each estimator how many there were; the exit status is 0 where none differs. CI takes a few draws
of each (``tests/system/test_ml_parity.py``), and checks there that each parameter is swept or named with a reason.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
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
        Makes of drawn values some that go together.
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
    adjust: Callable[[dict[str, Any], random.Random], dict[str, Any]] = lambda params, draws: params
    unswept: Mapping[str, str] = field(default_factory=dict)
    data: str = "rows"
    tolerance: float = 1e-6
    prepare: Callable[[Any, Any, DataFrame], str] = lambda ours, theirs, df: ""


def linear(model: Any, df: DataFrame) -> list[Any]:
    """The numbers of a linear model."""
    if hasattr(model, "coefficientMatrix"):
        return [model.coefficientMatrix.toArray(), model.interceptVector.toArray()]
    return [model.coefficients.toArray(), model.intercept, getattr(model, "scale", 1.0)]


def regressed(params: dict[str, Any], draws: random.Random) -> dict[str, Any]:
    """Huber's loss goes with an L2 term and L-BFGS alone; where it is at hand, the optimum is compared."""
    if params.get("loss") == "huber":
        return params | {"elasticNetParam": 0.0, "solver": "l-bfgs", "maxIter": 200, "tol": 1e-13, "regParam": .3}
    return params


def classified(params: dict[str, Any], draws: random.Random) -> dict[str, Any]:
    """A binomial family has two classes; bounds go with an L2 term alone, and each has the coefficients' shape."""
    if params.get("family") == "binomial":
        params = params | {"labelCol": "two"}
    classes = 3 if params["labelCol"] == "three" else 2
    if params.get("thresholds"):
        params = params | {"thresholds": [.2 + .1 * number for number in range(classes)], "threshold": None}
    sets = classes if params.get("family") == "multinomial" or classes > 2 else 1
    bounds = {"lowerBoundsOnCoefficients": Matrices.dense(sets, 4, [-.3] * (4 * sets)),
              "upperBoundsOnCoefficients": Matrices.dense(sets, 4, [.4] * (4 * sets)),
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


def generalized(params: dict[str, Any], draws: random.Random) -> dict[str, Any]:
    """A link and labels that a family may have; Tweedie's link is a power."""
    if params["family"] == "tweedie":
        return params | {"link": None, "labelCol": "positive"}
    links, label = LINKS[params["family"]]
    return params | {"link": draws.choice([None, *links]), "labelCol": label, "variancePower": None, "linkPower": None}


def factored(params: dict[str, Any], draws: random.Random) -> dict[str, Any]:
    return params | ({"thresholds": [.4, .6]} if params.get("thresholds") else {})


def machine(model: Any, df: DataFrame) -> list[Any]:
    return [model.intercept, model.linear.toArray(), model.factors.toArray()]


def centers(model: Any, df: DataFrame) -> list[Any]:
    """The centres in ascending order, and their cost."""
    found = np.array(sorted(map(tuple, np.round(model.clusterCenters(), 9))))
    return [found, model.summary.trainingCost, sorted(model.summary.clusterSizes)]


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
    return [np.array(model.weights), *(each.toArray() for one in model.gaussians for each in (one.mean, one.cov)),
            model.summary.logLikelihood]


def components(model: Any, df: DataFrame) -> list[Any]:
    return [abs(model.pc.toArray()), model.explainedVariance.toArray()]


def scaled(model: Any, df: DataFrame) -> list[Any]:
    return [np.array([row.out.toArray() for row in model.transform(df).select("out").collect()])]


def factors(model: Any, df: DataFrame) -> list[Any]:
    tables = ({row.id: row.features for row in each.collect()} for each in (model.userFactors, model.itemFactors))
    shown = sorted(row.prediction for row in model.transform(df).collect() if not np.isnan(row.prediction))
    return [*(np.array([table[key] for key in sorted(table)]) for table in tables), shown]


def vectors_of_words(model: Any, df: DataFrame) -> list[Any]:
    found = {row.word: row.vector.toArray() for row in model.getVectors().collect()}
    return [np.array([found[word] for word in sorted(found)])]


def nearest(model: Any, df: DataFrame) -> list[Any]:
    key = Vectors.dense(1.0, 0.0, 2.0, 1.0)
    return [[row.distCol for row in model.approxNearestNeighbors(df, key, 5).collect()]]


PENALTY = {"regParam": [0.0, .05, .5], "elasticNetParam": [0.0, .4, 1.0], "fitIntercept": FLAG,
           "standardization": FLAG, "weightCol": [None, "weight"], "maxIter": [3, 100], "tol": [1e-6, 1e-10]}
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
        "initSteps": [1, 4], "solver": ["auto", "row", "block"]}, X, centers, data="groups",
        prepare=start_of_mllib),
    "BisectingKMeans": Sweep(clustering, mllib_clustering, {
        **CLUSTERS, "minDivisibleClusterSize": [1.0, .2, 30.0]}, X, centers, data="groups"),
    "GaussianMixture": Sweep(clustering, mllib_clustering, {
        **{name: CLUSTERS[name] for name in CLUSTERS if name != "distanceMeasure"}, "tol": [.01, 1e-6]},
        X, densities, data="groups"),
    "PCA": Sweep(feature, mllib_feature, {"k": [1, 2, 4]}, COLUMN_TO_COLUMN, components),
    "StandardScaler": Sweep(feature, mllib_feature, {"withMean": FLAG, "withStd": FLAG}, COLUMN_TO_COLUMN, scaled),
    "MinMaxScaler": Sweep(feature, mllib_feature, {"min": [0.0, -2.0], "max": [1.0, 3.0]}, COLUMN_TO_COLUMN, scaled),
    "MaxAbsScaler": Sweep(feature, mllib_feature, {}, COLUMN_TO_COLUMN, scaled),
    "ALS": Sweep(recommendation, mllib_recommendation, {
        "rank": [1, 3], "maxIter": [1, 4], "regParam": [.01, .3], "numUserBlocks": [1, 3], "numItemBlocks": [1, 4],
        "implicitPrefs": FLAG, "alpha": [.5, 3.0], "nonnegative": FLAG, "seed": [5, -2],
        "coldStartStrategy": ["nan", "drop"]},
        # Without a column of ratings, which its documentation allows, MLlib does not find the column "" either.
        {"userCol": "who", "itemCol": "what", "ratingCol": "stars"}, factors, data="ratings", tolerance=2e-4),
    "Word2Vec": Sweep(feature, mllib_feature, {
        "vectorSize": [3, 8], "minCount": [1, 4], "stepSize": [.025, .1], "maxIter": [1, 2], "seed": [4, -1],
        "windowSize": [2, 5], "maxSentenceLength": [7, 1000]}, {"inputCol": "words", "outputCol": "out"},
        vectors_of_words, unswept={"numPartitions": "MLlib's partitions are other sentences"}, data="sentences",
        tolerance=1e-2),
    "BucketedRandomProjectionLSH": Sweep(feature, mllib_feature, {
        "bucketLength": [.5, 2.0], "numHashTables": [1, 4], "seed": [3, 8]}, COLUMN_TO_COLUMN, nearest),
    "MinHashLSH": Sweep(feature, mllib_feature, {"numHashTables": [1, 4], "seed": [3, 8]}, COLUMN_TO_COLUMN, nearest,
                        data="groups"),
}


def drawn(sweep: Sweep, draws: random.Random) -> dict[str, Any]:
    """Parameters of one draw, without those that are left as they are by default."""
    given = sweep.adjust({name: draws.choice(values) for name, values in sweep.values.items()}, draws)
    return {name: value for name, value in {**sweep.fixed, **given}.items()
            if value is not None and not (name.endswith("olds") and value is False)
            and not (name[:5] in ("lower", "upper") and value is False)}


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """The rows that are fitted: some sparse, some of weight 0, a constant feature, an empty partition."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(90, 4)) * [1, 2, .5, 0] + [1, 0, 2, 1]
    y = x @ [1, -.5, 2, 0] + rng.normal(size=90)
    rows = [(float(label), float(label > 4), float(label > 3) + float(label > 5.5), float(abs(label) / 4 + .5),
             float(number % 3), float(number % 2) / 4, vector(row, number))
            for number, (row, label) in enumerate(zip(x, y, strict=True))]
    context = spark.sparkContext
    parts = context.parallelize(rows, 2).union(context.parallelize([], 1))
    points = spark.createDataFrame(parts, ["y", "two", "three", "positive", "weight", "offset", "x"])
    places = np.repeat([[9.0, 1, 0, 0], [0, 9, 1, 0], [1, 0, 9, 0]], 20, axis=0)
    z = np.maximum(places + rng.normal(size=(60, 4)) / 10, 0)
    z[:, 3] += 1
    groups = spark.createDataFrame(context.parallelize(
        [(float(number % 3 + 1), vector(row, number)) for number, row in enumerate(z)], 2), ["weight", "x"])
    ratings = spark.createDataFrame(
        [(int(u) - 3, int(i) * 1000, float(r)) for u, i, r in zip(rng.integers(0, 9, 60), rng.integers(0, 7, 60),
                                                                 rng.integers(-1, 6, 60), strict=True)],
        "who int, what int, stars float")
    shares = 1 / np.arange(2, 9) / (1 / np.arange(2, 9)).sum()
    sentences = spark.createDataFrame([([f"w{i}" for i in rng.choice(7, 12, p=shares)],) for _ in range(40)], ["words"])
    found = {"rows": points, "groups": groups, "ratings": ratings, "sentences": sentences}
    for df in found.values():
        df.cache().count()
    return found


def vector(row: np.ndarray, number: int) -> Any:
    return Vectors.sparse(len(row), range(len(row)), row) if number % 7 == 0 else Vectors.dense(row)


def difference(name: str, params: dict[str, Any], df: DataFrame) -> str:
    """In what the models of both differ, or nothing."""
    sweep = SWEEPS[name]
    # Of some parameters, such as the weights of factorization machines, constructors do not know.
    ours, theirs = (getattr(module, name)()._set(**params) for module in (sweep.ours, sweep.theirs))
    if text := sweep.prepare(ours, theirs, df):
        return text
    models = ours.fit(df), theirs.fit(df)
    for place, (found, expected) in enumerate(zip(*(sweep.numbers(model, df) for model in models), strict=True)):
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        if found.shape != expected.shape:
            return f"number {place}: shape {found.shape} for {expected.shape}"
        scale = sweep.tolerance * max(1.0, float(np.abs(expected).max(initial=0)))
        if not np.allclose(found, expected, rtol=sweep.tolerance, atol=scale, equal_nan=True):
            worst = float(np.abs(found - expected).max())
            if objective(models[0]) is not None and objective(models[0]) <= objective(models[1]) * (1 + 1e-8):
                return ""
            return f"number {place}: {worst:.2g} apart; objectives {objective(models[0])}, {objective(models[1])}"
    return ""


def objective(model: Any) -> float | None:
    """The last of a training's objective, of fits that end elsewhere than MLlib's: with bounds, and by Huber's loss."""
    if not (model.hasParam("loss") and model.getOrDefault("loss") == "huber") and not any(
            model.hasParam(name) and model.isSet(name) for name in ("lowerBoundsOnCoefficients",
            "upperBoundsOnCoefficients", "lowerBoundsOnIntercepts", "upperBoundsOnIntercepts")):
        return None
    return float(model.summary.objectiveHistory[-1])


def outcomes(spark: SparkSession, names: list[str], times: int, seed: int) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Names, parameters and differences of some draws of each estimator."""
    data = frames(spark)
    for name in names:
        draws = random.Random(f"{name} {seed}")
        for _ in range(times):
            params = drawn(SWEEPS[name], draws)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, params, difference(name, params, data[SWEEPS[name].data])
    loads.unload()
    for df in data.values():
        df.unpersist()


def main(times: str = "10", *names: str) -> int:
    """Print the draws that differ, and return the exit status."""
    wrong = 0
    with topology.local() as place, host_context(place, fallback="error") as sc:
        sc.setLogLevel("OFF")
        for name in names or SWEEPS:
            found = list(outcomes(SparkSession(sc), [name], int(times), 0))
            differ = [(params, text) for _, params, text in found if text]
            wrong += len(differ)
            print(f"{name}: {len(found)} draws, {len(differ)} differ", flush=True)
            for params, text in differ:
                print(f"    {text}: {params}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
