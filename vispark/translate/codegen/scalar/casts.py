"""A scalar as a constant of C++, and as another type: NumPy's and C's conversions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, INT, Scalar, weak_of
from vispark.translate.ir.values import INT32, Number, derived

INT64 = -(2**63), 2**63 - 1
#: The text of a Python int beyond 64 bits with sign, which is cast to np.uint64 or a float before it is written.
_TOO_LARGE = "int_beyond_64_bits"
#: Bytes of the integers that a GPU's compiler negates and compares wrongly: opaque() in the prelude says how.
SHORT = 2


def literal(value: Any) -> Number:
    """Return a Python number that is known."""
    kind = weak_of(value)
    if kind == INT:
        if not fits_python_int(value):
            return Number(INT, _TOO_LARGE, value)
        return Number(INT, _int_text(value, INT32[0] <= value <= INT32[1]), value, (value, value), atom=value >= 0)
    return Number(kind, text_of(value, kind), value, atom=kind == BOOL or not str(value).startswith("-"))


def fits_python_int(value: int) -> bool:
    """Return whether a Python int fits the 64 bits that one has in a kernel."""
    return INT64[0] <= value <= INT64[1]


def text_of(value: Any, kind: Scalar) -> str:
    """Return a value of a type as a C++ constant."""
    if kind.kind == "b":
        return "true" if value else "false"
    if kind.kind == "c":
        part = Scalar("float32" if kind.dtype == "complex64" else "float64")
        value = complex(value)
        return f"{kind.c}({text_of(value.real, part)}, {text_of(value.imag, part)})"
    if kind.kind == "f":
        return _float_text(float(value), kind)
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "u"}.get(kind.dtype, "")
    if value == -2**63:
        return "(-9223372036854775807LL - 1)"
    return f"{int(value)}{suffix}" if value != -2**31 or suffix else "(-2147483647 - 1)"


def _int_text(value: int, narrow: bool) -> str:
    return text_of(value, Scalar("int32" if narrow else "int64"))


def _float_text(value: float, kind: Scalar) -> str:
    if kind.dtype == "float16":
        with np.errstate(over="ignore"):
            value = float(np.float16(value))
        return f"half_t({_float_text(value, Scalar('float32'))})"
    single = kind.dtype == "float32"
    with np.errstate(over="ignore"):
        value = float(np.float32(value)) if single else value
    if not math.isfinite(value):
        bits = "0x7ff8000000000000LL" if math.isnan(value) else "0x7ff0000000000000LL"
        text = f"{'(float)' if single else ''}__longlong_as_double({bits})"
        return f"-{text}" if value < 0 else text
    text = str(np.float32(value)) if single else repr(value)
    return f"{text}f" if single else text


def cast(number: Number, to: Scalar) -> Number:
    """Return a number as another type, converted as NumPy and C do.

    Raises
    ------
    Refusal
        If a known Python int does not fit.
    """
    converted = derived(_cast(number, to), number)
    return replace(converted, common=True) if number.common else converted


def _cast(number: Number, to: Scalar) -> Number:
    if (number.known and not isinstance(number.value, complex)) or (number.known and to.kind == "c"):
        return _cast_known(number, to)
    if number.type.dtype == to.dtype:
        text = f"(long long){number.closed}" if number.c == "int" and to.dtype == "int64" and not to.weak else None
        if text is None:
            return Number(to, number.text, bounds=number.bounds if to == INT else None, atom=number.atom)
        return Number(to, text, atom=False)
    if to.kind == "b":
        return Number(to, truth(number).text, atom=False)
    if number.type.kind == "c" and to.kind != "c":
        raise Refusal(f"{number.type} does not become {to} by itself; take .real, .imag or abs()")
    if to.kind == "c" or to.dtype == "float16":
        part = "float" if to.dtype == "complex64" else "double"
        inner = f"({part}){number.closed}" if to.kind == "c" and number.type.kind != "c" else number.text
        return Number(to, f"{to.c}({inner})")
    if number.type.kind == "f" and to.kind in "iu":
        return Number(to, f"to_integer<{to.c}>({computed(number)})")
    if to.kind in "iu" and to.numpy.itemsize == SHORT < number.type.numpy.itemsize and not _fits(number, to):
        return Number(to, f"({to.c})opaque<int>((int){number.closed})", atom=False)
    return Number(to, f"({to.c}){computed(number) if number.type.dtype == 'float16' else number.closed}", atom=False,
                  bounds=None)


def _fits(number: Number, to: Scalar) -> bool:
    """Return whether an integer is known to be one of a type's."""
    low, high = range_of(to)
    return number.bounds is not None and low <= number.bounds[0] <= number.bounds[1] <= high


def _cast_known(number: Number, to: Scalar) -> Number:
    if to.kind in "iu":
        value = int(number.value)
        limits = np.iinfo(to.numpy)
        if number.type.kind != "f" and not limits.min <= value <= limits.max:
            instead = "; write np.uint64(...) of it" if to == INT and 0 < value < 2**64 else ""
            raise Refusal(f"{value} does not fit {'64 bits with sign' if to == INT else to}{instead}")
        if to == INT:
            return literal(value)
        return Number(to, text_of(value, to), atom=value >= 0)
    if to.weak:
        return literal({"b": bool, "f": float, "c": complex}[to.kind](number.value))
    text = text_of(number.value, to)
    return Number(to, text, atom=not text.startswith("-"))


def computed(number: Number) -> str:
    """Return a number's text where C++ computes with it: half precision as float."""
    return f"(float){number.closed}" if number.type.dtype == "float16" else number.closed


def truth(number: Number) -> Number:
    """Return ``bool(number)``."""
    if number.known:
        return literal(bool(number.value))
    if number.type.kind == "b":
        return number
    if number.type.kind == "c":
        return Number(BOOL, f"{number.closed} != {number.type.c}(0)", atom=False)
    return derived(Number(BOOL, f"{computed(number)} != 0", atom=False), number)


def range_of(kind: Scalar) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    limits = np.iinfo(kind.numpy)
    return int(limits.min), int(limits.max)
