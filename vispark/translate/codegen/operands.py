"""Checks of values: a number, an array, true or false, known before the kernel runs."""

from __future__ import annotations

from typing import Any

from vispark.translate.codegen.scalar.casts import literal, truth
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import Array, List, Nothing, Number, Selected, Tuple, Value, describe


def plain(value: Value) -> Any:
    """Return a value that must be a number or an array; an array without axes is a number."""
    if isinstance(value, Array) and value.shape == ():
        return value.at()
    if isinstance(value, Selected):
        raise value.refusal()
    if isinstance(value, List) or (isinstance(value, Tuple) and value.items):
        raise Refusal(f"{describe(value)} is no array; make one: np.array([...])")
    if not isinstance(value, Number | Array):
        raise Refusal(f"numbers and arrays are needed here, and this is {describe(value)}")
    return value


def as_number(value: Value, what: str = "a number") -> Number:
    """Return a value that must be a number."""
    if isinstance(value, Array) and value.shape == ():
        return value.at()
    if not isinstance(value, Number):
        raise Refusal(f"{what} is needed here, and this is {describe(value)}")
    return value


def static(number: Number, reason: str) -> int:
    """Return a known whole number; one that was captured or given becomes part of the kernel."""
    if not isinstance(number, Number):
        raise Refusal(f"{reason}, and this is {describe(number)}")
    if number.known and isinstance(number.value, int):
        return int(number.value)
    raise NeedsStatic.of(number, reason)


def bool_of(value: Value) -> Number:
    """Return ``bool(value)``."""
    if isinstance(value, Nothing):
        return literal(False)
    if isinstance(value, Tuple | List):
        return literal(bool(value.items))
    if isinstance(value, Array) and value.size == 1:
        return truth(value.at(*("0",) * len(value.shape)))
    if isinstance(value, Array):
        raise Refusal(f"an array of {value.size} elements is neither true nor false; use np.any() or np.all()")
    return truth(as_number(value))
