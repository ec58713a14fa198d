"""Estimators of ``pyspark.ml.clustering`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import clustering
from pyspark.ml.common import _java2py
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from vispark import random
from vispark.api.vrdd import VRDD
from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.gaussians import Mixture, first_mixture
from vispark.ml.java import JavaObjects
from vispark.ml.loads import load, number, one, plain
from vispark.ml.moments import check, totals


class KMeans(DeviceFit, clustering.KMeans):
    """K-means of weighted vectors, by Euclidean distance or by cosine: pyspark's, fitted in the workers.

    Each of Lloyd's steps is one pass. First centres are drawn one after another, with ``initMode="k-means||"`` by their
    squared distance to those before (k-means++ of Arthur and Vassilvitskii, 2007, which k-means|| approximates), with
    ``"random"`` by weight alone; the draws are other ones than MLlib's.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(x, x),) for x in (0.0, 1.0, 8.0, 9.0)]
    >>> model = KMeans(k=2, seed=1).fit(SparkSession(sc).createDataFrame(rows, ["features"]))
    >>> sorted(center.tolist() for center in model.clusterCenters()), model.summary.trainingCost
    ([[0.5, 0.5], [8.5, 8.5]], 2.0)
    """

    def _train(self, dataset: DataFrame) -> Any:
        points = load(dataset, {"x": plain(self.getFeaturesCol()),
                                "w": number(weights) if (weights := self._column("weightCol")) else one(),
                                "i": ("monotonically_increasing_id()", sql.monotonically_increasing_id())})
        by_cosine = self.getDistanceMeasure() == "cosine"
        count, width, negative, zero, weight, total = totals(points, _sums)
        if width != count * len(total):
            raise Unsuited("the vectors are of several lengths")
        check(np.append(total, weight), negative)
        if by_cosine and zero:
            raise Unsuited("cosine distance is not defined for vectors of length 0")
        centers = self._first(points, by_cosine)
        centers, cost, iterations = self._moved(points, centers, by_cosine)
        return self._model(dataset, centers, cost, iterations)

    def _first(self, points: VRDD, by_cosine: bool) -> np.ndarray:
        """Return the first centres, at most ``k``: no two are equal.

        A row is drawn by the least of exponential numbers, divided by what it is drawn by.
        """
        by_distance = self.getInitMode() == "k-means||"
        found: list[np.ndarray] = []
        seed = self.getSeed() % 2 ** 63
        while len(found) < self.getK():
            centers = np.asarray(found) if found else np.zeros((1, len(points.first()["x"])))
            arguments = (centers, len(found) > 0, by_distance, by_cosine, seed, len(found))
            least = points.vmap(_drawn, *arguments).min()
            if not np.isfinite(least):
                break
            times, chosen = totals(points, _at, *arguments, float(least))
            found.append(np.asarray(chosen) / times)
        return np.asarray(found)

    def _moved(self, points: VRDD, centers: np.ndarray, by_cosine: bool) -> tuple[np.ndarray, float, int]:
        """Return the centres after Lloyd's steps, the cost in the last of them, and their number."""
        cost, done, most = 0.0, 0, self.getMaxIter()
        while done < most:
            done += 1
            shares = points.vmap(_nearest, centers, by_cosine).reduceByKey(_add, numKeys=len(centers)).collect()
            cost = float(sum(share[2] for _, share in shares))
            moved = centers.copy()
            for index, (total, weight, _) in shares:
                if weight:
                    moved[index] = total / (np.linalg.norm(total) if by_cosine else weight)
            change = 1 - (moved * centers).sum(axis=1) if by_cosine else np.linalg.norm(moved - centers, axis=1)
            centers = moved
            if (change <= self.getTol()).all():
                break
        return centers, cost, done

    def _model(self, dataset: DataFrame, centers: np.ndarray, cost: float, iterations: int) -> Any:
        java = JavaObjects(dataset.sparkSession.sparkContext)
        vectors = [java.mllib.linalg.Vectors.fromML(java.vector(center)) for center in centers]
        inner = java.mllib.clustering.KMeansModel(java.array(java.mllib.linalg.Vector, vectors),
                                                  self.getDistanceMeasure(), cost, iterations)
        model = self._with_params(dataset, java.ml.clustering.KMeansModel(self.uid, inner))
        return model.setSummary(java.some(java.ml.clustering.KMeansSummary(
            model.transform(dataset._jdf), self.getPredictionCol(), self.getFeaturesCol(), self.getK(), iterations,
            cost)))


