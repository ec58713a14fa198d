"""Cases: tuples and lists gone over, comprehensions, and arrays that are made of others."""

# The forms that a linter would change are what is tried here.
# ruff: noqa: B905, C419
from __future__ import annotations

import functools
import math

import numpy as np

from tests.golden.case import C64, F32, F64, I32, case, pairs, rows

P = rows(5, 5)
WIDE = rows(3, 30)
BYTES = rows(4, 5, "int8")
THREE = rows(4, 3)
DOUBLES = rows(4, 5, "float64")
BLOCKS = np.random.default_rng(3).normal(size=(5, 3, 4)).astype("float32")
X = np.float32([1.245, 2.5, -1.555, 0.0, np.nan])


def _length(x, y, z=0):
    return x * x + y * y + z


def _signed(x):
    if x > 0:
        return x
    return x * 0 - x


# -- for over tuples and lists ----------------------------------------------------------------------------------------


@case("for over a tuple", X, golden="for_tuple")
def _weights(x):
    s = 0.0
    for w in (0.5, 2, x):
        s = s + w * x
    return s


@case("for over a tuple, with break", X)
def _first_above(x):
    for k in (1, 2, 3):
        if x < k:
            break
    return k


@case("for over a tuple, with continue", P)
def _some(p):
    s = np.float32(0)
    for i, w in enumerate((0.5, 0.25, 3.0)):
        if i == 1:
            continue
        s += w * p[i]
    return s


@case("for over a tuple, with else", X)
def _found(x):
    for k in (1, 2, 3):
        if x == k:
            break
    else:
        k = 7
    return k


@case("for over a tuple of rows", P)
def _spread(p):
    out = np.zeros(5, np.float32)
    for row, w in ((p[1:], 0.5), (p[:-1], 2)):
        out[:4] = out[:4] + row * w
    return out


@case("for over a tuple of functions", X)
def _each_function(x):
    s = 0.0
    for f in (abs, np.sqrt, _signed):
        s = s + f(x)
    return s


@case("for over a list", P)
def _listed(p):
    s = 0.0
    for v in [p[0], 2 * p[1], 0.5]:
        s += v
    return s


@case("for over a tuple, with return", X)
def _returned(x):
    for k in (1, 2):
        if x < k:
            return x * k
    return x


@case("zip of a tuple and a row", P)
def _zipped(p):
    s = 0.0
    for w, v in zip((1, 2, 4), p):
        s = s + w * v
    return s


@case("enumerate from a start", P)
def _numbered(p):
    s = 0.0
    for i, v in enumerate(p, 1):
        s = s + i * v
    for i, v in enumerate(p, start=2):
        s = s - i * v
    return s


@case("reversed", P, golden="reversed")
def _backwards(p):
    s = 0.0
    for v in reversed(p):
        s = s * 0.5 + v
    for i in reversed(range(3)):
        s = s * 2 + i
    return s


@case("range of a start and a step", DOUBLES)
def _stepped(p):
    s = 0.0
    for i in range(4, 0, -2):
        s += p[i] * i
    return s


# -- comprehensions ---------------------------------------------------------------------------------------------------

case("np.array of a list comprehension", P, golden="list_comprehension")(lambda p: np.array([v * v for v in p]))
case("np.array of a long list comprehension", WIDE)(lambda p: np.array([v * i for i, v in enumerate(p)]))
case("np.array of nested list comprehensions", P)(lambda p: np.array([[a * b for b in p] for a in p]))
case("np.array of long nested list comprehensions", WIDE)(lambda p: np.array([[a - b for b in p[:3]] for a in p]))
case("np.array of a list comprehension of calls", P)(lambda p: np.array([_signed(v) for v in p], np.float64))
case("np.array of a list comprehension of sums", P)(
    lambda p: np.array([sum(p[j] * i for j in range(i)) for i in range(3)]))
case("sum, min, max of a list comprehension", P)(
    lambda p: (sum([v for v in p if v > 0]), min([abs(v) for v in p]), max([v * 2 for v in p])))
