"""Selection of models of ``pyspark.ml.tuning``, with one load of the data for all folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyspark import inheritable_thread_target
from pyspark.ml import tuning
from pyspark.ml.util import MLReader
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from vispark.errors import OutOfMemory, RecordError
from vispark.ml.base import Unsuited
from vispark.ml.evaluation import in_workers, report_metric_by_spark
from vispark.ml.loads import Part, share, unshare
from vispark.ml.names import of_pyspark
from vispark.ml.pipeline import is_fitted_in_workers, ours, predictions

#: Number of the fold of rows that are in each part.
_NO_FOLD = -1


class CrossValidator(tuning.CrossValidator):
    """Cross-validation: pyspark's, whose fits and evaluations in the workers share one load of the data.

    The folds are pyspark's, by seed or by ``foldCol``; a fit weighs the rows of the fold that is left out with 0, and
    an evaluation those of all others. The fit of the best parameters to all rows shares the load too. Spark evaluates
    models and metrics that :mod:`vispark.ml.evaluation` does not have.

    Examples
    --------
    >>> from pyspark.ml.evaluation import RegressionEvaluator
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.ml.tuning import ParamGridBuilder
    >>> from pyspark.sql import SparkSession
    >>> from vispark.ml.regression import LinearRegression
    >>> rows = [(2.0 * x, Vectors.dense(float(x)), x % 2) for x in range(8)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features", "fold"])
    >>> line = LinearRegression()
    >>> grid = ParamGridBuilder().addGrid(line.regParam, [0.0, 9.0]).build()
    >>> search = CrossValidator(estimator=line, estimatorParamMaps=grid, evaluator=RegressionEvaluator(), numFolds=2,
    ...                         foldCol="fold")
    >>> search.fit(df).bestModel.getRegParam()
    0.0
    """

    def _fit(self, dataset: DataFrame) -> Any:
        whole, number = self._numbered(dataset)
        results = []
        weight = _weight_of(self)
        with _shared(dataset, Part(whole, number, _NO_FOLD - 1, weight=weight)):
            for fold, (train, validation) in enumerate(self._kFold(dataset)):
                share(train, Part(whole, number, fold, weight=weight))
                share(validation, Part(whole, number, fold, is_fold=True, weight=weight))
                results.append(_evaluated(self, train, validation))
            metrics = np.array([each for each, _ in results])
            average = metrics.mean(axis=0)
            best = _best(self, dataset, average)
        models: Any = [each for _, each in results] if self.getCollectSubModels() else None
        return self._copyValues(tuning.CrossValidatorModel(best, list(average), models, list(metrics.std(axis=0))))

    def write(self) -> Any:
        """Return a writer of the search, as pyspark's own."""
        return _as(tuning.CrossValidator, self).write()

    @classmethod
    def read(cls) -> Any:
        """Return a reader of saved searches, pyspark's own among them."""
        return _SearchReader(cls, tuning.CrossValidator.read())

    def _numbered(self, dataset: DataFrame) -> tuple[DataFrame, tuple[str, Column]]:
        """Return the DataFrame that is loaded, and the field of its folds' numbers."""
        folds, column = self.getNumFolds(), self.getFoldCol()
        if column:
            return dataset, (f"fold({column}, {folds})", _checked(column, folds))
        name = self.uid + "_rand"
        bounds = [(i * (1.0 / folds), (i + 1) * (1.0 / folds)) for i in range(folds)]
        numbers = [sql.when((sql.col(name) >= low) & (sql.col(name) < high), float(i))
                   for i, (low, high) in enumerate(bounds)]
        return dataset.select("*", sql.rand(self.getSeed()).alias(name)), \
            (f"fold({name}, {folds})", sql.coalesce(*numbers, sql.lit(float(_NO_FOLD))))


def _checked(column: str, folds: int) -> Column:
    """Return the numbers of folds of a column, which raises pyspark's error where one is none of them."""
    number = sql.col(column)
    wrong = sql.raise_error(sql.printf(sql.lit(f"Fold number must be in range [0, {folds}), but got %s"), number))
    return sql.when((number >= 0) & (number < folds), number.cast("double")).otherwise(wrong.cast("double"))


class TrainValidationSplit(tuning.TrainValidationSplit):
    """Selection by one split: pyspark's, whose fits and evaluations in the workers share one load of the data.

    Examples
    --------
    >>> from pyspark.ml.evaluation import RegressionEvaluator
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.ml.tuning import ParamGridBuilder
    >>> from pyspark.sql import SparkSession
    >>> from vispark.ml.regression import LinearRegression
    >>> rows = [(2.0 * x, Vectors.dense(float(x))) for x in range(20)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features"])
    >>> line = LinearRegression()
    >>> grid = ParamGridBuilder().addGrid(line.regParam, [0.0, 9.0]).build()
    >>> search = TrainValidationSplit(estimator=line, estimatorParamMaps=grid, evaluator=RegressionEvaluator(), seed=1)
    >>> search.fit(df).bestModel.getRegParam()
    0.0
    """

    def _fit(self, dataset: DataFrame) -> Any:
        name, ratio = self.uid + "_rand", self.getTrainRatio()
        whole = dataset.select("*", sql.rand(self.getSeed()).alias(name))
        condition = sql.col(name) >= ratio
        number = f"split({name}, {ratio})", sql.when(condition, 0.0).otherwise(float(_NO_FOLD))
        train, validation, weight = whole.filter(~condition), whole.filter(condition), _weight_of(self)
        share(train, Part(whole, number, 0, weight=weight))
        share(validation, Part(whole, number, 0, is_fold=True, weight=weight))
        with _shared(dataset, Part(whole, number, _NO_FOLD - 1, weight=weight)):
            metrics, models = _evaluated(self, train, validation)
            best = _best(self, dataset, metrics)
        kept: Any = models if self.getCollectSubModels() else None
        return self._copyValues(tuning.TrainValidationSplitModel(best, metrics, kept))

    def write(self) -> Any:
        """Return a writer of the search, as pyspark's own."""
        return _as(tuning.TrainValidationSplit, self).write()

    @classmethod
    def read(cls) -> Any:
        """Return a reader of saved searches, pyspark's own among them."""
        return _SearchReader(cls, tuning.TrainValidationSplit.read())


class _SearchReader(MLReader[Any]):
    """Reader of searches as a class, which another reader reads as pyspark's; what they search over is vispark's."""

    def __init__(self, kind: type[Any], reader: Any):
        super().__init__()
        self._kind, self._reader = kind, reader

    def load(self, path: str) -> Any:
        search = _as(self._kind, self._reader.load(path))
        return search.setEstimator(ours(search.getEstimator()))


def _as(kind: type[Any], search: Any) -> Any:
    """Return a search as one of another class.

    It is written as pyspark's: by the class's package pyspark tells whether its Python or Java wrote a file.
    """
    return search._copyValues(kind()._resetUid(search.uid))


def _evaluated(search: Any, train: DataFrame, validation: DataFrame) -> tuple[list[float], list[Any]]:
    """Return the metric and, where they are to be kept, the model of each parameter map."""
    grid = search.getEstimatorParamMaps()
    fits = search.getEstimator().fitMultiple(train, grid)

    def task() -> tuple[int, float, Any]:
        index, model = next(fits)
        metric = _metric(search, model, grid[index], validation)
        return index, metric, model if search.getCollectSubModels() else None

    train.cache()
    validation.cache()
    try:
        done = _run(task, len(grid), search.getParallelism(), train.sparkSession)
    finally:
        train.unpersist()
        validation.unpersist()
    ordered = sorted(done, key=lambda each: each[0])
    return [metric for _, metric, _ in ordered], [model for _, _, model in ordered]


def _metric(search: Any, model: Any, params: Any, validation: DataFrame) -> float:
    """Return the metric of a model: found in the workers, of the data that is there, or else by Spark."""
    evaluator, estimator = search.getEvaluator(), search.getEstimator().copy(params)
    if is_fitted_in_workers(estimator):
        try:
            evaluating = in_workers(evaluator)
            records = predictions(validation, estimator, model).records(evaluating.fields(), can_mask=True)
            if records is not None:
                return evaluating.metric(records)
            reason = "it is of other columns than those of the fit"
        except (Unsuited, RecordError, OutOfMemory) as error:
            reason = str(error)
        report_metric_by_spark(evaluator, validation, reason)
    return float(evaluator.evaluate(model.transform(validation, params)))


def _weight_of(search: Any) -> tuple[str, Column] | None:
    """Return the field of the weights of evaluations in the workers, if they have any."""
    try:
        return in_workers(search.getEvaluator()).weight()
    except Unsuited:
        return None


def _run(task: Callable[[], Any], times: int, threads: int, spark: Any) -> list[Any]:
    """Return the results of a task that is run some times, by as many threads as there are to be."""
    if min(threads, times) == 1:
        return [task() for _ in range(times)]
    inherit: Any = inheritable_thread_target
    target = inherit(task) if spark.version.startswith("3.") else inherit(spark)(task)
    with ThreadPoolExecutor(min(threads, times)) as pool:
        return [future.result() for future in [pool.submit(target) for _ in range(times)]]


def _best(search: Any, dataset: DataFrame, metrics: Any) -> Any:
    """Return the model of the best parameters, fitted to all rows."""
    find = np.argmax if search.getEvaluator().isLargerBetter() else np.argmin
    return search.getEstimator().fit(dataset, search.getEstimatorParamMaps()[find(metrics)])


@contextmanager
def _shared(dataset: DataFrame, part: Part) -> Iterator[None]:
    """Let fits to all rows of a dataset share the load of its folds."""
    share(dataset, part)
    try:
        yield
    finally:
        unshare(dataset)


def __getattr__(name: str) -> Any:
    return of_pyspark(tuning, name)
