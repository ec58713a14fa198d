"""Functions of NumPy and Python that are written in the language itself: the translator reads these in their place."""

from __future__ import annotations

import math

import numpy as np

from vispark.translate.language.registry import written_as

# These are read by the translator, so they are written the way that it needs.
# ruff: noqa: B905


@written_as("numpy.trapezoid", "y x= dx= axis!")
def trapezoid(y, x=None, dx=1.0):
    if x is None:
        return (dx * (y[..., 1:] + y[..., :-1]) / 2.0).sum(-1)
    return (np.diff(x) * (y[..., 1:] + y[..., :-1]) / 2.0).sum(-1)


@written_as("numpy.select", "condlist choicelist default=")
def select(condlist, choicelist, default=0):
    chosen = default
    for test, choice in zip(condlist[::-1], choicelist[::-1]):
        chosen = np.where(test, choice, chosen)
    return chosen


@written_as("numpy.sinc", "x")
def sinc(x):
    angle = math.pi * np.asarray(x)
    return np.where(angle == 0, 1.0, np.sin(angle) / angle)


@written_as("numpy.fix", "x out!")
def fix(x):
    return np.trunc(x)


@written_as("numpy.take", "a indices axis! out! mode!", instead={"axis": "write a[:, indices]"})
def take(a, indices):
    return np.ravel(a)[indices]


@written_as("numpy.tril", "m k=")
def tril(m, k=0):
    return np.where(np.arange(m.shape[-1]) - np.arange(m.shape[-2 if m.ndim > 1 else 0])[:, None] <= k, m,
                    np.zeros_like(m))


@written_as("numpy.triu", "m k=")
def triu(m, k=0):
    return np.where(np.arange(m.shape[-1]) - np.arange(m.shape[-2 if m.ndim > 1 else 0])[:, None] >= k, m,
                    np.zeros_like(m))


@written_as("numpy.diag", "v k!", instead={"k": "write p[i, i + k] in a comprehension"})
def diag(v):
    return np.einsum("ii->i", v) if v.ndim != 1 else np.where(np.arange(len(v))[:, None] == np.arange(len(v)), v,
                                                                np.zeros_like(v))


@written_as("numpy.average", "a axis= weights= returned! * keepdims!")
def average(a, axis=None, weights=None):
    a = np.asarray(a)
    if weights is None:
        return np.mean(a, axis)
    weights = np.asarray(weights)
    if axis == 0 and weights.ndim == 1 and a.ndim == 2:
        return (a * weights[:, None]).sum(0) / weights.sum()
    return (a * weights).sum(axis) / (weights.sum() if weights.ndim == 1 else weights.sum(axis))


@written_as("numpy.nanvar", "a axis= dtype! out! ddof= keepdims! * where! mean! correction!")
def nanvar(a, axis=None, ddof=0):
    a = np.asarray(a)
    a = a.astype((a / 1).dtype)
    seen = np.logical_not(np.isnan(a))
    middle = np.nansum(a, axis, keepdims=True) / seen.sum(axis, keepdims=True).astype(a.dtype)
    apart = np.where(seen, a - middle, 0)
    count = seen.sum(axis) - ddof
    total = (apart * apart).sum(axis)
    return np.where(count > 0, total / count.astype(total.dtype), total * math.nan)


@written_as("numpy.nanstd", "a axis= dtype! out! ddof= keepdims! * where! mean! correction!")
def nanstd(a, axis=None, ddof=0):
    return np.sqrt(nanvar(a, axis, ddof=ddof))


@written_as("numpy.isin", "element test_elements assume_unique! invert! * kind!")
def isin(element, test_elements):
    tests = np.ravel(np.asarray(test_elements))
    return np.any(element == tests) if np.asarray(element).ndim == 0 else np.any(
        np.asarray(element)[..., None] == tests, -1)


@written_as("numpy.column_stack", "tup")
def column_stack(tup):
    return np.concatenate([one.T if one.ndim > 1 else one[None, :] for one in tup]).T


