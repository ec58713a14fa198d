"""Functions of Python, ``math``, ``operator`` and NumPy in the language: objects to the names used inside."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from vispark.translate.language.stencil import coordinate, extent

BUILTINS = ("abs", "min", "max", "sum", "len", "range", "int", "float", "bool", "complex", "round", "pow", "divmod",
            "enumerate", "zip", "any", "all", "reversed", "sorted", "tuple", "list")

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
    "fmod", "copysign", "nextafter")} | {"gamma": "tgamma", "remainder": "remainder", "hypot": "hypotenuse<double>"}
MATH_OTHER = ("log", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "radians", "degrees", "prod", "dist",
              "isclose", "frexp", "modf", "ldexp")

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
FUNCTIONS = ("dot", "sum", "prod", "mean", "argmin", "argmax", "min", "max", "any", "all", "where", "clip", "zeros",
             "ones", "full", "empty", "array", "asarray", "zeros_like", "ones_like", "copy", "real", "imag", "inner",
             "vdot", "outer", "matmul", "arange", "transpose", "var", "std", "cumsum", "cumprod", "diff", "ptp",
             "count_nonzero", "polyval", "linspace", "eye", "identity", "full_like", "empty_like", "concatenate",
             "hstack", "vstack", "stack", "append", "flip", "roll", "reshape", "ravel", "trace", "cross", "angle",
             "isclose", "allclose", "round", "around", "sort", "argsort", "median", "searchsorted", "digitize",
             "interp", "einsum", "nansum", "nanmin", "nanmax", "nanmean", "squeeze", "expand_dims", "gradient",
             "quantile", "percentile", "repeat", "tile", "pad", "convolve", "divmod", "modf", "frexp")
#: Names that NumPy has a second function under, to those above.
ALIASES = {"amin": "min", "amax": "max"}
LINALG = ("norm",)
TYPES = ("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
         "float64", "complex64", "complex128")

#: Attributes of numbers and arrays, and methods with the functions that they are.
PROPERTIES = ("shape", "size", "ndim", "T", "real", "imag", "dtype")
METHODS = {name: f"numpy.{name}" for name in ("sum", "prod", "mean", "min", "max", "argmin", "argmax", "dot", "any",
                                              "all", "copy", "var", "std", "transpose", "cumsum", "cumprod", "ravel",
                                              "trace", "round", "argsort", "squeeze")}
METHODS |= {"conj": "numpy.conjugate", "conjugate": "numpy.conjugate", "astype": "astype", "item": "item",
            "flatten": "flatten", "clip": "clip", "reshape": "reshape"}

#: Constants of modules that are compiled in.
MODULES = (math, np)


def _table() -> dict[Hashable, str]:
    found: dict[Hashable, str] = {getattr(builtins, name): name for name in BUILTINS}
    found |= {getattr(math, name): f"math.{name}" for name in (*MATH, *MATH_OTHER) if hasattr(math, name)}
    found |= {getattr(np, name): f"numpy.{name}" for name in (*FUNCTIONS, *UFUNC_C, *UFUNC_OTHER)}
    found |= {getattr(np, name): f"numpy.{meant}" for name, meant in ALIASES.items()}
    found |= {np.lib.stride_tricks.sliding_window_view: "numpy.lib.stride_tricks.sliding_window_view"}
    found |= {getattr(np.linalg, name): f"numpy.linalg.{name}" for name in LINALG}
    found |= {getattr(np, name): f"numpy.{np.dtype(getattr(np, name)).name}" for name in TYPES}
    found |= {getattr(operator, name): f"operator.{name}" for name in OPERATORS if name != "abs"}
    found |= {coordinate: "grid.coordinate", extent: "grid.extent"}
    return found


_NAMES = _table()


def names() -> list[str]:
    """Return the names of all functions and types of the library, with their modules."""
    return sorted(set(_NAMES.values()))


def name_of(value: object) -> str | None:
    """Return the name of a function or type of the library, or None for any other object."""
    if isinstance(value, np.dtype):
        return f"numpy.{value.name}" if value.names is None and value.shape == () else None
    try:
        return _NAMES.get(value)
    except TypeError:
        return None


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
