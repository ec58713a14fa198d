"""Estimators of ``pyspark.ml.classification`` that fit in the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pyspark.ml import classification
from pyspark.mllib import classification as mllib
from pyspark.mllib.linalg import DenseVector
from pyspark.sql import DataFrame

from vispark.ml import rdds
from vispark.ml.base import DeviceFit, LabelledFit, Unsuited
from vispark.ml.classes import ClassStatistics, StandardizedModel, hinge, logistic, softmax, statistics_of
from vispark.ml.factorization import fit_machine, machine_fields
from vispark.ml.java import JavaObjects
from vispark.ml.loads import Fields
from vispark.ml.names import of_pyspark
from vispark.ml.optim.bounded import minimize_within
from vispark.ml.optim.least_squares import Penalty
from vispark.ml.optim.quasi_newton import minimize

_BOUNDS = ("lowerBoundsOnCoefficients", "upperBoundsOnCoefficients", "lowerBoundsOnIntercepts",
           "upperBoundsOnIntercepts")

#: The most classes: a row's gradient has a number for each of them and each feature.
_CLASSES = 1000


@dataclass(frozen=True)
class LogisticFit:
    """Coefficients with a row for each set, intercepts, the objective's history, and the kind of the model."""

    coefficients: np.ndarray
    intercepts: np.ndarray
    history: np.ndarray
    classes: int
    is_multinomial: bool


