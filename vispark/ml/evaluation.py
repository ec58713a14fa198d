"""Evaluators of ``pyspark.ml.evaluation`` whose metrics are found in the workers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pyspark.ml import evaluation
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import NumericType

from vispark.api.rdds import fallback
from vispark.api.vrdd import VRDD
from vispark.errors import OutOfMemory, RecordError
from vispark.ml import metrics
from vispark.ml.base import StageOfMLlib, Unsuited
from vispark.ml.loads import Fields, load, number, one, plain
from vispark.ml.names import of_pyspark

#: The evaluators that stay with Spark, and why.
BY_SPARK = dict.fromkeys(["MultilabelClassificationEvaluator", "RankingEvaluator"],
                         "its predictions are lists of several lengths")


class DeviceEvaluator(StageOfMLlib):
    """Evaluator of ``pyspark.ml`` whose metric is found in the workers; it comes before pyspark's class.

    The columns of a DataFrame that it needs are loaded by one Spark job, once for all metrics of the same DataFrame.
    """

    isSet: Any
    getOrDefault: Any
    getMetricName: Any
    _transfer_params_to_java: Any

    @abstractmethod
    def _columns(self) -> dict[str, str]:
        """Return the columns that a metric reads, by the fields of its records; without the column of weights."""

    @abstractmethod
    def metric(self, records: VRDD) -> float:
        """Return the metric of records on the devices, of the fields of :meth:`fields`.

        Raises
        ------
        Unsuited
            If Spark is to find it, for what the parameters or the data say.
        """

    def fields(self) -> Fields:
        """Return the fields of the records that a metric is of."""
        columns = self._columns()
        return {**{field: number(name) if field == "y" else plain(name) for field, name in columns.items()},
                "w": self.weight() or one()}

    def weight(self) -> tuple[str, Column] | None:
        """Return the field of the weights, or None where no column has them."""
        name = self._weights()
        return number(name) if name else None

    def _weights(self) -> str:
        return self.getOrDefault("weightCol") or "" if self.isSet("weightCol") else ""

    def _evaluate(self, dataset: DataFrame) -> float:
        theirs: Any = super()
        types = {field.name: field.dataType for field in dataset.schema.fields}
        names = [*self._columns().values(), *([self._weights()] if self._weights() else [])]
        if not all(isinstance(types.get(name), NumericType | VectorUDT) for name in names):
            # Spark has its own words for columns that are not there, or of other types.
            return float(theirs._evaluate(dataset))
        # As pyspark's do: the Java evaluator is at hand, with these parameters.
        self._transfer_params_to_java()
        try:
            return self.metric(load(dataset, self.fields()))
        except (Unsuited, RecordError, OutOfMemory) as error:
            reason = str(error)
        report_metric_by_spark(self, dataset, reason)
        return float(theirs._evaluate(dataset))


class BinaryClassificationEvaluator(DeviceEvaluator, evaluation.BinaryClassificationEvaluator):
    """Area under the ROC curve or under the curve of precision and recall: pyspark's, found in the workers.

    Scores, labels and weights come to the driver as arrays, 24 bytes a row, which sorts them. Where ``numBins`` joins
    neighbouring scores, MLlib's own value depends on the partitions that Spark sorts them into; this one does not.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(1 - p, p), y) for p, y in ((0.1, 0.0), (0.4, 0.0), (0.35, 1.0), (0.8, 1.0))]
    >>> BinaryClassificationEvaluator().evaluate(SparkSession(sc).createDataFrame(rows, ["rawPrediction", "label"]))
    0.75
    """

    def _columns(self) -> dict[str, str]:
        return {"x": self.getRawPredictionCol(), "y": self.getLabelCol()}

    def _evaluate(self, dataset: DataFrame) -> float:
        for field in dataset.schema.fields:
            attributes = field.metadata.get("ml_attr", {}) if field.name == self.getRawPredictionCol() else {}
            if attributes.get("num_attrs", 2) != 2:
                # Spark refuses scores that say of themselves that they are not of two classes.
                return float(evaluation.BinaryClassificationEvaluator._evaluate(self, dataset))
        return super()._evaluate(dataset)

    def metric(self, records: VRDD) -> float:
        """Return the area."""
        curve = metrics.curve_of(records, self.getNumBins())
        return curve.area_under_roc() if self.getMetricName() == "areaUnderROC" else curve.area_under_precision()


class MulticlassClassificationEvaluator(DeviceEvaluator, evaluation.MulticlassClassificationEvaluator):
    """Metrics of predicted classes: pyspark's, found in the workers in two passes; ``logLoss`` in one.

    Labels that are no whole numbers from 0 to 179 stay with Spark.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 2.0)], ["prediction", "label"])
    >>> MulticlassClassificationEvaluator(metricName="accuracy").evaluate(df)
    0.75
    """

    def _columns(self) -> dict[str, str]:
        is_of_shares = self.getMetricName() == "logLoss"
        return {"x": self.getProbabilityCol() if is_of_shares else self.getPredictionCol(), "y": self.getLabelCol()}

    def metric(self, records: VRDD) -> float:
        """Return the metric."""
        name = self.getMetricName()
        if name == "logLoss":
            return metrics.log_loss(records, self.getEps())
        if name not in metrics.OF_CLASSES:
            raise Unsuited(f"metricName={name!r} is not computed in the workers")
        return metrics.OF_CLASSES[name](metrics.confusion_of(records, self.getBeta()), self.getMetricLabel())


class RegressionEvaluator(DeviceEvaluator, evaluation.RegressionEvaluator):
    """Metrics of predicted numbers: pyspark's, found in the workers in two passes.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(1.0, 2.0), (2.0, 2.0), (5.0, 4.0)], ["prediction", "label"])
    >>> round(RegressionEvaluator(metricName="mae").evaluate(df), 6)
    0.666667
    """

    def _columns(self) -> dict[str, str]:
        return {"x": self.getPredictionCol(), "y": self.getLabelCol()}

    def metric(self, records: VRDD) -> float:
        """Return the metric."""
        name = self.getMetricName()
        if name not in metrics.OF_NUMBERS:
            raise Unsuited(f"metricName={name!r} is not computed in the workers")
        return metrics.OF_NUMBERS[name](metrics.residuals_of(records), self.getThroughOrigin())


class ClusteringEvaluator(DeviceEvaluator, evaluation.ClusteringEvaluator):
    """Silhouette of clusters by squared Euclidean distance or by cosine: pyspark's, found in the workers.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(Vectors.dense(x), int(x > 5)) for x in (0.0, 1.0, 9.0, 10.0)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["features", "prediction"])
    >>> round(ClusteringEvaluator().evaluate(df), 6)
    0.987579
    """

    def _columns(self) -> dict[str, str]:
        return {"x": self.getFeaturesCol(), "p": self.getPredictionCol()}

    def metric(self, records: VRDD) -> float:
        """Return the silhouette."""
        return metrics.silhouette_of(records, by_cosine=self.getDistanceMeasure() == "cosine")


def in_workers(evaluator: Any) -> DeviceEvaluator:
    """Return an evaluator of pyspark's as vispark's.

    Raises
    ------
    Unsuited
        If there is none.
    """
    if isinstance(evaluator, DeviceEvaluator):
        return evaluator
    kind, name = type(evaluator), type(evaluator).__name__
    counterpart = globals().get(name)
    if kind is not getattr(evaluation, name, None) or not isinstance(counterpart, type):
        raise Unsuited(BY_SPARK.get(name, "it is none of pyspark.ml's"))
    evaluating: Any = counterpart()
    copied: DeviceEvaluator = evaluator._copyValues(evaluating._resetUid(evaluator.uid))
    return copied


def report_metric_by_spark(evaluator: Any, dataset: DataFrame, reason: str) -> None:
    """Tell, as fits do, why Spark is to find a metric."""
    fallback.report_fallback(dataset.sparkSession.sparkContext, "evaluate", type(evaluator).__name__, reason,
                             "is done by Spark, in its jobs")


def __getattr__(name: str) -> Any:
    return of_pyspark(evaluation, name)