case("any, all of a list comprehension", P)(lambda p: (any([v > 1 for v in p]), all([v > -9 for v in p])))
case("a generator over two iterables", P, golden="nested_generator")(
    lambda p: sum(a * b for a in p for b in p if a > 0))
case("a generator over iterables of each other", I32[:8])(lambda n: sum(i * j + n for i in range(4) for j in range(i)))
case("any, all over two iterables", P)(
    lambda p: (any(a + b > 3 for a in p for b in p), all(a + b < 3 for a in p for b in p)))
case("a generator over a tuple", DOUBLES)(
    lambda p: (sum(v * v for v in (p[0], p[1], 2.0)), any(v > 1 for v in (p[0], p[1])), max(v for v in (p[3], p[2]))))
case("a sum of rows", P)(lambda p: sum(w * q for w, q in zip((0.25, 0.5), (p, p[::-1]))))


@case("a list in a name", P)
def _kept(p):
    xs = [v * 2 for v in p]
    return xs[0] + xs[-1] + len(xs) + sum(xs) + max(xs)


@case("tuples added and repeated", P)
def _repeated(p):
    t = (0,) * 2 + (1, 3)
    return p[0] * t[2] + t[-1], t[1:]


@case("several targets and nested ones", P)
def _chained(p):
    a = b = c = p[0]
    a += 1
    (d, e), g = (b, c), a
    return a, b, c, d, e, g


@case("two targets of what one of them changes", I32[:9])
def _both(n):
    s, t = n, n
    for _ in range(3):
        s = t = s * 2 + t
    return s, t


# -- in, and * in calls -----------------------------------------------------------------------------------------------

case("in a tuple", X)(lambda x: (x in (1, 2.5), x not in (1, 2.5), x in (x, 3)))
case("in a row", P)(lambda p: (p[0] in p, 3 in p, 2 not in p))
case("in range", I32)(lambda n: (n in range(3), n not in range(-1, 8)))
case("* in a call", P)(lambda p: (_length(*p[:2]), _length(*(p[0], p[1]), z=3), max(*p[:3])))

# -- conditions of any types ------------------------------------------------------------------------------------------

case("and, or as conditions, of several types", pairs(F32[:9], I32[:6]))(
    lambda a, b: (1 if a and b > 0 else 2, not (a or b), 5 if b or a > 1 else 6))
case("if, while with and of several types", I32[:9], promoted=True)(lambda n: _counted(n))


def _counted(n):
    k = 5
    while n and k > 0:
        k -= 1
        if k == 2 or n:
            n = n // 2
    return k


case("Python's / of a loop's variable", F64[:9])(lambda x: sum(i / 4 for i in range(5)) + x)
case("products of a loop's variable beyond 32 bits", I32[:4])(
    lambda n: (sum(i * 60000 * 60000 for i in range(3)), sum((i - 3) * -70000 * 60000 for i in range(3)), n))
case("an int and a float on two ways", F32, promoted=True)(lambda x: (1 if x > 0 else 2.5) * 0.5)

# -- arrays made of others --------------------------------------------------------------------------------------------


@case("slices added to", P)
def _slices(p):
    out = p.copy()
    out[1:] += p[:-1]
    out[::2] *= 2
    out[:2] -= out[2:4]
    return out


case("np.cumsum", P, golden="cumsum")(lambda p: np.cumsum(p))
case("np.cumsum, np.cumprod of int8", BYTES)(lambda p: (np.cumsum(p), p.cumsum(), np.cumprod(p)))
case("np.diff", P)(lambda p: np.diff(p))
case("np.diff of two axes", BLOCKS)(lambda b: np.diff(b))
case("np.linspace", X)(lambda x: (np.linspace(0, 1, 5) * x, np.linspace(x, 2 * x, 4)))
case("np.linspace, its ends", DOUBLES)(lambda p: (np.linspace(0, p[0], 3)[-1], np.linspace(p[1], 1, 7)))
case("np.flip, np.roll", P)(lambda p: (np.flip(p), np.roll(p, 2), np.roll(p, -1)))
case("np.flip of two axes", BLOCKS)(lambda b: (np.flip(b), np.flip(b, 0), np.flip(b, axis=1)))
case("np.concatenate", P)(lambda p: np.concatenate((p, p[1:], p * 2)))
case("np.hstack, vstack, stack, append", P)(
    lambda p: (np.hstack((p[0], p[1:], 2.5)), np.vstack((p, p)), np.stack([p, p[::-1]]), np.append(p, p[0])))
