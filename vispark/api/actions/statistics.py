"""Statistics of a VRDD's numbers in a few passes of the workers: histograms, quantiles, moments, counts of values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.statcounter import StatCounter

from vispark.api.actions import folds, order_statistics
from vispark.api.keys import keyed
from vispark.api.operations.device_ops import vmap
from vispark.api.rdds.explain import BY_COUNTS
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.pairs import not_numbers
from vispark.errors import PlanError

#: Types of records, as layouts have them, whose arithmetic the workers have as Python and NumPy have it.
_TYPES = {"float": float, "<f8": np.float64, "<f4": np.float32, "int": int}
#: Python's ints below it, and their differences, are exact as doubles.
_EXACT = 1 << 52
#: The most buckets of a histogram that workers count in.
_MOST_BUCKETS = 1 << 15


def histogram(vrdd: RecordedRDD, buckets: int | Sequence[Any]) -> tuple[Sequence[Any], list[int]]:
    """Return buckets and how many records are in each, as PySpark's RDDs do; the last one is closed.

    Of many cached numbers workers count, in a pass after one that finds the least and the greatest; else it is a Spark
    job.

    Parameters
    ----------
    buckets : int or sequence
        How many of one width between the least and the greatest record, or their bounds, ascending.

    Returns
    -------
    tuple of (sequence, list of int)
        n + 1 bounds, those that were given or a list in the records' type; and n counts.

    Raises
    ------
    ValueError
        If ``buckets`` is below 1 or not ascending, has fewer than two bounds, None or NaN, or there are no records
        between which to make buckets.
    TypeError
        If ``buckets`` is no int, list or tuple.

    Examples
    --------
    >>> sc.parallelize(range(51)).cache("GPU").histogram(2)
    ([0, 25, 50], [25, 26])
    """
    result = None if _is_left(vrdd, "histogram") else _histogram(vrdd, buckets)
    if result is None:
        counts: tuple[Sequence[Any], list[int]] = vrdd._spark("histogram", buckets)
        return counts
    vrdd._folds["histogram"] = BY_COUNTS
    return result


def quantile(vrdd: RecordedRDD, q: float | Sequence[float]) -> Any:
    """Return quantiles of the numbers, as ``np.quantile`` of all of them in float64: linear between neighbours.

    Workers count the numbers in ranges, and those of the ranges that have what is sought in narrower ones, until
    few are left, which leave them: mostly two or three passes, and no more than ten for one share, whatever the
    numbers.

    Parameters
    ----------
    q : float or sequence of float
        Each from 0 to 1.

    Returns
    -------
    float64, or ndarray of shape (len(q),) and dtype float64
        NaN where a record is.

    Raises
    ------
    PlanError
        If a q is not from 0 to 1, nothing is cached, or the records are not numbers, or there are none.

    Examples
    --------
    >>> sc.parallelize(range(11), 3).cache("GPU").quantile([0.0, 0.25, 0.5])
    array([0. , 2.5, 5. ])
    """
    quantiles = np.asarray(q, np.float64)
    if not ((quantiles >= 0) & (quantiles <= 1)).all():
        raise PlanError(f"quantile() is of shares from 0 to 1, not {q}")
    reason = _not_real(vrdd) if vrdd._is_held() else "nothing is cached"
    if reason:
        raise PlanError(f"quantile() is of cached numbers, and {reason}")
    return order_statistics.quantiles(vrdd, quantiles)


def stats(vrdd: RecordedRDD) -> StatCounter:
    """Return PySpark's counter of how many numbers there are, their mean, variance, least and greatest.

    Of many cached numbers workers compute them in three passes; the mean and the variance may differ from PySpark's
    in the last bits, as sums do.

    Returns
    -------
    pyspark.statcounter.StatCounter
        ``count()`` is an int. ``mean()``, ``variance()`` and ``stdev()`` are float64, or of the records' own dtype
        where that is a float or complex; of arrays element by element, of their shape.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 6.0]).cache("GPU").stats()
    (count: 3, mean: 3.0, stdev: 2.160246899469287, max: 6.0, min: 1.0)
    """
    result = None if _is_left(vrdd, "stats") else _stats(vrdd)
    if result is None:
        counter: StatCounter = vrdd._spark("stats")
        return counter
    vrdd._folds["stats"] = BY_COUNTS
    return result


def countByValue(vrdd: RecordedRDD) -> dict[Any, int]:
    """Return the number of records of each value.

    Of many cached numbers workers sort and count, and send a number for each value of a partition; else it is a
    Spark job.

    Returns
    -------
    dict of value to int
        A ``defaultdict``, as PySpark's: values that do not occur have 0. Values are of the records' types.

    Examples
    --------
    >>> sorted(sc.parallelize([1, 2, 1, 2, 2], 2).cache("GPU").countByValue().items())
    [(1, 2), (2, 3)]
    """
    vrdd._folds.pop("countByValue", None)
    if not vrdd._is_held() or vrdd._is_few() or _reason_of(vrdd, not_numbers):
        counts: dict[Any, int] = vrdd._spark("countByValue")
        return counts
    by_value = keyed.counted(vmap(vrdd, _with_one), "countByValue")
    return vrdd._spark("countByValue") if by_value is None else by_value


def _is_left(vrdd: RecordedRDD, action: str) -> bool:
    """Return whether the records are left to PySpark: they are few, or no numbers, for which the reason is noted.
    """
    vrdd._folds.pop(action, None)
    if not vrdd._is_held() or vrdd._is_few():
        return True
    reason = _not_real(vrdd)
    if reason:
        vrdd._folds[action] = reason
    return bool(reason)


def _with_one(x):       # type: ignore[no-untyped-def]
    return x, 1


# -- what the records are ---------------------------------------------------------------------------------------------

def _reason_of(source: RecordedRDD, not_those: Callable[[Any], str]) -> str:
    """Return the reason why records are not those of which a layout tells; "" if they are."""
    layouts = {each.layout for each in source._results() if each.count}
    if not layouts:
        return "there are no records"
    return next(filter(None, map(not_those, layouts)), "") or (
        "partitions have records of different types" if len(layouts) > 1 else "")


def _not_real(source: RecordedRDD) -> str:
    """Return the reason why records are no numbers that workers compute with as Python does; "" if they are."""
    def not_those(layout: Any) -> str:
        reason = not_numbers(layout)
        if not reason and layout.parts[0].types[0] not in _TYPES:
            return f"they are of {layout.parts[0].types[0]}: Python's floats and ints, float64 and float32 are counted"
        return reason

    return _reason_of(source, not_those)


def _type_of(source: RecordedRDD) -> type:
    return next(_TYPES[each.layout.parts[0].types[0]] for each in source._results() if each.count)


# -- histograms -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Buckets:
    """Bounds of a histogram, and the buckets' width where it is one and the same."""

    bounds: Sequence[Any]
    width: Any = None


