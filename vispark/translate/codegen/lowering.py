"""Calls of library functions: each is lowered by what is registered under its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.operands import bool_of, plain, static
from vispark.translate.codegen.scalar.casts import cast
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import Array, Nothing, Number, Value, reindexed
from vispark.translate.language import registry, signatures


def call_library(emit: Emitter, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Any:
    """Return the value of a call of a library function, whose lines are written.

    Raises
    ------
    Refusal
        If the function is not known, does not take what is given, or cannot do it here.
    """
    function = registry.function(name)
    if function is None:
        raise Refusal(f"{name} is not supported here")
    variant = registry.variant(name, type(arguments[0])) if arguments else None
    if variant is not None:
        result = variant(emit, *arguments, **keywords)
        if result is not NotImplemented:
            return result
    arguments, keywords = signatures.bind(name, arguments, keywords)
    if keywords.get("keepdims") is not None:
        return _kept_axes(emit, name, arguments, dict(keywords))
    keywords.pop("keepdims", None)
    lowering = emit.lowerings.get(name, function.lowering)
    if lowering is None:
        raise Refusal(f"{name} is not supported here")
    return lowering(emit, *arguments, **keywords)


def _kept_axes(emit: Emitter, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
    """Return a reduction's result with an axis of one item in place of each reduced axis."""
    keepdims = keywords.pop("keepdims")
    axis = keywords.get("axis", arguments[1] if len(arguments) > 1 and name != "numpy.linalg.norm" else Nothing())
    result: Any = call_library(emit, name, arguments, keywords)
    reason = f"keepdims of {signatures.shown(name)} must be known before the kernel runs"
    if not static(bool_of(keepdims), reason):
        return result
    operand: Any = call_library(emit, "numpy.asarray", (arguments[0] if arguments else next(iter(keywords.values())),),
                                {})
    axes = len(operand.shape) if isinstance(operand, Array) else 0
    along = range(axes) if isinstance(axis, Nothing) else \
        [static(plain(axis), "the axis must be known before the kernel runs") % max(axes, 1)]
    others = [one for one in range(axes) if one not in along]
    if isinstance(result, Number):
        settled = emit.fixed(cast(result, result.type.strong))
        return Array(settled.type, (1,) * axes, lambda *indices: settled.closed, fresh=True) if axes else result
    shape = tuple(1 if one in along else operand.shape[one] for one in range(axes))
    return replace(reindexed(result, shape, lambda *indices: tuple(indices[one] for one in others)), fresh=True)
