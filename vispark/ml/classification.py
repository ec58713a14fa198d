"""Estimators of ``pyspark.ml.classification`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import classification
from pyspark.sql import DataFrame

from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.classes import ClassStatistics, StandardizedModel, hinge, logistic, softmax, statistics_of
from vispark.ml.java import JavaObjects
from vispark.ml.loads import load, number, one, plain
from vispark.ml.optim.least_squares import Penalty
from vispark.ml.optim.quasi_newton import minimize

_BOUNDS = ("lowerBoundsOnCoefficients", "upperBoundsOnCoefficients", "lowerBoundsOnIntercepts",
           "upperBoundsOnIntercepts")

#: The most classes: a row's gradient has a number for each of them and each feature.
_CLASSES = 1000


class LogisticRegression(DeviceFit, classification.LogisticRegression):
    """Logistic regression, binomial and multinomial, with an elastic net: pyspark's, fitted in the workers.

    Each evaluation of the objective is one pass, without a Spark job; L-BFGS and OWL-QN run in the driver and stop as
    MLlib's do. Bounds stay with MLlib, and data of one class.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(float(x > 2), Vectors.dense(float(x))) for x in range(6)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features"])
    >>> model = LogisticRegression(regParam=0.1).fit(df)
    >>> model.predict(Vectors.dense(0.0)), model.predict(Vectors.dense(5.0))
    (0.0, 1.0)
    """

    def _train(self, dataset: DataFrame) -> Any:
        if named := [name for name in _BOUNDS if self.isSet(name)]:
            raise Unsuited(f"{named[0]} is set")
        points = _points(self, dataset)
        statistics = statistics_of(points, 2 if self.getFamily() == "binomial" else _CLASSES)
        classes = self._classes(dataset, statistics)
        is_multinomial = self.getFamily() == "multinomial" or classes > 2
        penalty = Penalty(self.getRegParam(), self.getElasticNetParam(), self.getStandardization(), self.getMaxIter(),
                          self.getTol())
        model = StandardizedModel(points, statistics, penalty, classes if is_multinomial else 1, self.getFitIntercept())
        histogram = statistics.histogram
        if is_multinomial:
            start = np.log1p(histogram) - np.log1p(histogram).mean()
        else:
            start = np.log(histogram[1:] / histogram[:1])
        minimum = minimize(model.objective(softmax if is_multinomial else logistic), model.start(start), l1=model.l1(),
                           iterations=penalty.iterations, tolerance=penalty.tolerance)
        coefficients, intercepts = model.raw(minimum.x)
        if is_multinomial:
            if not penalty.strength:
                coefficients = coefficients - coefficients.mean(axis=0)
            intercepts = intercepts - intercepts.mean()
        return self._model(dataset, coefficients, intercepts, minimum.history, classes, is_multinomial)

    def _classes(self, dataset: DataFrame, statistics: ClassStatistics) -> int:
        """Return the number of classes, which are those of the labels."""
        classes = _present(dataset, self.getLabelCol(), statistics)
        if self.isSet("thresholds") and len(self.getThresholds()) != classes:
            raise Unsuited(f"thresholds are not {classes}")
        return classes

    def _model(self, dataset: DataFrame, coefficients: np.ndarray, intercepts: np.ndarray, history: np.ndarray,
               classes: int, is_multinomial: bool) -> Any:
        java = JavaObjects(dataset.sparkSession.sparkContext)
        model = self._with_params(dataset, java.ml.classification.LogisticRegressionModel(
            self.uid, java.matrix(coefficients, by_rows=True).compressed(), java.vector(intercepts).compressed(),
            classes, is_multinomial))
        found = model.findSummaryModel()
        kind = java.ml.classification.LogisticRegressionTrainingSummaryImpl if classes > 2 else \
            java.ml.classification.BinaryLogisticRegressionTrainingSummaryImpl
        return model.setSummary(java.some(kind(
            found._1().transform(dataset._jdf), found._2(), found._3(), self.getLabelCol(), self.getFeaturesCol(),
            self._column("weightCol") or "weightCol", java.doubles(history))))


class LinearSVC(DeviceFit, classification.LinearSVC):
    """Linear support vector machine for two classes: pyspark's, fitted in the workers.

    The hinge loss, over standardized features, with an L2 term. Each evaluation is one pass, without a Spark job;
    OWL-QN runs in the driver, as in MLlib. Data of one class stays with MLlib.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(float(x > 2), Vectors.dense(float(x))) for x in range(6)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features"])
    >>> model = LinearSVC(regParam=0.01).fit(df)
    >>> model.predict(Vectors.dense(0.0)), model.predict(Vectors.dense(5.0))
    (0.0, 1.0)
    """

    def _train(self, dataset: DataFrame) -> Any:
        points = _points(self, dataset)
        statistics = statistics_of(points, 2)
        _present(dataset, self.getLabelCol(), statistics)
        penalty = Penalty(self.getRegParam(), 0.0, self.getStandardization(), self.getMaxIter(), self.getTol())
        model = StandardizedModel(points, statistics, penalty, 1, self.getFitIntercept())
        start = model.start(np.zeros(1))
        minimum = minimize(model.objective(hinge), start, l1=np.zeros(len(start)), iterations=penalty.iterations,
                           tolerance=penalty.tolerance)
        coefficients, intercepts = model.raw(minimum.x)
        java = JavaObjects(dataset.sparkSession.sparkContext)
        svm = self._with_params(dataset, java.ml.classification.LinearSVCModel(
            self.uid, java.vector(coefficients[0]), float(intercepts[0])))
        found = svm.findSummaryModel()
        return svm.setSummary(java.some(java.ml.classification.LinearSVCTrainingSummaryImpl(
            found._1().transform(dataset._jdf), found._2(), found._3(), self.getLabelCol(),
            self._column("weightCol") or "weightCol", java.doubles(minimum.history))))


def _points(learner: Any, dataset: DataFrame) -> Any:
    """Return the rows as records of features ``x``, label ``y`` and weight ``w``."""
    weights = learner._column("weightCol")
    return load(dataset, {"x": plain(learner.getFeaturesCol()), "y": number(learner.getLabelCol()),
                          "w": number(weights) if weights else one()}, can_mask=True)


def _present(dataset: DataFrame, label: str, statistics: ClassStatistics) -> int:
    """Return the number of classes of the labels.

    Raises
    ------
    Unsuited
        If all rows are of one class, or the label column declares other classes than there are.
    """
    classes = len(statistics.histogram)
    if (statistics.histogram > 0).sum() < 2:
        raise Unsuited("all rows are of one class")
    declared = dataset.schema[label].metadata.get("ml_attr", {})
    if declared and len(declared.get("vals", ())) != classes:
        raise Unsuited("the label column declares other classes than there are")
    return classes
