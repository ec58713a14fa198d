"""Metrics of predictions that are on the devices, as MLlib's evaluators define them.

Records have a prediction or a vector of scores ``x``, a label ``y`` and a weight ``w``; those of clusters features
``x``, the number ``p`` of a cluster, and ``w``. Records of weight 0 are ignored.

References
----------
Davis and Goadrich, The relationship between precision-recall and ROC curves, ICML 2006, for areas; Rousseeuw,
Silhouettes, J. Comput. Appl. Math. 20, 1987.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.actions import folds
from vispark.api.vrdd import VRDD
from vispark.ml.base import Unsuited
from vispark.ml.moments import totals

#: The most classes, for whose pairs there is a table.
CLASSES = 180


# -- two classes ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Curve:
    """Weights of positive and of negative rows that are above each threshold, in descending order of these."""

    positives: np.ndarray
    negatives: np.ndarray

    def area_under_roc(self) -> float:
        """Return the area under the true positive rate by the false positive rate."""
        rates = [np.concatenate([[0.0], _share(each, each[-1]), [1.0]]) for each in (self.positives, self.negatives)]
        return _area(*rates)

    def area_under_precision(self) -> float:
        """Return the area under the precision by the recall."""
        both = self.positives + self.negatives
        precision = np.divide(self.positives, both, out=np.ones_like(both), where=both != 0)
        recall = _share(self.positives, self.positives[-1])
        return _area(np.append(precision[:1], precision), np.append(0.0, recall))


def _area(y: np.ndarray, x: np.ndarray) -> float:
    """Return the area under the straight lines between points; NumPy 1.26 has it by another name than NumPy 2."""
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())


def _share(part: np.ndarray, whole: float) -> np.ndarray:
    return part / whole if whole else np.zeros_like(part)


def curve_of(points: VRDD, bins: int) -> Curve:
    """Return the curve of scores, which are numbers, or the second numbers of vectors.

    Each distinct score is a threshold. If ``bins`` is not 0 and there are at least twice as many scores, neighbours
    are grouped into about ``bins`` groups, and each group's last score is a threshold. MLlib groups within each
    partition of its sort, so that its curve depends on Spark's partitions; this function groups as if there were one.
    """
    try:
        is_vector = np.ndim(points.first()["x"]) > 0
    except ValueError as error:
        raise Unsuited("there are no rows") from error
    scored = points.vmap(_second_scored if is_vector else _scored).toNumpy()
    # Weights of -0.0 are those of rows of other parts; rows of weight 0 are thresholds too.
    rows = scored[(scored[:, 2] != 0) | ~np.signbit(scored[:, 2])]
    _checked(rows.sum(axis=0), negative=bool((rows[:, 2] < 0).any()))
    rows = rows[np.argsort(-rows[:, 0], kind="stable")]
    last = np.append(np.flatnonzero(np.diff(rows[:, 0])), len(rows) - 1)
    size = len(last) // bins if bins else 1
    if size >= 2:
        last = np.append(last[size - 1:-1:size], last[-1])
    positive = rows[:, 1] > 0.5
    return Curve(*(np.cumsum(np.where(each, rows[:, 2], 0))[last] for each in (positive, ~positive)))


def _scored(x: Any, y: Any, w: Any) -> Any:
    return np.array([x, y, w])


def _second_scored(x: Any, y: Any, w: Any) -> Any:
    return np.array([x[1], y, w])


# -- classes ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Confusion:
    """Weights of rows by label and prediction.

    Parameters
    ----------
    table : array of float64, shape (k, k)
        A row for each label, a column for each prediction.
    beta : float
        How much a recall counts in F-measures.
    """

    table: np.ndarray
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not self.table.sum():
            raise Unsuited("there are no rows")

    def accuracy(self) -> float:
        """Return the share of rows whose prediction is the label."""
        return float(np.trace(self.table) / self.table.sum())

    def hamming_loss(self) -> float:
        """Return the share of rows whose prediction is another label."""
        return float((self.table.sum() - np.trace(self.table)) / self.table.sum())

    def recall(self) -> np.ndarray:
        """Return the recall of each label: the rows of it that are predicted as it, of all rows of it."""
        return _ratio(np.diag(self.table), self.table.sum(axis=1))

    def precision(self) -> np.ndarray:
        """Return the precision of each label: the rows of it that are predicted as it, of all predicted as it."""
        return _ratio(np.diag(self.table), self.table.sum(axis=0))

    def false_positive_rate(self) -> np.ndarray:
        """Return the false positive rate of each label: rows of others predicted as it, of all rows of others."""
        labels, true = self.table.sum(axis=1), np.diag(self.table)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((self.table.sum(axis=0) - true) / (self.table.sum() - labels))

    def f_measure(self, beta: float | None = None) -> np.ndarray:
        """Return, of each label, the weighted harmonic mean of precision and recall."""
        precision, recall, square = self.precision(), self.recall(), (self.beta if beta is None else beta) ** 2
        return _ratio((1 + square) * precision * recall, square * precision + recall)

    def weighted(self, metric: np.ndarray) -> float:
        """Return the mean of a metric, weighed by labels."""
        labels = self.table.sum(axis=1)
        return float((metric[labels > 0] * labels[labels > 0] / labels.sum()).sum())

    def of_label(self, metric: np.ndarray, label: float) -> float:
        """Return a metric of one label.

        Raises
        ------
        Unsuited
            If no row has it, on which MLlib has its own say.
        """
        if not 0 <= label < len(self.table) or label != int(label) or not self.table[int(label)].sum():
            raise Unsuited(f"no row has the label {label}")
        return float(metric[int(label)])


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole != 0)


#: Metrics of classes by MLlib's names, of a confusion and a label.
OF_CLASSES: Mapping[str, Callable[[Confusion, float], float]] = {
    "f1": lambda found, _: found.weighted(found.f_measure(1.0)),
    "accuracy": lambda found, _: found.accuracy(),
    "hammingLoss": lambda found, _: found.hamming_loss(),
    "weightedPrecision": lambda found, _: found.weighted(found.precision()),
    "weightedRecall": lambda found, _: found.weighted(found.recall()),
    "weightedTruePositiveRate": lambda found, _: found.weighted(found.recall()),
    "weightedFalsePositiveRate": lambda found, _: found.weighted(found.false_positive_rate()),
    "weightedFMeasure": lambda found, _: found.weighted(found.f_measure()),
    "truePositiveRateByLabel": lambda found, label: found.of_label(found.recall(), label),
    "falsePositiveRateByLabel": lambda found, label: found.of_label(found.false_positive_rate(), label),
    "precisionByLabel": lambda found, label: found.of_label(found.precision(), label),
    "recallByLabel": lambda found, label: found.of_label(found.recall(), label),
    "fMeasureByLabel": lambda found, label: found.of_label(found.f_measure(), label)}


def confusion_of(points: VRDD, beta: float) -> Confusion:
    """Return the confusion of predictions and labels, in two passes.

    Raises
    ------
    Unsuited
        If one is no whole number below ``CLASSES``.
    """
    odd, negative, most, weight = _reduced(points.vmap(_classes))
    _checked(np.array([weight]), negative=negative > 0)
    if odd or most >= CLASSES:
        raise Unsuited(f"labels and predictions are to be whole numbers from 0 to {CLASSES - 1}")
    classes = int(most) + 1
    table = np.zeros(classes * classes)
    for key, share in points.vmap(_cell, classes).reduceByKey(_sum, numKeys=len(table)).collect():
        table[key] = share
    return Confusion(table.reshape(classes, classes), beta)


def _reduced(records: VRDD) -> Any:
    try:
        return folds.reduce_in_any_order(records, _most)
    except ValueError as error:
        if "empty" not in str(error):
            raise
        raise Unsuited("there are no rows") from error


def _most(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], max(a[2], b[2]), a[3] + b[3]


def _sum(a: Any, b: Any) -> Any:
    return a + b


def _classes(x: Any, y: Any, w: Any) -> Any:
    counts = w != 0
    is_odd = counts and not (x >= 0 and y >= 0 and x == np.floor(x) and y == np.floor(y))
    return 1 if is_odd else 0, 1 if w < 0 else 0, max(x, y) if counts and not is_odd else 0.0, w


def _cell(x: Any, y: Any, w: Any, classes: Any) -> Any:
    return int(y) * classes + int(x) if w > 0 else 0, w


def log_loss(points: VRDD, least: float) -> float:
    """Return the mean of the negative logarithms of the labels' probabilities ``x``, which are ``least`` at least."""
    odd, negative, loss, weight = totals(points, _log_loss, least)
    _checked(np.array([weight]), negative=negative > 0)
    if odd:
        raise Unsuited("there are labels without a probability")
    return float(loss / weight)


