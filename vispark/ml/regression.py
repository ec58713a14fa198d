"""Estimators of ``pyspark.ml.regression`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import regression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from vispark.ml import families
from vispark.ml.base import DeviceFit, LabelledFit, Unsuited
from vispark.ml.factorization import fit_machine, machine_fields
from vispark.ml.java import JavaObjects
from vispark.ml.loads import Fields, number
from vispark.ml.moments import Moments, check, labelled_moments, totals
from vispark.ml.names import of_pyspark
from vispark.ml.optim.least_squares import LinearFit, Penalty, constant_label, normal_equations, quasi_newton
from vispark.ml.robust import huber_fit

#: The most features of which the products of all pairs are summed; MLlib's limit for normal equations.
_WIDEST = 4096


class LinearRegression(LabelledFit, regression.LinearRegression):
    """Linear regression by least squares with an elastic net, or by Huber's loss: pyspark's, fitted in the workers.

    Two passes over the data sum the products of all pairs of columns; the driver does the rest on these, whatever the
    solver. With ``loss="huber"`` each evaluation is a pass more; a fit that ``maxIter`` ends before its optimum ends
    elsewhere than MLlib's. More than 4,096 features stay with MLlib.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(1.0, Vectors.dense(0.0)), (3.0, Vectors.dense(1.0))],
    ...                                       ["label", "features"])
    >>> model = LinearRegression(regParam=0.0).fit(df)
    >>> model.coefficients.toArray().round(6), round(model.intercept, 6)
    (array([2.]), 1.0)
    """

    def _train(self, dataset: DataFrame) -> Any:
        points = self._records(dataset)
        moments = labelled_moments(points)
        size = len(moments.mean) - 1
        if size > _WIDEST:
            raise Unsuited(f"there are {size} features, more than {_WIDEST}")
        intercept = self.getFitIntercept()
        penalty = Penalty(self.getRegParam(), self.getElasticNetParam(), self.getStandardization(), self.getMaxIter(),
                          self.getTol())
        fit, scale = constant_label(moments, fit_intercept=intercept), 1.0
        if fit is None and self.getLoss() == "huber":
            fit, scale = huber_fit(points, moments, penalty, self.getEpsilon(), fit_intercept=intercept)
        if fit is None and not moments.covariance[-1, -1] > 0 and penalty.strength:
            raise Unsuited("all labels are the same, without an intercept and with regularisation")
        if fit is None:
            solve = quasi_newton if self.getSolver() == "l-bfgs" else normal_equations
            fit = solve(moments, penalty, fit_intercept=intercept)
        return self._model(dataset, fit, scale)

    def _model(self, dataset: DataFrame, fit: LinearFit, scale: float) -> Any:
        java, frame = JavaObjects(dataset.sparkSession.sparkContext), dataset._jdf
        vector = java.vector(fit.coefficients)
        model = java.ml.regression.LinearRegressionModel(
            self.uid, vector.compressed() if self.getSolver() == "l-bfgs" else vector, fit.intercept, scale)
        columns, intercept = [self.getLabelCol(), self.getFeaturesCol(), self._column("weightCol") or ""], \
            self.getFitIntercept()
        return model, lambda java, model: java.linear_summary(
            model, frame, columns, len(fit.coefficients), intercept, fit.inverse, fit.history)


class GeneralizedLinearRegression(LabelledFit, regression.GeneralizedLinearRegression):
    """Generalized linear regression by reweighted least squares: pyspark's, fitted in the workers.

    Two passes over the data for each iteration. ``link="probit"`` stays with MLlib.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(1.0, Vectors.dense(0.0)), (2.0, Vectors.dense(1.0)), (4.0, Vectors.dense(2.0))]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features"])
    >>> model = GeneralizedLinearRegression(family="poisson").fit(df)
    >>> round(float(model.coefficients[0] / np.log(2)), 6)
    1.0
    """

    def _fields(self) -> Fields:
        offset = self._column("offsetCol")
        return {**super()._fields(), "o": number(offset) if offset else ("0.0", sql.lit(0.0))}

    def _train(self, dataset: DataFrame) -> Any:
        family, link = powers(self)
        points = self._records(dataset)
        outside, count, width, negative, weight, label, offsets, linear = totals(points, families.is_outside, family)
        if outside:
            raise Unsuited(f"labels are outside the range of family={self.getFamily()!r}")
        if width != count * len(linear):
            raise Unsuited("the vectors are of several lengths")
        if len(linear) > _WIDEST:
            raise Unsuited(f"there are {len(linear)} features, more than {_WIDEST}")
        check(np.append(linear, [label, offsets, weight]), negative)
        if (family, link) == (0.0, 1.0):
            return self._model(dataset, self._solved(labelled_moments(points.vmap(families.shifted)), is_first=True), 1)
        fit = self._solved(labelled_moments(points.vmap(families.started, family, link)), is_first=True)
        done = 0
        while done < self.getMaxIter():
            done += 1
            moments = labelled_moments(points.vmap(families.reweighted, fit.coefficients, fit.intercept, family, link))
            before, fit = fit, self._solved(moments, is_first=False)
            change = np.append(fit.coefficients - before.coefficients, fit.intercept - before.intercept)
            if np.abs(change).max() < self.getTol():
                break
        return self._model(dataset, fit, done)

    def _solved(self, moments: Moments, *, is_first: bool) -> LinearFit:
        """Return the fit of moments; MLlib standardizes features and label for the first one alone."""
        fit_intercept, strength = self.getFitIntercept(), self.getRegParam()
        fit = constant_label(moments, fit_intercept=fit_intercept)
        if fit is not None:
            return fit
        if not moments.covariance[-1, -1] > 0 and strength:
            raise Unsuited("all working labels are the same, without an intercept and with regularisation")
        if not is_first:
            strength *= float(np.sqrt(moments.covariance[-1, -1]))
        return normal_equations(moments, Penalty(strength, 0.0, is_first, 100, 1e-6), fit_intercept=fit_intercept)

    def _model(self, dataset: DataFrame, fit: LinearFit, iterations: int) -> Any:
        java, frame, solver = JavaObjects(dataset.sparkSession.sparkContext), dataset._jdf, self.getSolver()
        model = java.ml.regression.GeneralizedLinearRegressionModel(
            self.uid, java.vector(fit.coefficients), fit.intercept)
        return model, lambda java, model: java.ml.regression.GeneralizedLinearRegressionTrainingSummary(
            frame, model, java.doubles(fit.inverse), iterations, solver)


def powers(generalized: Any) -> tuple[float, float]:
    """Return the family and the link of an estimator or a model, as numbers of :mod:`vispark.ml.families`.

    Raises
    ------
    Unsuited
        If there is no number of the link.
    """
    name = generalized.getFamily().lower()
    if name == "tweedie":
        family = float(generalized.getVariancePower())
        return family, float(generalized.getLinkPower()) if generalized.isSet("linkPower") else 1 - family
    family, link = families.FAMILIES[name]
    if generalized.isSet("link"):
        if generalized.getLink().lower() not in families.LINKS:
            raise Unsuited(f"link={generalized.getLink()!r} is not computed in the workers")
        link = families.LINKS[generalized.getLink().lower()]
    return family, link


class FMRegressor(DeviceFit, regression.FMRegressor):
    """Factorization machine for numbers: pyspark's, fitted in the workers.

    Each step of AdamW or gradient descent is one pass, from MLlib's random factors. Mini-batches are other rows than
    MLlib's.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> rows = [(a * b, Vectors.dense(a, b)) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "features"])
    >>> round(FMRegressor(factorSize=2, stepSize=0.1, seed=1).fit(df).predict(Vectors.dense(1.0, 1.0)), 2)
    1.0
    """

    def _fields(self) -> Fields:
        return machine_fields(self)

    def _train(self, dataset: DataFrame) -> Any:
        fit = fit_machine(self, self._records(dataset), is_classifier=False)
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.regression.FMRegressionModel(self.uid, *java.machine(fit))


def __getattr__(name: str) -> Any:
    return of_pyspark(regression, name)
