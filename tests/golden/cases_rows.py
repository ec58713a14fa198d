"""Cases: rows and arrays. Slices, row expressions, products, reductions, arrays of one's own."""

# The forms that a linter would change are what is tried here.
# ruff: noqa: B905, SIM108
from __future__ import annotations

import math

import numpy as np
from numpy import argmin, dot, exp
from numpy.linalg import norm

from tests.golden.case import case, rows

P = rows(6, 5)
WIDE = rows(3, 40)
INTS = rows(6, 5, "int32")
BYTES = rows(6, 5, "int8")
DOUBLES = rows(4, 7, "float64")
COMPLEX = rows(4, 3, "complex64")
BLOCKS = np.random.default_rng(3).normal(size=(5, 3, 4)).astype("float32")
W = rows(1, 5, seed=7)[0]
CENTRES = rows(4, 5, seed=8)
MATRIX = rows(3, 5, seed=9)
# Quarters, whose products have the same sum in every order.
TALL, ACROSS = np.round(rows(9, 12) * 4) / 4, np.round(rows(12, 10, seed=5) * 4) / 4
AGAIN = np.round(rows(10, 9, seed=6) * 4) / 4
SPECIAL = np.float32([[1, np.nan, -1], [np.inf, 2, -np.inf], [0, -0.0, 3], [np.nan, np.nan, 1], [5, 5, 5]])

# -- items and slices -------------------------------------------------------------------------------------------------