def _histogram(source: RecordedRDD, buckets: Any) -> tuple[Sequence[Any], list[int]] | None:
    """Return buckets and counts; None where PySpark's own code is to say what is wrong, or counts otherwise."""
    summary = order_statistics.summary(source)
    of = _type_of(source)
    if (of is int and max(abs(summary.least), abs(summary.greatest)) >= _EXACT) or not summary.finite:
        return None
    edges = _equal_buckets(summary, of, buckets) if isinstance(buckets, int) else _given(buckets)
    if edges is None:
        return None
    if isinstance(buckets, int) and len(edges.bounds) == 2:
        return edges.bounds, [summary.count - summary.nans]
    kinds = {np.asarray(of(1) - each).dtype for each in edges.bounds}
    if (len(kinds) > 1 and of is not int) or (kinds == {np.dtype(np.float32)} and summary.nans):
        return None         # of a NaN that is no Python float PySpark makes an error
    work = np.float32 if kinds == {np.dtype(np.float32)} else float
    if any(work(before) >= work(after) for before, after in itertools.pairwise(edges.bounds)):
        return None         # what differs in Python does not in the records' own type
    counts = _counts(source, edges, work)
    return edges.bounds, [*counts[:-2], counts[-2] + counts[-1]]


def _equal_buckets(summary: order_statistics.NumberSummary, of: Any, count: int) -> _Buckets | None:
    """Return buckets of one width, by PySpark's own arithmetic; None where it has none."""
    if not 1 <= count <= _MOST_BUCKETS or summary.finite != summary.count - summary.nans:
        return None
    least, greatest = of(summary.least), of(summary.greatest)
    if least == greatest or count == 1:
        return _Buckets([least, greatest])
    width: Any = int((greatest - least) / count)
    if width * count != greatest - least:
        width = (greatest - least) * 1.0 / count
    return _Buckets([*(i * width + least for i in range(count)), greatest], width)


