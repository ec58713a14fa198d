"""Random numbers as functions of a seed and a record's index, in ``vmap`` and in plain Python alike.

They are counter-based: there is no state that a call changes, so a record has the same numbers on every device, in any
partitioning, and when it is computed anew after a loss. The generator is Philox4x32-10 of Salmon, Moraes, Dror and
Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011; its key is the seed, and its counter the index and the
``call``, which tells the numbers of one record from each other. As the functions are plain Python of integers, ``vmap``
translates them like any other function that a user's function calls.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["integers", "normal", "philox", "uniform"]

def philox(seed: Any, index: Any, call: Any = 0) -> Any:
    """Return the four numbers of Philox4x32-10 for a key and a counter.

    Parameters
    ----------
    seed : int
        0 to 2**64 - 1, the key.
    index, call : int
        0 to 2**63 - 1, the lower and the upper half of the counter.

    Returns
    -------
    tuple of 4 uint64
        Of 32 random bits each.

    Raises
    ------
    OverflowError
        If one of them is below 0 or beyond 64 bits; a kernel, which does not look, has some number then.

    Examples
    --------
    >>> [hex(word) for word in philox(0, 0)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    low32, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    key, low, high = np.uint64(seed), np.uint64(index), np.uint64(call)
    k, m = key & low32, key >> half
    a, b, c, d = low & low32, low >> half, high & low32, high >> half
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (second >> half) ^ b ^ k, second & low32, (first >> half) ^ d ^ m, first & low32
        k, m = (k + np.uint64(0x9E3779B9)) & low32, (m + np.uint64(0xBB67AE85)) & low32
    return a, b, c, d


def uniform(seed: Any, index: Any, call: Any = 0) -> Any:
    """Return a random number from 0 to below 1, a multiple of 2**-53.

    Parameters
    ----------
    seed, index, call : int
        As for :func:`philox`.

    Returns
    -------
    float64

    Raises
    ------
    OverflowError
        As of :func:`philox`.

    Examples
    --------
    >>> float(uniform(1, 0))
    0.8902591757080309
    >>> indices = sc.parallelize(range(4), 2).cache("GPU")
    >>> indices.vmap(lambda i: uniform(1, i)).collect() == [uniform(1, i) for i in range(4)]
    True
    """
    a, b, _, _ = philox(seed, index, call)
    return np.float64((a >> np.uint64(5)) * np.uint64(67108864) + (b >> np.uint64(6))) / 9007199254740992.0


def normal(seed: Any, index: Any, call: Any = 0) -> Any:
    """Return a random number of the normal distribution of mean 0 and variance 1, after Box and Muller (1958).

    Its last bits may differ between devices, as those of their logarithms and cosines do.

    Parameters
    ----------
    seed, index, call : int
        As for :func:`philox`.

    Returns
    -------
    float
        Of 64 bits; a float64 in a kernel.

    Raises
    ------
    OverflowError
        As of :func:`philox`.

    Examples
    --------
    >>> round(float(normal(1, 0)), 6)
    -0.413898
    """
    a, b, c, d = philox(seed, index, call)
    radius = np.float64((a >> np.uint64(5)) * np.uint64(67108864) + (b >> np.uint64(6)) + np.uint64(1))
    angle = np.float64((c >> np.uint64(5)) * np.uint64(67108864) + (d >> np.uint64(6)))
    return math.sqrt(-2.0 * math.log(radius / 9007199254740992.0)) * math.cos(
        2.0 * math.pi * (angle / 9007199254740992.0))


def integers(high: Any, seed: Any, index: Any, call: Any = 0) -> Any:
    """Return a random whole number from 0 to below ``high``, by multiplication of 64 random bits.

    Parameters
    ----------
    high : int
        1 to 2**63.
    seed, index, call : int
        As for :func:`philox`.

    Returns
    -------
    int64

    Raises
    ------
    OverflowError
        As of :func:`philox`, and of ``high`` likewise.

    Examples
    --------
    >>> [int(integers(6, 1, i)) for i in range(5)]
    [5, 4, 1, 4, 1]
    """
    a, b, _, _ = philox(seed, index, call)
    wide, half, low32 = np.uint64(high), np.uint64(32), np.uint64(0xFFFFFFFF)
    most, least = wide >> half, wide & low32
    # The upper 64 bits of (a, b) times (most, least); no sum here is beyond 64 bits.
    middle = a * least + ((b * least) >> half)
    carry = b * most + (middle & low32)
    return np.int64(a * most + (middle >> half) + (carry >> half))
