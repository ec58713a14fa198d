"""Estimators of decompositions that ``pyspark.ml`` does not have, in its manner."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.linalg import DenseMatrix
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasInputCol, HasMaxIter, HasOutputCol, HasSeed, HasTol
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLWritable,
)
from pyspark.sql import DataFrame

from vispark.api.udfs.added import with_column
from vispark.api.udfs.translated import udf
from vispark.api.vrdd import VRDD
from vispark.errors import RecordError
from vispark.ml.base import Unsuited
from vispark.ml.loads import load, one, plain
from vispark.ml.moments import check, totals
from vispark.ml.optim.normal_equations import solve_nonnegative
from vispark.ml.vectors import check_vectors, vectors_of

_PySparkParams: Any = Params
_Writer: Any = DefaultParamsWriter
_DefaultReader: Any = DefaultParamsReader


class NMFParams(HasInputCol, HasOutputCol, HasMaxIter, HasTol, HasSeed):
    """Parameters of NMF and of its model."""

    k: Any = Param(_PySparkParams._dummy(), "k", "number of components, above 0", typeConverter=TypeConverters.toInt)

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._setDefault(k=2, maxIter=100, tol=1e-4, seed=0, outputCol=self.uid + "__output")

    def getK(self) -> int:
        """Return the number of components."""
        components: int = self.getOrDefault(self.k)
        return components


class NMF(Estimator[Any], NMFParams, DefaultParamsReadable[Any], DefaultParamsWritable):
    """Decomposition of rows of numbers that are not negative into weights of a few components, without negative ones.

    It minimizes the sum of the squared differences by alternating non-negative least squares: a pass solves for the
    weights of each row, and sums what the driver solves for the components. Nothing is kept of a row between passes.

    Parameters
    ----------
    k : int
        Number of components.
    inputCol, outputCol : str
        Column of vectors, and the one that :meth:`NMFModel.transform` adds, of vectors of k weights.
    maxIter : int
        The most passes.
    tol : float
        It ends when the sum fell by less than this share of it in a pass.
    seed : int, optional
        Of the components that it begins with.

    References
    ----------
    Kim and Park, Toward faster nonnegative matrix factorization, ICDM 2008.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(a, 2 * a, b),) for a, b in ((1.0, 0.0), (2.0, 1.0), (0.0, 3.0))]
    >>> df = SparkSession(sc).createDataFrame(rows, ["x"])
    >>> model = NMF(k=2, inputCol="x", outputCol="weights", tol=1e-9).fit(df)
    >>> model.components.shape, bool(model.objectiveHistory[-1] < 1e-6)
    ((2, 3), True)
    """

    _input_kwargs: Any

    @keyword_only
    def __init__(self, *, k: int = 2, inputCol: str | None = None, outputCol: str | None = None, maxIter: int = 100,
                 tol: float = 1e-4, seed: int | None = None):
        super().__init__()
        self.setParams(**self._input_kwargs)

    @keyword_only
    def setParams(self, *, k: int = 2, inputCol: str | None = None, outputCol: str | None = None, maxIter: int = 100,
                  tol: float = 1e-4, seed: int | None = None) -> NMF:
        """Set the parameters that are given, and return the estimator."""
        self._set(**self._input_kwargs)
        return self

    def _fit(self, dataset: DataFrame) -> NMFModel:
        if self.getK() < 1:
            raise ValueError(f"k is {self.getK()}: it must be at least 1")
        if self.getMaxIter() < 0 or not self.getTol() >= 0:
            raise ValueError(f"maxIter is {self.getMaxIter()} and tol {self.getTol()}: neither may be below 0")
        check_vectors(dataset, self)
        points = load(dataset, {"x": plain(self.getInputCol()), "w": one()}, can_mask=True, can_round=True)
        mean = _checked_mean(points)
        draws = np.random.default_rng(self.getSeed() % 2**63)
        components = _scaled(np.abs(draws.normal(size=(self.getK(), len(mean)))) * mean.mean() ** 0.5 + 1e-6 * mean)
        history: list[float] = []
        for _ in range(self.getMaxIter()):
            cost, gram, products = totals(points, _statistics, components, components @ components.T)
            history.append(float(cost))
            if len(history) > 1 and history[-2] - history[-1] <= self.getTol() * history[-2]:
                break
            components = _scaled(_solved(np.asarray(gram), np.asarray(products), *components.shape))
        model = NMFModel(components, history)
        return self._copyValues(model._resetUid(self.uid))


class NMFModel(Model, NMFParams, DefaultParamsReadable[Any], MLWritable):
    """Components that :class:`NMF` found.

    Parameters
    ----------
    components : array of float64, shape (k, d)
        The components, each of length 1, or 0 where it has no share.
    objectiveHistory : list of float
        The sum of the squared differences in each pass.
    """

    def __init__(self, components: np.ndarray | None = None, objectiveHistory: list[float] | None = None):
        super().__init__()
        self.components = np.zeros((0, 0)) if components is None else components
        self.objectiveHistory = objectiveHistory or []

    def _transform(self, dataset: DataFrame) -> DataFrame:
        components, gram = self.components, self.components @ self.components.T

        def weights(x: Any) -> Any:
            return _weights(x, components, gram)

        name = self.getOutputCol()
        weighted = with_column(dataset, name, udf("array<double>")(weights), self.getInputCol())
        return weighted.withColumn(name, vectors_of(weighted, name))

    def write(self) -> Any:
        """Return a writer of the model."""
        return NMFModelWriter(self)

    @classmethod
    def read(cls) -> Any:
        """Return a reader of saved models."""
        return NMFModelReader(cls)


class NMFModelWriter(_Writer):
    """Writer of the parameters and the components of a model."""

    def saveImpl(self, path: str) -> None:
        """Write the model to a path."""
        super().saveImpl(path)
        model = self.instance
        k, size = model.components.shape
        rows = [(DenseMatrix(k, size, model.components.ravel("F")), list(model.objectiveHistory))]
        self.sparkSession.createDataFrame(rows, ["components", "history"]).coalesce(1).write.parquet(path + "/data")


class NMFModelReader(_DefaultReader):
    """Reader of models that :class:`NMFModelWriter` wrote."""

    def load(self, path: str) -> NMFModel:
        """Return the model of a path."""
        model: NMFModel = super().load(path)
        row = self.sparkSession.read.parquet(path + "/data").head()
        model.components, model.objectiveHistory = row.components.toArray(), row.history
        return model


def _checked_mean(points: VRDD) -> np.ndarray:
    """Return the mean of the rows.

    Raises
    ------
    RecordError
        If there are no rows, or a number is negative or not finite.
    """
    try:
        count, width, negative, weight, total = totals(points, _sums)
        if width != count * len(total):
            raise Unsuited("the vectors are of several lengths")
        check(np.append(total, weight), 0)
    except Unsuited as reason:
        raise RecordError(f"NMF cannot be fitted: {reason}") from reason
    if negative:
        raise RecordError(f"NMF is of numbers that are not negative: {int(negative)} rows have negative ones")
    mean: np.ndarray = np.asarray(total) / weight
    return mean


def _solved(gram: np.ndarray, products: np.ndarray, k: int, size: int) -> np.ndarray:
    """Return the components that suit the rows' weights best."""
    matrices = np.broadcast_to(gram.reshape(k, k), (size, k, k))
    return solve_nonnegative(matrices, products.reshape(k, size).T).T


