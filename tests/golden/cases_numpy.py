"""Cases: NumPy's functions of arrays and numbers that are used less often, and those of ``math``."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.golden.case import F16, F32, F64, I8, I32, I64, U64, UNIT, case, pairs, rows

P = rows(4, 6)
D = rows(4, 6, "float64")
X = np.float32([1.5, -2, 3])
WEIGHTS = np.float32([1, 2, 3, 4, 5, 6])
WHOLE = np.arange(12, dtype="int32").reshape(3, 4)
BLOCKS = np.random.default_rng(1).normal(size=(3, 4, 5))
POSITIVE = np.abs(BLOCKS)
COMPLEX = np.random.default_rng(5).normal(size=(3, 4)) + 1j * np.random.default_rng(6).normal(size=(3, 4))
GAPS = P.copy()
GAPS[0, 2], GAPS[1], GAPS[2, 0] = np.nan, np.nan, np.nan
HOLED = BLOCKS.copy()
HOLED[0, 1, 2], HOLED[1, :, 0] = np.nan, np.nan


case("np.amin, np.amax", P, tolerance=16)(
    lambda p: (np.amin(p), np.amax(p)))
case("np.amax along an axis", BLOCKS, tolerance=16)(
    lambda m: np.amax(m, axis=1))
case("np.average", P, tolerance=16)(
    lambda p: np.average(p))
case("np.average with weights", P, tolerance=16)(
    lambda p: np.average(p, weights=WEIGHTS))
case("np.average along axis 0", BLOCKS, tolerance=16)(
    lambda m: np.average(m, axis=0, weights=np.array([1, 2, 3, 4.])))
case("np.average along axis 1", BLOCKS, tolerance=16)(
    lambda m: np.average(m, 1, np.array([1, 2, 3, 4, 5])))
case("np.average, weights in a list", P, tolerance=16)(
    lambda p: np.average(p[:3], weights=[1, 2, 3]))
case("np.average of integers", WHOLE, tolerance=16)(
    lambda p: np.average(p, weights=np.array([1, 2, 3, 4])))
case("np.nanvar", GAPS, tolerance=16)(
    lambda p: np.nanvar(p))
case("np.nanstd", GAPS, tolerance=16)(
    lambda p: (np.nanstd(p), np.nanstd(p, ddof=1)))
case("np.nanvar along an axis", HOLED, tolerance=16)(
    lambda m: np.nanvar(m, axis=0))
case("np.nanvar of integers", WHOLE, tolerance=16)(
    lambda p: np.nanvar(p))
case("np.nan_to_num of float32", F32)(
    lambda x: (np.nan_to_num(x), np.nan_to_num(x / 0, nan=1.5), np.nan_to_num(x * np.inf, True, 2, 3, -4)))
case("np.nan_to_num of float64", F64)(
    lambda x: (np.nan_to_num(x), np.nan_to_num(x / 0, posinf=None, neginf=x)))
case("np.nan_to_num of float16", F16)(
    lambda x: np.nan_to_num(x))
case("np.nan_to_num of integers", I8)(
    lambda x: (np.nan_to_num(x), np.nan_to_num(x > 2)))
case("np.nan_to_num of a row", GAPS)(
    lambda p: (np.nan_to_num(p), np.nan_to_num(p / 0, nan=p[0], posinf=7).sum(), np.nan_to_num(2.5)))
case("np.sinc", F32, tolerance=16)(
    lambda x: (np.sinc(x * 0), np.sinc(x / 64)))
case("np.sinc of integers and rows", WHOLE, tolerance=64)(
    lambda p: np.sinc(p / 8))
case("np.fix", F32)(
    lambda x: (np.fix(x), np.fix(-x)))
case("np.take", P)(
    lambda p: (np.take(p, [0, -1, 2]), np.take(p, 3), np.take(p, np.array([1, 1]))))
case("np.clip, limits that an integer type does not hold", np.uint8([[0, 7, 255]]))(
    lambda p: (np.clip(p, -1, 9), p.clip(3, 300), np.clip(p[0], -5, 1000)))
case("np.repeat", P)(
    lambda p: np.repeat(p, 3))
case("np.repeat along an axis", BLOCKS)(
    lambda m: np.repeat(m, 2, axis=1))
case("np.repeat of a number", X)(
    lambda x: np.repeat(x, 2))
case("np.tile", P)(
    lambda p: np.tile(p, 2))
case("np.tile to two axes", P)(
    lambda p: np.tile(p, (2, 3)))
case("np.tile of two axes", BLOCKS)(
    lambda m: np.tile(m, 2))
case("np.swapaxes", BLOCKS)(
    lambda m: np.swapaxes(m[None], 0, -1))
case("np.isin", X, tolerance=16)(
    lambda x: np.isin(x, [1.5, 3]))
case("np.isin of a row", WHOLE, tolerance=16)(
    lambda p: np.isin(p, np.array([1, 2, 5])))
case("np.isin of two axes", BLOCKS, tolerance=16)(
    lambda m: np.isin(np.rint(m), (0, 1)))
case("np.convolve", P, tolerance=16)(
    lambda p: np.convolve(p, np.array([1., 2, 3])))
case("np.convolve, same", P, tolerance=16)(
    lambda p: np.convolve(p, p[:2], "same"))
case("np.convolve, valid", P, tolerance=16)(
    lambda p: np.convolve(p, p[1:4], mode="valid"))
case("np.convolve of integers", WHOLE, tolerance=16)(
    lambda p: np.convolve(np.array([1, 2]), p))
case("sliding_window_view", P, tolerance=16)(
    lambda p: sliding_window_view(p, 3).mean(axis=1))
case("sliding_window_view of two axes", BLOCKS, tolerance=16)(
    lambda m: np.lib.stride_tricks.sliding_window_view(m, (2, 2)).sum(axis=-1).sum(axis=-1))
case("sliding_window_view by its place in NumPy", P)(
    lambda p: np.lib.stride_tricks.sliding_window_view(p, 3).max(axis=-1))
case("np.pad", P)(
    lambda p: np.pad(p, 2))
case("np.pad, edge", P)(
    lambda p: np.pad(p, (1, 3), mode="edge"))
case("np.pad, constant", P)(
    lambda p: np.pad(p, (0, 2), "constant", constant_values=7))
case("np.pad, reflect", P)(
    lambda p: np.pad(p, 3, "reflect"))
case("np.pad, wrap", P)(
    lambda p: np.pad(p, (7, 8), "wrap"))
case("np.pad, symmetric", P)(
    lambda p: np.pad(p, (7, 8), "symmetric"))
case("np.pad of two axes", BLOCKS)(
    lambda m: np.pad(m, ((1, 0), (2, 1))))
case("np.column_stack", P)(
    lambda p: np.column_stack((p, p * 2)))
case("np.column_stack of two axes", BLOCKS)(
    lambda m: np.column_stack((m, m[:, 0])))
case("np.percentile at several places", P, tolerance=2)(
    lambda p: np.percentile(p, [25, 50]))
case("np.ediff1d", P)(
    lambda p: np.ediff1d(p))
case("np.ediff1d with a beginning", P)(
    lambda p: np.ediff1d(p, to_begin=np.float32(1)))
case("np.ediff1d of integers", WHOLE)(
    lambda p: np.ediff1d(p, to_end=9))
case("np.unwrap", P, tolerance=16)(
    lambda p: np.unwrap(p * 5))
case("np.unwrap by a period", D, tolerance=16)(
    lambda p: np.unwrap(p * 5, period=4.0))
case("np.gcd, np.lcm of int64", pairs(I64))(
    lambda a, b: (np.gcd(a, b), np.lcm(a, b)))
case("np.gcd, np.lcm of int8", pairs(I8))(
    lambda a, b: (np.gcd(a, b), np.lcm(a, b)))
case("np.gcd, np.lcm of uint64", pairs(U64))(
    lambda a, b: (np.gcd(a, b), np.lcm(a, b)))
case("np.divmod of int32", pairs(I32))(
    lambda a, b: np.divmod(a, b))
case("np.divmod of float64", pairs(F64))(
    lambda a, b: np.divmod(a, b))
case("np.modf of float64", F64)(
    lambda x: np.modf(x))
case("np.modf of float32", F32)(
    lambda x: np.modf(x))
case("np.modf of float16", F16)(
    lambda x: np.modf(x))
case("np.modf of int8", I8)(
    lambda x: np.modf(x))
case("np.modf of a row", P)(
    lambda p: np.modf(p)[1])
case("np.frexp of float64", F64)(
    lambda x: np.frexp(x))
case("np.frexp of float32", F32)(
    lambda x: np.frexp(x))
case("np.frexp of float16", F16)(
    lambda x: np.frexp(x))
case("np.ldexp", F64)(
    lambda x: np.ldexp(x, 3))
case("np.ldexp to subnormal numbers", F64)(
    lambda x: np.ldexp(x, np.int64(-1080)))
case("np.ldexp of float32", F32)(
    lambda x: np.ldexp(x, -20))
case("np.nextafter of float64", pairs(F64))(
    lambda a, b: np.nextafter(a, b))
case("np.nextafter of float32", pairs(F32))(
    lambda a, b: np.nextafter(a, b))
case("np.spacing of float64", F64)(
    lambda x: np.spacing(x))
case("np.spacing of float32", F32)(
    lambda x: np.spacing(x))
case("np.logaddexp2 of float64", pairs(F64), tolerance=16)(
    lambda a, b: np.logaddexp2(a, b))
case("np.logaddexp2 of float32", pairs(F32), tolerance=16)(
    lambda a, b: np.logaddexp2(a, b))
case("np.float_power", F32, tolerance=16)(
    lambda x: np.float_power(x, 2.5))
case("np.float_power of integers", I32, tolerance=16)(
    lambda x: np.float_power(x, 3))
if hasattr(np, "bitwise_count"):
    case("np.bitwise_count of int64", I64)(
        lambda x: np.bitwise_count(x))
if hasattr(np, "bitwise_count"):
    case("np.bitwise_count of int8", I8)(
        lambda x: np.bitwise_count(x))
if hasattr(np, "bitwise_count"):
    case("np.bitwise_count of uint64", U64)(
        lambda x: np.bitwise_count(x))
if hasattr(np, "vecdot"):
    case("np.vecdot", P, tolerance=16)(
        lambda p: np.vecdot(p, p[::-1]))
if hasattr(np, "vecdot"):
    case("np.vecdot of two axes", BLOCKS, tolerance=16)(
        lambda m: np.vecdot(m, m * 2))
if hasattr(np, "vecdot"):
    case("np.vecdot of complex rows", COMPLEX, tolerance=16)(
        lambda z: np.vecdot(z, z * 2j))
if hasattr(np, "vecdot"):
    case("np.vecdot of integers", WHOLE, tolerance=16)(
        lambda p: np.vecdot(p, p))
if hasattr(np, "matvec"):
    case("np.matvec", POSITIVE, tolerance=16)(
        lambda m: np.matvec(m, m[0]))
if hasattr(np, "matvec"):
    case("np.vecmat", BLOCKS, tolerance=16)(
        lambda m: np.vecmat(m[:, 0], m))
if hasattr(np, "matvec"):
    case("np.matvec of several rows", POSITIVE, tolerance=16)(
        lambda m: np.matvec(m, m))
case("math.frexp", F64, tolerance=16)(
    lambda x: math.frexp(x))
case("math.modf", F64, tolerance=16)(
    lambda x: math.modf(x))
case("math.ldexp", UNIT, tolerance=16)(
    lambda x: math.ldexp(float(x), -3))
case("math.nextafter", F64, tolerance=16)(
    lambda x: math.nextafter(x, 3.0))
case("math.ulp", F64, tolerance=16)(
    lambda x: math.ulp(x))
case("math.fsum", D, tolerance=16)(
    lambda p: math.fsum(p))
case("math.fsum of a generator", D, tolerance=16)(
    lambda p: math.fsum(v * v for v in p))
case("math.perm", X, tolerance=16)(
    lambda x: math.perm(7, int(abs(x))))
case("math.perm of all", np.int32([1, 5]), tolerance=16)(
    lambda n: math.perm(int(n)))

SQUARES = np.random.default_rng(11).normal(size=(6, 5, 5))
SYMMETRIC = SQUARES @ SQUARES.transpose(0, 2, 1) + np.eye(5)
SINGULAR = np.stack([np.eye(3), np.ones((3, 3)), np.diag([2.0, 3.0, 4.0])])
SYSTEMS = {"A": SQUARES, "b": np.random.default_rng(12).normal(size=(6, 5))}


case("np.linalg.solve", SYSTEMS, tolerance=4096)(
    lambda A, b: np.linalg.solve(A, b))
case("np.linalg.solve of float32", {name: field.astype("float32") for name, field in SYSTEMS.items()}, tolerance=4096)(
    lambda A, b: np.linalg.solve(A, b))
case("np.linalg.solve with several right sides", SYSTEMS, tolerance=4096)(
    lambda A, b: np.linalg.solve(A, np.stack([b, b + 1, -b]).T))
case("np.linalg.solve of whole numbers", {"A": (SQUARES * 9).astype("int32"), "b": SYSTEMS["b"]}, tolerance=4096)(
    lambda A, b: np.linalg.solve(A, b))
case("np.linalg.solve of one number", {"A": SQUARES[:, :1, :1], "b": SYSTEMS["b"][:, :1]}, tolerance=4)(
    lambda A, b: np.linalg.solve(A, b))
case("np.linalg.inv", SQUARES, tolerance=4096)(
    lambda A: np.linalg.inv(A))
case("np.linalg.det", SQUARES, tolerance=256)(
    lambda A: np.linalg.det(A))
case("np.linalg.det of a singular matrix", SINGULAR, tolerance=4)(
    lambda A: np.linalg.det(A))
case("np.linalg.cholesky", SYMMETRIC, tolerance=1 << 16)(
    lambda A: np.linalg.cholesky(A))
case("np.linalg.cholesky of complex matrices", SYMMETRIC, tolerance=1 << 16)(
    lambda A: np.linalg.cholesky(A + 1j * (np.tril(A, -1) - np.triu(A, 1)) / 8))
case("np.linalg.eigvalsh", SYMMETRIC, tolerance=1 << 16)(
    lambda A: np.linalg.eigvalsh(A))


@case("np.linalg.eigh", SYMMETRIC, tolerance=1 << 16)
def _rebuilt(A):
    values, vectors = np.linalg.eigh(A)
    return vectors @ (values[:, None] * vectors.T)


@case("np.linalg.slogdet", SQUARES, tolerance=1 << 16)
def _sign_and_size(A):
    sign, size = np.linalg.slogdet(A)
    return sign, size