case("reshape, ravel, flatten", BLOCKS)(
    lambda b: (b.reshape(2, 6), b.reshape((4, 3)), np.reshape(b, (-1,)), b.ravel(), b.flatten(), np.ravel(b)))
case("reshape in an expression", P)(lambda p: (p * 2).reshape(5, 1) + p)
case("np.eye, identity, full_like, empty_like", P)(
    lambda p: (np.eye(3) * p[0], np.identity(2), np.full_like(p, 7), np.empty_like(p).shape))
case("np.trace", BLOCKS, tolerance=4)(lambda b: np.trace(b @ b.T))
case("np.cross", THREE)(lambda p: np.cross(p, p[::-1]))
case("np.ptp, np.count_nonzero", BYTES)(lambda p: (np.ptp(p), np.count_nonzero(p)))
case("np.angle", C64, tolerance=4)(lambda z: (np.angle(z), np.abs(z), np.sqrt(z), np.exp(z), np.real(z), np.imag(z)))
case("np.angle of floats", F32)(lambda x: np.angle(x))
case("np.isclose, np.allclose", X)(lambda x: (np.isclose(x, 1.2450001), np.isclose(x, x), np.allclose(x, x)))
case("np.isclose of rows", P)(lambda p: (np.isclose(p, p * (1 + 1e-6)), np.allclose(p, p)))
case("round to digits", X)(lambda x: (round(x, 2), np.round(x, 1), np.around(x), x.round(2)))
case("round of rows to digits", P)(lambda p: (np.round(p, 2), p.round(1)))
case("round of float64 to digits", DOUBLES)(lambda p: (round(p[0], 1), round(2.675, 2) * p[1]))
case("np.round of ints", I32)(lambda n: (np.round(n), round(n, 2)))
case("np.polyval", DOUBLES)(lambda p: (np.polyval((1.0, 2.0, 3.0), p[0]), np.polyval(p, 2.0), np.polyval((1, 2), p)))
case("math.prod, dist, hypot", DOUBLES)(
    lambda p: (math.prod(p), math.dist(p[:3], p[2:]), math.hypot(p[0], p[1], p[2])))
case("math.isclose", DOUBLES)(
    lambda p: (math.isclose(p[0], p[1]), math.isclose(p[0], p[0] * 1.0000001, rel_tol=1e-6)))

# -- differences that generated functions found -----------------------------------------------------------------------

case("np.greater of integers with and without a sign", pairs(np.uint64([0, 6, 2**63]), np.int64([-2, 0, 6])))(
    lambda a, b: (np.greater(a, b), np.less_equal(a, b), np.not_equal(a, b)))
case("math.floor of large integers", np.uint64([2**62 + 1, 3]))(lambda x: (math.floor(x), math.ceil(x)))
case("a row times a Python number by dot", BYTES)(lambda p: (p.dot(2), np.dot(3, p)))
case("conj of bools", np.array([True, False]))(lambda x: (x.conjugate(), x.conj()))
case("np.vdot of bools", rows(4, 5) > 0)(lambda p: np.vdot(p, p))
case("a sum over nothing", rows(3, 0))(lambda p: (sum(v for v in p), any(v for v in p), all(v for v in p)))
case("powers of complex zero", np.complex64([0, 1 + 1j, -2]), tolerance=16)(lambda z: (z ** 2.5, z ** 3, z ** 0))
case("np.log of complex near one and far", np.complex128([1e-9 + 1j, 1e308 + 1e308j, 3 - 4j]), tolerance=2)(
    lambda z: np.log(z))
