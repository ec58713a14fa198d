"""Line searches: step lengths that meet the Wolfe conditions, by brackets or by shrinking and growing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: Value and slope of an objective along a direction, for a step length.
Along = Callable[[float], "tuple[float, float]"]

#: How much of the slope's promise must be kept, and by how much the slope must have become less.
_DECREASE, _CURVATURE = 1e-4, 0.9
_TRIALS = 10


class LineSearchFailed(Exception):
    """A direction along which no step was found."""


@dataclass(frozen=True)
class _End:
    """End of a bracket."""

    length: float
    value: float
    slope: float


def strong_wolfe(along: Along, first: float) -> float:
    """Return a step length that meets the strong Wolfe conditions.

    Nocedal and Wright, algorithms 3.5 and 3.6, with steps that grow by half and cubic interpolation.

    Raises
    ------
    LineSearchFailed
        If none is found in 10 trials, and 10 more within a bracket.
    """
    begin = _End(0.0, *along(0.0))
    if begin.slope > 0:
        raise LineSearchFailed("the direction leads upwards")
    low, length = begin, first
    for trial in range(_TRIALS):
        end = _End(length, *along(length))
        if not math.isfinite(end.value):
            length /= 2
            continue
        if end.value > begin.value + _DECREASE * length * begin.slope or (end.value >= low.value and trial):
            return _zoom(along, begin, low, end)
        if abs(end.slope) <= _CURVATURE * abs(begin.slope):
            return length
        if end.slope >= 0:
            return _zoom(along, begin, end, low)
        low = end
        length *= 1.5
    raise LineSearchFailed("no bracket was found")


def _zoom(along: Along, begin: _End, low: _End, high: _End) -> float:
    for _ in range(_TRIALS):
        length = _cubic(high, low) if low.length > high.length else _cubic(low, high)
        end = _End(length, *along(length))
        if end.value > begin.value + _DECREASE * length * begin.slope or end.value >= low.value:
            high = end
            continue
        if abs(end.slope) <= _CURVATURE * abs(begin.slope):
            return length
        if end.slope * (high.length - low.length) >= 0:
            high = low
        low = end
    raise LineSearchFailed("no step was found in a bracket")


def _cubic(left: _End, right: _End) -> float:
    """Return the minimum of the cubic through both ends, at least a tenth of the bracket away from them."""
    width = right.length - left.length
    inner = left.slope + right.slope - 3 * (left.value - right.value) / -width
    under = inner * inner - left.slope * right.slope
    root = math.sqrt(under) if under >= 0 else math.nan
    length = right.length - width * (right.slope + root - inner) / (right.slope - left.slope + 2 * root)
    if length < left.length + 0.1 * width:
        return left.length + 0.1 * width
    return left.length + 0.9 * width if length > left.length + 0.9 * width else length


def backtracking(along: Along, first: float, shrink: float, claimed: float) -> float:
    """Return a step length that meets the strong Wolfe conditions, by shrinking and growing the first one.

    The first length is judged by its slope and a ``claimed`` value, as Breeze does, which takes there the smooth part
    at the start. Of 20 lengths of which none meets the conditions, as at a kink, the last one is taken, as Breeze does.

    Raises
    ------
    LineSearchFailed
        If the lengths leave 1e-10 to 1e10.
    """
    value, slope = along(0.0)
    length = first
    for trial in range(2 * _TRIALS):
        loss, steepness = along(length)
        if trial == 0:
            loss = claimed
        if loss > value + length * slope * _DECREASE:
            factor = shrink
        elif steepness < _CURVATURE * slope:
            factor = 2.1
        elif abs(steepness) > _CURVATURE * abs(slope):
            factor = shrink
        else:
            break
        if not 1e-10 <= length * factor <= 1e10:
            raise LineSearchFailed("no step was found")
        if trial < 2 * _TRIALS - 1:
            length *= factor
    return length
