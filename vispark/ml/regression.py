"""Estimators of ``pyspark.ml.regression`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import regression
from pyspark.sql import DataFrame

from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.java import JavaObjects
from vispark.ml.loads import load, number, one, plain
from vispark.ml.moments import labelled_moments
from vispark.ml.optim.least_squares import Penalty, constant_label, normal_equations, quasi_newton

#: The most features of which the products of all pairs are summed; MLlib's limit for normal equations.
_WIDEST = 4096


class LinearRegression(DeviceFit, regression.LinearRegression):
    """Linear regression by least squares, with an elastic net: pyspark's, fitted in the workers.

    Two passes over the data sum the products of all pairs of columns; the driver does the rest on these, whatever the
    solver. ``loss="huber"`` and more than 4,096 features stay with MLlib.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(1.0, Vectors.dense(0.0)), (3.0, Vectors.dense(1.0))],
    ...                                       ["label", "features"])
    >>> model = LinearRegression(regParam=0.0).fit(df)
    >>> model.coefficients.toArray().round(6), round(model.intercept, 6)
    (array([2.]), 1.0)
    """

    def _train(self, dataset: DataFrame) -> Any:
        if self.getLoss() != "squaredError":
            raise Unsuited(f"loss={self.getLoss()!r}")
        points = load(dataset, {"x": plain(self.getFeaturesCol()), "y": number(self.getLabelCol()),
                                "w": number(weights) if (weights := self._column("weightCol")) else one()},
                      can_mask=True)
        moments = labelled_moments(points)
        size = len(moments.mean) - 1
        if size > _WIDEST:
            raise Unsuited(f"there are {size} features, more than {_WIDEST}")
        intercept = self.getFitIntercept()
        penalty = Penalty(self.getRegParam(), self.getElasticNetParam(), self.getStandardization(), self.getMaxIter(),
                          self.getTol())
        fit = constant_label(moments, fit_intercept=intercept)
        if fit is None and not moments.covariance[-1, -1] > 0 and penalty.strength:
            raise Unsuited("all labels are the same, without an intercept and with regularisation")
        if fit is None:
            solve = quasi_newton if self.getSolver() == "l-bfgs" else normal_equations
            fit = solve(moments, penalty, fit_intercept=intercept)
        return self._model(dataset, fit.coefficients, fit.intercept, fit.inverse, fit.history)

    def _model(self, dataset: DataFrame, coefficients: np.ndarray, intercept: float, inverse: np.ndarray,
               history: np.ndarray) -> Any:
        java = JavaObjects(dataset.sparkSession.sparkContext)
        vector = java.vector(coefficients)
        model = self._with_params(dataset, java.ml.regression.LinearRegressionModel(
            self.uid, vector.compressed() if self.getSolver() == "l-bfgs" else vector, intercept))
        columns = [self.getLabelCol(), self.getFeaturesCol(), self._column("weightCol") or ""]
        summary = java.linear_summary(model, dataset._jdf, columns, len(coefficients), self.getFitIntercept(), inverse,
                                      history)
        return model.setSummary(java.some(summary))
