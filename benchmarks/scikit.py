"""Fits of scikit-learn's beside those of MLlib and vispark: the same numbers as NumPy arrays, in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from sklearn import (
    cluster,
    decomposition,
    exceptions,
    linear_model,
    metrics,
    mixture,
    model_selection,
    neighbors,
    pipeline,
    preprocessing,
    svm,
)

#: By estimator of MLlib's: a fit to rows and their columns of labels, with like parameters.
FITS: dict[str, Callable[[np.ndarray, dict[str, np.ndarray]], object]] = {
    "LogisticRegression": lambda x, y: linear_model.LogisticRegression(C=np.inf, max_iter=10).fit(x, y["class"]),
    "LinearSVC": lambda x, y: svm.LinearSVC(max_iter=10).fit(x, y["class"]),
    "LinearRegression": lambda x, y: linear_model.ElasticNet(alpha=0.1, l1_ratio=0.5).fit(x, y["label"]),
    "GeneralizedLinearRegression": lambda x, y: linear_model.TweedieRegressor(
        power=0, link="log", alpha=0, solver="newton-cholesky", max_iter=5).fit(x, y["positive"]),
    "KMeans": lambda x, y: cluster.KMeans(10, max_iter=10, n_init=1, random_state=1).fit(x),
    "BisectingKMeans": lambda x, y: cluster.BisectingKMeans(4, max_iter=5, random_state=1).fit(x),
    "GaussianMixture": lambda x, y: mixture.GaussianMixture(3, max_iter=5, random_state=1).fit(x),
    "PCA": lambda x, y: decomposition.PCA(3).fit(x),
    "StandardScaler": lambda x, y: preprocessing.StandardScaler().fit(x),
    "MinMaxScaler": lambda x, y: preprocessing.MinMaxScaler().fit(x),
    "MaxAbsScaler": lambda x, y: preprocessing.MaxAbsScaler().fit(x),
    "NearestNeighbors": lambda x, y: neighbors.NearestNeighbors(n_neighbors=10, algorithm="brute").fit(x).kneighbors(
        abs(x[:1])),
    "NMF": lambda x, y: decomposition.NMF(4, init="random", max_iter=5, random_state=1).fit(abs(x)),
    "Pipeline": lambda x, y: pipeline.make_pipeline(
        preprocessing.StandardScaler(), linear_model.LogisticRegression(C=np.inf, max_iter=10)).fit(x, y["class"]),
    "CrossValidator": lambda x, y: model_selection.GridSearchCV(
        linear_model.LogisticRegression(max_iter=10), {"C": [np.inf, 10 / len(x)]}, cv=3, scoring="roc_auc").fit(
            x, y["class"]),
    "TrainValidationSplit": lambda x, y: model_selection.GridSearchCV(
        linear_model.LogisticRegression(max_iter=10), {"C": [np.inf, 10 / len(x)]}, scoring="roc_auc",
        cv=model_selection.ShuffleSplit(1, test_size=.25, random_state=1)).fit(x, y["class"]),
    "BinaryClassificationEvaluator": lambda x, y: metrics.roc_auc_score(y["class"], x[:, 0]),
    "MulticlassClassificationEvaluator": lambda x, y: metrics.f1_score(
        y["class"], x[:, 0] > np.median(x[:, 0]), average="weighted"),
    "RegressionEvaluator": lambda x, y: metrics.r2_score(y["label"], x[:, 0]),
    "LogisticRegression.train": lambda x, y: linear_model.LogisticRegression(C=np.inf, max_iter=10).fit(x, y["class"]),
    "KMeans.train": lambda x, y: cluster.KMeans(10, max_iter=10, n_init=1, random_state=1).fit(x),
    "consensus": lambda x, y: linear_model.LogisticRegression(fit_intercept=False, max_iter=26).fit(x, y["class"]),
}


def fit(name: str, rows: np.ndarray, labels: dict[str, np.ndarray]) -> None:
    """Fit an estimator; that it ends before it converges is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        FITS[name](rows, labels)
