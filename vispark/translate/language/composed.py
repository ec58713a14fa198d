"""Functions of NumPy and Python that are written in the language itself: the translator reads these in their place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

# These are read by the translator, so they are written the way that it needs.
# ruff: noqa: B905


def trapezoid(y, x=None, dx=1.0):
    if x is None:
        return (dx * (y[1:] + y[:-1]) / 2.0).sum()
    return (np.diff(x) * (y[1:] + y[:-1]) / 2.0).sum()


def gradient(f):
    return np.concatenate(((f[1:2] - f[:1]) / 1.0, (f[2:] - f[:-2]) / 2.0, (f[-1:] - f[-2:-1]) / 1.0))


def select(condlist, choicelist, default=0):
    found = default
    for test, choice in zip(condlist[::-1], choicelist[::-1]):
        found = np.where(test, choice, found)
    return found


def quantile(a, q):
    order, wide = np.sort(a.ravel()), (a * 1.0).dtype
    place = np.full(1, q, wide)[0] * (len(order) - 1)
    low = int(np.floor(place))
    part = place - low
    below, above = order[low], order[min(low + 1, len(order) - 1)]
    between = above - (above - below) * (1 - part) if part >= 0.5 else below + (above - below) * part
    return order[-1] * 1.0 if np.isnan(order[-1]) else between


def percentile(a, q):
    wide = (a * 1.0).dtype
    return quantile(a, np.full(1, q, wide)[0] / np.full(1, 100, wide)[0])


def tril(m, k=0):
    return np.where(np.arange(m.shape[1])[None, :] - np.arange(m.shape[0])[:, None] <= k, m, 0)


def triu(m, k=0):
    return np.where(np.arange(m.shape[1])[None, :] - np.arange(m.shape[0])[:, None] >= k, m, 0)


def diag(v):
    return np.einsum("ii->i", v) if v.ndim == 2 else np.where(np.arange(len(v))[:, None] == np.arange(len(v)), v, 0)


def reduce(function, sequence, initial=None):
    found, rest = (sequence[0], sequence[1:]) if initial is None else (initial, sequence)
    for item in rest:
        found = function(found, item)
    return found


def gcd(*integers):
    found = 0
    for one in integers:
        rest = abs(int(one))
        while rest != 0:
            found, rest = rest, found % rest
    return found


def lcm(*integers):
    found = 1
    for one in integers:
        found = found // gcd(found, one) * abs(int(one)) if found != 0 else 0
    return found


def isqrt(n):
    n = int(n)
    root = min(int(math.sqrt(n)), 3037000499)
    while root * root > n:
        root -= 1
    while root < 3037000499 and (root + 1) * (root + 1) <= n:
        root += 1
    return root


def factorial(n):
    found = 1
    for i in range(2, int(n) + 1):
        found *= i
    return found


def comb(n, k):
    n, k = int(n), int(k)
    found = 1 if k <= n else 0
    for i in range(1, min(k, n - k) + 1):
        found = found * (n - i + 1) // i
    return found


#: By their names in math.
MATH: dict[str, Callable[..., Any]] = {one.__name__: one for one in (gcd, lcm, isqrt, factorial, comb)}
#: By their names in NumPy, of which an older one lacks some.
NUMPY: dict[str, Callable[..., Any]] = {one.__name__: one for one in (
    trapezoid, gradient, select, quantile, percentile, tril, triu, diag)}
_WRITTEN = {getattr(np, name): one for name, one in NUMPY.items() if hasattr(np, name)} | {
    getattr(math, name): one for name, one in MATH.items()} | {functools.reduce: reduce}


def written(value: object, _: object = None) -> Callable[..., Any] | None:
    """What stands for a function of NumPy or Python, or None."""
    try:
        return _WRITTEN.get(value)
    except TypeError:
        return None