class LogisticRegression(LabelledFit, classification.LogisticRegression):
    """Logistic regression, binomial and multinomial, with an elastic net: pyspark's, fitted in the workers.

    Each evaluation of the objective is one pass, without a Spark job; L-BFGS and OWL-QN run in the driver and stop as
    MLlib's do. With bounds a fit that ``maxIter`` ends before its optimum ends elsewhere. Data of one class
    stays with MLlib.

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

    @classmethod
    def train(cls, data: Any, iterations: int = 100, *, regParam: float = 0.0, regType: str | None = "l2",
              intercept: bool = False, tolerance: float = 1e-6, numClasses: int = 2) -> mllib.LogisticRegressionModel:
        """Return ``pyspark.mllib``'s model of an RDD, as its LogisticRegressionWithLBFGS.train does.

        Parameters
        ----------
        data : RDD
            LabeledPoints, or pairs of a label and a vector.
        iterations, regParam, regType, intercept, tolerance, numClasses
            As there: the most steps; strength and kind (``"l1"``, ``"l2"`` or None) of the regularisation; whether
            there is an intercept; when it ends; the number of classes.

        Raises
        ------
        RecordError
            If labels are others than 0 to ``numClasses - 1``, or numbers are not finite.

        Examples
        --------
        >>> rows = sc.parallelize([(0.0, [-1.0]), (0.0, [-2.0]), (1.0, [1.0]), (1.0, [2.0])], 2)
        >>> LogisticRegression.train(rows, regParam=0.1).predict([3.0])
        1
        """
        family = "binomial" if numClasses == 2 else "multinomial"
        learner = rdds.learner_of(
            cls, maxIter=iterations, regParam=regParam if regType else 0.0, tol=tolerance, fitIntercept=intercept,
            elasticNetParam=float(regType == "l1"), family=family)
        with rdds.held(rdds.labelled(data)) as points:
            fit = learner._fitted(points, {"vals": range(numClasses)})
        table, row = fit.coefficients, fit.intercepts
        if numClasses == 2:
            return mllib.LogisticRegressionModel(DenseVector(table[0]), float(row[0]), table.shape[1], 2)
        # The model's first class has the margin 0.
        table, row = table[1:] - table[0], row[1:] - row[0]
        weights = np.column_stack([table, row]) if intercept else table
        return mllib.LogisticRegressionModel(DenseVector(weights.ravel()), 0.0, table.shape[1], numClasses)

    def _train(self, dataset: DataFrame) -> Any:
        fit = self._fitted(self._records(dataset), dataset.schema[self.getLabelCol()].metadata.get("ml_attr", {}))
        return self._model(dataset, fit)

    def _fitted(self, points: Any, declared: Mapping[str, Any]) -> LogisticFit:
        """Return the fit of records of features, label and weight, whose label column declares some classes."""
        statistics = statistics_of(points, 2 if self.getFamily() == "binomial" else _CLASSES)
        classes = self._classes(declared, statistics)
        is_multinomial = self.getFamily() == "multinomial" or classes > 2
        penalty = Penalty(self.getRegParam(), self.getElasticNetParam(), self.getStandardization(), self.getMaxIter(),
                          self.getTol())
        if any(self.isSet(name) for name in _BOUNDS[2:]):
            # Bounds are on intercepts of features as they are, not of centred ones.
            statistics = replace(statistics, mean=np.zeros(len(statistics.mean)))
        model = StandardizedModel(points, statistics, penalty, classes if is_multinomial else 1, self.getFitIntercept())
        histogram = statistics.histogram
        if is_multinomial:
            start = np.log1p(histogram) - np.log1p(histogram).mean()
        else:
            start = np.log(histogram[1:] / histogram[:1])
        objective = model.objective(softmax if is_multinomial else logistic)
        bounds = self._bounds(statistics.deviation, model.sets)
        if bounds:
            minimum = minimize_within(objective, model.start(start), *bounds, curvature=model.curvature(),
                                      iterations=penalty.iterations, tolerance=penalty.tolerance)
        else:
            minimum = minimize(objective, model.start(start), l1=model.l1(), iterations=penalty.iterations,
                               tolerance=penalty.tolerance)
        coefficients, intercepts = model.raw(minimum.x)
        if is_multinomial and not bounds:
            if not penalty.strength:
                coefficients = coefficients - coefficients.mean(axis=0)
            intercepts = intercepts - intercepts.mean()
        return LogisticFit(coefficients, intercepts, minimum.history, classes, is_multinomial)

    def _bounds(self, deviation: np.ndarray, sets: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the bounds of the optimiser's vector, or None where there are none.

        Raises
        ------
        Unsuited
            If they have another shape, or go with what MLlib refuses.
        """
        if not any(self.isSet(name) for name in _BOUNDS):
            return None
        if self.getElasticNetParam() and self.getRegParam():
            raise Unsuited("bounds go with L2 regularization alone")
        bounds = []
        for of_coefficients, of_intercepts, default in ((_BOUNDS[0], _BOUNDS[2], -np.inf),
                                                        (_BOUNDS[1], _BOUNDS[3], np.inf)):
            table, row = np.full((sets, len(deviation)), default), np.full(sets, default)
            if self.isSet(of_coefficients):
                table = self.getOrDefault(of_coefficients).toArray()
            if self.isSet(of_intercepts):
                row = self.getOrDefault(of_intercepts).toArray()
            if table.shape != (sets, len(deviation)) or row.shape != (sets,):
                raise Unsuited(f"bounds have the shapes {table.shape} and {row.shape}, the coefficients "
                               f"{(sets, len(deviation))} and the intercepts {(sets,)}")
            if self.isSet(of_intercepts) and not self.getFitIntercept():
                raise Unsuited("there are bounds of intercepts, and no intercepts")
            scaled = np.multiply(table, deviation, out=np.zeros_like(table), where=deviation > 0)
            bounds.append(np.append(scaled, row if self.getFitIntercept() else []))
        if (bounds[0] > bounds[1]).any():
            raise Unsuited("a lower bound is above the upper one")
        return bounds[0], bounds[1]

    def _classes(self, declared: Mapping[str, Any], statistics: ClassStatistics) -> int:
        """Return the number of classes, which are those of the labels."""
        classes = _present(declared, statistics)
        if self.isSet("thresholds") and len(self.getThresholds()) != classes:
            raise Unsuited(f"there are {len(self.getThresholds())} thresholds for {classes} classes")
        return classes

    def _model(self, dataset: DataFrame, fit: LogisticFit) -> Any:
        java, frame = JavaObjects(dataset.sparkSession.sparkContext), dataset._jdf
        model = java.ml.classification.LogisticRegressionModel(
            self.uid, java.matrix(fit.coefficients, by_rows=True).compressed(),
            java.vector(fit.intercepts).compressed(), fit.classes, fit.is_multinomial)
        kind = "LogisticRegressionTrainingSummaryImpl" if fit.classes > 2 else \
            "BinaryLogisticRegressionTrainingSummaryImpl"
        columns = self.getLabelCol(), self.getFeaturesCol(), self._column("weightCol") or "weightCol"
        return model, partial(_summary, kind, frame, columns, fit.history)


