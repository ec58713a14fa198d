"""Spreads, norms and places of extremes of rows whose length only data says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.ragged import elementwise_ragged, length_of
from vispark.translate.codegen.numpy.reductions import is_beyond, squared
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Nothing, Number, RaggedRow, Value
from vispark.translate.language.registry import lowers_for


@lowers_for(RaggedRow, "numpy.var", "numpy.std")
def spread_of_row(emit: Emitter, row: RaggedRow, *rest: Value, name: str, **keywords: Value) -> Number:
    """Return the mean of the squares of the distances from the mean, or its root."""
    ddof = keywords.pop("ddof", Nothing())
    _check_alone(name, rest, keywords)
    less = 0 if isinstance(ddof, Nothing) else static(plain(ddof), "ddof must be known before the kernel runs")
    wide = _of_floats(emit, row)
    middle = emit.keep(_called(emit, "mean", wide), "mean")
    total = _called(emit, "sum", elementwise_ragged(emit, lambda a: squared(scalars.binary("-", a, middle)), (wide,)))
    count = scalars.ufunc("maximum", scalars.binary("-", length_of(row), literal(less)), literal(0))
    variance = scalars.ufunc("divide", total, cast(count, total.type))
    return variance if name == "numpy.var" else scalars.ufunc("sqrt", variance)


@lowers_for(RaggedRow, "numpy.linalg.norm")
def norm_of_row(emit: Emitter, row: RaggedRow, *rest: Value, name: str, **keywords: Value) -> Number:
    """Return the root of the sum of squares."""
    _check_alone(name, rest, keywords)
    squares = elementwise_ragged(emit, squared, (_of_floats(emit, row),))
    return scalars.ufunc("sqrt", _called(emit, "sum", squares))


@lowers_for(RaggedRow, "numpy.argmin", "numpy.argmax")
def place_of_extreme(emit: Emitter, row: RaggedRow, *rest: Value, name: str, **keywords: Value) -> Number:
    """Return the first place of the least or the greatest item, or of a NaN."""
    _check_alone(name, rest, keywords)
    if emit.lanes > 1:
        raise Serial
    emit.line(f"check_items({row.length});")
    best = emit.variable(row.type, "best", scalars.unseen(row.at("0")))
    place = emit.variable(Scalar("int64"), "place", numbers.convert(literal(0), Scalar("int64")))
    index = emit.name("i")
    with emit.block(f"for (int {index} = 1; {index} < {row.length}; ++{index})"):
        item = emit.keep(row.at(index), "item")
        with emit.block(f"if ({is_beyond(name.removeprefix('numpy.arg'), item, best)})"):
            emit.line(f"{best.text} = {item.text};")
            emit.line(f"{place.text} = {index};")
    return replace(place, variable=False)


def _of_floats(emit: Emitter, row: RaggedRow) -> RaggedRow:
    kind = row.type if row.type.kind in "fc" else Scalar("float64")
    return elementwise_ragged(emit, lambda a: numbers.convert(a, kind), (row,))


def _called(emit: Emitter, name: str, row: RaggedRow) -> Number:
    result: Any = call_library(emit, f"numpy.{name}", (row,), {})
    return result


def _check_alone(name: str, rest: tuple[Value, ...], keywords: dict[str, Value]) -> None:
    if rest or any(not isinstance(one, Nothing) for one in keywords.values()):
        raise Refusal(f"{name.replace('numpy', 'np')} of a row whose length only data says takes no axis and the like")