def _scaled(components: np.ndarray) -> np.ndarray:
    """Return the components with a length of 1, where they are not 0."""
    lengths = np.linalg.norm(components, axis=1, keepdims=True)
    return components / np.where(lengths > 0, lengths, 1)


def _sums(x: Any, w: Any) -> Any:
    return 1, len(x), 1 if w > 0 and x.min() < 0 else 0, w, w * x


def _weights(x: Any, components: Any, gram: Any) -> Any:
    """Return the weights of a row, by coordinates in turn."""
    b = components @ x
    h = np.zeros(len(components))
    for _ in range(200):
        change, largest = 0.0, 0.0
        for i in range(len(components)):
            if gram[i, i] > 0:
                after = max(h[i] - (np.dot(gram[i], h) - b[i]) / gram[i, i], 0.0)
                change = max(change, abs(after - h[i]))
                largest = max(largest, after)
                h[i] = after
        if change <= 1e-9 * largest:
            break
    return h


def _statistics(x: Any, w: Any, components: Any, gram: Any) -> Any:
    """Return the squared difference of a row from its decomposition, and the sums that the components are solved of."""
    h = _weights(x, components, gram).copy()
    rest = x - h @ components
    return w * np.dot(rest, rest), w * np.outer(h, h), w * np.outer(h, x)
