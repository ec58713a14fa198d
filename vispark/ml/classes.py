"""Statistics of labelled classes, and objectives of linear classifiers over standardized features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD
from vispark.ml.base import Unsuited
from vispark.ml.moments import check, check_squares, is_constant, totals
from vispark.ml.optim.least_squares import Penalty, reciprocal
from vispark.ml.optim.quasi_newton import Objective


@dataclass(frozen=True)
class ClassStatistics:
    """Statistics of weighted rows of classes.

    Parameters
    ----------
    weight : float
        Sum of the weights.
    histogram : array of float64
        Sum of the weights of each class.
    mean, deviation : array of float64
        Of each feature, the deviation unbiased, and 0 where a feature is constant.
    """

    weight: float
    histogram: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def statistics_of(points: VRDD, most: int) -> ClassStatistics:
    """Return the statistics of records of fields x, y and w.

    Parameters
    ----------
    points : VRDD
        The records; labels are whole numbers from 0 on.
    most : int
        The most classes that there may be.

    Raises
    ------
    Unsuited
        If labels are something else, or the data is nothing that a fit can be of.
    """
    count, width, negative, odd, weight, squares, labels, linear = totals(points, _sums)
    if width != count * len(linear):
        raise Unsuited("the vectors are of several lengths")
    check(np.append(linear, [labels, squares, weight]), negative)
    classes = int(points.vmap(_label).max()) + 1
    if odd or classes > most:
        raise Unsuited(f"labels are to be whole numbers from 0 to {most - 1}")
    mean = linear / weight
    histogram, spread = totals(points, _spread, mean, np.arange(float(classes)))
    check_squares(np.asarray(spread))
    rest = weight - squares / weight
    variance = np.asarray(spread) / rest if rest > 0 else np.zeros(len(mean))
    return ClassStatistics(float(weight), np.asarray(histogram), mean,
                           np.where(is_constant(variance, mean), 0, np.sqrt(variance)))


def _sums(x: Any, y: Any, w: Any) -> Any:
    return 1, len(x), 1 if w < 0 else 0, 1 if w > 0 and (y < 0 or y != np.floor(y)) else 0, w, w * w, w * y, w * x


def _label(x: Any, y: Any, w: Any) -> Any:
    return y if w > 0 else 0.0


def _spread(x: Any, y: Any, w: Any, mean: Any, classes: Any) -> Any:
    c = x - mean
    return np.where(classes == y, w, 0.0), w * c * c


@dataclass(frozen=True)
class StandardizedModel:
    """Linear model over standardized features, centred where there is an intercept, as the optimiser sees it.

    A vector of the optimiser has the coefficients of each set (one, or one for each class), and the intercepts behind.

    Parameters
    ----------
    points : VRDD
        Records of fields x, y and w.
    statistics : ClassStatistics
        Of these.
    penalty : Penalty
        Regularisation of the coefficients.
    sets : int
        Number of sets of coefficients.
    fit_intercept : bool
        Whether there are intercepts.
    """

    points: VRDD
    statistics: ClassStatistics
    penalty: Penalty
    sets: int
    fit_intercept: bool

    def start(self, intercepts: np.ndarray) -> np.ndarray:
        """Return the vector of no coefficients, and some intercepts."""
        return np.append(np.zeros(self.sets * len(self.statistics.mean)), intercepts if self.fit_intercept else [])

    def l1(self) -> np.ndarray | None:
        """Return the factors of the coordinates' L1 term, or None where there is none."""
        factors, _ = self._factors()
        return factors if factors.any() else None

    def curvature(self) -> np.ndarray:
        """Return the most that the second derivatives of a logistic loss and the L2 term are, by coordinate."""
        _, l2 = self._factors()
        return 0.25 + l2

    def raw(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients of the features as they are, a row for each set, and the intercepts."""
        coefficients, intercepts = self._parts(vector)
        plain = coefficients * reciprocal(self.statistics.deviation)
        return plain, intercepts - plain @ self.statistics.mean if self.fit_intercept else intercepts

    def objective(self, function: Any) -> Objective:
        """Return the mean loss with the L2 term, of a row function that gives loss, gradient and margins' gradient."""
        _, l2 = self._factors()
        deviation, mean, weight = self.statistics.deviation, self.statistics.mean, self.statistics.weight

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            coefficients, intercepts = self.raw(vector)
            arguments = (coefficients, intercepts) if self.sets > 1 else (coefficients[0], float(intercepts[0]))
            loss, by_feature, by_margin = totals(self.points, function, *arguments)
            by_feature = np.asarray(by_feature).reshape(self.sets, -1)
            margins = np.atleast_1d(by_margin)
            if self.fit_intercept:
                by_feature = by_feature - np.outer(margins, mean)
            gradient = np.append((by_feature * reciprocal(deviation)).ravel(), margins if self.fit_intercept else [])
            return float(loss / weight + 0.5 * (l2 * vector) @ vector), gradient / weight + l2 * vector
        return evaluate

    def _factors(self) -> tuple[np.ndarray, np.ndarray]:
        behind = np.zeros(self.sets if self.fit_intercept else 0)
        l1, l2 = self.penalty.factors(self.statistics.deviation, self.penalty.strength)
        return np.append(np.tile(l1, self.sets), behind), np.append(np.tile(l2, self.sets), behind)

    def _parts(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = self.sets * len(self.statistics.mean)
        return vector[:size].reshape(self.sets, -1), vector[size:] if self.fit_intercept else np.zeros(self.sets)


def logistic(x: Any, y: Any, w: Any, coefficients: Any, intercept: Any) -> Any:
    """Return the logistic loss of a row of class 0 or 1, and its derivatives by coefficients and margin."""
    margin = np.dot(coefficients, x) + intercept
    # One exponential is enough for both, and does not overflow.
    least = np.exp(-np.abs(margin))
    rest = w * ((1 if margin >= 0 else least) / (1 + least) - y)
    return w * (np.maximum(margin if y == 0 else -margin, 0) + np.log1p(least)), rest * x, rest


def hinge(x: Any, y: Any, w: Any, coefficients: Any, intercept: Any) -> Any:
    """Return the hinge loss of a row of class 0 or 1, and its derivatives by coefficients and margin."""
    sign = 2 * y - 1
    rest = 1 - sign * (np.dot(coefficients, x) + intercept)
    slope = -sign * w if rest > 0 else 0.0
    return w * rest if rest > 0 else 0.0, slope * x, slope


def softmax(x: Any, y: Any, w: Any, coefficients: Any, intercepts: Any) -> Any:
    """Return the multinomial loss of a row, and its derivatives by coefficients and margins."""
    margins = coefficients @ x + intercepts
    margins = margins - margins.max()
    shares = np.exp(margins)
    total = shares.sum()
    rest = w * shares / total
    rest[int(y)] -= w
    return w * (np.log(total) - margins[int(y)]), np.outer(rest, x), rest
