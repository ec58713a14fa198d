"""Wall time shared out among what went on at the same time."""

from __future__ import annotations

from collections.abc import Sequence

TimeSpan = tuple[float, float]


def shares(levels: Sequence[Sequence[TimeSpan]], total: float) -> tuple[list[list[float]], float]:
    """Divide the time from 0 to ``total`` among intervals; return each interval's share, and the time of none.

    A moment belongs to the intervals of the first level that has any then, to all of them alike. All shares and what
    is left add up to ``total``.

    Parameters
    ----------
    levels : sequence of sequences of (float, float)
        From when to when; what lies outside of the time that is shared out does not count.
    total : float
        Seconds.

    Examples
    --------
    >>> shares([[(1.0, 3.0)], [(0.0, 2.0), (2.0, 6.0), (2.0, 4.0)]], 8.0)
    ([[2.0], [1.0, 2.5, 0.5]], 2.0)
    """
    turns = sorted((min(max(at, 0.0), total), not begins, level, index)
                   for level, intervals in enumerate(levels) for index, interval in enumerate(intervals)
                   for at, begins in zip(interval, (True, False), strict=True))
    attributed = [[0.0] * len(intervals) for intervals in levels]
    active = [0] * len(levels)
    #: What an interval of each level would have got so far, had it been there all the time.
    sums = [0.0] * len(levels)
    nobodys = before = 0.0
    for at, ends, level, index in [*turns, (total, True, -1, 0)]:
        first = next((each for each, count in enumerate(active) if count), None)
        if first is None:
            nobodys += at - before
        else:
            sums[first] += (at - before) / active[first]
        before = at
        if level >= 0:
            attributed[level][index] = sums[level] - attributed[level][index] if ends else sums[level]
            active[level] += -1 if ends else 1
    return attributed, nobodys


def tracks(intervals: Sequence[TimeSpan]) -> list[int]:
    """Assign intervals to tracks: each, in the order of their starts, to the first track where it overlaps no other.

    Examples
    --------
    >>> tracks([(0.0, 2.0), (1.0, 3.0), (2.0, 4.0)])
    [0, 1, 0]
    """
    numbers = [0] * len(intervals)
    ends: list[float] = []
    for index in sorted(range(len(intervals)), key=intervals.__getitem__):
        start, end = intervals[index]
        track = next((number for number, until in enumerate(ends) if until <= start), len(ends))
        ends[track:track + 1] = [end]
        numbers[index] = track
    return numbers
