"""Estimators of ``pyspark.ml.feature`` that fit in the workers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from pyspark.ml import feature
from pyspark.ml.common import _java2py
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from vispark.api.rdds import fallback
from vispark.api.vrdd import VRDD
from vispark.data.tables.dataframe import arrow_batches
from vispark.errors import RecordError
from vispark.ml import hashing
from vispark.ml.base import ColumnFit, DeviceFit, StageOfMLlib, Unsuited
from vispark.ml.java import JavaObjects
from vispark.ml.loads import Fields
from vispark.ml.moments import TooLarge, check, moments_of, totals
from vispark.ml.names import of_pyspark
from vispark.ml.neighbors import nearest_vectors, numbered_rows, rows_with
from vispark.ml.sentences import Sentences, vocabulary
from vispark.ml.skip_gram import SkipGram


class PCA(ColumnFit, feature.PCA):
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
        try:
            moments = moments_of(self._records(dataset))
        except TooLarge as error:
            # Not MLlib's to do, whose decomposition of infinite numbers does not end.
            raise ValueError(f"there is no covariance: {error}") from error
        k, size = self.getK(), len(moments.mean)
        if k > size:
            raise Unsuited(f"k={k}, and there are {size} features")
        if moments.weight < 2:
            raise Unsuited("there is one row only")
        vectors, values, _ = np.linalg.svd(moments.covariance * moments.unbiased)
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.PCAModel(self.uid, java.matrix(vectors[:, :k]),
                                        java.vector((values / values.sum())[:k]))


class StandardScaler(ColumnFit, feature.StandardScaler):
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
        points = self._records(dataset)
        weight, total = _checked_sums(points)
        mean = total / weight
        squares, = totals(points, _spread, mean)
        deviation = np.sqrt(squares / max(weight - 1, 1))
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.StandardScalerModel(self.uid, *map(java.compressed, (deviation, mean)))


class MinMaxScaler(ColumnFit, feature.MinMaxScaler):
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
        least, greatest, java = _ranges(self, dataset)
        return java.ml.feature.MinMaxScalerModel(self.uid, *map(java.compressed, (least, greatest)))


class MaxAbsScaler(ColumnFit, feature.MaxAbsScaler):
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
        least, greatest, java = _ranges(self, dataset)
        return java.ml.feature.MaxAbsScalerModel(self.uid, java.compressed(np.maximum(abs(least), abs(greatest))))


class _BucketSearch(StageOfMLlib):
    """Model of MLlib's locality-sensitive hashes that searches for the nearest rows in the workers."""

    _java_obj: Any
    getInputCol: Any
    getOutputCol: Any
    transform: Any
    #: Whether a vector may have no number but 0.
    _takes_zeros: bool

    @abstractmethod
    def _hashed(self, context: Any, key: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
        """Return the function of a row's distance, and its arguments behind the key."""

    def approxNearestNeighbors(self, dataset: DataFrame, key: Any, numNearestNeighbors: int,
                               distCol: str = "distCol") -> DataFrame:
        """Return the rows nearest to a vector among those that share a bucket with it, by distance.

        The search is two passes over the loaded vectors; the rows that have the nearest ones are Spark's to find.

        Parameters
        ----------
        dataset : pyspark.sql.DataFrame
            The rows.
        key : pyspark.ml.linalg.Vector
            What to search for.
        numNearestNeighbors : int
            The most rows.
        distCol : str
            Column of the distances that is added.
        """
        try:
            if numNearestNeighbors < 1:
                raise Unsuited("the number of neighbours is below 1")
            rows, vector = numbered_rows(dataset, self.getInputCol()), key.toArray()
            empty, count, width, endless = totals(rows, hashing.checked)
            if width != count * len(vector):
                raise Unsuited("the vectors are of several lengths")
            if endless or not np.isfinite(vector).all():
                raise Unsuited("there are NaN or infinite numbers")
            if (empty or not vector.any()) and not self._takes_zeros:
                raise Unsuited("there are vectors of zeros alone")
            function, arguments = self._hashed(dataset.sparkSession.sparkContext, vector)
            distances, vectors = nearest_vectors(rows, function, (vector, *arguments), numNearestNeighbors)
        except (Unsuited, RecordError) as reason:
            why = str(reason)
        else:
            whole = dataset if self.getOutputCol() in dataset.columns else self.transform(dataset)
            return rows_with(whole, self.getInputCol(), vectors, distances, distCol, numNearestNeighbors)
        fallback.report_fallback(dataset.sparkSession.sparkContext, "approxNearestNeighbors", type(self).__name__, why,
                                 "is done by MLlib, in Spark jobs")
        theirs: Any = super()
        neighbors: DataFrame = theirs.approxNearestNeighbors(dataset, key, numNearestNeighbors, distCol)
        return neighbors


class BucketedRandomProjectionLSHModel(_BucketSearch, feature.BucketedRandomProjectionLSHModel):
    """Hashes of projections: pyspark's, whose search for the nearest rows is in the workers."""

    _takes_zeros = True

    def _hashed(self, context: Any, key: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
        directions = _java2py(context, self._java_obj.randMatrix()).toArray()
        width = float(self.getBucketLength())
        return hashing.projected, (hashing.projection_hashes(key, directions, width), directions, width)


class BucketedRandomProjectionLSH(StageOfMLlib, feature.BucketedRandomProjectionLSH):
    """Hashes of vectors by random projections: pyspark's, whose models search for the nearest rows in the workers.

    A fit looks at one row's length alone, and is MLlib's.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(x, Vectors.dense(float(x))) for x in range(9)], ["id", "x"])
    >>> model = BucketedRandomProjectionLSH(inputCol="x", outputCol="hashes", bucketLength=4.0, seed=1).fit(df)
    >>> [row.id for row in model.approxNearestNeighbors(df, Vectors.dense(1.25), 2).collect()]
    [1, 2]
    """

    def _create_model(self, java_model: Any) -> Any:
        return BucketedRandomProjectionLSHModel(java_model)


class MinHashLSHModel(_BucketSearch, feature.MinHashLSHModel):
    """Hashes of sets of indices: pyspark's, whose search for the nearest rows is in the workers."""

    _takes_zeros = False

    def _hashed(self, context: Any, key: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
        pairs = np.array([(pair._1(), pair._2()) for pair in self._java_obj.randCoefficients()])
        return hashing.permuted, (hashing.permutation_hashes(key, *pairs.T), *pairs.T)


class MinHashLSH(StageOfMLlib, feature.MinHashLSH):
    """Hashes of sets by random permutations: pyspark's, whose models search for the nearest rows in the workers.

    A fit looks at one row's length alone, and is MLlib's.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(0, Vectors.sparse(4, [0, 1], [1.0, 1.0])), (1, Vectors.sparse(4, [2, 3], [1.0, 1.0]))]
    >>> df = SparkSession(sc).createDataFrame(rows, ["id", "x"])
    >>> model = MinHashLSH(inputCol="x", outputCol="hashes", numHashTables=3, seed=1).fit(df)
    >>> [row.id for row in model.approxNearestNeighbors(df, Vectors.sparse(4, [0, 1], [1.0, 1.0]), 1).collect()]
    [0]
    """

    def _create_model(self, java_model: Any) -> Any:
        return MinHashLSHModel(java_model)


class Word2Vec(DeviceFit, feature.Word2Vec):
    """Vectors of words by skip-gram with hierarchical softmax: pyspark's, trained in the workers.

    One Spark job counts the words, one loads the sentences; each iteration is a pass. The steps are MLlib's, one word
    after another, from its first vectors and with its random numbers. ``numPartitions`` blocks train models of their
    own, whose mean the next iteration begins with; one block runs on one core, or by one warp of a GPU. Of words that
    occur equally often the first is the one by name.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(("a b " * 50 + "a c " * 9).split(),)] * 2, ["words"])
    >>> model = Word2Vec(vectorSize=5, seed=42, inputCol="words", outputCol="vector").fit(df)
    >>> [word for word, _ in model.findSynonymsArray("a", 2)]
    ['b', 'c']
    """

    def _fields(self) -> Fields:
        return {}

    def _train(self, dataset: DataFrame) -> Any:
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.feature.Word2VecModel(self.uid, java.word_vectors(*self._trained(dataset, java)))

    def _trained(self, dataset: DataFrame, java: JavaObjects) -> tuple[list[str], np.ndarray]:
        """Return the words, those that occur most first, and a row for each."""
        lists: Any = arrow_batches(dataset.select(sql.col(f"`{self.getInputCol()}`").cast("array<string>")))
        counts = vocabulary(lists, self.getMinCount(), self.getVectorSize())
        models, seed, hashed = self.getNumPartitions(), self.getSeed(), java.hashed_seed
        parts = lists.coalesce(min(models, lists.getNumPartitions()))
        width = -(-models // parts.getNumPartitions())
        task = Sentences(tuple(counts), self.getMaxSentenceLength(), width)
        blocks = parts.mapPartitionsWithIndex(task).cache("GPU")
        fit = SkipGram(list(counts.values()), self.getVectorSize(), self.getWindowSize(), self.getStepSize(),
                       width * parts.getNumPartitions())
        try:
            return list(counts), fit.vectors(
                blocks, self.getMaxIter(), hashed(seed),
                lambda done, block: hashed(seed ^ ((block + 1) << 16) ^ ((-done - 1) << 8)))
        finally:
            blocks.unpersist()


def _checked_sums(points: VRDD) -> tuple[float, np.ndarray]:
    """Return the sum of the weights and of each feature.

    Raises
    ------
    Unsuited
        If vectors are of several lengths, or a number is not finite.
    """
    count, width, weight, total = totals(points, _sums)
    if width != count * len(total):
        raise Unsuited("the vectors are of several lengths")
    check(np.append(total, weight), 0)
    return float(weight), np.asarray(total)


def _ranges(scaler: Any, dataset: DataFrame) -> tuple[np.ndarray, np.ndarray, JavaObjects]:
    """Return the least and the greatest number of each feature, in two passes, and the maker of Java objects."""
    points = scaler._records(dataset)
    _checked_sums(points)
    least, greatest = points.vmap(_both).reduce(_extremes)
    return np.asarray(least), np.asarray(greatest), JavaObjects(dataset.sparkSession.sparkContext)


def _both(x: Any, w: Any) -> Any:
    return np.where(w > 0, x, np.inf), np.where(w > 0, x, -np.inf)


def _extremes(a: Any, b: Any) -> Any:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _sums(x: Any, w: Any) -> Any:
    return 1, len(x), w, w * x


def _spread(x: Any, w: Any, mean: Any) -> Any:
    return (w * (x - mean) ** 2,)


def __getattr__(name: str) -> Any:
    return of_pyspark(feature, name)
