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
        return (dx * (y[..., 1:] + y[..., :-1]) / 2.0).sum(-1)
    return (np.diff(x) * (y[..., 1:] + y[..., :-1]) / 2.0).sum(-1)


def select(condlist, choicelist, default=0):
    found = default
    for test, choice in zip(condlist[::-1], choicelist[::-1]):
        found = np.where(test, choice, found)
    return found


def tril(m, k=0):
    return np.where(np.arange(m.shape[-1]) - np.arange(m.shape[-2 if m.ndim > 1 else 0])[:, None] <= k, m,
                    np.zeros_like(m))


def triu(m, k=0):
    return np.where(np.arange(m.shape[-1]) - np.arange(m.shape[-2 if m.ndim > 1 else 0])[:, None] >= k, m,
                    np.zeros_like(m))


def diag(v):
    return np.einsum("ii->i", v) if v.ndim == 2 else np.where(np.arange(len(v))[:, None] == np.arange(len(v)), v,
                                                                np.zeros_like(v))


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
    trapezoid, select, tril, triu, diag)}
_WRITTEN = {getattr(np, name): one for name, one in NUMPY.items() if hasattr(np, name)} | {
    getattr(math, name): one for name, one in MATH.items()} | {functools.reduce: reduce}


def names() -> list[str]:
    """Return the names of the functions that are written here, with their modules."""
    return [*(f"numpy.{name}" for name in NUMPY if hasattr(np, name)), *(f"math.{name}" for name in MATH),
            f"functools.{reduce.__name__}"]


def written(value: object, _: object = None) -> Callable[..., Any] | None:
    """Return the function of the language that implements a function of NumPy or Python, or None."""
    try:
        return _WRITTEN.get(value)
    except TypeError:
        return None
