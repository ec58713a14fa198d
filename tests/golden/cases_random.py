"""Random numbers of a seed and an index, which are functions of the language itself."""

from __future__ import annotations

import numpy as np

from tests.golden.case import case
from vispark import random

INDICES = np.array([0, 1, 2, 3, 1000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62], np.int64)


@case("random: the words of a counter", INDICES, golden="random")
def _words(i):
    return random.philox(7, i)


@case("random: key and counter of 64 bits", INDICES)
def _long(i):
    return random.philox(np.uint64(2**64 - 1), i, 2**63 - 1)


@case("random: uniform numbers", INDICES)
def _uniform(i):
    return random.uniform(7, i), random.uniform(7, i, 1), random.uniform(8, i)


@case("random: whole numbers", INDICES)
def _whole(i):
    return random.integers(6, 7, i), random.integers(2**32, 7, i), random.integers(1, 7, i)


@case("random: whole numbers beyond 32 bits", INDICES)
def _large(i):
    return random.integers(2**32 + 1, 7, i), random.integers(2**62 + 1, 7, i), random.integers(2**63 - 1, 7, i)


@case("random: normal numbers", INDICES, tolerance=8)
def _normal(i):
    return random.normal(7, i), random.normal(7, i, 1)


@case("random: a row of numbers", INDICES)
def _several(i):
    return np.array([random.uniform(3, i, call) for call in range(4)])
