"""Replacement of pyspark.ml's estimators and evaluators by vispark's, for programs that are not to be changed."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pyspark.ml

from vispark.ml import classification, clustering, evaluation, feature, pipeline, recommendation, regression, tuning

#: The estimators that fit in the workers, and the models that search there.
ESTIMATORS = (classification.FMClassifier, classification.LinearSVC, classification.LogisticRegression,
              clustering.BisectingKMeans, clustering.GaussianMixture, clustering.KMeans,
              feature.BucketedRandomProjectionLSH, feature.BucketedRandomProjectionLSHModel, feature.MaxAbsScaler,
              feature.MinHashLSH, feature.MinHashLSHModel, feature.MinMaxScaler, feature.PCA, feature.StandardScaler,
              feature.Word2Vec, pipeline.Pipeline,
              recommendation.ALS, regression.FMRegressor, regression.GeneralizedLinearRegression,
              regression.LinearRegression, tuning.CrossValidator, tuning.TrainValidationSplit)

#: The evaluators whose metrics are found in the workers.
EVALUATORS = (evaluation.BinaryClassificationEvaluator, evaluation.ClusteringEvaluator,
              evaluation.MulticlassClassificationEvaluator, evaluation.RegressionEvaluator)

#: The estimators that stay with MLlib as a whole, and why.
BY_MLLIB = {
    **dict.fromkeys([
        "DecisionTreeClassifier", "DecisionTreeRegressor", "GBTClassifier", "GBTRegressor",
        "RandomForestClassifier", "RandomForestRegressor"],
        "trees need histograms of nodes that a device keeps from level to level"),
    **dict.fromkeys([
        "CountVectorizer", "IDF", "LDA"],
        "words and sentences are no numbers of one length"),
    **dict.fromkeys([
        "ChiSqSelector", "FPGrowth", "NaiveBayes", "OneHotEncoder", "RFormula", "StringIndexer",
        "TargetEncoder", "VectorIndexer"],
        "items and labels are strings, or counted by value"),
    **dict.fromkeys([
        "Imputer", "QuantileDiscretizer", "RobustScaler"],
        "quantiles are found by Spark's sketches of columns"),
    **dict.fromkeys([
        "UnivariateFeatureSelector", "VarianceThresholdSelector"],
        "statistics are Spark's aggregates of columns"),
    **dict.fromkeys([
        "IsotonicRegression"],
        "rows are taken in order"),
    **dict.fromkeys([
        "AFTSurvivalRegression", "MultilayerPerceptronClassifier"],
        "not begun: a pass for each evaluation would do"),
}

#: The modules of pyspark's whose places copies have, by name.
_REPLACED: dict[str, ModuleType] = {}


def install() -> list[str]:
    """Put vispark's estimators and evaluators in place of pyspark's, in copies of the modules of ``pyspark.ml``.

    What a program imports from there afterwards, and what it loads from files, are vispark's. Names and modules that
    were imported before stay as they are: PySpark 3.5's own classes look their own names up there.

    Returns
    -------
    list of str
        The names that were replaced.

    Examples
    --------
    >>> import pyspark.ml.feature
    >>> theirs = pyspark.ml.feature.PCA, pyspark.ml.regression.LinearRegression
    >>> from vispark.ml.installation import install, uninstall
    >>> "pyspark.ml.feature.PCA" in install()
    True
    >>> uninstall()
    >>> theirs == (pyspark.ml.feature.PCA, pyspark.ml.regression.LinearRegression)
    True
    """
    names = []
    for estimator in (*ESTIMATORS, *EVALUATORS):
        module = estimator.__module__.replace("vispark", "pyspark", 1)
        setattr(_copied(module), estimator.__name__, estimator)
        _export(estimator.__name__, estimator)
        names.append(f"{module}.{estimator.__name__}")
    return names


def uninstall() -> None:
    """Put pyspark's modules back.

    Examples
    --------
    >>> from vispark.ml.installation import install, uninstall
    >>> _ = install()
    >>> uninstall()
    >>> pyspark.ml.feature.PCA.__module__
    'pyspark.ml.feature'
    """
    for name, module in _REPLACED.items():
        _place(name, module)
    for estimator in (*ESTIMATORS, *EVALUATORS):
        if theirs := _REPLACED.get(estimator.__module__.replace("vispark", "pyspark", 1)):
            _export(estimator.__name__, getattr(theirs, estimator.__name__))
    _REPLACED.clear()


def _copied(name: str) -> ModuleType:
    """Return the copy of a module of ``pyspark.ml`` that has its place, which it gets now if it has none."""
    module = importlib.import_module(name)
    if name in _REPLACED:
        return module
    _REPLACED[name] = module
    copy = ModuleType(name)
    vars(copy).update(vars(module))
    _place(name, copy)
    return copy


def _place(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    setattr(pyspark.ml, name.rpartition(".")[2], module)


def _export(name: str, kind: type) -> None:
    """Put a class into the package ``pyspark.ml``, where it has that name too."""
    if hasattr(pyspark.ml, name):
        setattr(pyspark.ml, name, kind)
