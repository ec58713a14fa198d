"""Replacement of pyspark.ml's estimators by vispark's, for programs that are not to be changed."""

from __future__ import annotations

import importlib

from vispark.ml import classification, clustering, feature, recommendation, regression, tuning

#: The estimators that fit in the workers, and the models that search there.
ESTIMATORS = (classification.FMClassifier, classification.LinearSVC, classification.LogisticRegression,
              clustering.BisectingKMeans, clustering.GaussianMixture, clustering.KMeans,
              feature.BucketedRandomProjectionLSH, feature.BucketedRandomProjectionLSHModel, feature.MaxAbsScaler,
              feature.MinHashLSH, feature.MinHashLSHModel, feature.MinMaxScaler, feature.PCA, feature.StandardScaler,
              recommendation.ALS, regression.FMRegressor, regression.GeneralizedLinearRegression,
              regression.LinearRegression, tuning.CrossValidator, tuning.TrainValidationSplit)

#: The estimators that stay with MLlib as a whole, and why.
BY_MLLIB = {
    **dict.fromkeys([
        "DecisionTreeClassifier", "DecisionTreeRegressor", "GBTClassifier", "GBTRegressor",
        "RandomForestClassifier", "RandomForestRegressor"],
        "trees need histograms of nodes that a device keeps from level to level"),
    **dict.fromkeys([
        "CountVectorizer", "IDF", "LDA", "Word2Vec"],
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
        setattr(importlib.import_module(module), estimator.__name__, estimator)
        names.append(f"{module}.{estimator.__name__}")
    return names


def uninstall() -> None:
    """Put pyspark's estimators back."""
    for estimator in ESTIMATORS:
        module = estimator.__module__.replace("vispark", "pyspark", 1)
        theirs = next(base for base in estimator.__mro__ if base.__module__ == module)
        setattr(importlib.import_module(module), estimator.__name__, theirs)
