"""Items whose number is only known as the kernel runs, ``p[p > 0]`` and ``p[:n]``: they are reduced, and not stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vispark.translate.codegen.elementwise import astype, elementwise
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.reductions import squared
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import INT, Scalar
from vispark.translate.ir.values import Nothing, Number, Selected, Value
from vispark.translate.language.registry import lowers_for

_REDUCED = tuple(f"numpy.{name}" for name in ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std"))
_FOLDED = ("sum", "min", "max", "any", "all")


@lowers_for(Selected, *_REDUCED)
def reduce_selected(emit: Emitter, items: Selected, *rest: Value, name: str, **keywords: Value) -> Any:
    """Return a reduction of NumPy's; one with an axis or the like is left to that of arrays, which refuses it."""
    options = {key: one for key, one in keywords.items() if not isinstance(one, Nothing)}
    if rest or set(options) - {"ddof"}:
        return NotImplemented
    return _of_selected(emit, name.removeprefix("numpy."), items, options.get("ddof"))


@lowers_for(Selected, *_FOLDED)
def fold_selected(emit: Emitter, items: Selected, *rest: Value, name: str, **keywords: Value) -> Any:
    """Return ``sum(p[p > 0])`` and its like."""
    return NotImplemented if rest or keywords else _of_selected(emit, name, items)


@lowers_for(Selected, "len")
def len_selected(emit: Emitter, items: Selected, name: str) -> Number:
    """Return ``len(p[p > 0])``."""
    return cast(count_of_selected(emit, items), INT)


def count_of_selected(emit: Emitter, items: Selected) -> Number:
    """Return the number of items that a mask selects."""
    count: Any = call_library(emit, "numpy.sum", (items.mask,), {})
    return count


def _of_selected(emit: Emitter, name: str, items: Selected, ddof: Value | None = None) -> Value:
    array = items.values
    if name in ("mean", "var", "std"):
        return _spread_of_selected(emit, name, items, ddof)
    if name in ("min", "max"):
        return call_library(emit, f"numpy.{name}", (_filled_outside(emit, items, _neutral(name, array.type)),), {})
    fill = {"sum": 0, "prod": 1, "any": False, "all": True}[name]
    return call_library(emit, f"numpy.{name}", (_filled_outside(emit, items, fill),), {})


def _spread_of_selected(emit: Emitter, name: str, chosen: Selected, ddof: Value | None) -> Value:
    array = chosen.values
    kind = array.type if array.type.kind in "fc" else Scalar("float64")
    wide = Selected(astype(array, kind), chosen.mask)
    count = emit.keep(count_of_selected(emit, chosen), "count")

    def mean(items: Selected, less: int = 0) -> Number:
        total: Any = _of_selected(emit, "sum", items)
        shared = scalars.binary("-", count, literal(less)) if less else count
        return scalars.ufunc("divide", total, cast(shared, total.type))

    if name == "mean":
        return mean(wide)
    middle = emit.keep(mean(wide), "mean")
    apart = elementwise(emit, lambda a: squared(scalars.binary("-", a, middle)), wide)
    less = 0 if ddof is None else static(plain(ddof), "ddof must be known before the kernel runs")
    variance = mean(apart, less)
    return variance if name == "var" else scalars.ufunc("sqrt", variance)


def _filled_outside(emit: Emitter, items: Selected, value: Any) -> Any:
    """Return all items with a number in place of those that are not selected."""
    kind = items.values.type
    fill = literal(value) if kind.kind == "b" else cast(literal(value), kind)
    return elementwise(emit, lambda mask, one: numbers.where(mask, one, cast(fill, one.type)), items.mask, items.values)


def _neutral(name: str, kind: Scalar) -> int | float:
    """Return the number that no item is beyond."""
    if kind.kind == "b":
        return name == "min"
    if kind.kind in "iu":
        limits = np.iinfo(kind.numpy)
        return int(limits.max if name == "min" else limits.min)
    if kind.kind == "c":
        raise Refusal(f"np.{name} of complex numbers that a mask selects is not supported; use .real or abs()")
    return math.inf if name == "min" else -math.inf
