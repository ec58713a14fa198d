"""Scalar types and NumPy 2's promotion.

NumPy itself is asked what a ufunc makes of dtypes (``ufunc.resolve_dtypes``), so promotion is NumPy's by construction.
Python's numbers are weak: beside a NumPy number they take its type.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from vispark.translate.ir.errors import Refusal

#: dtype to its C++ type.
C_TYPES = {"bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
           "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
           "uint64": "unsigned long long", "float16": "half_t", "float32": "float", "float64": "double",
           "complex64": "complex_t<float>", "complex128": "complex_t<double>"}

_PYTHON = {"bool": bool, "int64": int, "float64": float, "complex128": complex}
_SHOWN = {"bool": "Python bool", "int64": "Python int", "float64": "Python float", "complex128": "Python complex"}


@dataclass(frozen=True)
class Scalar:
    """A scalar's type: NumPy's name for its dtype, and whether it is a Python number."""

    dtype: str
    weak: bool = False

    def __str__(self) -> str:
        return _SHOWN[self.dtype] if self.weak else self.dtype

    @property
    def numpy(self) -> np.dtype:
        """The dtype."""
        return np.dtype(self.dtype)

    @property
    def kind(self) -> str:
        """NumPy's letter for the kind: b, i, u, f or c."""
        return self.numpy.kind

    @property
    def c(self) -> str:
        """The C++ type."""
        return C_TYPES[self.dtype]

    @property
    def strong(self) -> Scalar:
        """The NumPy type that holds it."""
        return Scalar(self.dtype)


BOOL, INT, FLOAT, COMPLEX = (Scalar(name, weak=True) for name in _PYTHON)
NUMPY_BOOL = Scalar("bool")


def scalar_of(dtype: np.dtype | str, what: str) -> Scalar:
    """Return the type of elements of a dtype; ``what`` names them in errors."""
    name = np.dtype(dtype).newbyteorder("=").name
    if name not in C_TYPES:
        raise Refusal(f"{what} has dtype {np.dtype(dtype)}; a kernel takes bool, integers, floats and complex numbers"
                      " of at most 64 bits a part")
    return Scalar(name)


def weak_of(value: int | float | complex | bool) -> Scalar:
    """Return the type of a Python number."""
    return {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX}[type(value)]


@functools.lru_cache(maxsize=4096)
def resolve(ufunc: str | np.ufunc, *types: Scalar) -> tuple[tuple[Scalar, ...], Scalar]:
    """Return the types that NumPy casts a ufunc's operands to, and its result's type.

    Raises
    ------
    Refusal
        If NumPy has no such operation.

    Examples
    --------
    >>> str(resolve("multiply", Scalar("float32"), FLOAT)[1])
    'float32'
    """
    function = getattr(np, ufunc) if isinstance(ufunc, str) else ufunc
    operands = tuple(_PYTHON[t.dtype] if t.weak and t.dtype != "bool" else t.numpy for t in types)
    if all(isinstance(one, type) for one in operands):
        operands = tuple(np.dtype(one) for one in operands)
    try:
        dtypes = function.resolve_dtypes((*operands, *(None,) * function.nout))
    except TypeError as error:
        reason = str(error).split(", the `")[0].removeprefix("The ").strip()
        owner, ufunc = ("NumPy", ufunc) if isinstance(ufunc, str) else ("SciPy", ufunc.__name__)
        raise Refusal(f"{owner} has no {ufunc} of {' and '.join(map(str, types))} ({reason})") from error
    scalars = tuple(scalar_of(dtype, f"what {ufunc} computes with") for dtype in dtypes)
    return scalars[:function.nin], scalars[function.nin]


def join(a: Scalar, b: Scalar) -> Scalar:
    """Return the type of a variable that is either.

    Raises
    ------
    Refusal
        If one is a bool and the other is not.

    Examples
    --------
    >>> str(join(INT, Scalar("float32")))
    'float32'
    """
    if a == b:
        return a
    if (a.dtype == "bool") != (b.dtype == "bool"):
        raise Refusal(f"a value is {a} on one way and {b} on another; make both bool, or both numbers")
    if a.weak and b.weak:
        return max(a, b, key=lambda t: list(_PYTHON).index(t.dtype))
    if a.dtype == "bool":
        return NUMPY_BOOL
    return resolve("add", a, b)[1]


def python_arithmetic(operator: str, a: Scalar, b: Scalar) -> Scalar:
    """Return the type of an operation on two Python numbers; the sign of an int's exponent is the caller's care."""
    both_bool = a.dtype == b.dtype == "bool"
    if operator in "&|^" and both_bool:
        return BOOL
    wider = max(a, b, INT, key=lambda t: list(_PYTHON).index(t.dtype))
    if operator in ("&", "|", "^", "<<", ">>") and wider != INT:
        raise Refusal(f"Python has no {operator} of {a} and {b}")
    if wider == COMPLEX and operator in ("//", "%"):
        raise Refusal(f"Python has no {operator} of complex numbers")
    return max(wider, FLOAT, key=lambda t: list(_PYTHON).index(t.dtype)) if operator == "/" else wider
