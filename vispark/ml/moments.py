"""Moments of weighted rows: sums, means, and the covariance, in two passes over the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD
from vispark.ml.base import Unsuited


class TooLarge(Unsuited):
    """Sums of squares that are not finite, of numbers that are."""


def totals(points: VRDD, function: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the sums over all rows of each number and array that a row function gives, in one pass.

    Raises
    ------
    Unsuited
        If there are no rows, or arrays of several lengths, on which MLlib has its own say.
    """
    try:
        sums: tuple[Any, ...] = points.vmap(function, *arguments).reduce(_add)
    except ValueError as error:
        if "broadcast" in str(error):
            # Of sums of partitions each of which has its own length.
            raise Unsuited("the vectors are of several lengths") from error
        if "empty" not in str(error):
            raise
        raise Unsuited("there are no rows") from error
    return sums


def _add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x + y for x, y in zip(a, b))  # noqa: B905 - the translator reads this form


@dataclass(frozen=True)
class Moments:
    """Moments of weighted rows of numbers.

    Parameters
    ----------
    count : int
        Number of rows.
    weight, squares : float
        Sums of the weights and of their squares.
    mean : array of float64
        Weighted mean of each column.
    covariance : array of float64
        Weighted mean of the outer products of the rows less their mean.
    """

    count: int
    weight: float
    squares: float
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def unbiased(self) -> float:
        """The factor that makes the covariance the unbiased estimate, as MLlib's summarizer has it."""
        rest = self.weight - self.squares / self.weight
        return self.weight / rest if rest > 0 else 0.0


def moments_of(points: VRDD) -> Moments:
    """Return the moments of records of fields x and w, rows and their weights.

    Raises
    ------
    Unsuited
        If a number or the sum of a column's squares is not finite, a weight is negative, or all are 0.
    """
    return _moments(points, _sums, _products)


def labelled_moments(points: VRDD) -> Moments:
    """Return the moments of records of fields x, y and w: rows with their labels behind them, and their weights.

    Raises
    ------
    Unsuited
        If a number or the sum of a column's squares is not finite, a weight is negative, or all are 0.
    """
    return _moments(points, _labelled_sums, _labelled_products)


def _moments(points: VRDD, sums: Any, products: Any) -> Moments:
    count, width, negative, weight, squares, *linear = totals(points, sums)
    total = np.concatenate([np.atleast_1d(each) for each in linear])
    if width != count * np.size(linear[0]):
        raise Unsuited("the vectors are of several lengths")
    check(np.append(total, [weight, squares]), negative)
    mean = total / weight
    product, = totals(points, products, mean)
    covariance = np.asarray(product) / weight
    check_squares(np.diag(covariance))
    constant = is_constant(np.diag(covariance), mean)
    covariance[constant], covariance[:, constant] = 0, 0
    return Moments(int(count), float(weight), float(squares), mean, covariance)


def is_constant(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return, for each column, whether its variance is no more than the rounding of its mean leaves."""
    return variance <= (1e-13 * np.abs(mean)) ** 2


def check(sums: np.ndarray, negative: float) -> None:
    """Check sums of the data, into which each number goes, and the number of negative weights.

    Raises
    ------
    Unsuited
        If a sum is not finite, or a weight is negative; the last of the sums is not 0.
    """
    if not np.isfinite(sums).all():
        raise Unsuited("the data has NaN or infinite numbers")
    if negative:
        raise Unsuited("there are negative weights")
    if not sums[-1]:
        raise Unsuited("all weights are 0")


def check_squares(sums: np.ndarray) -> None:
    """Check sums of squares of finite numbers.

    Raises
    ------
    TooLarge
        If one is not finite.
    """
    if not np.isfinite(sums).all():
        raise TooLarge("the squares of the numbers are beyond float64")


def _sums(x: Any, w: Any) -> Any:
    return 1, len(x), 1 if w < 0 else 0, w, w * w, w * x


def _labelled_sums(x: Any, y: Any, w: Any) -> Any:
    return 1, len(x), 1 if w < 0 else 0, w, w * w, w * x, w * y


def _products(x: Any, w: Any, mean: Any) -> Any:
    c = x - mean
    return (w * np.outer(c, c),)


def _labelled_products(x: Any, y: Any, w: Any, mean: Any) -> Any:
    c = np.append(x, y) - mean
    return (w * np.outer(c, c),)
