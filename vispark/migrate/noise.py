"""Noise of a computation: its difference from itself when the partitions are dealt anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vispark.migrate.compare import Comparison, compare

_Item = TypeVar("_Item")
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


def deals(items: Sequence[_Item], partitions: int, seed: int) -> list[list[_Item]]:
    """Cut items, in their order, into partitions of random sizes.

    Parameters
    ----------
    items : sequence
        Records.
    partitions : int
        How many, of which some may be empty.
    seed : int
        One gives the same partitions each time.

    Examples
    --------
    >>> [sum(each) for each in deals(range(6), 1, 0)], sum(map(len, deals(range(6), 3, 1)))
    ([15], 6)
    """
    rng = random.Random(seed)
    cuts = sorted(rng.randint(0, len(items)) for _ in range(partitions - 1))
    return [list(items[low:high]) for low, high in zip([0, *cuts], [*cuts, len(items)], strict=True)]


def noise_of(compute: Callable[[list[list[_Item]]], Any], items: Sequence[_Item], partitions: int = 4,
             runs: int = 8) -> float:
    """Return the largest relative difference of a computation from itself over partitions that are dealt anew.

    Parameters
    ----------
    compute : callable
        Gives the result of a list of partitions, as an action does.
    items : sequence
        The records.
    partitions, runs : int
        How many of each.

    Returns
    -------
    float
        Relative to the largest value of its field; infinite where the results cannot be compared.

    Examples
    --------
    >>> noise_of(lambda parts: sum(sum(part) for part in parts), [1, 2, 3] * 50)
    0.0
    >>> 0 < noise_of(lambda parts: sum(sum(part) for part in parts), [0.1, 0.7, 1e-3] * 99) < 1e-14
    True
    """
    reference = compute(deals(items, partitions, 0))
    return max((compare(reference, compute(deals(items, partitions + run % 3, run))).worst
                for run in range(1, runs + 1)), default=0.0)


def is_noise(self_comparison: Comparison) -> bool:
    """Return whether a program's difference from itself is small enough to judge others by."""
    return self_comparison.worst <= LIMIT