def _log_loss(x: Any, y: Any, w: Any, least: Any) -> Any:
    is_odd = w > 0 and not (0 <= y < len(x))
    share = x[int(y)] if w > 0 and not is_odd else 1.0
    loss = -np.log(share)
    if share < least:
        loss = -np.log(least)
    elif share > 1 - least:
        loss = -np.log1p(-least)
    return 1 if is_odd else 0, 1 if w < 0 else 0, w * loss if w > 0 and not is_odd else 0.0, w


# -- numbers ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Residuals:
    """Sums over predictions of numbers: of weights and their squares; of squared labels; of squared and of absolute
    residuals; of squares about the labels' mean, of labels and of predictions.
    """

    weight: float
    squared_weights: float
    labels: float
    errors: float
    absolute: float
    about_mean: float
    explained: float

    def explained_variance(self) -> float:
        """Return the mean square of predictions about the labels' mean.

        Raises
        ------
        Unsuited
            If it is not finite: MLlib's is infinite or NaN by the order of the rows.
        """
        if not np.isfinite(self.explained):
            raise Unsuited("the variance of predictions is not finite")
        return self.explained / self.weight

    def r2(self, *, through_origin: bool) -> float:
        """Return R2, the share of the labels' variance that the predictions explain.

        MLlib's total sum of squares is the unbiased variance by the sum of weights less 1, whatever the weights are;
        of one row, or of equal labels, it is 0, and the share minus infinity, or NaN where there are no residuals.
        """
        if through_origin:
            total = self.labels
        else:
            rest = self.weight - self.squared_weights / self.weight
            total = self.about_mean / rest * (self.weight - 1) if rest > 0 else 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(1 - np.float64(self.errors) / total)