case("np.sqrt of large and small complex", np.complex128([1e308 + 1e308j, 1e-310j, -4 + 0j]), tolerance=4)(
    lambda z: np.sqrt(z))
case("np.exp of complex infinities", np.complex128([complex(-np.inf, np.inf), complex(2, 0), complex(-np.inf, 1)]))(
    lambda z: np.abs(np.exp(z)))
case("np.isnan of complex", np.complex64([1, complex(np.nan, 1), complex(0, np.inf)]))(
    lambda z: (np.isnan(z), np.isinf(z), np.isfinite(z)))
case("np.reciprocal of ints", np.int32([1, -1, 2, -3]))(lambda x: np.reciprocal(x))
case("sum of a long row of float16", rows(3, 30, "float16"), tolerance=16)(lambda p: sum(p))


@case("a row chosen by a conditional expression, and kept", P)
def _chosen_row(p):
    q = p if p[0] > 0 else p[::-1]
    return q + q[0], q


# -- names with a star, :=, methods, decorators ------------------------------------------------------------------------

class Line:
    """Something with methods that compute."""

    def __init__(self, slope, row):
        self.slope, self.row = slope, row

    def at(self, x, k=2):
        return self.slope * x + k

    def __call__(self, p):
        return np.dot(p, self.row) + self.at(p[0], k=1)


class Compiled:
    """Wrapper that keeps its function as Numba's dispatchers do."""

    def __init__(self, function):
        self.py_func = function

    def __call__(self, x):
        return self.py_func(x)


def _handed_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kw):
        return function(*args, **kw)
    return wrapper


line = Line(0.5, np.float32([1, 2, 3, 4, 5]))
compiled = Compiled(lambda x: x * x)


def total(*values, scale=1):
    return scale * sum(values)


case("a method", F32)(line.at)
case("an object that can be called", rows(6, 5), tolerance=8)(line)
case("a method in a function", F32)(lambda x: line.at(x, 3) + line.slope)
case("a function that Numba compiles", F32)(lambda x: compiled(x))
case("float(\"inf\")", F32, promoted=True)(
    lambda x: (min(x, float("inf")), x if x > -float("infinity") else float("nan")))


@case("x.dtype", rows(6, 5, "int16"))
def _like(p):
    return np.ones(2, p.dtype) + p[0]


@case("a decorator that hands its arguments on", F32, 2.0)
@_handed_on
def _decorated(x, k):
    return k * x


@case("*args in a called function", F32)
def _several(x):
    return total(x, x * x, 3) + total(x, scale=2) + total(1)


@case("*args of the arguments", F32, 2.0, 3.0, 4.0)
def _coefficients(x, *c):
    s = 0.0
    for a in c:
        s = s * x + a
    return s


@case("a, *b = p", rows(6, 5))
def _starred(p):
    first, *middle, last = p
    return first - last, sum(middle), len(middle), middle[1]


@case(":= in an if", F32)
def _named(x):
    if (y := x * 2) > 1:
        return y
    elif (z := x + 1) > y:
        return z
    return (h := x / 2) * h


@case(":= in a while", F64, promoted=True)
def _named_in_while(x):
    n = 0
    z = min(abs(x), 3.0) + 1
    while (z := z * 1.5) < 100:
        if n > 6:
            continue
        n += 1
    return n, z


@case("items that a mask selects", rows(6, 5))
def _masked(p):
    q = p * 2
    q[p > 1] *= 3
    q[q < 0] = 0
    return q

# -- by order ---------------------------------------------------------------------------------------------------------

ODD = np.where(np.arange(35) % 9 == 4, np.nan, rows(5, 7).reshape(-1)).reshape(5, 7).astype("float32")
TIES = rows(6, 12, "int8")
case("np.sort", ODD, golden="sorted")(lambda p: np.sort(p))
case("np.sort of a long row of ints", rows(3, 100, "int16"))(lambda p: np.sort(p)[::7])
case("np.sort along an axis", BLOCKS)(
    lambda b: (np.sort(b), np.sort(b, axis=0), np.sort(b, None), np.sort(b, axis=1)[0]))
