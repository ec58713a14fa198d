"""MLlib's Java objects from NumPy arrays; what differs between versions of Spark is here alone."""

from __future__ import annotations

import array
import itertools
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

    def compressed(self, values: np.ndarray) -> Any:
        """Return a vector, sparse where that takes fewer bytes, as MLlib's own models have theirs."""
        return self.vector(values).compressed()

    def support_vector_coefficients(self, values: np.ndarray) -> Any:
        """Return the coefficients of a linear support vector machine, which Spark 4.0 and before leave dense."""
        return self.vector(values) if self._context.version.startswith(("3.", "4.0")) else self.compressed(values)

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
        array = self._context._gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def some(self, value: Any) -> Any:
        """Return an option that holds a value."""
        return self._jvm.scala.Option.apply(value)

    def empty_params(self) -> Any:
        """Return a map of no parameters."""
        return self.ml.param.ParamMap.empty()

    def cluster_tree(self, clusters: Any, *, by_cosine: bool) -> Any:
        """Return the tree of bisected clusters, by number in a heap, with leaves numbered from the left.

        Parameters
        ----------
        clusters : dict of int to TreeCluster
            The root is number 1.
        by_cosine : bool
            Whether heights are one less a cosine, in place of Euclidean distances.
        """
        kinds = self.mllib.clustering
        leaves, inner = itertools.count(), itertools.count(-1, -1)

        def node(number: int) -> Any:
            cluster = clusters[number]
            # MLlib takes a cluster without a left child for a leaf.
            below = [child for child in (2 * number, 2 * number + 1) if child in clusters and 2 * number in clusters]
            index = next(inner) if below else next(leaves)
            height = max((distance(cluster.center, clusters[child].center) for child in below), default=0.0)
            children = self.array(kinds.ClusteringTreeNode, [node(child) for child in below])
            center = kinds.VectorWithNorm(self.mllib.linalg.Vectors.fromML(self.vector(cluster.center)))
            return kinds.ClusteringTreeNode(index, cluster.size, center, cluster.cost, height, children)

        def distance(a: np.ndarray, b: np.ndarray) -> float:
            return float(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b) if by_cosine else np.linalg.norm(a - b))

        return node(1)

    def word_vectors(self, words: list[str], vectors: np.ndarray) -> Any:
        """Return the model of words and a row of numbers for each."""
        numbers = _py2java(self._context, {word: number for number, word in enumerate(words)})
        values = _py2java(self._context, array.array("f", vectors.astype(np.float32).ravel()))
        return self.mllib.feature.Word2VecModel(self._jvm.PythonUtils.toScalaMap(numbers), values)

    def machine(self, fit: Any) -> tuple[Any, Any, Any]:
        """Return the intercept, the coefficients and the factors of a factorization machine."""
        return fit.intercept, self.compressed(fit.linear), self.matrix(fit.factors, by_rows=True)

    def sampled(self, rdd: Any, most: int, count: int, seed: int) -> list[Any]:
        """Return records of a Java RDD of so many, drawn with replacement, which are likely to be ``most`` or more."""
        bounds = self._jvm.org.apache.spark.util.random.SamplingUtils
        return list(rdd.sample(True, bounds.computeFractionForSampleSize(most, count, True), seed).collect())

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
        summarized = model.findSummaryModelAndPredictionCol()
        labels, features, weights = columns
        predictions = summarized._1().transform(dataset)
        last = [self.doubles(inverse), self.doubles(history)]
        kind = self.ml.regression.LinearRegressionTrainingSummary
        if self._context.version.startswith("3."):
            return kind(predictions, summarized._2(), labels, features, model, *last)
        coefficients = [*model.coefficients().toArray(), *([model.intercept()] if fit_intercept else [])]
        return kind(predictions, summarized._2(), labels, features, weights, size, fit_intercept, *last,
                    self.doubles(coefficients))
