"""Factorization machines: linear models with products of all pairs of features, weighed by factors of the features.

References
----------
Rendle, Factorization machines, ICDM 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark import random
from vispark.api.vrdd import VRDD
from vispark.ml.base import Unsuited
from vispark.ml.java_random import JavaRandom
from vispark.ml.loads import Fields, number, one, plain, row_number
from vispark.ml.moments import check, totals
from vispark.ml.optim import gradient_descent


@dataclass(frozen=True)
class FactorizationMachine:
    """Factorization machine that was fitted.

    Parameters
    ----------
    intercept : float
        The intercept, 0 where none is fitted.
    linear : array of float64, shape (d,)
        The coefficients, 0 where none are fitted.
    factors : array of float64, shape (d, k)
        The factors of each feature.
    history : array of float64
        The objective before each iteration and, if none was the last by tolerance, after them.
    """

    intercept: float
    linear: np.ndarray
    factors: np.ndarray
    history: np.ndarray


def machine_fields(learner: Any) -> Fields:
    """Return the fields of the records that a machine is fitted to."""
    fields = {"x": plain(learner.getFeaturesCol()), "y": number(learner.getLabelCol()), "w": one()}
    if learner.getMiniBatchFraction() < 1:
        fields["i"] = row_number()
    return fields


def fit_machine(learner: Any, points: VRDD, *, is_classifier: bool) -> FactorizationMachine:
    """Return the machine of an estimator's parameters, which are those of FMClassifier and FMRegressor.

    It begins with MLlib's random factors; each iteration is one pass.

    Raises
    ------
    Unsuited
        If the data is nothing that a fit can be of.
    """
    fraction = learner.getMiniBatchFraction()
    count, width, odd, label, rows, linear = totals(points, _sums)
    if width != count * len(linear):
        raise Unsuited("the vectors are of several lengths")
    check(np.append(linear, [label, rows]), 0)
    if is_classifier and odd:
        raise Unsuited("labels are to be 0 and 1")
    shape, seed = (len(linear), learner.getFactorSize()), learner.getSeed()
    draws = JavaRandom(seed)
    factors = np.array([draws.normal() for _ in range(shape[0] * shape[1])]) * learner.getInitStd()
    start = np.append(factors, np.zeros(shape[0] + 1))
    is_fitted = np.repeat([True, learner.getFitLinear(), learner.getFitIntercept()], [len(factors), shape[0], 1])

    def loss(x: np.ndarray, iteration: int) -> tuple[float, np.ndarray] | None:
        rows = points.vmap(_chosen, fraction, seed % 2 ** 63, iteration) if fraction < 1 else points
        return _mean_loss(rows, x, shape, is_fitted, is_classifier=is_classifier)

    descent = gradient_descent.Descent(learner.getStepSize(), learner.getRegParam(), learner.getMaxIter(),
                                       learner.getTol())
    update = gradient_descent.adam_w(descent, len(start)) if learner.getSolver() == "adamW" else \
        gradient_descent.plain(descent)
    end, history = gradient_descent.descend(loss, start, descent, update)
    return FactorizationMachine(float(end[-1]), end[len(factors):-1], end[:len(factors)].reshape(shape), history)


def _mean_loss(points: VRDD, x: np.ndarray, shape: tuple[int, int], is_fitted: np.ndarray, *,
               is_classifier: bool) -> tuple[float, np.ndarray] | None:
    """Return the mean loss of the rows and its gradient, or None where there are no rows."""
    size = shape[0] * shape[1]
    factors = x[:size].reshape(shape)
    sums = totals(points, _derivatives, float(x[-1]), x[size:-1], factors, (factors ** 2).sum(axis=1), is_classifier)
    rows, loss, slope, linear, squares, products = sums
    if not rows:
        return None
    by_factor = np.asarray(products).reshape(shape) - factors * np.asarray(squares)[:, None]
    gradient = np.concatenate([by_factor.ravel(), linear, [slope]])
    return float(loss / rows), np.where(is_fitted, gradient, 0) / rows


def _sums(x: Any, y: Any, w: Any) -> Any:
    return 1, len(x), 1 if w > 0 and y != 0 and y != 1 else 0, w * y, w, w * x


def _chosen(w: Any, i: Any, fraction: Any, seed: Any, iteration: Any) -> Any:
    """Return a row with the weight 0 where it is not in the mini-batch of an iteration."""
    return {"w": w if random.uniform(seed, i, iteration) < fraction else 0.0}


def _derivatives(x: Any, y: Any, w: Any, intercept: Any, linear: Any, factors: Any, squares: Any,
                 is_classifier: Any) -> Any:
    """Return the loss of a row, and the sums that its gradient is made of."""
    s = x @ factors
    raw = intercept + np.dot(linear, x) + 0.5 * (np.dot(s, s) - np.dot(squares, x * x))
    if is_classifier:
        loss = np.logaddexp(0, -raw if y > 0 else raw)
        slope = w * (1 / (1 + np.exp(-raw)) - y)
    else:
        loss = (raw - y) ** 2
        slope = w * 2 * (raw - y)
    return w, w * loss, slope, slope * x, slope * x * x, np.outer(slope * x, s)
