"""Weighted least squares from moments alone: Cholesky, or L-BFGS and OWL-QN on the moments.

The conventions are MLlib's: features and label are scaled by their standard deviations, by which the regularisation is
meant; an L1 term, or a singular matrix, is left to a quasi-Newton method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vispark.ml.moments import Moments
from vispark.ml.optim.quasi_newton import Objective, minimize


@dataclass(frozen=True)
class Penalty:
    """Regularisation of a linear model, and how long its quasi-Newton method may take.

    Parameters
    ----------
    strength, l1_share : float
        ``regParam`` and ``elasticNetParam``.
    is_standardized : bool
        Whether the penalty is of the coefficients of standardized features.
    iterations, tolerance : int, float
        ``maxIter`` and ``tol``.
    """

    strength: float
    l1_share: float
    is_standardized: bool
    iterations: int
    tolerance: float

    def factors(self, scale: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the factors of the L1 and of the L2 term, of each coefficient of features scaled by ``scale``."""
        l1, l2 = strength * self.l1_share, strength * (1 - self.l1_share)
        if self.is_standardized:
            return np.full(len(scale), l1), np.full(len(scale), l2)
        inverse = reciprocal(scale)
        return l1 * inverse, l2 * inverse**2


@dataclass(frozen=True)
class LinearFit:
    """Coefficients and intercept, the diagonal of the inverse for standard errors, and the objective's history."""

    coefficients: np.ndarray
    intercept: float
    inverse: np.ndarray
    history: np.ndarray


def reciprocal(values: np.ndarray) -> np.ndarray:
    """Return 1 / values, and 0 where they are 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values != 0)


def constant_label(moments: Moments, *, fit_intercept: bool) -> LinearFit | None:
    """Return the fit where all labels are the same and need no coefficients, or None."""
    mean = float(moments.mean[-1])
    if moments.covariance[-1, -1] > 0 or not (fit_intercept or mean == 0):
        return None
    return LinearFit(np.zeros(len(moments.mean) - 1), mean if fit_intercept else 0.0, np.zeros(1), np.zeros(1))


def normal_equations(moments: Moments, penalty: Penalty, *, fit_intercept: bool) -> LinearFit:
    """Return the fit of the last column to the others.

    Parameters
    ----------
    moments : Moments
        Of d features and the label behind them, with a standard deviation that is not 0.
    """
    scale = np.sqrt(np.diag(moments.covariance))
    scale[-1] = scale[-1] or abs(moments.mean[-1])
    products, mean = _standardized(moments, scale, fit_intercept=fit_intercept)
    l1, l2 = penalty.factors(scale[:-1], penalty.strength / scale[-1])
    quadratic, linear = products[:-1, :-1] + np.diag(l2), products[:-1, -1]
    inverse = history = np.zeros(1)
    solved = None if l1.any() else _cholesky(quadratic, linear)
    if solved is not None:
        solution, whole = solved
        inverse = np.diag(whole) / moments.weight * reciprocal(scale[:-1]**2)
        if fit_intercept:
            inverse = np.append(inverse, (1 + mean @ whole @ mean) / moments.weight)
    else:
        minimum = minimize(_quadratic(quadratic, linear, products[-1, -1]), np.zeros(len(linear)),
                           l1=l1 if l1.any() else None, iterations=penalty.iterations, tolerance=penalty.tolerance)
        solution, history = minimum.x, minimum.history
    return _unscaled(solution, moments, scale, inverse, history, fit_intercept=fit_intercept)


def quasi_newton(moments: Moments, penalty: Penalty, *, fit_intercept: bool) -> LinearFit:
    """Return the fit as the solver ``l-bfgs`` has it, with unbiased standard deviations."""
    scale = np.sqrt(np.diag(moments.covariance) * moments.unbiased)
    products, _ = _standardized(moments, scale, fit_intercept=fit_intercept)
    l1, l2 = penalty.factors(scale[:-1], penalty.strength / scale[-1])
    minimum = minimize(_quadratic(products[:-1, :-1] + np.diag(l2), products[:-1, -1], products[-1, -1]),
                       np.zeros(len(l1)), l1=l1 if l1.any() else None, iterations=penalty.iterations,
                       tolerance=penalty.tolerance)
    return _unscaled(minimum.x, moments, scale, np.zeros(1), minimum.history, fit_intercept=fit_intercept)


def _standardized(moments: Moments, scale: np.ndarray, *, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the products of the scaled columns, centred where there is an intercept, and the features' scaled mean."""
    inverse = reciprocal(scale)
    products = moments.covariance if fit_intercept else moments.covariance + np.outer(moments.mean, moments.mean)
    return products * np.outer(inverse, inverse), (moments.mean * inverse)[:-1]


def _cholesky(quadratic: np.ndarray, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the solution and the inverse, or None where the matrix is singular."""
    try:
        lower = np.linalg.cholesky(quadratic)
    except np.linalg.LinAlgError:
        return None
    half = np.linalg.solve(lower, np.column_stack([np.eye(len(linear)), linear]))
    whole = half.T @ half
    return whole[:-1, -1], whole[:-1, :-1]


def _quadratic(quadratic: np.ndarray, linear: np.ndarray, constant: float) -> Objective:
    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        product = quadratic @ x
        return 0.5 * constant - linear @ x + 0.5 * (x @ product), product - linear
    return objective


def _unscaled(solution: np.ndarray, moments: Moments, scale: np.ndarray, inverse: np.ndarray, history: np.ndarray, *,
              fit_intercept: bool) -> LinearFit:
    coefficients = solution * scale[-1] * reciprocal(scale[:-1])
    intercept = moments.mean[-1] - coefficients @ moments.mean[:-1] if fit_intercept else 0.0
    return LinearFit(coefficients, float(intercept), inverse, history)
