"""Python's own functions of numbers, rows and tuples."""

from __future__ import annotations

from typing import Any

from vispark.translate.codegen.arguments import python_row, scalar_argument
from vispark.translate.codegen.elementwise import elementwise, numpy_round, ufunc
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.numpy.reductions import fold_row
from vispark.translate.codegen.operands import bool_of, plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, derived, describe
from vispark.translate.language.registry import lowers

#: Powers of ten up to this one are exact.
_DIGITS = 22


@lowers("abs", "x /")
def python_abs(emit: Emitter, x: Value) -> Value:
    """Return ``abs(x)``."""
    return elementwise(emit, numbers.absolute, x)


@lowers("pow", "base exp mod!", instead={"mod": "write x ** n % m"})
def python_pow(emit: Emitter, base: Value, exp: Value) -> Value:
    """Return ``pow(base, exp)``."""
    return elementwise(emit, lambda a, b: scalars.binary("**", a, b), base, exp)


@lowers("divmod", "x y /")
def python_divmod(emit: Emitter, x: Value, y: Value) -> Value:
    """Return ``divmod(x, y)``."""
    return Tuple(tuple(elementwise(emit, lambda a, b, symbol=symbol: scalars.binary(symbol, a, b), x, y)
                       for symbol in ("//", "%")))


@lowers("len", "obj /")
def python_len(emit: Emitter, obj: Value) -> Value:
    """Return ``len(obj)``."""
    if isinstance(obj, Tuple | List):
        return literal(len(obj.items))
    if not isinstance(obj, Array) or not obj.shape:
        raise Refusal(f"{describe(obj)} has no length")
    return literal(obj.shape[0])


@lowers("min", "*values key= default=")
def python_min(emit: Emitter, *values: Value, key: Value | None = None, default: Value | None = None) -> Value:
    """Return ``min(*values, key, default)``."""
    return _extreme(emit, "min", values, key, default)


@lowers("max", "*values key= default=")
def python_max(emit: Emitter, *values: Value, key: Value | None = None, default: Value | None = None) -> Value:
    """Return ``max(*values, key, default)``."""
    return _extreme(emit, "max", values, key, default)


def _extreme(emit: Emitter, name: str, values: tuple[Value, ...], key: Value | None, default: Value | None) -> Value:
    """Return ``min`` and ``max`` of several numbers, of a tuple, or of a row."""
    if key is not None and not isinstance(key, Nothing):
        raise Refusal(f"key of {name}() is not supported behind *; give {name}() the row itself")
    if default is not None and len(values) != 1:
        raise Refusal(f"default of {name}() is for one row or tuple that may be empty")
    if default is not None and isinstance(values[0], Array | Tuple | List) and _is_empty(values[0]):
        return default
    if len(values) == 1 and isinstance(values[0], Array):
        return fold_row(emit, name, python_row(values[0], name))
    if len(values) == 1 and isinstance(values[0], Tuple | List):
        values = values[0].items
    elif len(values) == 1:
        raise Refusal(f"{name}() takes several numbers, a tuple or a row, and this is {describe(values[0])}")
    if not values:
        raise Refusal(f"{name}() of nothing has no value")
    extreme = scalar_argument(name, values[0])
    for value in values[1:]:
        extreme = numbers.extreme(name, extreme, scalar_argument(name, value))
    return extreme


def _is_empty(value: Array | Tuple | List) -> bool:
    return value.shape[:1] == (0,) if isinstance(value, Array) else not value.items


@lowers("sum", "iterable / start=")
def python_sum(emit: Emitter, iterable: Value, start: Value | None = None) -> Value:
    """Return ``sum(iterable, start)``."""
    first = literal(0) if start is None else plain(start)
    if isinstance(iterable, Tuple | List):
        for value in iterable.items:
            first = elementwise(emit, lambda a, b: scalars.binary("+", a, b), first, value)
        return first
    if not isinstance(first, Number):
        raise Refusal("sum() of a row begins with a number here, and this start is "
                      f"{describe(first)}; write start + sum(p)")
    return fold_row(emit, "sum", python_row(iterable, "sum"), first)


@lowers("any", "iterable /")
def python_any(emit: Emitter, iterable: Value) -> Value:
    """Return ``any(iterable)``."""
    return _python_truth(emit, "any", iterable)


@lowers("all", "iterable /")
def python_all(emit: Emitter, iterable: Value) -> Value:
    """Return ``all(iterable)``."""
    return _python_truth(emit, "all", iterable)


def _python_truth(emit: Emitter, name: str, iterable: Value) -> Value:
    if not isinstance(iterable, Tuple | List):
        return fold_row(emit, name, python_row(iterable, name))
    unknown: list[Number] = []
    for test in map(bool_of, iterable.items):
        if test.known and bool(test.value) == (name == "any"):
            return literal(name == "any")
        unknown += [] if test.known else [test]
    if not unknown:
        return literal(name == "all")
    text = (" || " if name == "any" else " && ").join(test.closed for test in unknown)
    return derived(Number(BOOL, text, atom=len(unknown) == 1 and unknown[0].atom), *unknown)


@lowers("round", "number ndigits=")
def python_round(emit: Emitter, number: Any, ndigits: Value | None = None) -> Value:
    """Return ``round(number, ndigits)``."""
    value, digits, number = number, ndigits, plain(number)
    if digits is None or isinstance(digits, Nothing):
        return elementwise(emit, numbers.rounded, value) if isinstance(number, Number) \
            else ufunc(emit, "rint", (value,))
    if number.type.kind == "c":
        raise Refusal(f"Python has no round() of {number.type}; write np.round(z, n)")
    decimals = static(plain(digits), "to how many digits round() rounds must be known before the kernel "
                                            "runs")
    if isinstance(number, Number) and number.known:
        return literal(round(number.value, decimals))
    if isinstance(number, Number) and number.type == FLOAT:
        if not 0 <= decimals <= _DIGITS:
            raise Refusal(f"round() of a Python float is to 0 to {_DIGITS} digits here; write np.round(x, n)")
        return Number(FLOAT, f"round_digits({number.text}, {float(10 ** decimals)!r})")
    return numpy_round(emit, value, digits)
