"""Noise of a computation: its difference from itself when the partitions are dealt anew."""

from __future__ import annotations

from vispark.migrate.validate.compare import Comparison

#: A difference of a program from itself above this is no rounding: it reads partitions, or random numbers.
LIMIT = 1e-3


def dealt_anew(partitions: int) -> int:
    """Return another number of partitions, whose boundaries and folds are not those of the first.

    Examples
    --------
    >>> dealt_anew(2), dealt_anew(8)
    (5, 11)
    """
    return partitions + 3


def is_noise(self_comparison: Comparison) -> bool:
    """Return whether a program's difference from itself is small enough to judge others by."""
    return self_comparison.worst <= LIMIT
