"""Linear algebra of small matrices, written in the language itself: the translator reads these in NumPy's place.

Methods: Gaussian elimination with partial pivoting, Cholesky's factors and Jacobi's rotations, as in
*Matrix Computations*, 4th edition, algorithms 3.4.1, 4.2.1 and 8.5.3. What NumPy refuses with ``LinAlgError``
is NaN in the element's result.
"""

from __future__ import annotations

import math

import numpy as np

from vispark.translate.language.argument_checks import checked_for_linalg, checked_for_square
from vispark.translate.language.registry import written_as

# These are read by the translator, so they are written the way that it needs.


@written_as("numpy.linalg.solve", "a b")
def solve(a, b):
    a, b = checked_for_square(a), checked_for_linalg(b)
    n, m = len(a), 1 if b.ndim == 1 else b.shape[-1]
    if n == 1:
        return b / np.where(a[0, 0] == 0, math.nan, a[0, 0]).astype((a / 1).dtype)
    kind = ((a[0, 0] + np.ravel(b)[0]) / 1).dtype
    work = a.astype(kind)
    right = np.reshape(b, (n, m)).astype(kind)
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(work[i, k]) > abs(work[best, k]):
                best = i
        for j in range(k, n):
            one = work[k, j]
            work[k, j] = work[best, j]
            work[best, j] = one
        for j in range(m):
            one = right[k, j]
            right[k, j] = right[best, j]
            right[best, j] = one
        pivot = 1 / np.where(work[k, k] == 0, math.nan, work[k, k]).astype(kind)
        for i in range(k + 1, n):
            factor = work[i, k] * pivot
            for j in range(k + 1, n):
                work[i, j] -= factor * work[k, j]
            for j in range(m):
                right[i, j] -= factor * right[k, j]
        for j in range(m):
            right[k, j] *= pivot
        for j in range(k + 1, n):
            work[k, j] *= pivot
    for back in range(n):
        k = n - 1 - back
        for i in range(k):
            for j in range(m):
                right[i, j] -= work[i, k] * right[k, j]
    return right[:, 0] if b.ndim == 1 else right


@written_as("numpy.linalg.inv", "a")
def inv(a):
    a = checked_for_square(a)
    return np.linalg.solve(a, np.eye(len(a), dtype=(a / 1).dtype))


@written_as("numpy.linalg.slogdet", "a")
def slogdet(a):
    a = checked_for_square(a)
    n = len(a)
    if n == 1:
        return np.sign(a[0, 0] / 1), np.log(abs(a[0, 0]))
    work = (a / 1).copy()
    sign, size = work[0, 0] * 0 + 1, abs(work[0, 0]) * 0
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(work[i, k]) > abs(work[best, k]):
                best = i
        if best != k:
            sign = -sign
            for j in range(k, n):
                one = work[k, j]
                work[k, j] = work[best, j]
                work[best, j] = one
        pivot = work[k, k]
        sign *= np.sign(pivot)
        size += np.log(abs(pivot))
        if pivot != 0:
            for i in range(k + 1, n):
                factor = work[i, k] / pivot
                for j in range(k + 1, n):
                    work[i, j] -= factor * work[k, j]
    return sign, size


@written_as("numpy.linalg.det", "a")
def det(a):
    a = checked_for_square(a)
    n = len(a)
    if n == 1:
        return a[0, 0] / 1
    work = (a / 1).copy()
    product = work[0, 0] * 0 + 1
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(work[i, k]) > abs(work[best, k]):
                best = i
        if best != k:
            product = -product
            for j in range(k, n):
                one = work[k, j]
                work[k, j] = work[best, j]
                work[best, j] = one
        pivot = work[k, k]
        product *= pivot
        if pivot != 0:
            for i in range(k + 1, n):
                factor = work[i, k] / pivot
                for j in range(k + 1, n):
                    work[i, j] -= factor * work[k, j]
    return product


@written_as("numpy.linalg.cholesky", "a / * upper!", instead={"upper": "write np.linalg.cholesky(a).T"})
def cholesky(a):
    a = checked_for_square(a)
    n = len(a)
    if n == 1:
        return np.sqrt(np.where(a.real > 0, a.real, math.nan)).astype((a / 1).dtype)
    factor = np.zeros_like(a / 1)
    for j in range(n):
        square = (a[j, j] / 1).real
        for k in range(j):
            square -= (factor[j, k] * factor[j, k].conj()).real
        root = np.sqrt(np.where(square > 0, square, math.nan)).astype(factor.dtype)
        factor[j, j] = root
        for i in range(j + 1, n):
            below = a[i, j] / 1
            for k in range(j):
                below -= factor[i, k] * factor[j, k].conj()
            factor[i, j] = below / root
    return factor


@written_as("numpy.linalg.eigh", "a UPLO!", instead={"UPLO": "write np.linalg.eigh(a.T)"})
def eigh(a):
    a = checked_for_square(a)
    n = len(a)
    if n == 1:
        return a[0] / 1, np.ones_like(a / 1)
    work = (np.tril(a) / 1) + np.tril(a, -1).T
    turned = np.eye(n, dtype=work.dtype)
    size = np.square(work.astype(np.float64)).sum()
    sweeps, apart = 0, size if n > 1 else 0.0
    while sweeps < 30 and apart > 0:
        for p in range(n - 1):
            for q in range(p + 1, n):
                if work[p, q] != 0:
                    slope = (work[q, q] - work[p, p]) / (2 * work[p, q])
                    tangent = np.copysign(1, slope) / (abs(slope) + np.hypot(1, slope))
                    cosine = 1 / np.sqrt(1 + tangent * tangent)
                    sine = tangent * cosine
                    for k in range(n):
                        one, other = work[k, p], work[k, q]
                        work[k, p] = cosine * one - sine * other
                        work[k, q] = sine * one + cosine * other
                    for k in range(n):
                        one, other = work[p, k], work[q, k]
                        work[p, k] = cosine * one - sine * other
                        work[q, k] = sine * one + cosine * other
                    work[p, q] = 0
                    work[q, p] = 0
                    for k in range(n):
                        one, other = turned[k, p], turned[k, q]
                        turned[k, p] = cosine * one - sine * other
                        turned[k, q] = sine * one + cosine * other
        outside = 0.0
        for p in range(n - 1):
            for q in range(p + 1, n):
                outside += float(work[p, q]) * float(work[p, q])
        apart = outside - size * 1e-36
        sweeps += 1
    values = np.einsum("ii->i", work).copy()
    order = np.argsort(values)
    vectors = np.zeros_like(turned)
    for k in range(n):
        for i in range(n):
            vectors[i, k] = turned[i, order[k]]
    return values[order], vectors


@written_as("numpy.linalg.eigvalsh", "a UPLO!", instead={"UPLO": "write np.linalg.eigvalsh(a.T)"})
def eigvalsh(a):
    return np.linalg.eigh(a)[0]
