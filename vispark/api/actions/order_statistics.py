"""Order statistics of a VRDD's numbers: workers count them in ranges, and of the ranges that matter in narrower ones.

Ranges have one width in the order of float64's bits, not of its values: so a pass divides any range by as much,
whatever numbers lie in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from vispark.api.actions import folds
from vispark.api.operations.device_ops import vmap
from vispark.api.rdds.recorded_rdd import RecordedRDD

#: Ranges of a pass.
_RANGES = 1 << 10
#: Numbers of a range that are brought to the driver instead of being counted once more.
_FEW = 1 << 12


@dataclass(frozen=True)
class NumberSummary:
    """Counts of numbers, of the finite ones and of those that are NaN or minus infinity; the least and the greatest
    finite number, as float64.
    """

    count: int
    finite: int
    nans: int
    lowest: int
    least: float
    greatest: float


def summary(source: RecordedRDD) -> NumberSummary:
    """Return the summary of a VRDD of numbers; one pass."""
    joined = folds.reduce_in_any_order(vmap(source, _looked_at), _joined)
    return NumberSummary(*map(int, joined[:4]), *map(float, joined[4:]))


def _looked_at(x):      # type: ignore[no-untyped-def]
    value = np.float64(x)
    if value != value:
        return 1, 0, 1, 0, np.inf, -np.inf
    if value - value != 0:
        return 1, 0, 0, 1 if value < 0 else 0, np.inf, -np.inf
    return 1, 1, 0, 0, value, value


def _joined(a, b):      # type: ignore[no-untyped-def]
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], min(a[4], b[4]), max(a[5], b[5])


def quantiles(source: RecordedRDD, q: np.ndarray) -> Any:
    """Return ``np.quantile`` of all numbers of a VRDD, as float64, at shares ``q`` (float64, from 0 to 1)."""
    summarized = summary(source)
    if summarized.nans:
        return np.full(q.shape, np.nan)[()]
    places = q * (summarized.count - 1)
    below = np.floor(places).astype(np.int64)
    above = np.minimum(below + 1, summarized.count - 1)
    values = _at(source, summarized, sorted({*below.reshape(-1).tolist(), *above.reshape(-1).tolist()}))
    interpolated = [np.quantile(np.array([values[low], values[high]]), place - low)
                    for place, low, high in zip(places.flat, below.flat, above.flat, strict=True)]
    return np.array(interpolated).reshape(q.shape)[()]


@dataclass(frozen=True)
class _RankRange:
    """Numbers from one place to another in the order of float64, both included, with how many are below them, and the
    ranks that are wanted of them.
    """

    least: int
    greatest: int
    below: int
    ranks: Sequence[int]


def _at(source: RecordedRDD, known: NumberSummary, ranks: Sequence[int]) -> dict[int, float]:
    """Return the numbers of some ranks, from 0 on, in ascending order."""
    values = {rank: -np.inf if rank < known.lowest else np.inf for rank in ranks}
    last = known.lowest + known.finite
    inner = [rank for rank in ranks if known.lowest <= rank < last]
    ranges = [_RankRange(_ordered(known.least), _ordered(known.greatest), known.lowest, inner)] if inner else []
    few: list[_RankRange] = []
    while ranges:
        narrower: list[_RankRange] = []
        for bucket, count in _counted(source, ranges):
            if bucket.least == bucket.greatest:
                values.update(dict.fromkeys(bucket.ranks, _value(bucket.least)))
            else:
                (few if count <= _FEW else narrower).append(bucket)
        ranges = narrower
    values.update(_looked_up(source, sorted(few, key=attrgetter("below"))))
    return values


def _counted(source: RecordedRDD, ranges: Sequence[_RankRange]) -> Iterator[tuple[_RankRange, int]]:
    """Yield narrower ranges that have what is wanted, and how many numbers are in each, by one pass over all."""
    cells = max(2, _RANGES // len(ranges))
    starts: list[int] = []
    for bucket in ranges:
        width = bucket.greatest - bucket.least + 1
        starts += sorted({bucket.least + width * i // cells for i in range(cells)})
        starts.append(bucket.greatest + 1)
    placed = vmap(source, _range, _padded(map(_value, starts)))
    counts = folds.reduceByKey(placed, _sum, numKeys=_size(len(starts)) + 1)
    by_cell, cell = counts.collectAsMap(), 0
    for bucket in ranges:
        below = bucket.below
        while starts[cell] <= bucket.greatest:
            count = by_cell.get(cell + 1, 0)
            inside = [rank for rank in bucket.ranks if below <= rank < below + count]
            if inside:
                yield _RankRange(starts[cell], starts[cell + 1] - 1, below, inside), count
            below, cell = below + count, cell + 1
        cell += 1


def _looked_up(source: RecordedRDD, ranges: Sequence[_RankRange]) -> dict[int, float]:
    """Return the numbers of ranks in ranges of few numbers, which are brought to the driver."""
    by_rank: dict[int, float] = {}
    if ranges:
        bounds = _padded(_value(bound) for each in ranges for bound in (each.least, each.greatest + 1))
        values = np.sort(np.array(source.filter(_within(bounds)).collect(), np.float64))
        for bucket in ranges:
            first = np.searchsorted(values, _value(bucket.least))
            by_rank.update({rank: float(values[first + rank - bucket.below]) for rank in bucket.ranks})
    return by_rank


def _padded(numbers: Iterable[float]) -> np.ndarray:
    """Return ascending numbers, with infinities behind them: arrays of few lengths, as each length is a kernel."""
    values = list(numbers)
    return np.array(values + [np.inf] * (_size(len(values)) - len(values)))


def _size(count: int) -> int:
    return 2 * _RANGES * -(-count // (2 * _RANGES))


def _range(x, starts):      # type: ignore[no-untyped-def]
    value = np.float64(x)
    return 0 if value - value != 0 else int(np.digitize(value, starts)), 1


def _within(bounds: np.ndarray) -> Callable[[Any], Any]:
    def is_within(x):       # type: ignore[no-untyped-def]
        value = np.float64(x)
        return value - value == 0 and int(np.digitize(value, bounds)) % 2 == 1
    return is_within


def _sum(a: Any, b: Any) -> Any:
    return a + b


def _ordered(value: float) -> int:
    """Return the place of a finite float64 in the order of all of them; 0 is at 0.

    Examples
    --------
    >>> _ordered(-0.0), _ordered(5e-324), _ordered(-5e-324)
    (0, 1, -1)
    """
    bits, = struct.unpack("<q", struct.pack("<d", abs(value)))
    return -int(bits) if value < 0 else int(bits)


def _value(place: int) -> float:
    """Return the float64 at a place.

    Examples
    --------
    >>> _value(_ordered(-2.5)), _value(0)
    (-2.5, 0.0)
    """
    size, = struct.unpack("<d", struct.pack("<q", abs(place)))
    return -float(size) if place < 0 else float(size)
