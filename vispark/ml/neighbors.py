"""Search of the rows that are nearest to a vector, on data that stays on the devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasInputCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from vispark.api.vrdd import VRDD
from vispark.errors import RecordError
from vispark.ml.base import Unsuited
from vispark.ml.loads import load, plain
from vispark.ml.moments import totals
from vispark.ml.vectors import arrays_of, check_vectors

_AnyParams: Any = Params


def numbered_rows(dataset: DataFrame, column: str) -> VRDD:
    """Return the vectors of a column with their numbers within the load, as records of fields ``x`` and ``i``."""
    number = "monotonically_increasing_id()", sql.monotonically_increasing_id()
    return load(dataset, {"x": plain(column), "i": number})


def nearest_vectors(rows: VRDD, function: Callable[..., Any], arguments: tuple[Any, ...], k: int,
                    with_numbers: Callable[..., Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the least distances, in ascending order, and the vectors that have them.

    Parameters
    ----------
    rows : VRDD
        Records of fields ``x`` and ``i``, as of :func:`numbered_rows`.
    function : callable
        Gives an array of the distance and the number of a row, of its fields and the arguments.
    arguments : tuple
        For the function.
    k : int
        The most rows; there are fewer where distances are infinite.
    with_numbers : callable, optional
        Gives, of a row's fields and of numbers of rows, a tuple of a matrix that has the row at the places of its
        number, and zeros elsewhere. Left out: of the fields ``x`` and ``i``.
    """
    distances = rows.vmap(function, *arguments).persist("GPU_AND_HOST")
    try:
        nearest = [row for row in distances.takeOrdered(k, key=_first) if np.isfinite(row[0])]
    finally:
        distances.unpersist()
    if not nearest:
        return np.zeros(0), np.zeros((0, 0))
    numbers = np.array([row[1] for row in nearest])
    vectors, = totals(rows, with_numbers or _with_numbers, numbers)
    return np.array([row[0] for row in nearest]), np.asarray(vectors).reshape(len(nearest), -1)


def rows_with(dataset: DataFrame, column: str, vectors: np.ndarray, distances: np.ndarray, name: str,
              k: int) -> DataFrame:
    """Return the rows of a DataFrame that have some vectors, by distance, with the distance as one more column."""
    key = f"{name}_of"
    nearest = dataset.sparkSession.createDataFrame(
        [(vector.tolist(), float(distance)) for vector, distance in
         {tuple(vector): (vector, distance) for vector, distance in zip(vectors, distances, strict=True)}.values()],
        f"`{key}` array<double>, `{name}` double")
    keyed = dataset.withColumn(key, arrays_of(dataset, column))
    return keyed.join(sql.broadcast(nearest), key).orderBy(f"`{name}`").limit(k).drop(key)


class NearestNeighborsParams(HasInputCol):
    """Parameters of NearestNeighbors and of its model."""

    k: Any = Param(_AnyParams._dummy(), "k", "number of neighbours, above 0", typeConverter=TypeConverters.toInt)

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._setDefault(k=5)

    def getK(self) -> int:
        """Return the number of neighbours."""
        neighbors: int = self.getOrDefault(self.k)
        return neighbors


class NearestNeighbors(Estimator[Any], NearestNeighborsParams, DefaultParamsReadable[Any], DefaultParamsWritable):
    """Exact search of the nearest rows by Euclidean distance: each query is a pass over the rows on the devices.

    Parameters
    ----------
    k : int
        Number of neighbours.
    inputCol : str
        Column of vectors.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(x, Vectors.dense(float(x), 0.0)) for x in range(9)], ["id", "x"])
    >>> model = NearestNeighbors(k=2, inputCol="x").fit(df)
    >>> [(row.id, row.distCol) for row in model.nearest(Vectors.dense(3.25, 0.0)).collect()]
    [(3, 0.25), (4, 0.75)]
    >>> model.search([[3.25, 0.0]])[0]
    array([[0.25, 0.75]])
    """

    _input_kwargs: Any

    @keyword_only
    def __init__(self, *, k: int = 5, inputCol: str | None = None):
        super().__init__()
        self._set(**self._input_kwargs)

    def _fit(self, dataset: DataFrame) -> NearestNeighborsModel:
        if self.getK() < 1:
            raise ValueError(f"k is {self.getK()}: it must be at least 1")
        check_vectors(dataset, self)
        model = NearestNeighborsModel(dataset)
        return self._copyValues(model._resetUid(self.uid))


class NearestNeighborsModel(Model, NearestNeighborsParams):
    """Rows that are searched; it holds the DataFrame, whose vectors are loaded with the first search.

    Parameters
    ----------
    dataset : pyspark.sql.DataFrame
        The rows.
    """

    def __init__(self, dataset: DataFrame):
        super().__init__()
        self._dataset = dataset

    def nearest(self, key: Any, distCol: str = "distCol") -> DataFrame:
        """Return the rows nearest to a vector, by distance.

        Parameters
        ----------
        key : pyspark.ml.linalg.Vector or sequence of float, shape (d,)
            The vector.
        distCol : str
            Column of the distances that is added.
        """
        distances, vectors = self.search([key])
        column = self.getInputCol()
        return rows_with(self._dataset, column, vectors[0], distances[0], distCol, self.getK())

    def search(self, queries: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances and the vectors of the rows nearest to each of some vectors.

        Parameters
        ----------
        queries : sequence of vectors, shape (q, d)
            What to search for.

        Returns
        -------
        tuple of arrays of float64, shapes (q, k) and (q, k, d)
            In ascending order of distance; k is at most the number of rows.

        Raises
        ------
        RecordError
            If there are no rows, or they are of another length than a query, or not all of one, or there is a NaN or
            an infinity.
        """
        rows = numbered_rows(self._dataset, self.getInputCol())
        keys = [np.asarray(key.toArray() if hasattr(key, "toArray") else key, float) for key in queries]
        try:
            count, width, squares, total = totals(rows, _lengths)
        except Unsuited as reason:
            raise RecordError(f"there is nothing to search: {reason}") from reason
        if count * squares != width ** 2:
            raise RecordError("the rows are of several lengths")
        if wrong := [key for key in keys if width != count * key.size or key.ndim != 1]:
            raise RecordError(f"a query has {wrong[0].size} numbers, and the rows {width / count:g}")
        if not np.isfinite(total):
            raise RecordError("rows with NaN or infinite numbers have no distance: filter them out")
        if not np.isfinite(keys).all():
            raise RecordError("a query with NaN or infinite numbers has no distance")
        nearest = [nearest_vectors(rows, _euclidean, (key,), self.getK()) for key in keys]
        return np.array([distances for distances, _ in nearest]), np.array([vectors for _, vectors in nearest])

    def _transform(self, dataset: DataFrame) -> DataFrame:
        raise NotImplementedError("a model of nearest neighbours has nearest() and search(), and no transform()")


def _first(row: Any) -> Any:
    return row[0]


def _lengths(x: Any, i: Any) -> Any:
    return 1, len(x), len(x) ** 2, x.sum()


def _euclidean(x: Any, i: Any, key: Any) -> Any:
    """Return the distance of a row, and its number."""
    return np.array([np.sqrt(((x - key) ** 2).sum()), np.float64(i)])


def _with_numbers(x: Any, i: Any, numbers: Any) -> Any:
    """Return a matrix that has a row at the places of its number, and zeros elsewhere."""
    return (np.outer(np.where(numbers == i, 1.0, 0.0), x),)
