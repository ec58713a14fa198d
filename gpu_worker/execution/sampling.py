"""Draws of PySpark's sampler, from the number of a partition's records alone.

``pyspark.rddsampler`` draws one number for each record, in their order, from Python's Mersenne Twister. NumPy's
``RandomState`` has the same generator and makes the same doubles of it, many at a time.
"""

from __future__ import annotations

import math
import random

import numpy as np

#: Rows that are drawn for at a time.
_ROWS = 1 << 20
#: PySpark discards so many draws, as the seeds of neighbouring partitions are alike.
_DISCARDED = 10
#: From this mean on PySpark draws Poisson numbers by exponential ones.
_BY_EXPONENTIALS = 20.0


def generator(seed: int, partition: int) -> random.Random:
    """Return the generator of a partition, as PySpark has it before the first record."""
    found = random.Random(seed ^ partition)
    for _ in range(_DISCARDED):
        found.randint(0, 1)
    return found


def drawn_between(draws: random.Random, rows: int, lower: float, upper: float) -> np.ndarray:
    """Return the places (uint32) of the rows whose number is from ``lower`` to below ``upper``.

    Examples
    --------
    >>> drawn_between(generator(3, 0), 10, 0.0, 0.3).tolist()
    [5]
    """
    numbers = np.random.RandomState()
    *key, position = draws.getstate()[1]
    numbers.set_state(("MT19937", np.array(key, np.uint32), position, 0, 0.0))
    found = []
    for first in range(0, rows, _ROWS):
        each = numbers.random_sample(min(_ROWS, rows - first))
        chosen = np.flatnonzero((each >= lower) & (each < upper))
        found.append((chosen + first).astype(np.uint32))
    return np.concatenate(found) if found else np.empty(0, np.uint32)


def drawn_with_replacement(draws: random.Random, rows: int, mean: float) -> np.ndarray:
    """Return the places (uint32) of rows, each as often as a Poisson number of this mean says.

    Examples
    --------
    >>> drawn_with_replacement(generator(3, 0), 6, 1.0).tolist()
    [0, 0, 0, 1, 2, 2, 3, 3, 4, 4]
    """
    draw = _by_exponentials if mean >= _BY_EXPONENTIALS else _by_products
    counts = draw(draws, rows, mean)
    return np.repeat(np.arange(rows, dtype=np.uint32), counts)


def _by_products(draws: random.Random, rows: int, mean: float) -> np.ndarray:
    """Return Poisson numbers by Knuth's method: how many uniform numbers, multiplied, stay above exp(-mean)."""
    least, uniform, counts = math.exp(-mean), draws.random, np.zeros(rows, np.int64)
    for row in range(rows):
        product = uniform()
        while product > least:
            counts[row] += 1
            product *= uniform()
    return counts


def _by_exponentials(draws: random.Random, rows: int, mean: float) -> np.ndarray:
    """Return Poisson numbers as the events of a time of 1, with exponential times between them."""
    counts = np.zeros(rows, np.int64)
    for row in range(rows):
        time = draws.expovariate(mean)
        while time < 1.0:
            counts[row] += 1
            time += draws.expovariate(mean)
    return counts