@written_as("numpy.ediff1d", "ary to_end= to_begin=")
def ediff1d(ary, to_end=None, to_begin=None):
    apart = np.diff(np.ravel(ary))
    if to_begin is not None:
        apart = np.append(np.asarray(to_begin).astype(apart.dtype), apart)
    return apart if to_end is None else np.append(apart, np.asarray(to_end).astype(apart.dtype))


@written_as("numpy.unwrap", "p discont= axis! * period=")
def unwrap(p, discont=None, *, period=2 * math.pi):
    half = period / 2
    apart = np.diff(p)
    turned = (apart + half) % period - half
    turned = np.where((turned == -half) & (apart > 0), half, turned) - apart
    turned = np.where(np.abs(apart) < (half if discont is None else discont), 0, turned)
    return np.concatenate((p[:1], p[1:] + np.cumsum(turned)))


@written_as("numpy.vecdot", "x1 x2 /")
def vecdot(x1, x2):
    x1 = np.conjugate(x1)
    if x1.ndim == 1 and x2.ndim == 1:
        return np.dot(x1, x2)
    if x1.ndim == 1:
        return np.einsum("j,ij->i", x1, x2)
    return np.einsum("ij,j->i", x1, x2) if x2.ndim == 1 else np.einsum("ij,ij->i", x1, x2)


@written_as("numpy.matvec", "x1 x2 /")
def matvec(x1, x2):
    return x1 @ x2 if x2.ndim == 1 else np.einsum("ij,kj->ki", x1, x2)


@written_as("numpy.vecmat", "x1 x2 /")
def vecmat(x1, x2):
    x1 = np.conjugate(x1)
    return x1 @ x2 if x1.ndim == 1 else np.einsum("ki,ij->kj", x1, x2)


@written_as("math.fsum", "seq /")
def fsum(seq):
    total, lost = 0.0, 0.0
    for value in seq:
        part = float(value)
        more = total + part
        lost += (total - more) + part if abs(total) >= abs(part) else (part - more) + total
        total = more
    return total + lost if math.isfinite(lost) else total


@written_as("math.ulp", "x /")
def ulp(x):
    x = abs(float(x))
    if x == 1.7976931348623157e308:
        return x - math.nextafter(x, 0.0)
    return math.nextafter(x, math.inf) - x if x < math.inf else x


@written_as("functools.reduce", "function sequence initial= /")
def reduce(function, sequence, initial=None):
    total, items = (sequence[0], sequence[1:]) if initial is None else (initial, sequence)
    for item in items:
        total = function(total, item)
    return total


@written_as("math.gcd", "*integers")
def gcd(*integers):
    divisor = 0
    for one in integers:
        remainder = abs(int(one))
        while remainder != 0:
            divisor, remainder = remainder, divisor % remainder
    return divisor


@written_as("math.lcm", "*integers")
def lcm(*integers):
    multiple = 1
    for one in integers:
        multiple = multiple // gcd(multiple, one) * abs(int(one)) if multiple != 0 else 0
    return multiple


@written_as("math.isqrt", "n /")
def isqrt(n):
    n = int(n)
    root = min(int(math.sqrt(n)), 3037000499)
    while root * root > n:
        root -= 1
    while root < 3037000499 and (root + 1) * (root + 1) <= n:
        root += 1
    return root


@written_as("math.factorial", "x /")
def factorial(n):
    product = 1
    for i in range(2, int(n) + 1):
        product *= i
    return product


@written_as("math.comb", "n k /")
def comb(n, k):
    n, k = int(n), int(k)
    count = 1 if k <= n else 0
    for i in range(1, min(k, n - k) + 1):
        count = count * (n - i + 1) // i
    return count


@written_as("math.perm", "n k= /")
def perm(n, k=None):
    n = int(n)
    k = n if k is None else int(k)
    count = 1 if k <= n else 0
    for i in range(min(k, n)):
        count = count * (n - i)
    return count