class LinearSVC(LabelledFit, classification.LinearSVC):
    """Linear support vector machine for two classes: pyspark's, fitted in the workers.

    The hinge loss, over standardized features, with an L2 term. Each evaluation is one pass, without a Spark job;
    OWL-QN runs in the driver, as in MLlib. Data of one class stays with MLlib.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(0.0, Vectors.dense(-1.0)), (1.0, Vectors.dense(1.0))],
    ...                                       ["label", "features"])
    >>> LinearSVC().fit(df).predict(Vectors.dense(5.0))
    1.0
    """

    def _train(self, dataset: DataFrame) -> Any:
        points = self._records(dataset)
        statistics = statistics_of(points, 2)
        _present(dataset.schema[self.getLabelCol()].metadata.get("ml_attr", {}), statistics)
        penalty = Penalty(self.getRegParam(), 0.0, self.getStandardization(), self.getMaxIter(), self.getTol())
        model = StandardizedModel(points, statistics, penalty, 1, self.getFitIntercept())
        start = model.start(np.zeros(1))
        minimum = minimize(model.objective(hinge), start, l1=np.zeros(len(start)), iterations=penalty.iterations,
                           tolerance=penalty.tolerance)
        coefficients, intercepts = model.raw(minimum.x)
        java = JavaObjects(dataset.sparkSession.sparkContext)
        svm = java.ml.classification.LinearSVCModel(
            self.uid, java.support_vector_coefficients(coefficients[0]), float(intercepts[0]))
        columns = self.getLabelCol(), self._column("weightCol") or "weightCol"
        return svm, partial(_summary, "LinearSVCTrainingSummaryImpl", dataset._jdf, columns, minimum.history)


class FMClassifier(DeviceFit, classification.FMClassifier):
    """Factorization machine for two classes: pyspark's, fitted in the workers.

    Each step of AdamW or gradient descent is one pass, from MLlib's random factors. Mini-batches are other rows than
    MLlib's.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(float(a != b), Vectors.dense(a, b)) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features"])
    >>> model = FMClassifier(factorSize=2, stepSize=0.1, seed=1).fit(df)
    >>> [row.prediction for row in model.transform(df).select("prediction").collect()]
    [0.0, 1.0, 1.0, 0.0]
    """

    def _fields(self) -> Fields:
        return machine_fields(self)

    def _train(self, dataset: DataFrame) -> Any:
        if self.isSet("thresholds") and len(self.getThresholds()) != 2:
            raise Unsuited(f"there are {len(self.getThresholds())} thresholds for 2 classes")
        fit = fit_machine(self, self._records(dataset), is_classifier=True)
        java = JavaObjects(dataset.sparkSession.sparkContext)
        model = java.ml.classification.FMClassificationModel(self.uid, *java.machine(fit))
        columns = self.getLabelCol(), self._column("weightCol") or "weightCol"
        return model, partial(_summary, "FMClassificationTrainingSummaryImpl", dataset._jdf, columns, fit.history)


def _summary(kind: str, frame: Any, columns: Sequence[str], history: Any, java: JavaObjects, model: Any) -> Any:
    """Return the Java summary of a classifier's training to a Java DataFrame."""
    summarized = model.findSummaryModel()
    return getattr(java.ml.classification, kind)(
        summarized._1().transform(frame), summarized._2(), summarized._3(), *columns, java.doubles(history))


def _present(declared: Mapping[str, Any], statistics: ClassStatistics) -> int:
    """Return the number of classes of the labels.

    Raises
    ------
    Unsuited
        If all rows are of one class, or the label column declares other classes than there are.
    """
    classes = len(statistics.histogram)
    if (statistics.histogram > 0).sum() < 2:
        raise Unsuited("all rows are of one class")
    if declared and len(declared.get("vals", ())) != classes:
        raise Unsuited("the label column declares other classes than there are")
    return classes


def __getattr__(name: str) -> Any:
    return of_pyspark(classification, name)
