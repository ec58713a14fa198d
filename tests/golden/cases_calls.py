"""Arguments by place and by name: keys, starts, defaults, orders and axes."""

# What a linter would change is what is tried here.
# ruff: noqa: C416
from __future__ import annotations

import math

import numpy as np

from tests.golden.case import case, floats, rows

ROW = rows(5, 6)
MATRIX = np.random.default_rng(8).standard_normal((3, 4, 5)).astype(np.float32)


@case("min, max with key over a range", ROW, golden="key")
def _least(p):
    return min(range(len(p)), key=lambda i: p[i]), max(range(1, len(p)), key=lambda i: -p[i] * p[i])


@case("min, max with key over a row", ROW)
def _by_size(p):
    return min(p, key=abs), max(p, key=abs), max(p[1:], key=lambda v: v * v), min(p, key=None)


@case("min, max with key over generators and lists", ROW)
def _of_each(p):
    return (min((v * 2 for v in p), key=lambda v: abs(v - 1)), max([v + 1 for v in p], key=abs),
            max((i for i in range(4)), key=lambda i: p[i]))


@case("min, max with key over a tuple and over arguments", ROW)
def _of_several(p):
    return min((p[0], p[1], p[2]), key=abs), max(p[0], p[1], p[3], key=lambda v: -v)


@case("the first of equal keys", np.float32([[3, -3, 3], [-2, 2, 1], [math.nan, 1, 2], [1, math.nan, 0]]))
def _first(p):
    return (min(range(len(p)), key=lambda i: abs(p[i])), max(range(len(p)), key=lambda i: abs(p[i])),
            min(p, key=abs), max(range(3), key=lambda i: i // 2))


@case("a key's centre", ROW, np.float32([[0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 1], [-1, 0, 1, 0, -1, 0]]))
def _centre(p, c):
    return min(range(len(c)), key=lambda i: np.sum((p - c[i]) ** 2))


@case("min, max with default", ROW)
def _default(p):
    return (min((), default=2), max(p[:0], default=p[0]), min(p, default=1), max((v for v in p[:0]), default=7),
            min((v * 2 for v in p), default=0), max(p, key=abs, default=3))


@case("sum with start", ROW, tolerance=8)
def _start(p):
    return (sum((v for v in p), start=10), sum([v for v in p], p[0]), sum(range(3), start=2), sum(p, start=0.5),
            sum((v for v in p[:0]), start=4), sum((p[0], p[1]), start=1), sum((v for v in p if v > 0), 1))


@case("sum of rows with start", ROW)
def _start_rows(p):
    return sum((w * p for w in (0.5, 2)), start=p), sum((v for v in (1, 2)), start=p[::-1])


@case("np.linalg.norm of each order", ROW, tolerance=32)
def _norms(p):
    return (np.linalg.norm(p, 1), np.linalg.norm(p, 2), np.linalg.norm(p, ord=np.inf), np.linalg.norm(p, -np.inf),
            np.linalg.norm(p, 0), np.linalg.norm(p, -1), np.linalg.norm(p, ord=3), np.linalg.norm(p, None, 0),
            np.linalg.norm(p, 2.5, axis=-1), np.linalg.norm([p[0], p[1]]))


@case("np.linalg.norm of a matrix", MATRIX, tolerance=32)
def _matrix_norms(b):
    return (np.linalg.norm(b), np.linalg.norm(b, "fro"), np.linalg.norm(b, 1), np.linalg.norm(b, np.inf),
            np.linalg.norm(b, -1), np.linalg.norm(b, ord=-np.inf), np.linalg.norm(b, 1, 0), np.linalg.norm(b, 2, 1),
            np.linalg.norm(b, axis=0), np.linalg.norm(b, np.inf, axis=1))


@case("axes by their place", MATRIX, tolerance=8)
def _places(b):
    return (np.sum(b, 1), np.mean(b, 0), np.argmin(b, 1), np.std(b, 0, ddof=1), np.any(b > 0, 1), np.ptp(b, 1),
            np.count_nonzero(b > 0, 0), np.sum(b, 0, np.float64), b.sum(1), b.max(0), np.nansum(b, 1))


@case("reductions of lists", ROW, tolerance=8)
def _lists(p):
    return np.argmin([p[0], p[1], p[2]]), np.sum([p[0], 1]), np.max((p[0], p[1])), np.mean([[p[0], p[1]], [2, 3]], 0)


@case("np.clip, its limits by name", ROW)
def _clipped(p):
    return np.clip(p, a_min=0, a_max=1), np.clip(p, min=-1), p.clip(max=0.5), p.clip(0, 1), np.clip(p, None, 1)


@case("np.cumsum along the axis of a row", ROW)
def _running(p):
    return np.cumsum(p, 0), p.cumsum(axis=-1), np.cumprod(p, axis=0, dtype=np.float64), np.cumsum(p, None)


@case("np.eye of two lengths", ROW)
def _eye(p):
    return np.eye(3, 4) * p[0], np.eye(2, k=1), np.eye(3, k=-1, dtype=np.int32)


@case("np.append of two axes", MATRIX)
def _appended(b):
    return np.append(b, b[0])


@case("arguments by name", floats("float64")[:12])
def _named(x):
    return (round(number=x, ndigits=1), np.full(shape=2, fill_value=x), complex(real=1.0, imag=2.0),
            np.where(x > 0, x, 0), math.prod((2.0, 3.0), start=4.0))


@case("Python's round of its floats", np.float64([0.125, 0.375, 2.675, -2.675, 1.005, 0.285, 1e15, 4503599627370497.5,
                                                  -0.001, math.inf, math.nan, 9007199254740991.0, 5e-324, 1e22]))
def _decimal(x):
    y = float(x)
    return round(y, 2), round(y, 0), round(y * 1e-5, 3), round(y / 3, 15), round(y, 22)
