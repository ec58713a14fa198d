"""Cases: numbers. Arithmetic with NumPy 2's promotion, comparisons, conversions, functions."""

# The forms that a linter would change are what is tried here.
# ruff: noqa: B002, SIM300
from __future__ import annotations

import math
import operator

import numpy as np
from numpy import exp as numpy_exp

from tests.golden.case import (
    BOOLS,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    POSITIVE,
    U8,
    U16,
    U32,
    U64,
    UNIT,
    case,
    pairs,
)

ODD = np.array([0, 1, 1j, -1j, 1 + 2j, complex(1, np.nan), complex(np.nan, 1), complex(np.inf, 2), -2], "complex64")
_ENDS = (0.0, -1.0, 1e-300, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan, 709.5)
FAR = np.array([complex(re, im) for re in _ENDS for im in _ENDS])
ALL = {"float16": F16, "float32": F32, "float64": F64, "int8": I8, "int16": I16, "int32": I32, "int64": I64,
       "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64, "bool": BOOLS}
REAL = {name: data for name, data in ALL.items() if name != "bool"}
WHOLE = {name: data for name, data in REAL.items() if "int" in name}

# -- promotion --------------------------------------------------------------------------------------------------------

for _name, _data in REAL.items():
    _kept = f"promotion_{_name}" if _name in ("float32", "int32") else ""
    case(f"promotion: {_name} with Python numbers", _data, golden=_kept)(
        lambda x: (x * 2, x * 0.1, x + 1, 1 - x, x / 2, 3.0 * x))
    case(f"promotion: {_name} with {_name}", pairs(_data))(lambda a, b: (a + b, a - b, a * b))
    case(f"promotion: {_name} with some float32", pairs(_data, F32[:9]))(lambda a, b: (a + b, b - a, a * b))
    case(f"promotion: {_name} with some int32", pairs(_data, I32[:9]))(lambda a, b: (a + b, b - a, a * b))
    case(f"promotion: {_name} with some uint64", pairs(_data, U64[:9]))(lambda a, b: (a + b, b - a))
    case(f"promotion: {_name} with bool", pairs(_data, BOOLS))(lambda a, b: (a + b, a * b))
    case(f"/ of {_name}", pairs(_data))(lambda a, b: a / b)
    case(f"// and % of {_name}", pairs(_data), golden="floor_division" if _name == "int32" else "",
         tolerance=1 if _name == "float16" else 0)(lambda a, b: (a // b, a % b))
    case(f"comparisons of {_name}", pairs(_data))(lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b))
    case(f"comparisons of {_name} with int64", pairs(_data, I64))(lambda a, b: (a < b, a <= b, a > b, a >= b, a == b))
    case(f"comparisons of {_name} with Python numbers", _data)(lambda x: (x < 3, x >= 1, x == 0, x > 0.5, 2 != x))
    case(f"abs, -x, +x of {_name}", _data)(lambda x: (abs(x), -x, +x))
    case(f"min and max of {_name}", pairs(_data))(lambda a, b: (min(a, b), max(a, b)))
    case(f"np.maximum and np.minimum of {_name}", pairs(_data))(
        lambda a, b: (np.maximum(a, b), np.minimum(a, b), np.fmax(a, b), np.fmin(a, b)))
    case(f"np.sign, np.square of {_name}", _data)(lambda x: (np.sign(x), np.square(x)))

for _name, _data in WHOLE.items():
    case(f"& | ^ ~ of {_name}", pairs(_data))(lambda a, b: (a & b, a | b, a ^ b, ~a))
    case(f"<< and >> of {_name}", pairs(_data, np.arange(0, 70, 5).astype(_data.dtype)),
         golden="shifts" if _name == "int16" else "")(lambda a, b: (a << b, a >> b))
    case(f"<< and >> of {_name} by Python ints", _data)(lambda x: (x << 3, x >> 2))
    case(f"** of {_name}", pairs(_data, np.arange(0, 9).astype(_data.dtype)))(lambda a, b: a ** b)
    case(f"** of {_name} by a Python int", _data)(lambda x: (x ** 2, x ** 3, x ** 5, x ** 0))
    case(f"divmod of {_name}", pairs(_data))(lambda a, b: divmod(a, b))
    case(f"np.fmod of {_name}", pairs(_data))(lambda a, b: np.fmod(a, b))

for _name, _data in {"float32": F32, "float64": F64}.items():
    case(f"** of two {_name}", pairs(_data), tolerance=4)(lambda a, b: a ** b)
    case(f"** of {_name} by Python numbers", _data, tolerance=4, golden="powers" if _name == "float32" else "")(
        lambda x: (x ** 2, x ** 3, x ** 4, x ** 0.5, x ** -1, 2 ** x))

case("* of float32 and a Python float", F32, golden="weak_float")(lambda x: x * 0.1)
case("bool arithmetic", pairs(BOOLS))(lambda a, b: (a + b, a * b, a & b, a | b, a ^ b, ~a, a // b))
case("bool division", pairs(BOOLS))(lambda a, b: a / b)
case("bool with Python numbers", BOOLS)(lambda x: (x + 1, x * 2.5, x - 1, True + True))
case("comparisons with a Python int that does not fit", U8)(lambda x: (x < -1, x > -5, x == 300, x <= 1000, 300 > x))
case("float32 == 0.1", np.float32([0.1, 0.2]))(lambda x: (x == 0.1, x < 0.1))
case("chained comparisons", F32, golden="chained_comparison")(lambda x: 0 < x <= 3)
case("chained comparisons of Python numbers", F32, promoted=True)(lambda x: 0 < x <= 3 < 7)
case("chained comparisons of an expression", F32)(lambda x: -1 < x * x - 2 < 5)
case("Python's arithmetic of ints", I32)(lambda x: x * (7 // 2) + (-7 // 2) + (-7 % 3) + 2 ** 5 + (1 << 4))
case("Python's arithmetic of floats", F64)(lambda x: x + (7.5 // 2) * (-7.5 % 2) + 2 ** -1)
case("unary operators on Python numbers", I32)(lambda x: x + -(-3) + ~5 + (+2))
case("large ints", I64)(lambda x: x ^ 9223372036854775807)

# -- complex ----------------------------------------------------------------------------------------------------------

case("complex64", pairs(C64), tolerance=4, golden="complex")(lambda a, b: (a + b, a - b, a * b))
case("complex128", pairs(C128), tolerance=4)(lambda a, b: (a + b, a - b, a * b))
case("complex division", pairs(C128, C128[1:]), tolerance=4)(lambda a, b: a / b)
case("complex with Python numbers", C64, tolerance=4)(lambda z: z * 2 + 1j)
case("abs, .real, .imag, conjugate", C64, tolerance=2)(lambda z: (abs(z), z.real, z.imag, z.conjugate(), np.conj(z)))
case("complex comparisons", pairs(ODD))(lambda a, b: (a == b, a != b, a < b, a <= b, a > b, a >= b, a < 1, 1j >= b))
for _name in ("bool", "int16", "int32", "float32", "float64", "uint64"):
    case(f"complex comparisons with {_name}", pairs(ODD, ALL[_name][:4]))(lambda a, b: (a < b, a >= b, b < a, b >= a))
case("np.log10 of tiny complex numbers", np.array([5e-324 + 5e-324j, 1e-300j, 3e-310 - 2e-305j]), tolerance=4)(
    lambda z: np.log10(z))
case("np.arctanh beside its pole", np.array([1 + 5e-324j, -1 - 1e-310j, 1 + 1e-200j, -1 + 1e-20j]), tolerance=4)(
    lambda z: np.arctanh(z))
case("abs of complex numbers beyond the greatest", np.array([3.4e38 + 3.4e38j, -3.4e38 - 1e38j, 3e38j], "complex64"),
     tolerance=2)(lambda z: abs(z))
case("min, max of complex", pairs(ODD))(
    lambda a, b: (np.maximum(a, b), np.minimum(a, b), np.fmax(a, b), np.fmin(a, b), min(a, b), max(a, b)))
for _name, _data in {"complex64": C64, "complex128": C128}.items():
    case(f"np.sin and its like of {_name}", _data * 0.7, tolerance=4)(
        lambda z: (np.sin(z), np.cos(z), np.tan(z), np.sinh(z), np.cosh(z), np.tanh(z)))
    case(f"np.arcsin and its like of {_name}", _data * 0.7, tolerance=4,
         golden="complex_functions" if _name == "complex64" else "")(
        lambda z: (np.arcsin(z), np.arccos(z), np.arctan(z), np.arcsinh(z), np.arccosh(z), np.arctanh(z)))
    case(f"np.log2 and its like of {_name}", _data * 0.7 + _data.dtype.type(0.1), tolerance=8)(
        lambda z: (np.log2(z), np.log10(z), np.log1p(z), np.exp2(z), np.expm1(z), np.sign(z), np.rint(z)))
case("np.exp of complex", C128, tolerance=8)(lambda z: np.exp(z))
case("complex functions at the ends of their range", FAR, tolerance=8)(
    lambda z: (np.exp(z), np.log(z), np.sqrt(z), np.reciprocal(z), abs(z)))
case("np.float_power of complex numbers at the ends of their range", pairs(FAR[::3], FAR[1:40:3]), tolerance=4096)(
    lambda a, b: np.float_power(a, b))
case("complex(re, im)", F64[:10])(lambda x: complex(x, 2 * x))

# -- truth ------------------------------------------------------------------------------------------------------------

case("and, or, not", pairs(BOOLS), golden="boolean_operators")(lambda a, b: (a and b, a or b, not a))
case("and, or of comparisons", F32)(lambda x: (x > 0 and x < 3, x < 0 or x > 5, not x > 1))
case("and, or of numbers", pairs(I32[:6]))(lambda a, b: (a and b, a or b))
case("and, or of three", F32)(lambda x: x > 0 and x < 100 and x != 3)
case("conditional expression", F32, golden="conditional_expression")(lambda x: x * 2 if x > 0 else -x)
case("nested conditional expressions", F32)(lambda x: np.float32(1) if x > 1 else (np.float32(2) if x > 0 else x))
case("conditional expression of a float and an int", F32, promoted=True)(lambda x: x if x > 0 else 0)
case("truth of a number", F32)(lambda x: np.float32(1) if x else np.float32(2))
case("bool(x)", F32)(lambda x: bool(x))
case("True and False", F32)(lambda x: (True, False, x if True else 3))

# -- conversions ------------------------------------------------------------------------------------------------------

case("int(x)", np.float64([0.5, -0.5, 2.9, -2.9, 1e9]))(lambda x: int(x))
case("float(x)", I32)(lambda x: float(x) / 3)
case("float(x) is a Python float", pairs(I32[:6], F32[:6]))(lambda a, b: float(a) * b)
case("np.float32(x)", F64[:12])(lambda x: np.float32(x))
case("np.float64(x)", F32)(lambda x: np.float64(x) * 0.1)
case("np.int8(x)", I32)(lambda x: np.int64(x) + np.int32(x))
case("np.uint8 by .astype", I32)(lambda x: x.astype(np.uint8))
case("round(x)", np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 2.4, 2.6]))(lambda x: round(x))
case("round(x) of an int", I32)(lambda x: round(x))
case("x.item()", F32)(lambda x: x.item() * 2)
for _data in (I64, I8, U64):
    case(f"x.bit_count() of {_data.dtype}", _data)(lambda x: (x.bit_count(), int(x >> 1).bit_count()))
case("x.bit_length() of Python's ints", F64[np.abs(F64) < 1e15])(lambda x: (int(x).bit_length(), (x > 0) * 3))
case("x.is_integer()", np.float64([0.5, -2, 1e300, np.inf, -np.inf, np.nan, -0.0, 5e-324]))(lambda x: x.is_integer())
case("x.is_integer() of other types", pairs(F16, I32))(lambda a, b: (a.is_integer(), b.is_integer()))
case("a number times a tuple", pairs(F32[:6], I32[:6]))(lambda a, b: 2 * (a, b))
case("abs of a Python number", I32)(lambda x: x * abs(-3) + abs(2.5))
case("min and max of Python numbers", F32)(lambda x: x * max(2, 3) + min(1.5, 2))
case("min and max of three", pairs(F32[:12]))(lambda a, b: (min(a, b, a * b), max(a, b, a - b)))
case("min and max of a tuple", pairs(F32[:12]))(lambda a, b: min((a, b)))
case("pow(x, y)", F32, tolerance=2)(lambda x: pow(x, 2))

# -- functions --------------------------------------------------------------------------------------------------------

_UNIT_FUNCTIONS = (np.exp, np.exp2, np.expm1, np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh,
                   np.tanh, np.arcsinh, np.cbrt)
case("np.exp and its like", UNIT, tolerance=8, golden="ufuncs")(
    lambda x: (np.exp(x), np.exp2(x), np.expm1(x), np.cbrt(x), np.tanh(x)))
case("np.sin and its like", UNIT, tolerance=8)(
    lambda x: (np.sin(x), np.cos(x), np.tan(x), np.arcsin(x), np.arccos(x), np.arctan(x)))
case("np.sinh and its like", UNIT, tolerance=8)(lambda x: (np.sinh(x), np.cosh(x), np.arcsinh(x)))
case("np.log and its like", POSITIVE, tolerance=8)(
    lambda x: (np.log(x), np.log2(x), np.log10(x), np.log1p(x), np.sqrt(x), np.arccosh(1 + x)))
case("np.sqrt", F32)(lambda x: np.sqrt(x))
case("np.sqrt of float64", F64)(lambda x: np.sqrt(x))
case("np.exp of ints", I16[:7], tolerance=4)(lambda x: np.exp(x))
case("np.exp of int8 is float16", np.int8([0, 1, -2, 5]), tolerance=4)(lambda x: np.exp(x))
case("np.exp of special numbers", F64, tolerance=4)(lambda x: (np.exp(-abs(x)), np.log(abs(x))))
case("np.arctan2, np.hypot", pairs(F32[:12]), tolerance=4)(lambda a, b: (np.arctan2(a, b), np.hypot(a, b)))
case("np.copysign, np.fmod", pairs(F32))(lambda a, b: (np.copysign(a, b), np.fmod(a, b)))
case("np.floor, np.ceil, np.trunc, np.rint", F32)(lambda x: (np.floor(x), np.ceil(x), np.trunc(x), np.rint(x)))
case("np.floor of ints", I8)(lambda x: (np.floor(x), np.ceil(x), np.trunc(x)))
case("np.isnan, np.isinf, np.isfinite", F32)(lambda x: (np.isnan(x), np.isinf(x), np.isfinite(x), np.signbit(x)))
case("np.isnan of ints", I32)(lambda x: (np.isnan(x), np.isfinite(x), np.signbit(x)))
case("np.where", F32, golden="where")(lambda x: np.where(x > 0, x, 0.1))
case("np.clip", F32)(lambda x: np.clip(x, -2, 2))
case("np.logical_and and its like", pairs(F32[:6]))(
    lambda a, b: (np.logical_and(a, b), np.logical_or(a, b), np.logical_xor(a, b), np.logical_not(a)))
case("np.add and its like", pairs(F32))(lambda a, b: (np.add(a, b), np.subtract(a, b), np.multiply(a, b)))
case("np.reciprocal", F32)(lambda x: np.reciprocal(x))
case("np.deg2rad, np.rad2deg", F32[:12], tolerance=2)(lambda x: (np.deg2rad(x), np.rad2deg(x)))
case("np.left_shift", I32)(lambda x: np.left_shift(x, 3))
case("a ufunc imported by name", UNIT, tolerance=4)(lambda x: numpy_exp(x))
case("math.exp of float32 is a Python float", UNIT, tolerance=4, golden="math")(lambda x: math.exp(x))
case("math.exp beside float32", UNIT, tolerance=4)(lambda x: math.exp(x) * x)
case("math functions", POSITIVE, tolerance=8)(
    lambda x: (math.log(x), math.sqrt(x), math.sin(x), math.atan2(x, 2), math.hypot(x, 1), math.pow(x, 1.5)))
case("math.floor, ceil give ints", np.float32([0.5, -0.5, 2.7, -2.7]))(
    lambda x: (math.floor(x), math.ceil(x)))
case("math.log with a base", POSITIVE, tolerance=8)(lambda x: math.log(x, 3))
case("math.erf, gamma", POSITIVE[:6], tolerance=64)(lambda x: (math.erf(x), math.erfc(x), math.gamma(x)))
case("math.isnan", F32)(lambda x: (math.isnan(x), math.isinf(x), math.isfinite(x)))
case("math.radians, degrees", POSITIVE, tolerance=2)(lambda x: (math.radians(x), math.degrees(x)))
case("math.pi, math.inf, np.nan", F32[:6])(lambda x: (x * math.pi, x + math.inf, x + np.e))
case("operator's functions", pairs(F32[:12]))(
    lambda a, b: (operator.add(a, b), operator.mul(a, b), operator.neg(a), operator.lt(a, b)))