def _given(buckets: Any) -> _Buckets | None:
    """Return the buckets that were given; None if they are none that workers count in."""
    if not isinstance(buckets, list | tuple) or not 2 <= len(buckets) <= _MOST_BUCKETS:
        return None
    for bucket in buckets:
        if not isinstance(bucket, int | float | np.float32) or isinstance(bucket, bool) \
                or not abs(float(bucket)) < _EXACT:
            return None
    steps: list[Any] = [after - before for before, after in itertools.pairwise(buckets)]
    if min(steps) <= 0:
        return None
    is_even = max(steps) - min(steps) < 1e-10
    return _Buckets(buckets, (buckets[-1] - buckets[0]) / (len(buckets) - 1) if is_even else None)


def _counts(source: RecordedRDD, buckets: _Buckets, work: type) -> list[int]:
    """Return the number of records in each bucket, and of those that are the last bound, compared in a type."""
    bounds, cells = buckets.bounds, len(buckets.bounds)
    ends = work(bounds[0]), work(bounds[-1]), cells
    placed = vmap(source, _cell, np.array([work(each) for each in bounds]), *ends) if buckets.width is None \
        else vmap(source, _equal_bucket, work(buckets.width), *ends)
    counts = folds.reduceByKey(placed, _sum, numKeys=cells + 1).collectAsMap()
    return [counts.get(cell, 0) for cell in range(cells)]


def _sum(a: Any, b: Any) -> Any:
    return a + b


def _equal_bucket(x, width, least, greatest, cells):       # type: ignore[no-untyped-def]
    if x != x or x > greatest or x < least:
        return cells, 1
    return int((x - least) / width), 1


def _cell(x, bounds, least, greatest, cells):       # type: ignore[no-untyped-def]
    if x != x or x > greatest or x < least:
        return cells, 1
    return int(np.digitize(x, bounds)) - 1, 1


# -- moments ----------------------------------------------------------------------------------------------------------

def _stats(source: RecordedRDD) -> StatCounter | None:
    """Return the counter of numbers; None where PySpark is to look at NaN and infinities."""
    summary = order_statistics.summary(source)
    if not summary.count or summary.finite != summary.count:
        return None
    of = float if _type_of(source) is int else _type_of(source)
    mean = vmap(source, _shifted, summary.least).reduce(_sum) / summary.count + summary.least
    if not np.isfinite(mean):
        return None
    result: Any = StatCounter()
    result.n, result.mu = summary.count, of(mean)
    result.m2 = of(vmap(source, _squared, mean).reduce(_sum))
    wide = np.float32 if of is np.float32 else np.float64
    result.maxValue, result.minValue = wide(summary.greatest), wide(summary.least)
    counter: StatCounter = result
    return counter


def _shifted(x, by):        # type: ignore[no-untyped-def]
    return np.float64(x) - by


def _squared(x, mean):      # type: ignore[no-untyped-def]
    return (np.float64(x) - mean) ** 2
