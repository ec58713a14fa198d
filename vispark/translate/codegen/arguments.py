"""Arguments of library functions: what a call gives must be a number, an array, a row, an axis, a dtype, and is refused
with the function's name where it is not.
"""

from __future__ import annotations

import numpy as np

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar.casts import cast
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, List, Named, Nothing, Number, Tuple, Value, describe, reindexed
from vispark.translate.language.library import TYPES

#: The longest row that is taken apart into its numbers.
_SEVERAL = 64

#: Python's types to the dtypes that their numbers have here.
PYTHON_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "complex": "complex128"}
TYPE_NAMES = {f"numpy.{np.dtype(getattr(np, name)).name}" for name in TYPES}


def number_argument(value: Value, name: str) -> Number:
    """Return an argument of a function that must be a number."""
    number = plain(value)
    if not isinstance(number, Number):
        raise Refusal(f"{name} takes a number here, and this is {describe(value)}")
    return number


def scalar_argument(name: str, value: Value) -> Number:
    """Return an argument of a function of Python's or ``math``'s that must be a number."""
    if not isinstance(plain(value), Number):
        raise Refusal(f"{name} takes a number, and this is {describe(value)}; for arrays use numpy's")
    return plain(value)


def array_argument(emit: Emitter, value: Value, name: str) -> Array:
    """Return an argument that must be an array with axes; a tuple or a list becomes one."""
    if isinstance(value, Tuple | List):
        value = call_library(emit, "numpy.array", (value,), {})
    if not isinstance(value, Array) or not value.shape:
        raise Refusal(f"{name} is of arrays, and this is {describe(value)}")
    return value


def row_argument(emit: Emitter, value: Value, name: str) -> Array:
    """Return an argument that must be an array of one axis."""
    array = array_argument(emit, value, name)
    if len(array.shape) != 1:
        raise Refusal(f"{name} is of a row here, and this is {describe(value)}")
    return array


def python_row(value: Value, name: str) -> Array:
    """Return an argument of a function of Python's that must be a row."""
    if not isinstance(value, Array) or len(value.shape) != 1:
        raise Refusal(f"{name}() takes a row, and this is {describe(value)}"
                      + (f"; use np.{name}()" if isinstance(value, Array) else ""))
    return value


def items_argument(values: Value, name: str, advice: str = "") -> list[Value]:
    """Return the items of an argument that must be a tuple, a list or a short row."""
    if isinstance(values, Tuple | List) and values.items:
        return list(values.items)
    if isinstance(values, Array) and values.shape and 0 < values.shape[0] <= _SEVERAL:
        return [values.at(str(number)) if len(values.shape) == 1 else _part(values, number)
                for number in range(values.shape[0])]
    raise Refusal(f"{name} takes a tuple or a short row here, and this is {describe(values)}{advice}")


def axis_argument(array: Array, axis: Value | None, more: int = 0) -> int:
    """Return the number of an axis, counted from 0, of those that there are and ``more``."""
    number = static(plain(axis or Nothing()), "the axis must be known before the kernel runs")
    axes = len(array.shape) + more
    if not -axes <= number < axes:
        raise Refusal(f"{describe(array)} has no axis {number}")
    return number % axes


def count_argument(value: Value, name: str) -> int:
    """Return an argument that must be a whole number, not negative, and known before the kernel runs."""
    if not isinstance(value, Number):
        raise Refusal(f"{name} is one whole number here, and this is {describe(value)}")
    count = static(value, f"{name} must be known before the kernel runs")
    if count < 0:
        raise Refusal(f"{name} is {count}; it is not negative")
    return count


def dtype_argument(value: Value | None, default: str = "float64") -> Scalar:
    """Return a dtype given as an argument."""
    if value is None or isinstance(value, Nothing):
        return Scalar(default)
    if not isinstance(value, Named) or (value.name not in TYPE_NAMES and value.name not in PYTHON_TYPES):
        raise Refusal("a dtype is written as np.float32 and its like, or as int, float, bool")
    return Scalar(PYTHON_TYPES.get(value.name, value.name.removeprefix("numpy.")))


def shape_argument(value: Value) -> tuple[int, ...]:
    """Return an argument that must be a shape, known before the kernel runs."""
    reason = "the shape of an array must be known before the kernel runs, as lengths are compiled in"
    items = value.items if isinstance(value, Tuple | List) else (value,)
    shape = tuple(static(plain(item), reason) for item in items)
    if any(extent < 0 for extent in shape):
        raise Refusal(f"an array cannot have the shape {shape}")
    return shape


def at_least(emit: Emitter, value: Value, axes: int) -> Array:
    """Return a value as an array of at least so many axes, with new ones of one item in front."""
    array = plain(value)
    if isinstance(array, Number):
        number = emit.fixed(cast(array, array.type.strong))
        array = Array(number.type, (1,), lambda index: number.closed)
    while len(array.shape) < axes:
        array = reindexed(array, (1, *array.shape), lambda first, *rest: rest)
    return array


def _part(array: Array, number: int) -> Array:
    return reindexed(array, array.shape[1:], lambda *rest: (str(number), *rest))
