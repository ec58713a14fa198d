"""Cases: what NumPy and Python programs commonly write: lists of generators, kept axes, tables, named tuples."""

# The forms that a linter would change are what is tried here.
# ruff: noqa: B905, RUF005
from __future__ import annotations

import math
from collections import namedtuple
from typing import NamedTuple

import numpy as np

from tests.golden.case import U64, case, rows

P = rows(4, 6)
LONG = np.abs(rows(3, 40, "float64"))
BLOCKS = np.random.default_rng(3).normal(size=(4, 3, 5))
WEIGHTS = (1.5, 2, 0.25)
STEPS = ((0, 1), (1, 0), (2, -1))
ROWS = (np.float64([1, 2, 3]), np.float64([4, 5, 6]))
MULTIPLIER = 0x9E3779B97F4A7C15


# -- tuples and lists of generators -----------------------------------------------------------------------------------


case("tuple of a generator", P)(lambda p: tuple(v * 2 for v in p))
case("tuple of a generator over several iterables", P)(lambda p: tuple(p[i] * p[j] for i in range(2) for j in range(i)))
case("tuple of zip", P)(lambda p: tuple(a + b for a, b in zip(p, p[::-1])))
case("tuple of a row", P)(lambda p: tuple(p[:3]))
case("list of a row", P)(lambda p: np.array(list(p[1:]) + [p[0]]))
case("list comprehension over several iterables", P)(
    lambda p: np.array([p[i] * p[j] for i in range(3) for j in range(i, 3)]))
case("list comprehension over several iterables, long", P)(
    lambda p: np.array([p[i] * p[j] for i in range(6) for j in range(i, 6)]))
case("list comprehension over several iterables in sum", P)(
    lambda p: sum([p[i] * k for i in range(3) for k in (1, 2)]))
case("any and all of a list", P)(lambda p: (any([p[0] > 0, p[1] > 0]), all((p[0] > -9, p[1])), any([]), all([1, p[2]])))


# -- slices that a loop moves -----------------------------------------------------------------------------------------


case("list comprehension of slices by its variable", LONG, tolerance=16)(
    lambda p: np.array([(p[:len(p) - k] * p[k:]).sum() for k in range(20)]))


@case("loop over slices by its variable", LONG, tolerance=16)
def _lags(p):
    out = np.zeros(20)
    for k in range(20):
        out[k] = (p[:len(p) - k] * p[k:]).sum()
    return out


case("sum of slices by its variable", P, tolerance=16)(lambda p: sum(p[i:].max() for i in range(len(p))))


# -- kept axes --------------------------------------------------------------------------------------------------------


case("keepdims", P, tolerance=4)(lambda p: p - p.mean(keepdims=True))
case("keepdims along axis 1", BLOCKS, tolerance=4)(lambda m: m - m.sum(axis=1, keepdims=True))
case("keepdims along axis 0", BLOCKS, tolerance=4)(lambda m: m / np.max(m, axis=0, keepdims=True))
case("keepdims of norms", BLOCKS, tolerance=4)(lambda m: m / np.linalg.norm(m, axis=-1, keepdims=True))
case("keepdims of places", BLOCKS)(lambda m: np.argmax(m, axis=1, keepdims=True))
case("keepdims of truths", BLOCKS)(lambda m: np.any(m > 0, keepdims=True))
case("keepdims not asked for", BLOCKS, tolerance=4)(lambda m: np.std(m, axis=0, keepdims=False))


# -- large constants --------------------------------------------------------------------------------------------------


case("np.uint64 beyond 63 bits", U64)(lambda x: x * np.uint64(0x9E3779B97F4A7C15))
case("np.uint64 beyond 63 bits from outside", U64)(lambda x: (x ^ np.uint64(MULTIPLIER)) >> np.uint64(3))
case("np.uint64 beyond 63 bits as Python ints", U64)(
    lambda x: (x & 0xFFFFFFFFFFFFFFFF, x % (2**63), x + np.uint64(2**64 - 1)))
case("np.uint64 beyond 63 bits compared", U64)(lambda x: x > 2**63)


# -- tables -----------------------------------------------------------------------------------------------------------


@case("a tuple indexed by a variable", P)
def _weighted(p):
    s = 0.0
    for i in range(3):
        s += WEIGHTS[i] * p[i]
    return s


case("a tuple indexed by a variable from the end", P)(lambda p: WEIGHTS[int(p[0] > 0) - 1] * 2.0)
case("a tuple of tuples indexed by a variable", P)(lambda p: STEPS[int(p[0] > 0)][0] + 10 * STEPS[int(p[1] > 0)][1])
case("a tuple of arrays indexed by a variable", P)(lambda p: ROWS[int(p[0] > 0)] * 2)


# -- items whose number the kernel alone knows ------------------------------------------------------------------------


WHOLE = np.arange(12, dtype="int32").reshape(3, 4)
DOUBLES = rows(4, 6, "float64")

case("mean of what a mask selects", P, tolerance=16)(lambda p: p[p > 0].mean())
case("sum, product of what a mask selects", P, tolerance=16)(
    lambda p: (p[p > 0].sum(), np.prod(p[p < 0]), sum(p[p > -9])))
