"""Estimators of ``pyspark.ml.clustering`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import clustering
from pyspark.ml.common import _java2py
from pyspark.ml.linalg import VectorUDT
from pyspark.mllib import clustering as mllib
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from vispark.api.vrdd import VRDD
from vispark.ml import rdds
from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.bisection import ClusterTree, Growth
from vispark.ml.first_centers import RowDraws, distances_to
from vispark.ml.gaussians import Mixture, first_mixture
from vispark.ml.java import JavaObjects
from vispark.ml.java_random import JavaRandom
from vispark.ml.loads import Fields, plain, row_number
from vispark.ml.moments import check, check_squares, totals
from vispark.ml.names import of_pyspark


class KMeans(DeviceFit, clustering.KMeans):
    """K-means of weighted vectors, by Euclidean distance or by cosine: pyspark's, fitted in the workers.

    Each of Lloyd's steps is one pass. First centres are found by k-means|| in two passes for each of the ``initSteps``,
    or drawn by weight with ``initMode="random"``; the draws are other ones than MLlib's.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(x, x),) for x in (0.0, 1.0, 8.0, 9.0)]
    >>> model = KMeans(k=2, seed=1).fit(SparkSession(sc).createDataFrame(rows, ["features"]))
    >>> sorted(center.tolist() for center in model.clusterCenters()), model.summary.trainingCost
    ([[0.5, 0.5], [8.5, 8.5]], 2.0)
    """

    def _fields(self) -> Fields:
        return {"x": plain(self.getFeaturesCol()), "w": self._weight(), "i": row_number()}

    def _train(self, dataset: DataFrame) -> Any:
        return self._model(dataset, *self._fitted(self._records(dataset)))

    def _fitted(self, points: VRDD, start: np.ndarray | None = None) -> tuple[np.ndarray, float, int]:
        """Return the centres of records of fields x, w and i, their cost, and the number of steps to them."""
        by_cosine = self.getDistanceMeasure() == "cosine"
        _checked_sums(points, by_cosine=by_cosine)
        if start is None:
            start = self._first(points, by_cosine)
        elif by_cosine:
            start = _of_length_one(start)
        return self._moved(points, start, by_cosine)

    @classmethod
    def train(cls, rdd: Any, k: int, maxIterations: int = 100, initializationMode: str = "k-means||", *,
              seed: int | None = None, epsilon: float = 1e-4, initialModel: Any = None,
              distanceMeasure: str = "euclidean") -> mllib.KMeansModel:
        """Return ``pyspark.mllib``'s model of an RDD of vectors, as its KMeans.train does.

        Parameters
        ----------
        rdd : RDD
            Vectors: of pyspark, arrays, or lists of numbers.
        k, maxIterations, initializationMode, seed, epsilon, initialModel, distanceMeasure
            As there: the number of centres; the most steps; how first centres are drawn, and by which seed; the change
            of the centres at which it ends; a model whose centres are the first ones; ``"euclidean"`` or ``"cosine"``.

        Raises
        ------
        RecordError
            If numbers are not finite, or vectors of length 0 go with ``"cosine"``.

        Examples
        --------
        >>> model = KMeans.train(sc.parallelize([[0.0], [1.0], [8.0], [9.0]], 2), 2, seed=1)
        >>> sorted(center.tolist() for center in model.clusterCenters)
        [[0.5], [8.5]]
        """
        learner = rdds.learner_of(cls, k=k, maxIter=maxIterations, initMode=initializationMode, seed=seed, tol=epsilon,
                                  distanceMeasure=distanceMeasure)
        start = None if initialModel is None else np.array([np.asarray(each) for each in initialModel.clusterCenters])
        with rdds.held(rdds.numbered(rdd)) as points:
            centers, _, _ = learner._fitted(points, start)
        return mllib.KMeansModel([*centers])

    def _first(self, points: VRDD, by_cosine: bool) -> np.ndarray:
        """Return the first centres, at most ``k``: no two are equal."""
        draws = RowDraws(points, by_cosine, self.getSeed() % 2 ** 63)
        by_distance = self.getInitMode() == "k-means||"
        return draws.parallel(self.getK(), self.getInitSteps()) if by_distance else draws.random(self.getK())

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
        frame, values = dataset._jdf, (self.getPredictionCol(), self.getFeaturesCol(), self.getK(), iterations, cost)
        return java.ml.clustering.KMeansModel(self.uid, inner), lambda java, model: java.ml.clustering.KMeansSummary(
            model.transform(frame), *values)


class BisectingKMeans(DeviceFit, clustering.BisectingKMeans):
    """Tree of clusters by bisection, by Euclidean distance or by cosine: pyspark's, fitted in the workers.

    Each step of a level's bisections is one pass. They begin with MLlib's random offsets, dealt to the clusters of a
    level by number.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(x, x),) for x in (0.0, 1.0, 8.0, 9.0)]
    >>> model = BisectingKMeans(k=2, seed=1).fit(SparkSession(sc).createDataFrame(rows, ["features"]))
    >>> [center.tolist() for center in model.clusterCenters()], model.summary.trainingCost
    ([[0.5, 0.5], [8.5, 8.5]], 2.0)
    """

    _can_mask = False

    def _fields(self) -> Fields:
        return {"x": plain(self.getFeaturesCol()), "w": self._weight()}

    def _train(self, dataset: DataFrame) -> Any:
        points = self._records(dataset)
        by_cosine = self.getDistanceMeasure() == "cosine"
        weight, total = _checked_sums(points, by_cosine=by_cosine)
        tree = ClusterTree(points, total / weight, by_cosine=by_cosine)
        tree.grow(Growth(self.getK(), self.getMinDivisibleClusterSize(), self.getMaxIter(), self.getSeed()))
        java = JavaObjects(dataset.sparkSession.sparkContext)
        cost = sum(cluster.cost for number, cluster in tree.clusters.items() if 2 * number not in tree.clusters)
        inner = java.mllib.clustering.BisectingKMeansModel(
            java.cluster_tree(tree.clusters, by_cosine=by_cosine), self.getDistanceMeasure(), cost)
        frame = dataset._jdf
        values = self.getPredictionCol(), self.getFeaturesCol(), self.getK(), self.getMaxIter(), cost
        return java.ml.clustering.BisectingKMeansModel(self.uid, inner), lambda java, model: \
            java.ml.clustering.BisectingKMeansSummary(model.transform(frame), *values)


class GaussianMixture(DeviceFit, clustering.GaussianMixture):
    """Mixture of Gaussian densities by expectation and maximization: pyspark's, fitted in the workers.

    Each iteration is one pass. It begins with the rows that MLlib draws, by a Spark job of its own.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(x),) for x in (0.0, 0.1, 0.2, 8.0, 8.1, 8.2)]
    >>> model = GaussianMixture(k=2, seed=3).fit(SparkSession(sc).createDataFrame(rows, ["features"]))
    >>> len(model.weights), round(sum(model.weights), 6)
    (2, 1.0)
    """

    _can_mask = False

    def _fields(self) -> Fields:
        return {"x": plain(self.getFeaturesCol()), "w": self._weight()}

    def _train(self, dataset: DataFrame) -> Any:
        if not isinstance(dataset.schema[self.getFeaturesCol()].dataType, VectorUDT):
            raise Unsuited("the features are no vectors")
        points = self._records(dataset)
        weight, total = _checked_sums(points)
        mixture = first_mixture(*self._drawn(dataset, points.count()), self.getK())
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

    def _drawn(self, dataset: DataFrame, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that MLlib draws of so many, five for each density, and their weights.

        They are those of Spark's ``takeSample``, which would count the rows by a job of its own.
        """
        weights, draws, most = self._column("weightCol"), JavaRandom(self.getSeed()), 5 * self.getK()
        chosen: Any = dataset.select(sql.col(f"`{self.getFeaturesCol()}`"),
                                     sql.col(f"`{weights}`").cast("double") if weights else sql.lit(1.0))
        java = JavaObjects(dataset.sparkSession.sparkContext)
        drawn: list[Any] = []
        while len(drawn) < most:
            drawn = java.sampled(chosen._jdf.rdd(), most, count, draws.signed())
        for place in range(len(drawn) - 1, 0, -1):
            other = draws.integer(place + 1)
            drawn[place], drawn[other] = drawn[other], drawn[place]
        rows = [_java2py(dataset.sparkSession.sparkContext, row.get(0)).toArray() for row in drawn[:most]]
        return np.array(rows), np.array([row.getDouble(1) for row in drawn[:most]])

    def _model(self, dataset: DataFrame, mixture: Mixture, likelihood: float, iterations: int) -> Any:
        java = JavaObjects(dataset.sparkSession.sparkContext)
        kind = java.ml.stat.distribution.MultivariateGaussian
        densities = [kind(java.vector(mean), java.matrix((covariance + covariance.T) / 2))
                     for mean, covariance in zip(mixture.means, mixture.covariances, strict=True)]
        model = java.ml.clustering.GaussianMixtureModel(
            self.uid, java.doubles(mixture.shares), java.array(kind, densities))
        frame = dataset._jdf
        values = (self.getPredictionCol(), self.getProbabilityCol(), self.getFeaturesCol(), self.getK(), likelihood,
                  iterations)
        return model, lambda java, model: java.ml.clustering.GaussianMixtureSummary(model.transform(frame), *values)