def residuals_of(points: VRDD) -> Residuals:
    """Return the sums over predictions, in two passes."""
    negative, weight, squares, label, labels, errors, absolute = map(float, totals(points, _residuals))
    _checked(np.array([weight]), negative=negative > 0)
    about_mean, explained = map(float, totals(points, _about, label / weight))
    return Residuals(weight, squares, labels, errors, absolute, about_mean, explained)


def _residuals(x: Any, y: Any, w: Any) -> Any:
    rest = y - x
    if w == 0:
        return 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    return 1 if w < 0 else 0, w, w * w, w * y, w * y * y, w * rest * rest, w * abs(rest)


def _about(x: Any, y: Any, w: Any, mean: Any) -> Any:
    if w == 0:
        return 0.0, 0.0
    return w * (y - mean) ** 2, w * (x - mean) ** 2


#: Metrics of numbers by MLlib's names.
OF_NUMBERS: Mapping[str, Callable[[Residuals, bool], float]] = {
    "mse": lambda found, _: found.errors / found.weight,
    "rmse": lambda found, _: float(np.sqrt(found.errors / found.weight)),
    "mae": lambda found, _: found.absolute / found.weight,
    "var": lambda found, _: found.explained_variance(),
    "r2": lambda found, through_origin: found.r2(through_origin=through_origin)}


# -- clusters ---------------------------------------------------------------------------------------------------------

def silhouette_of(points: VRDD, *, by_cosine: bool) -> float:
    """Return the mean silhouette of clustered features, by squared Euclidean distance or by cosine, in three passes.

    Mean distances to the rows of a cluster are found from the sums of these and of their squares.

    Raises
    ------
    Unsuited
        If there are fewer than two clusters, or their numbers are none.
    """
    odd, negative, most, weight = _reduced(points.vmap(_clusters))
    _checked(np.array([weight]), negative=negative > 0)
    if odd or most >= CLASSES ** 2:
        raise Unsuited(f"clusters are to be whole numbers from 0 to {CLASSES ** 2 - 1}")
    shares = points.vmap(_cluster_sums, by_cosine).reduceByKey(_sums_of_clusters, numKeys=int(most) + 1).collect()
    shares = [(key, share) for key, share in shares if share[0]]
    if len(shares) < 2:
        raise Unsuited("there are fewer than two clusters")
    places = np.zeros(int(most) + 1, np.int64)
    places[[key for key, _ in shares]] = np.arange(len(shares))
    weights, squares = (np.array([share[place] for _, share in shares]) for place in (0, 1))
    sums = np.array([np.asarray(share[2]) for _, share in shares])
    distance, = totals(points, _silhouette, places, weights, squares / weights, sums / weights[:, None], by_cosine)
    return float(distance / weight)


def _clusters(p: Any, w: Any) -> Any:
    number = np.float64(p)
    is_odd = w != 0 and not (number >= 0 and number == np.floor(number))
    return 1 if is_odd else 0, 1 if w < 0 else 0, number if w != 0 and not is_odd else 0.0, w


def _direction(x: Any, by_cosine: Any) -> Any:
    return x / np.sqrt(np.dot(x, x)) if by_cosine else x


def _cluster_sums(x: Any, p: Any, w: Any, by_cosine: Any) -> Any:
    u = _direction(x, by_cosine)
    if w > 0:
        return int(p), (w, w * np.dot(u, u), w * u)
    return 0, (0.0, 0.0, 0.0 * u)


def _sums_of_clusters(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _silhouette(x: Any, p: Any, w: Any, places: Any, weights: Any, squares: Any, means: Any, by_cosine: Any) -> Any:
    if w == 0:
        return (0.0,)
    u = _direction(x, by_cosine)
    distances = 1 - means @ u if by_cosine else np.dot(u, u) + squares - 2 * (means @ u)
    own = places[int(p)]
    inside, nearest = distances[own], np.inf
    for k in range(len(weights)):
        if k != own:
            nearest = min(nearest, distances[k])
    rest = weights[own] - w
    inside = inside * weights[own] / rest if rest > 0 else 0.0
    if inside < nearest:
        return (w * (1 - inside / nearest),)
    return (w * (nearest / inside - 1) if inside > nearest else 0.0,)


def _checked(sums: np.ndarray, *, negative: bool) -> None:
    """Check sums of rows, the last of which is that of the weights.

    Raises
    ------
    Unsuited
        If one is NaN, a weight is negative, or there are no rows.
    """
    if np.isnan(sums).any():
        raise Unsuited("there are numbers that are NaN")
    if negative:
        raise Unsuited("there are negative weights")
    if not sums[-1]:
        raise Unsuited("there are no rows")
