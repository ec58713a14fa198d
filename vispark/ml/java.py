"""MLlib's Java objects from NumPy arrays; what differs between versions of Spark is here alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml.common import _py2java
from pyspark.ml.linalg import DenseMatrix, DenseVector


class JavaObjects:
    """Maker of MLlib's Java objects.

    Parameters
    ----------
    context : SparkContext
        The context of the driver's JVM.
    """

    def __init__(self, context: Any):
        self._context: Any = context
        self._jvm: Any = self._context._jvm
        self.ml = self._jvm.org.apache.spark.ml
        self.mllib = self._jvm.org.apache.spark.mllib

    def vector(self, values: np.ndarray) -> Any:
        """Return a dense vector."""
        return _py2java(self._context, DenseVector(values))

    def matrix(self, values: np.ndarray, *, by_rows: bool = False) -> Any:
        """Return a dense matrix of an array of two dimensions, which lies in memory by columns or by rows."""
        rows, columns = values.shape
        if not by_rows:
            return _py2java(self._context, DenseMatrix(rows, columns, values.ravel("F")))
        return self.ml.linalg.DenseMatrix(rows, columns, self.doubles(values.ravel()), True)

    def doubles(self, values: Any) -> Any:
        """Return an array of doubles."""
        return self.vector(np.asarray(values, float)).toArray()

    def array(self, kind: Any, values: list[Any]) -> Any:
        """Return an array of objects of a class."""
        found = self._context._gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            found[index] = value
        return found

    def some(self, value: Any) -> Any:
        """Return an option that holds a value."""
        return self._jvm.scala.Option.apply(value)

    def empty_params(self) -> Any:
        """Return a map of no parameters."""
        return self.ml.param.ParamMap.empty()

    def hashed_seed(self, seed: int) -> int:
        """Return a seed as Spark's random numbers hash it."""
        companion = getattr(self._jvm.org.apache.spark.util.random, "XORShiftRandom$")
        return int(getattr(companion, "MODULE$").hashSeed(seed))

    def linear_summary(self, model: Any, dataset: Any, columns: list[str], size: int, fit_intercept: bool,
                       inverse: np.ndarray, history: np.ndarray) -> Any:
        """Return the summary of a linear regression's training.

        Parameters
        ----------
        model, dataset : Java objects
            The model, and the DataFrame.
        columns : list of str
            Of labels, features and weights; an empty name where there are no weights.
        size : int
            Number of features.
        fit_intercept : bool
            Whether there is an intercept.
        inverse : array
            Diagonal of the inverse of the moments' matrix; one 0 where there is none.
        history : array
            The objective after each iteration.
        """
        found = model.findSummaryModelAndPredictionCol()
        labels, features, weights = columns
        predictions = found._1().transform(dataset)
        last = [self.doubles(inverse), self.doubles(history)]
        kind = self.ml.regression.LinearRegressionTrainingSummary
        if self._context.version.startswith("3."):
            return kind(predictions, found._2(), labels, features, model, *last)
        coefficients = [*model.coefficients().toArray(), *([model.intercept()] if fit_intercept else [])]
        return kind(predictions, found._2(), labels, features, weights, size, fit_intercept, *last,
                    self.doubles(coefficients))
