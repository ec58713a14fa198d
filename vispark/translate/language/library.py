"""Tables of what is registered by the dozen: operators, functions of ``math``, NumPy's ufuncs and types."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import numpy as np

#: ``operator``'s functions to the operators that they are.
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
             "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@", "lt": "<", "le": "<=",
             "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "neg": "-", "pos": "+", "invert": "~", "not_": "not",
             "inv": "~", "abs": "abs"}

#: Operators with two operands to the ufuncs of NumPy that they are.
UFUNC_OF = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "remainder",
            "**": "power", "<<": "left_shift", ">>": "right_shift", "&": "bitwise_and", "|": "bitwise_or",
            "^": "bitwise_xor", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal",
            "!=": "not_equal"}
OPERATOR_OF = {name: symbol for symbol, name in UFUNC_OF.items()}
ORDER = ("<", "<=", ">", ">=")
COMPARISONS = (*ORDER, "==", "!=")
#: The same to the functions of Python that they are.
FUNCTION_OF: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne}

#: Functions of ``math``: of a float, giving a float.
MATH = {name: name for name in (
    "exp", "expm1", "log2", "log10", "log1p", "sqrt", "cbrt", "exp2", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "fabs", "erf", "erfc", "lgamma", "atan2", "pow",
    "fmod", "copysign", "nextafter")} | {"gamma": "tgamma", "remainder": "remainder"}
MATH_OTHER = ("log", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "radians", "degrees")

#: NumPy's ufuncs that are a C function of floats, to its name.
UFUNC_C = {"exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
           "log1p": "log1p", "sqrt": "sqrt", "cbrt": "cbrt", "sin": "sin", "cos": "cos", "tan": "tan",
           "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
           "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2",
           "fabs": "fabs", "copysign": "copysign", "fmod": "fmod"}
UFUNC_OTHER = ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative", "positive",
               "absolute", "left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "invert",
               "logical_and", "logical_or", "logical_xor", "logical_not", "less", "less_equal", "greater",
               "greater_equal", "equal", "not_equal", "maximum", "minimum", "fmax", "fmin", "floor", "ceil", "trunc",
               "rint", "sign", "square", "reciprocal", "isnan", "isinf", "isfinite", "signbit", "deg2rad", "rad2deg",
               "radians", "degrees", "conjugate", "logaddexp", "heaviside", "hypot", "logaddexp2", "gcd", "lcm",
               "ldexp", "nextafter", "spacing", "float_power",
               *(["bitwise_count"] if hasattr(np, "bitwise_count") else []))
TYPES = ("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
         "float64", "complex64", "complex128")

#: Attributes of numbers and arrays.
PROPERTIES = ("shape", "size", "ndim", "T", "real", "imag", "dtype")
#: What sparse vectors have beside.
OF_SPARSE = ("indices", "values")

#: Constants of modules that are compiled in.
MODULES = (math, np)


def is_random(value: object) -> bool:
    """Return whether it draws random numbers."""
    owner = getattr(value, "__self__", None)
    return any((getattr(one, "__module__", None) or "").split(".")[:2] in (["numpy", "random"], ["random"])
               for one in (value, type(owner)))


def is_library(value: object) -> bool:
    """Return whether an object is of the modules above, whether the language has it or not."""
    module = getattr(value, "__module__", None) or ""
    return isinstance(value, BuiltinFunctionType | np.ufunc) or is_random(value) \
        or module.split(".")[0] in ("numpy", "math", "operator", "builtins")