case("np.sort of float16 and of bools", rows(4, 9, "float16"))(lambda p: (np.sort(p), np.sort(p > 0)))
case("np.argsort", ODD)(lambda p: (np.argsort(p)[:5], p.argsort()[0]))
case("np.argsort of equal numbers", TIES)(lambda p: np.argsort(p))
case("np.argsort that is to be stable", TIES)(
    lambda p: (np.argsort(p, kind="stable"), np.argsort(p, stable=True), np.sort(p, kind="mergesort")))
case("sorted", DOUBLES)(lambda p: (sorted(p)[2], sum(sorted(p)[1:-1]), np.array(sorted(p, reverse=True))))
case("sorted of a tuple", I32[:6])(lambda n: sorted((n, n * 0, n // 2))[1])
case("sorted by a key", rows(6, 7), golden="sorted_by_key")(
    lambda p: (np.array(sorted(p, key=abs)), tuple(sorted(range(len(p)), key=lambda i: -p[i]))))
case("sorted by a key that several have", TIES)(
    lambda p: (np.array(sorted(p, key=lambda v: v % 3)), np.array(sorted(p, key=lambda v: v % 3, reverse=True))))
case("sorted by a key of several numbers", TIES)(
    lambda p: (tuple(sorted(range(len(p)), key=lambda i: (p[i] > 0, -int(p[i]), -i))),
               sorted(zip(p, range(len(p))), reverse=True)[1], sorted((v % 4, v) for v in p)[0]))
case("sorted rows", BLOCKS)(lambda b: sorted(b, key=lambda row: -row[1])[0] * 2)
case("sorted tuples and generators", DOUBLES)(
    lambda p: (sorted([(v, k * 2) for k, v in enumerate(p)], key=lambda pair: pair[0] * pair[1])[2],
               sorted((v * 2 for v in p), key=lambda v: abs(v - 1))[0], sorted((p[0], p[1], p[2]), key=None)[2]))
case("np.median", ODD, golden="median")(lambda p: (np.median(p), np.median(p[:4]), np.median(p[1])))
case("np.median along an axis", BLOCKS)(lambda b: (np.median(b), np.median(b, axis=0), np.median(b, axis=1)))
case("np.median of ints", TIES)(lambda p: (np.median(p), np.median(p[:5])))
case("np.searchsorted, np.digitize", ODD, np.float32([-1, -0.5, 0.5, 0.5, 2]))(
    lambda p, edges: (np.searchsorted(edges, p), np.digitize(p, edges), np.searchsorted(edges, 0.5)))
case("np.interp", DOUBLES, np.float64([-1, 0, 0.5, 2]), np.float32([3, -1, 1, 7]), golden="interp")(
    lambda p, at, values: (np.interp(p, at, values), np.interp(p[0], at, values, left=0, right=np.nan)))
case("np.interp in the row", np.abs(DOUBLES), tolerance=2)(lambda p: np.interp(1.0, np.cumsum(p), p))
case("np.nansum, nanmin, nanmax, nanmean", ODD, tolerance=4)(
    lambda p: (np.nansum(p), np.nanmin(p), np.nanmax(p), np.nanmean(p), np.nanmin(p * np.nan), np.nansum(p, axis=0)))
case("np.nanmean of two axes", BLOCKS, tolerance=4)(lambda b: (np.nanmean(b, axis=0), np.nanmax(b, axis=1)))
case("np.logaddexp, np.heaviside", pairs(F32, F32), tolerance=2)(
    lambda a, b: (np.logaddexp(a, b), np.heaviside(a, b)))
case("np.squeeze, np.expand_dims", P)(lambda p: (np.squeeze(p[None]), np.expand_dims(p, 1), np.expand_dims(p, -1),
                                                     np.squeeze(p[None, :1])))

# -- np.einsum --------------------------------------------------------------------------------------------------------

MATRIX = rows(5, 4)
case("np.einsum of rows", P, MATRIX, tolerance=8, golden="einsum")(
    lambda p, m: (np.einsum("i,i->", p, p), np.einsum("i,ij->j", p, m), np.einsum("i,j", p, p), np.einsum("i->", p)))
case("np.einsum of two axes", BLOCKS, tolerance=16)(
    lambda b: (np.einsum("ij,kj->ik", b, b), np.einsum("ij->ji", b), np.einsum("ij->", b), np.einsum("ij,ij->j", b, b),
               np.einsum("ij,ik,i->jk", b, b, b[:, 0]), np.einsum("ii->i", b[:, :3]), np.einsum("ii", b[:, :3])))
case("np.einsum of int8 keeps its type", BYTES)(lambda p: (np.einsum("i,i", p, p), np.einsum("i,j->ij", p, p)))

# -- what is written in the language itself, and items at places -------------------------------------------------------

PLACES = np.array([4, 0, 2])
case("np.percentile, np.quantile", ODD, tolerance=2)(
    lambda p: (np.percentile(p, 30), np.quantile(p[:4], 0.75), np.percentile(p, 100)))
case("np.percentile of ints", TIES)(lambda p: np.percentile(p, 25))
case("np.select", P)(lambda p: (np.select([p > 1, p > 0], [p * 2, p], default=0), np.select((p[0] > 1,), (1,), 2.5)))
case("np.trapezoid, np.gradient", P, tolerance=2)(
    lambda p: (np.trapezoid(p, dx=0.5), np.trapezoid(p, np.cumsum(p)), np.gradient(p)))
case("np.tril, np.triu, np.diag", P)(
    lambda p: (np.tril(np.outer(p, p)), np.triu(np.outer(p, p), 1), np.diag(np.outer(p, p)), np.diag(p[:2])))
case("functools.reduce", P)(
    lambda p: (functools.reduce(lambda a, b: a * 0.5 + b, p), functools.reduce(lambda a, b: max(a, b), p, 0.5)))


def _windows(p, wide):
    means = np.zeros(len(p) - wide + 1)
    for i in range(len(means)):
        means[i] = p[i:i + wide] @ np.array([0.25, 0.5, 0.25])
    return means


case("math.gcd, lcm, isqrt, factorial, comb", TIES)(
    lambda p: (math.gcd(p[0], p[5], 12), math.lcm(int(p[1]), 4), math.isqrt(abs(p[2]) * 7), math.comb(9, abs(p[4])),
               math.factorial(abs(p[3]) % 7)))
case("slices that move along a row", P, tolerance=2)(
    lambda p: (_windows(p, 3), np.array([p[j + 1:j + 3].sum() for j in range(len(p) - 2)])))
case("np.std, np.var with ddof", BLOCKS, tolerance=2)(
    lambda b: (np.std(b, ddof=1), b.var(axis=0, ddof=1)))
case("a sum over a range", P)(lambda p: (sum(range(1, len(p) + 1)) * p[0], max(range(3)) + min(range(2, 5))))
case("items at places", P, PLACES)(lambda p, at: (p[[1, -1]], p[PLACES], p[at] + p[np.argsort(p)][:3]))
case("rows at places", BLOCKS)(lambda b: (b[PLACES % 3], b[[2, 0]]))
case("dtypes by name", P)(lambda p: (p.astype("float64"), np.zeros(2, dtype="int8"), np.array([1, 2], "f4") + p[:2]))
case("np.sum, np.prod of ints of a given type", rows(4, 9, "int32") * 12345)(
    lambda p: (np.sum(p, dtype=np.int8), np.prod(p, dtype=np.uint16), p.sum(dtype=np.int32), np.prod(p, dtype="uint8"),
               np.sum(p.reshape(3, 3), axis=0, dtype=np.int16), np.sum(p, 0, np.bool_)))