class GaussianMixture(DeviceFit, clustering.GaussianMixture):
    """Mixture of Gaussian densities by expectation and maximization: pyspark's, fitted in the workers.

    Each iteration is one pass. It begins with the rows that MLlib draws, by Spark jobs of its own.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(x),) for x in (0.0, 0.1, 0.2, 8.0, 8.1, 8.2)]
    >>> model = GaussianMixture(k=2, seed=3).fit(SparkSession(sc).createDataFrame(rows, ["features"]))
    >>> len(model.weights), round(sum(model.weights), 6)
    (2, 1.0)
    """

    def _train(self, dataset: DataFrame) -> Any:
        weights, features = self._column("weightCol"), self.getFeaturesCol()
        if not isinstance(dataset.schema[features].dataType, VectorUDT):
            raise Unsuited("the features are no vectors")
        points = load(dataset, {"x": plain(features), "w": number(weights) if weights else one()})
        count, width, negative, _, weight, total = totals(points, _sums)
        if width != count * len(total):
            raise Unsuited("the vectors are of several lengths")
        check(np.append(total, weight), negative)
        mixture = first_mixture(*self._drawn(dataset, features, weights), self.getK())
        likelihood, before, done = -float(np.finfo(float).max), 0.0, 0
        while done < self.getMaxIter() and abs(likelihood - before) > self.getTol():
            try:
                mixture, after = mixture.after(points, total / weight)
            except np.linalg.LinAlgError as error:
                raise Unsuited("a covariance is singular") from error
            if not np.isfinite(mixture.covariances).all():
                raise Unsuited("a density lost all its rows")
            before, likelihood, done = likelihood, after, done + 1
        return self._model(dataset, mixture, likelihood, done)

    def _drawn(self, dataset: DataFrame, features: str, weights: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that MLlib draws, five for each density, and their weights."""
        chosen = dataset.select(sql.col(f"`{features}`"),
                                sql.col(f"`{weights}`").cast("double") if weights else sql.lit(1.0))
        drawn = chosen._jdf.rdd().takeSample(True, 5 * self.getK(), self.getSeed())
        context = dataset.sparkSession.sparkContext
        rows = np.array([_java2py(context, row.get(0)).toArray() for row in drawn])
        return rows, np.array([row.getDouble(1) for row in drawn])

    def _model(self, dataset: DataFrame, mixture: Mixture, likelihood: float, iterations: int) -> Any:
        java = JavaObjects(dataset.sparkSession.sparkContext)
        kind = java.ml.stat.distribution.MultivariateGaussian
        densities = [kind(java.vector(mean), java.matrix((covariance + covariance.T) / 2))
                     for mean, covariance in zip(mixture.means, mixture.covariances, strict=True)]
        model = self._with_params(dataset, java.ml.clustering.GaussianMixtureModel(
            self.uid, java.doubles(mixture.shares), java.array(kind, densities)))
        return model.setSummary(java.some(java.ml.clustering.GaussianMixtureSummary(
            model.transform(dataset._jdf), self.getPredictionCol(), self.getProbabilityCol(), self.getFeaturesCol(),
            self.getK(), likelihood, iterations)))


def _sums(x: Any, w: Any) -> Any:
    return 1, len(x), 1 if w < 0 else 0, 1 if np.dot(x, x) == 0 else 0, w, w * x


def _distances(x: Any, centers: Any, by_cosine: Any) -> Any:
    """Return the squared distances of a row to the centres, or one less the cosine to each."""
    if by_cosine:
        return 1 - centers @ x / np.sqrt(np.dot(x, x))
    return ((centers - x) ** 2).sum(axis=1)


def _drawn(x: Any, w: Any, i: Any, centers: Any, has_centers: Any, by_distance: Any, by_cosine: Any, seed: Any,
           call: Any) -> Any:
    """Return the number by which a row is drawn; infinite where it is not to be."""
    nearest = _distances(x, centers, by_cosine).min() if has_centers else 1.0
    share = w * nearest if by_distance else (w if nearest > 0 else 0.0)
    return -np.log(1 - random.uniform(seed, i, call)) / share if share > 0 else np.inf


def _at(x: Any, w: Any, i: Any, centers: Any, has_centers: Any, by_distance: Any, by_cosine: Any, seed: Any, call: Any,
        least: Any) -> Any:
    """Return 1 and a row, of unit length for cosines, where it was drawn, and zeros elsewhere."""
    chosen = 1.0 if _drawn(x, w, i, centers, has_centers, by_distance, by_cosine, seed, call) == least else 0.0
    return chosen, chosen * x / (np.sqrt(np.dot(x, x)) if by_cosine else 1.0)


def _nearest(x: Any, w: Any, centers: Any, by_cosine: Any) -> Any:
    """Return the nearest centre of a row, and the row, of unit length for cosines, its weight and its cost."""
    distances = _distances(x, centers, by_cosine)
    index = np.argmin(distances)
    return index, (w * x / (np.sqrt(np.dot(x, x)) if by_cosine else 1.0), w, w * distances[index])


def _add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
