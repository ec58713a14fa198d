"""Estimators of ``pyspark.ml.feature`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import feature
from pyspark.sql import DataFrame

from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.java import JavaObjects
from vispark.ml.loads import load, one, plain
from vispark.ml.moments import moments_of


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
