"""Distances of rows that share a bucket with a vector, by MLlib's locality-sensitive hashes.

References
----------
Datar, Immorlica, Indyk and Mirrokni, Locality-sensitive hashing scheme based on p-stable distributions, SoCG 2004.
Broder, On the resemblance and containment of documents, 1997.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The modulus of MLlib's permutations of indices.
PRIME = 2038074743


def projected(x: Any, i: Any, key: Any, hashes: Any, directions: Any, width: Any) -> Any:
    """Return the Euclidean distance of a row and its number; the distance is infinite where no bucket is shared."""
    own = np.floor(directions @ x * (1 / width))
    distance = np.sqrt(((x - key) ** 2).sum())
    return np.array([distance if (own == hashes).any() else np.inf, np.float64(i)])


def permuted(x: Any, i: Any, key: Any, hashes: Any, factors: Any, offsets: Any) -> Any:
    """Return the Jaccard distance of a row and its number; the distance is infinite where no bucket is shared."""
    is_shared = False
    for t in range(len(hashes)):
        least = 2038074743
        for j in range(len(x)):
            if x[j] != 0:
                least = min(least, ((1 + j) * factors[t] + offsets[t]) % 2038074743)
        if least == hashes[t]:
            is_shared = True
    common = ((x != 0) & (key != 0)).sum()
    union = ((x != 0) | (key != 0)).sum()
    return np.array([1 - common / union if is_shared else np.inf, np.float64(i)])


def checked(x: Any, i: Any) -> Any:
    """Return 1 where a row has no numbers but 0, the number of rows, its length, and 1 where a number is not finite."""
    return 1 if (x != 0).sum() == 0 else 0, 1, len(x), 0 if np.isfinite(x).all() else 1


def projection_hashes(key: np.ndarray, directions: np.ndarray, width: float) -> np.ndarray:
    """Return the hashes of a vector: the buckets of its projections."""
    return np.floor(directions @ key * (1 / width))


def permutation_hashes(key: np.ndarray, factors: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the hashes of a vector: the least permuted index of its numbers that are not 0.

    Examples
    --------
    >>> permutation_hashes(np.array([0.0, 1.0]), np.array([5]), np.array([3]))
    array([13])
    """
    indices = np.flatnonzero(key) + 1
    hashes: np.ndarray = ((indices * factors[:, None] + offsets[:, None]) % PRIME).min(axis=1)
    return hashes
