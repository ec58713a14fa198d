"""Replacement of pyspark.ml's estimators by vispark's, for programs that are not to be changed."""

from __future__ import annotations

import importlib

import pyspark.ml

from vispark.ml import classification, clustering, feature, pipeline, recommendation, regression, tuning

#: The estimators that fit in the workers, and the models that search there.
ESTIMATORS = (classification.FMClassifier, classification.LinearSVC, classification.LogisticRegression,
              clustering.BisectingKMeans, clustering.GaussianMixture, clustering.KMeans,
              feature.BucketedRandomProjectionLSH, feature.BucketedRandomProjectionLSHModel, feature.MaxAbsScaler,
              feature.MinHashLSH, feature.MinHashLSHModel, feature.MinMaxScaler, feature.PCA, feature.StandardScaler,
              feature.Word2Vec, pipeline.Pipeline,
              recommendation.ALS, regression.FMRegressor, regression.GeneralizedLinearRegression,
              regression.LinearRegression, tuning.CrossValidator, tuning.TrainValidationSplit)

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


def install() -> list[str]:
    """Put vispark's estimators in place of pyspark's, in the modules of ``pyspark.ml``.

    What a program imports from there afterwards, and what it loads from files, are vispark's. Names that were imported
    before stay as they are.

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
    for estimator in ESTIMATORS:
        module = estimator.__module__.replace("vispark", "pyspark", 1)
        _put(module, estimator.__name__, estimator)
        names.append(f"{module}.{estimator.__name__}")
    return names


def uninstall() -> None:
    """Put pyspark's estimators back."""
    for estimator in ESTIMATORS:
        module = estimator.__module__.replace("vispark", "pyspark", 1)
        theirs = next(base for base in estimator.__mro__ if base.__module__ == module)
        _put(module, estimator.__name__, theirs)


def _put(module: str, name: str, kind: type) -> None:
    """Put a class into a module of ``pyspark.ml``, and into the package where it has that name too."""
    setattr(importlib.import_module(module), name, kind)
    if hasattr(pyspark.ml, name):
        setattr(pyspark.ml, name, kind)