def _checked_sums(points: VRDD, *, by_cosine: bool = False) -> tuple[float, np.ndarray]:
    """Return the sums of the weights and of the weighted rows.

    Raises
    ------
    Unsuited
        If the rows are none that can be clustered.
    """
    count, width, negative, zero, squares, weight, total = totals(points, _sums)
    if width != count * len(total):
        raise Unsuited("the vectors are of several lengths")
    check(np.append(total, weight), negative)
    check_squares(np.asarray(squares))
    if by_cosine and zero:
        raise Unsuited("cosine distance is not defined for vectors of length 0")
    return float(weight), np.asarray(total)


def _of_length_one(centers: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(centers, axis=1, keepdims=True)
    if not lengths.all():
        raise Unsuited("cosine distance is not defined for centres of length 0")
    directions: np.ndarray = centers / lengths
    return directions


def _sums(x: Any, w: Any) -> Any:
    squares = np.dot(x, x)
    return 1, len(x), 1 if w < 0 else 0, 1 if squares == 0 and w > 0 else 0, squares, w, w * x


def _nearest(x: Any, w: Any, centers: Any, by_cosine: Any) -> Any:
    """Return the nearest centre of a row, and the row, of unit length for cosines, its weight and its cost."""
    distances = distances_to(x, centers, by_cosine)
    index = np.argmin(distances)
    return index, (w * x / (np.sqrt(np.dot(x, x)) if by_cosine else 1.0), w, w * distances[index])


def _add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def __getattr__(name: str) -> Any:
    return of_pyspark(clustering, name)