case("items of a row", P)(lambda p: p[0] + p[4] * p[-1])
case("an item by a loop's variable", P)(lambda p: sum(p[i] * i for i in range(5)))
case("an item by a computed index", INTS, golden="checked_index")(lambda p: p[abs(p[0]) % 5])
case("negative computed index", INTS)(lambda p: p[-1 - abs(p[1]) % 5])
case("a slice as a result", P, golden="slice")(lambda p: p[1:])
case("slices with steps", P)(lambda p: (p[::2], p[::-1], p[1:-1], p[-2:], p[3:1]))
case("slices of slices", P)(lambda p: p[1:][1:3][0])
case("a few numbers of each long row", rows(5, 34, "float64").reshape(5, 2, 17))(lambda b: b[:, 0])
case("an empty slice", P)(lambda p: p[3:1])
case("None as an index", P)(lambda p: p[None, :] + p[:, None])
case("... as an index", BLOCKS)(lambda b: b[..., 0])
case("unpacking a row", rows(5, 3))(lambda p: p[0] * p[1] - p[2])
case("len, .shape, .size, .ndim", P)(lambda p: (len(p), p.shape[0], p.size, p.ndim))
case("a row of one", rows(4, 1))(lambda p: p * 2 + p[0])
case("rows of bool", rows(4, 5) > 0)(lambda p: (p[0], ~p, np.sum(p), np.any(p)))
case("rows of int8", BYTES)(lambda p: p[1:] * 2)
case("rows of uint16", rows(4, 6, "uint16"))(lambda p: p // 2 + p[0])
case("rows of float16", rows(4, 6, "float16"), tolerance=2)(lambda p: p * 2 + p[0])
case("rows of complex", COMPLEX, tolerance=4)(lambda p: (p * p[0], np.conj(p), p.real, np.abs(p)))
case("two axes", BLOCKS, golden="two_axes")(lambda b: b[0] + b[1, 2] * b[-1])
case("two axes, columns", BLOCKS)(lambda b: b[:, 1])
case("two axes, transposed", BLOCKS)(lambda b: b.T[1])


@case("a row unpacked into names", rows(5, 3))
def _unpacked(p):
    x, y, z = p
    return x * y - z


# -- row expressions --------------------------------------------------------------------------------------------------

case("a number times a row", P, golden="row_expression")(lambda p: p[0] * p[1:])
case("rows with rows", P)(lambda p: p[1:] * p[:-1] + 1)
case("rows with Python numbers", P)(lambda p: (p * 0.1, 2 - p, p / 3))
case("rows of ints with Python numbers", INTS)(lambda p: (p * 2, p / 3, p // 3, p % 4, p ** 2))
case("a row times an argument", P, W)(lambda p, w: p * w)
case("mixed types of rows", P, np.arange(5))(lambda p, w: p * w)
case("broadcasting along an axis of one", BLOCKS)(lambda b: b * b[:, :1] + b[1:2])
case("comparisons of rows", P)(lambda p: (p > 0, p == p[0]))
case("np.where of rows", P)(lambda p: np.where(p > 0, p, 0))
case("ufuncs of rows", P, tolerance=4)(lambda p: np.exp(p) + np.sqrt(np.abs(p)))
case("-row, abs(row)", P)(lambda p: -p + abs(p))
case("np.maximum of a row and a number", P)(lambda p: np.maximum(p, 0))
case("np.clip of a row", P)(lambda p: (np.clip(p, -0.5, 0.5), p.clip(0, 1)))
case("round of a row", P)(lambda p: np.rint(p))
case("astype", P)(lambda p: (p.astype(np.float64) * 0.1, (p * 10).astype(int)))
case("broadcasting", P, CENTRES, golden="broadcast")(lambda p, c: c - p)
case("an outer product", P, tolerance=1)(lambda p: np.outer(p, p[:2]))


@case("a row expression used twice", P, tolerance=8)
def _softmax(p):
    e = np.exp(p - np.max(p))
    return e / np.sum(e)


@case("a row kept in a name", P)
def _kept(p):
    d = p[1:] - p[:-1]
    return d * d


@case("a row chosen by a branch", P, golden="row_branch")
def _branch(p):
    if p[0] > 0:
        d = p[1:]
    else:
        d = p[:-1] * 2
    return d + 1


@case("a row changed by a loop", P, tolerance=4)
def _powers(p):
    x = p
    for _ in range(3):
        x = x * 0.5 + 1
    return x


# -- reductions -------------------------------------------------------------------------------------------------------

case("dot", P, W, tolerance=16, golden="dot")(lambda p, w: dot(p, w))
case("dot of slices", P, W[:4], tolerance=16)(lambda p, w: np.dot(w, p[1:]))
case("@ of rows", P, W, tolerance=16)(lambda p, w: p @ w)
case(".dot", P, W, tolerance=16)(lambda p, w: p.dot(w))
case("np.inner, np.vdot", P, W, tolerance=16)(lambda p, w: (np.inner(p, w), np.vdot(p, w)))
case("dot of ints", INTS)(lambda p: dot(p, p))
case("dot of complex", COMPLEX, tolerance=16)(lambda p: (np.dot(p, p), np.vdot(p, p)))
# BLAS adds in an order that depends on the processor, and terms of 8 may leave a sum of 0.01.
case("a matrix times a row", P, MATRIX, tolerance=512, golden="matrix_vector")(lambda p, m: m @ p)
case("two layers", TALL, ACROSS, AGAIN, golden="two_layers")(lambda p, m, n: np.maximum(p @ m, 0) @ n)
case("a row times a larger matrix", TALL, ACROSS, golden="row_times_matrix")(lambda p, m: p @ m)
case("a larger matrix times part of a row", TALL, ACROSS)(lambda p, m: (m[1:] @ p[:10], p[0]))
case("a row times a matrix", P, MATRIX.T.copy(), tolerance=512)(lambda p, m: p @ m)
case("a matrix times a matrix", BLOCKS, tolerance=16)(lambda b: b @ b.T)
case("np.sum", P, tolerance=16, golden="sum")(lambda p: np.sum(p))
case("np.sum of ints", BYTES)(lambda p: np.sum(p))
case("np.sum of uint8", rows(4, 6, "uint8"))(lambda p: np.sum(p))
case("np.sum of many", rows(3, 784), tolerance=64)(lambda p: np.sum(p))
case("sum", P, tolerance=4)(lambda p: sum(p))
case("sum with a start", P, tolerance=4)(lambda p: sum(p[1:], p[0]))
case("sum of int8 wraps", BYTES * 20)(lambda p: sum(p))
case("sum of a generator", P, W, tolerance=16, golden="generator")(
    lambda p, w: sum(p[i] * w[i] for i in range(len(p))))
case("sum of a generator with if", P, tolerance=16)(lambda p: sum(v for v in p if v > 0))
case("sum of a generator over zip", P, W, tolerance=16)(lambda p, w: sum((a - b) ** 2 for a, b in zip(p, w)))
case("min, max of a row", P)(lambda p: (min(p), max(p)))
case("min, max of a generator", P)(lambda p: (min(v * v for v in p), max(abs(v) for v in p)))
case("any, all", P)(lambda p: (any(v > 1 for v in p), all(v > -1 for v in p)))
case("np.min, np.max", SPECIAL)(lambda p: (np.min(p), np.max(p), p.min(), p.max()))
case("np.argmin, np.argmax", SPECIAL, golden="argmin")(lambda p: (np.argmin(p), np.argmax(p), argmin(p), p.argmax()))
case("np.any, np.all", SPECIAL)(lambda p: (np.any(p > 2), np.all(p > -2), p.any()))
case("np.mean", P, tolerance=16)(lambda p: (np.mean(p), p.mean()))
case("np.mean of ints", INTS, tolerance=4)(lambda p: np.mean(p))
case("np.var, np.std", DOUBLES, tolerance=64)(lambda p: (np.var(p), np.std(p)))
case("np.prod", P, tolerance=16)(lambda p: np.prod(p))
case("norm", P, tolerance=16)(lambda p: norm(p))
case("np.sum along an axis", BLOCKS, tolerance=16, golden="axis")(lambda b: (np.sum(b, axis=0), b.sum(axis=1)))


@case("np.argmin of sizes, the first known to be zero", SPECIAL)
def _first_known(p):
    o = np.zeros(4, np.float32)
    o[1:] = p
    return np.abs(o).argmin(), np.argmax(-np.abs(o))


case("np.argmin along an axis", BLOCKS)(lambda b: np.argmin(b, axis=-1))
case("reductions of two axes", BLOCKS, tolerance=32)(lambda b: (np.sum(b), b.max(), np.argmax(b)))
case("nearest centre by broadcasting", P, CENTRES)(lambda p, c: np.argmin(np.sum((c - p) ** 2, axis=1)))
case("nearest centre by norm", P, CENTRES)(lambda p, c: np.argmin(norm(c - p, axis=1)))


@case("nearest centre by loops", P, CENTRES, golden="nearest_loops")
def _nearest(p, centres):
    best, where = np.inf, 0
    for k in range(len(centres)):
        d = 0.0
        for j in range(len(p)):
            t = p[j] - centres[k, j]
            d += t * t
        if d < best:
            best, where = d, k
    return where


@case("nearest centre by a generator of rows", P, CENTRES)
def _nearest_rows(p, centres):
    best, where = np.inf, 0
    for k, c in enumerate(centres):
        d = np.sum((p - c) ** 2)
        if d < best:
            best, where = d, k
    return where


@case("logistic regression's gradient", WIDE, rows(1, 39, seed=5)[0] * 0.1, tolerance=256, golden="gradient")
def _gradient(p, w):
    y, x = p[0], p[1:]
    return (1 / (1 + exp(-y * dot(w, x))) - 1) * y * x


# -- loops over rows --------------------------------------------------------------------------------------------------


@case("for over a row", P, tolerance=4)
def _over(p):
    s = 0.0
    for v in p:
        s += v * v
    return s


@case("for over enumerate", P, tolerance=4)
def _enumerated(p):
    s = 0.0
    for i, v in enumerate(p):
        s += i * v
    return s


@case("for over zip", P, W, tolerance=8, golden="zip")
def _zipped(p, w):
    s = 0.0
    for a, b in zip(p, w):
        s += a * b
    return s


@case("for over a row's length", P, tolerance=4)
def _by_length(p):
    s = 0.0
    for i in range(len(p) - 1):
        s += p[i + 1] - p[i]
    return s


@case("for over range(p.shape[0])", P, tolerance=4)
def _by_shape(p):
    s = 0.0
    for i in range(p.shape[0]):
        s += p[-i]
    return s


# -- arrays of one's own ----------------------------------------------------------------------------------------------


@case("np.zeros and items assigned", P, golden="local_array")
def _cumulated(p):
    out = np.zeros(5, np.float32)
    s = np.float32(0)
    for i in range(5):
        s = s + p[i]
        out[i] = s
    return out


@case("np.zeros is float64", P)
def _counted(p):
    out = np.zeros(3)
    out[1] = p[0]
    out[-1] += 2
    return out


@case("np.array of numbers", P)
def _made(p):
    return np.array([p[0], 2 * p[1], 1.0]), np.array([1, 2])


@case("np.array of rows", P)
def _stacked(p):
    return np.array([p[:2], p[1:3]])


@case("np.ones, np.full, np.arange", P)
def _filled(p):
    return p[0] * np.ones(2, np.float32), np.full(2, p[1]), np.arange(3), np.arange(1, 7, 2) * p[0]


@case("np.zeros_like", P)
def _like(p):
    out = np.zeros_like(p)
    out[0] = p[1]
    return out


@case("slices assigned", P)
def _assigned(p):
    out = np.zeros(5, np.float32)
    out[1:] = p[:-1]
    out[:2] = 7
    return out


@case("an overlapping slice assigned", P)
def _shifted(p):
    out = p.copy()
    out[1:] = out[:-1]
    return out


@case("items swapped", P)
def _swapped(p):
    out = p.copy()
    out[0], out[-1] = out[-1], out[0]
    return out


@case("a row added in place", P)
def _in_place(p):
    acc = np.zeros(5, np.float32)
    for i in range(3):
        acc += p * i
    return acc


@case("an array in place keeps its type", P)
def _keeps(p):
    acc = p.copy()
    acc *= np.float64(0.1)
    return acc


@case("two axes of one's own", P)
def _table(p):
    table = np.zeros((2, 3), np.float32)
    for i in range(2):
        for j in range(3):
            table[i, j] = p[i] * p[j]
    table[1] += 1
    return table


@case("bubble sort", P, golden="sort")
def _sorted(p):
    a = p.copy()
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a


@case("an array filled by a branch", P)
def _conditional_fill(p):
    out = np.zeros(5, np.float32)
    for i in range(5):
        if p[i] > 0:
            out[i] = p[i]
    return out


def _normalised(row):
    return row / np.sqrt(np.sum(row * row))


@case("rows as arguments of functions", P, tolerance=16)
def _calls(p):
    return _normalised(p[1:]) + _normalised(p[:-1])


@case("a histogram", INTS)
def _histogram(p):
    counts = np.zeros(10, np.int64)
    for i in range(len(p)):
        counts[abs(p[i]) % 10] += 1
    return counts


case("several row fields", {"x": rows(5, 3), "v": rows(5, 3, seed=2)}, 0.5, tolerance=2)(
    lambda x, v, dt: {"x": x + v * dt, "v": v - x * dt})


def _made_elsewhere(p):
    a = p * 2
    return a


@case("an array that a function made, written to", P)
def _written(p):
    a = _made_elsewhere(p)
    a[0] = 7
    return a


@case("an array under two names", P)
def _two_names(p):
    a = p * 2
    b = a
    return a + b


# -- lengths that given ints decide -----------------------------------------------------------------------------------

SHORT = 3


@case("a moving mean by slices", P, 3, tolerance=4, golden="moving_mean")
def _moving_slices(p, w):
    out = np.empty(len(p) - w + 1, p.dtype)
    for i in range(len(out)):
        out[i] = p[i:i + w].mean()
    return out


case("a moving mean by a comprehension", P, 3, tolerance=4)(
    lambda p, w: np.array([p[i:i + w].mean() for i in range(len(p) - w + 1)]))


@case("a moving mean by running sums", P, 3, tolerance=8)
def _moving_sums(p, w):
    c = np.cumsum(np.concatenate((np.zeros(1), p)))
    return (c[w:] - c[:-w]) / w


case("shapes computed from ints", P, 4)(
    lambda p, w=4: (np.zeros(w + 1) + p[0], np.ones(2 * w), np.zeros(len(p) - SHORT) + p[0], np.full(len(p) // w, p[1]),
                    np.zeros(max(w - 9, 1)), np.zeros(-(-len(p) // w)), np.zeros(abs(-w)), np.zeros(math.ceil(w / 3)),
                    np.zeros(int(w * 0.5)), np.zeros(w % 3 + divmod(w, 3)[0])))


@case("slices' ends computed from ints", P, 2)
def _halves(p, w):
    h, n = w // 2, len(p)
    if w > 1:
        n = n - w
    return p[h:-h], p[w // 2:], p[:n], p[:len(p) - SHORT], p[: -w if w else None], p[:3] if w > 2 else p[:1]


@case("slices around an item, and one behind the other", P, 2, tolerance=4)
def _blocks(p, w):
    around, blocks = p.copy(), np.zeros(len(p) // w)
    for i in range(w // 2, len(p) - w // 2):
        around[i] = p[i - w // 2:i + w // 2 + 1].max()
    for i in range(len(p) // w):
        blocks[i] = p[i * w:(i + 1) * w].sum()
    return around, blocks, np.arange(w * 2, w * 3), p[:len(p) // w * w].reshape(len(p) // w, w).sum(axis=1)


@case("slices in loops whose ends ints decide", P, 1, 2, tolerance=4)
def _bounded(p, w, least):
    sums, back = np.zeros(len(p)), np.zeros(len(p))
    for i in range(w, len(p) - w):
        sums[i] = p[i - 1:i + 2].sum()
    for i in range(len(p) - w - 2):
        back[i] = p[len(p) - i - 3:len(p) - i].min() + p[i:i + max(w, least)].max()
    return sums, back, p[min(w, least):min(w, least) + 9], sum(p[i:i + 3].sum() for i in range(w, len(p) - 2 * w))


@case("rows of a length that an int decides on each way", P, 2)
def _on_each_way(p, w):
    if w > 2:
        return p[:1]
    return p[:2] if p[0] > 0 else p[1:3]
