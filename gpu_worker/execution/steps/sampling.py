"""Draws of PySpark's sampler, from the number of a partition's records alone.

``pyspark.rddsampler`` draws one number for each record, in their order, from Python's Mersenne Twister. NumPy's
``RandomState`` has the same generator and makes the same doubles of it, many at a time. With replacement each record
takes as many numbers as its Poisson number says: where it ends is looked up in the sums of the numbers' logarithms.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

#: Rows that are drawn for at a time.
_ROWS = 1 << 20
#: PySpark discards so many draws, as the seeds of neighbouring partitions are alike.
_DISCARDED = 10
#: From this mean on PySpark draws Poisson numbers by exponential ones.
_BY_EXPONENTIALS = 20.0
#: Numbers that are drawn at a time for Poisson numbers; sums of so many logarithms are exact to less than the margin
#: within which a record's end is computed as PySpark computes it.
_DRAWS, _MARGIN = 1 << 14, 1e-7
#: In place of 0, which has no logarithm; a product ends with either.
_SMALLEST = 1e-300


def generator(seed: int, partition: int) -> random.Random:
    """Return the generator of a partition, as PySpark has it before the first record."""
    draws = random.Random(seed ^ partition)
    for _ in range(_DISCARDED):
        draws.randint(0, 1)
    return draws


def drawn_between(draws: random.Random, rows: int, lower: float, upper: float) -> np.ndarray:
    """Return the places (uint32) of the rows whose number is from ``lower`` to below ``upper``.

    Examples
    --------
    >>> drawn_between(generator(3, 0), 10, 0.0, 0.3).tolist()
    [5]
    """
    numbers = _uniform(draws)
    places = []
    for first in range(0, rows, _ROWS):
        drawn = numbers.random_sample(min(_ROWS, rows - first))
        chosen = np.flatnonzero((drawn >= lower) & (drawn < upper))
        places.append((chosen + first).astype(np.uint32))
    return np.concatenate(places) if places else np.empty(0, np.uint32)


def drawn_with_replacement(draws: random.Random, rows: int, mean: float) -> np.ndarray:
    """Return the places (uint32) of rows, each as often as a Poisson number of this mean says.

    Examples
    --------
    >>> drawn_with_replacement(generator(3, 0), 6, 1.0).tolist()
    [0, 0, 0, 1, 2, 2, 3, 3, 4, 4]
    """
    if not mean:
        return np.empty(0, np.uint32)
    if mean >= _BY_EXPONENTIALS:
        counts = _counts(draws, rows, 1.0, lambda u: -np.log1p(-u) / mean, lambda u: _by_exponentials(u, mean))
    else:
        counts = _counts(draws, rows, mean, lambda u: -np.log(np.maximum(u, _SMALLEST)),
                         lambda u: _by_products(u, mean))
    return np.repeat(np.arange(rows, dtype=np.uint32), counts)


def _uniform(draws: random.Random) -> np.random.RandomState:
    """Return NumPy's generator of the numbers that Python's gives next."""
    numbers = np.random.RandomState()
    *key, position = draws.getstate()[1]
    numbers.set_state(("MT19937", np.array(key, np.uint32), position, 0, 0.0))
    return numbers


def _counts(draws: random.Random, rows: int, limit: float, steps: Callable[[np.ndarray], np.ndarray],
            exact: Callable[[np.ndarray], int]) -> np.ndarray:
    """Return for each row how many numbers' steps, added up, stay below the limit; the next number ends the row.

    ``exact`` counts the same as PySpark does, of numbers from a row's first one on.
    """
    numbers, u, counts, done = _uniform(draws), np.empty(0), list[np.ndarray](), 0
    while done < rows:
        u = np.concatenate([u, numbers.random_sample(_DRAWS)])
        sums = np.append(0, np.cumsum(steps(u)))
        targets = sums[:-1] + limit
        ends = np.searchsorted(sums, targets)
        near = np.abs(sums[np.minimum(ends, len(u))] - targets) < _MARGIN
        near |= np.abs(sums[ends - 1] - targets) < _MARGIN
        for place in np.flatnonzero(near & (ends < len(u))):
            ends[place] = place + exact(u[place:]) + 1
        starts = _chain(ends, len(u))[:rows - done + 1]
        counts.append(np.diff(starts) - 1)
        done += len(starts) - 1
        u = u[starts[-1]:]
    return np.concatenate(counts) if counts else np.empty(0, np.int64)


def _chain(ends: np.ndarray, size: int) -> np.ndarray:
    """Return the places 0, ends[0], ends[ends[0]] and so on below ``size``: twice as many in each step."""
    jump = np.append(np.minimum(ends, size), size)
    starts = np.zeros(1, np.int64)
    while starts[-1] < size:
        starts = np.concatenate([starts, jump[starts]])
        jump = jump[jump]
    return starts[starts < size]


def _by_products(u: np.ndarray, mean: float) -> int:
    """Return a Poisson number by Knuth's method: how many uniform numbers, multiplied, stay above exp(-mean)."""
    least, product = math.exp(-mean), 1.0
    for count, number in enumerate(map(float, u)):
        product *= number
        if not product > least:
            return count
    return len(u)


def _by_exponentials(u: np.ndarray, mean: float) -> int:
    """Return a Poisson number as the events of a time of 1, with exponential times between them."""
    time = 0.0
    for count, number in enumerate(map(float, u)):
        time += -math.log(1.0 - number) / mean
        if not time < 1.0:
            return count
    return len(u)