case("extremes of what a mask selects", P)(lambda p: (p[p > -9].max(), np.min(p[p > -9]), max(p[p > -9])))
case("number of what a mask selects", P)(lambda p: (len(p[p > 0]), p[p > 0].size, np.any(p[p > 0] > 1)))
case("spread of what a mask selects", DOUBLES, tolerance=64)(lambda p: (p[p > -9].var(ddof=1), np.std(p[p > -9])))
case("arithmetic of what a mask selects", P, tolerance=16)(lambda p: ((p[p > 0] - 1) ** 2).sum())
case("integers that a mask selects", WHOLE)(lambda p: (p[p > 2 - p].max(), p[p > 0].mean(), p[p % 2 == 0].sum()))
case("what a mask selects of two axes", BLOCKS, tolerance=64)(lambda m: (m[m > 0].sum(), m[m > 0].mean()))
case("a slice to an end from the data", P, tolerance=16)(lambda p: p[:int(abs(p[0]) * 3)].sum())
case("a slice from the end, by the data", P)(lambda p: p[-int(abs(p[0]) + 1):].max())


@case("a window that moves by the data", P, tolerance=16)
def _moved(p):
    first = int(p[0] > 0) + 4
    window = p[first:first + 3]
    return window.sum() / len(window)


# -- what lies in a dict around the function --------------------------------------------------------------------------

SETTINGS = {"rate": 0.5, "weights": np.float32([1, 2, 3]), 7: (2.0, 1), "deep": {"shift": 3}, "act": lambda v: v * v}


case("items of a dict", P, tolerance=16)(
    lambda p: (p * SETTINGS["rate"], p[:3] @ SETTINGS["weights"], p[0] * SETTINGS[7][0],
               p[1] + SETTINGS["deep"]["shift"], SETTINGS["act"](p[2])))


TEXT = np.frombuffer(b"helloworld", "u1").reshape(2, 5)

case("characters", TEXT)(
    lambda p: ((p == ord("l")).sum(), np.where((p >= ord("a")) & (p <= ord(b"z")), p - 32, p), ord("x")))


# -- lists from helpers, lists of unlike items, named tuples ----------------------------------------------------------


MeanAndVar = namedtuple("MeanAndVar", "mean var")
MOMENTS = [MeanAndVar(0.5, 2.0), MeanAndVar(1.5, 3.0)]
STUMPS = [(0, 0.5, 1), (1, -0.3, -1), (3, 0.1, 1)]
LAYERS = [np.arange(18.0).reshape(3, 6) / 10, np.arange(6.0).reshape(2, 3)]


class Spot(NamedTuple):
    """A named tuple with a default, and with a field that arrays have as a property."""

    x: float
    size: int = 3


def _shares(p):
    weights = [p[0] ** 2, p[1] ** 2, 1.0]
    whole = sum(weights)
    return whole, [each / whole for each in weights]


def _either(p):
    if p[0] > 0:
        return [p[0], 1], p[1]
    return [p[1], p[2]], p[0]


@case("a list in a tuple that a helper returns", DOUBLES, tolerance=4)
def _of_shares(p):
    whole, parts = _shares(p)
    return math.log(whole), parts[0] * p[2], max(parts), len(parts)


@case("lists that a helper returns on several ways", P, promoted=True)
def _of_either(p):
    row, rest = _either(p)
    return row[0] * 2 + row[1] + rest


@case("several names for a list of themselves", P)
def _shifted(p):
    a, b = p[0], p[1]
    for _ in range(3):
        a, b = [b, a + b]
    return a, b


@case("a list that each turn of a loop makes anew", P)
def _pairs_of_turns(p):
    last = [p[0], p[1]]
    for _ in range(5):
        last = [last[1], last[0] + last[1]]
    return last[0]


case("a list of tuples with items of several types", DOUBLES)(
    lambda p: sum(sign * (1 if p[place] > least else -1) for place, least, sign in STUMPS))
case("a list of tuples indexed by a variable", DOUBLES)(
    lambda p: STUMPS[int(p[0] > 0)][0] + 10 * STUMPS[int(p[1] > 0) - 1][1])


@case("a list of arrays of several shapes", DOUBLES, tolerance=4)
def _layers(p):
    for weights in LAYERS:
        p = 1 / (1 + np.exp(-weights.dot(p)))
    return p


case("fields of named tuples", DOUBLES, tolerance=4)(
    lambda p: (p[0] - MOMENTS[0].mean) ** 2 / MOMENTS[0].var + sum(each.var for each in MOMENTS))
case("fields of a named tuple chosen by a variable", DOUBLES)(lambda p: MOMENTS[int(p[0] > 0)].var * MOMENTS[-1][0])


@case("named tuples that the function makes", DOUBLES)
def _spots(p):
    spot = Spot(p[0], 2) if p[1] > 0 else Spot(size=5, x=p[2])
    x, size = Spot(p[3])
    return spot.x * spot.size + spot[1], x * size, len(spot)
