"""Items whose number is only known as the kernel runs, ``p[p > 0]`` and ``p[:n]``: they are reduced, and not stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vispark.translate.codegen.numpy.arrays import REDUCTIONS
from vispark.translate.codegen.numpy.einsum import Subscripts
from vispark.translate.codegen.numpy.reductions import squared
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import NotConstant, Refusal
from vispark.translate.ir.types import INT, Scalar
from vispark.translate.ir.values import Array, Nothing, Number, Selected, Value

_REDUCED = ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std")


class Selections(Subscripts):
    """Reductions of items that a mask selects, and arithmetic of these with numbers before it."""

    def elementwise(self, operation: Callable[..., Number], *operands: Value) -> Any:
        """Return an operation on numbers, for numbers, arrays, or both in one shape."""
        chosen = [one for one in operands if isinstance(one, Selected)]
        if not chosen:
            return super().elementwise(operation, *operands)
        mask = chosen[0].mask
        if any(one.mask is not mask for one in chosen) or any(isinstance(one, Array) for one in operands):
            raise NotConstant("how many items each side has is not known before the kernel runs; use np.where(mask, "
                              "p * q, 0), which keeps all")
        found = super().elementwise(operation, *(one.values if isinstance(one, Selected) else one for one in operands))
        return Selected(found, mask, chosen[0].reason)

    def library(self, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a call of one of the library's functions."""
        module, _, short = name.rpartition(".")
        if not arguments or not isinstance(arguments[0], Selected):
            return super().library(name, arguments, keywords)
        if name in ("len", "sum", "min", "max", "any", "all") and len(arguments) == 1 and not keywords:
            return cast(self.count_of_selected(arguments[0]), INT) if name == "len" else \
                self._of_selected(name, arguments[0])
        if module == "numpy" and short in REDUCTIONS:
            known = {key: one for key, one in keywords.items() if not isinstance(one, Nothing)}
            rest = arguments[1:]
            if short in _REDUCED and not rest and set(known) <= {"ddof"}:
                return self._of_selected(short, arguments[0], known.get("ddof"))
        return super().library(name, arguments, keywords)

    def count_of_selected(self, given: Selected) -> Number:
        """Return the number of items that a mask selects."""
        found: Any = self.library("numpy.sum", (given.mask,), {})
        return found

    def _of_selected(self, name: str, given: Selected, ddof: Value | None = None) -> Value:
        array = given.values
        if name in ("mean", "var", "std"):
            return self._spread_of_selected(name, given, ddof)
        if name in ("min", "max"):
            return self.library(f"numpy.{name}", (self._filled_outside(given, _beyond_all(name, array.type)),), {})
        fill = {"sum": 0, "prod": 1, "any": False, "all": True}[name]
        return self.library(f"numpy.{name}", (self._filled_outside(given, fill),), {})

    def _spread_of_selected(self, name: str, given: Selected, ddof: Value | None) -> Value:
        array = given.values
        kind = array.type if array.type.kind in "fc" else Scalar("float64")
        wide = Selected(self.astype(array, kind), given.mask)
        count = self.keep(self.count_of_selected(given), "count")

        def mean(items: Selected, less: int = 0) -> Number:
            total: Any = self._of_selected("sum", items)
            shared = scalars.binary("-", count, literal(less)) if less else count
            return scalars.ufunc("divide", total, cast(shared, total.type))

        if name == "mean":
            return mean(wide)
        middle = self.keep(mean(wide), "mean")
        apart = self.elementwise(lambda a: squared(scalars.binary("-", a, middle)), wide)
        less = 0 if ddof is None else self.static(self.plain(ddof), "ddof must be known before the kernel runs")
        found = mean(apart, less)
        return found if name == "var" else scalars.ufunc("sqrt", found)

    def _filled_outside(self, given: Selected, value: Any) -> Any:
        """Return all items with a number in place of those that are not selected."""
        kind = given.values.type
        fill = literal(value) if kind.kind == "b" else cast(literal(value), kind)
        return super().elementwise(lambda mask, one: numbers.where(mask, one, cast(fill, one.type)), given.mask,
                                   given.values)


def _beyond_all(name: str, kind: Scalar) -> int | float:
    """Return the number that no item is beyond."""
    if kind.kind == "b":
        return name == "min"
    if kind.kind in "iu":
        limits = np.iinfo(kind.numpy)
        return int(limits.max if name == "min" else limits.min)
    if kind.kind == "c":
        raise Refusal(f"np.{name} of complex numbers that a mask selects is not supported; use .real or abs()")
    return math.inf if name == "min" else -math.inf
