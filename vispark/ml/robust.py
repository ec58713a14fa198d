"""Linear regression by Huber's loss, whose scale is fitted with the coefficients.

References
----------
Owen, A robust hybrid of lasso and ridge regression, Contemporary Mathematics 443 (2007).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD
from vispark.ml.moments import Moments, totals
from vispark.ml.optim.bounded import minimize_within
from vispark.ml.optim.least_squares import LinearFit, Penalty, reciprocal


def huber_fit(points: VRDD, moments: Moments, penalty: Penalty, epsilon: float, *,
              fit_intercept: bool) -> tuple[LinearFit, float]:
    """Return the fit of labels to features, and its scale.

    Parameters
    ----------
    points : VRDD
        Records of fields x, y and w.
    moments : Moments
        Of the features and the label behind them.
    penalty : Penalty
        Its L2 term; there is no L1 term.
    epsilon : float
        Beyond how many scales a residual counts by its absolute value.
    """
    size = len(moments.mean) - 1
    mean = moments.mean[:-1] * fit_intercept
    deviation = np.sqrt(np.diag(moments.covariance)[:-1] * moments.unbiased)
    inverse = reciprocal(deviation)
    _, l2 = penalty.factors(deviation, penalty.strength)
    l2 = np.append(l2, [0.0, 0.0])

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        coefficients = vector[:size] * inverse
        loss, by_feature, by_margin, by_scale = totals(
            points, _huber, coefficients, float(vector[size] - coefficients @ mean), float(vector[-1]), epsilon)
        gradient = np.append((by_feature - by_margin * mean) * inverse, [by_margin * fit_intercept, by_scale])
        return float(loss / moments.weight + 0.5 * (l2 * vector) @ vector), gradient / moments.weight + l2 * vector

    start = np.append(np.ones(size), [(1 + inverse @ mean) * fit_intercept, 1.0])
    lower = np.append(np.full(size + 1, -np.inf), np.finfo(float).tiny)
    minimum = minimize_within(objective, start, lower, np.full(size + 2, np.inf), curvature=1 + l2,
                              iterations=penalty.iterations, tolerance=penalty.tolerance)
    coefficients = minimum.x[:size] * inverse
    intercept = float(minimum.x[size] - coefficients @ mean)
    return LinearFit(coefficients, intercept, np.zeros(1), minimum.history), float(minimum.x[-1])


def _huber(x: Any, y: Any, w: Any, coefficients: Any, intercept: Any, scale: Any, epsilon: Any) -> Any:
    """Return the loss of a row, and its derivatives by coefficients, margin and scale."""
    rest = y - np.dot(coefficients, x) - intercept
    if abs(rest) <= scale * epsilon:
        loss = scale + rest * rest / scale
        slope = -w * rest / scale
        by_scale = 1 - (rest / scale) ** 2
    else:
        loss = scale + 2 * epsilon * abs(rest) - scale * epsilon * epsilon
        slope = -w * epsilon if rest >= 0 else w * epsilon
        by_scale = 1 - epsilon * epsilon
    return 0.5 * w * loss, slope * x, slope, 0.5 * w * by_scale
