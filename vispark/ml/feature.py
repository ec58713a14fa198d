"""Estimators of ``pyspark.ml.feature`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import feature
from pyspark.sql import DataFrame

from vispark.api.vrdd import VRDD
from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.java import JavaObjects
from vispark.ml.loads import load, one, plain
from vispark.ml.moments import check, moments_of, totals


class PCA(DeviceFit, feature.PCA):
    """Principal components of vectors: pyspark's, fitted in the workers.

    Two passes sum the covariance; the driver decomposes it.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(0.0, 0.0),), (Vectors.dense(1.0, 1.0),), (Vectors.dense(2.0, 2.1),)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["features"])
    >>> bool(PCA(k=1, inputCol="features", outputCol="out").fit(df).explainedVariance[0] > 0.99)
    True
    """

    def _train(self, dataset: DataFrame) -> Any:
        moments = moments_of(load(dataset, {"x": plain(self.getInputCol()), "w": one()}, can_mask=True))
        k, size = self.getK(), len(moments.mean)
        if k > size or moments.weight < 2:
            raise Unsuited(f"k={k} of {size} features and {moments.weight:.0f} rows")
        vectors, values, _ = np.linalg.svd(moments.covariance * moments.unbiased)
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.PCAModel(self.uid, java.matrix(vectors[:, :k]),
                                        java.vector((values / values.sum())[:k]))


class StandardScaler(DeviceFit, feature.StandardScaler):
    """Scaler of features by their mean and unbiased deviation: pyspark's, fitted in the workers in two passes.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(Vectors.dense(0.0),), (Vectors.dense(2.0),)], ["a"])
    >>> model = StandardScaler(inputCol="a", outputCol="scaled").fit(df)
    >>> model.mean, model.std.toArray().round(6)
    (DenseVector([1.0]), array([1.414214]))
    """

    def _train(self, dataset: DataFrame) -> Any:
        points = load(dataset, {"x": plain(self.getInputCol()), "w": one()}, can_mask=True)
        count, width, weight, total = totals(points, _sums)
        if width != count * len(total):
            raise Unsuited("the vectors are of several lengths")
        check(np.append(total, weight), 0)
        mean = total / weight
        squares, = totals(points, _spread, mean)
        deviation = np.sqrt(squares / max(weight - 1, 1))
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.StandardScalerModel(self.uid, java.vector(deviation), java.vector(mean))


class MinMaxScaler(DeviceFit, feature.MinMaxScaler):
    """Scaler of features to a range: pyspark's, whose least and greatest numbers are found in the workers.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(Vectors.dense(0.0),), (Vectors.dense(2.0),)], ["a"])
    >>> model = MinMaxScaler(inputCol="a", outputCol="scaled").fit(df)
    >>> model.originalMin, model.originalMax
    (DenseVector([0.0]), DenseVector([2.0]))
    """

    def _train(self, dataset: DataFrame) -> Any:
        least, greatest = _ranges(load(dataset, {"x": plain(self.getInputCol()), "w": one()}, can_mask=True))
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.MinMaxScalerModel(self.uid, java.vector(least), java.vector(greatest))


class MaxAbsScaler(DeviceFit, feature.MaxAbsScaler):
    """Scaler of features by their greatest absolute number: pyspark's, fitted in the workers.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(Vectors.dense(-4.0),), (Vectors.dense(2.0),)], ["a"])
    >>> MaxAbsScaler(inputCol="a", outputCol="scaled").fit(df).maxAbs
    DenseVector([4.0])
    """

    def _train(self, dataset: DataFrame) -> Any:
        least, greatest = _ranges(load(dataset, {"x": plain(self.getInputCol()), "w": one()}, can_mask=True))
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.MaxAbsScalerModel(self.uid, java.vector(np.maximum(abs(least), abs(greatest))))


def _ranges(points: VRDD) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest number of each feature, in two passes."""
    count, width, weight, total = totals(points, _sums)
    if width != count * len(total):
        raise Unsuited("the vectors are of several lengths")
    check(np.append(total, weight), 0)
    least, greatest = points.vmap(_both).reduce(_extremes)
    return np.asarray(least), np.asarray(greatest)


def _both(x: Any, w: Any) -> Any:
    return np.where(w > 0, x, np.inf), np.where(w > 0, x, -np.inf)


def _extremes(a: Any, b: Any) -> Any:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _sums(x: Any, w: Any) -> Any:
    return 1, len(x), w, w * x


def _spread(x: Any, w: Any, mean: Any) -> Any:
    return (w * (x - mean) ** 2,)
