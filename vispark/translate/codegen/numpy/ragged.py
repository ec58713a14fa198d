"""Rows whose length only data says: they are looped over, indexed, computed with and reduced, and not stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.operands import as_number, plain
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, truth
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, INT, Scalar
from vispark.translate.ir.values import Array, Nothing, Number, RaggedRow, SparseRow, Value, describe
from vispark.translate.language.registry import lowers_for

#: The most items that a row has.
_MOST = 2**31 - 1
_REDUCED = tuple(f"numpy.{name}" for name in ("sum", "prod", "min", "max", "any", "all", "mean"))
_FOLDED = ("sum", "min", "max", "any", "all")


def length_of(row: RaggedRow) -> Number:
    """Return a row's length."""
    return Number(INT, row.length, bounds=(0, _MOST))


def elementwise_ragged(emit: Emitter, operation: Callable[..., Number], operands: tuple[Value, ...]) -> RaggedRow:
    """Apply an operation to the items of rows of one length, and to numbers.

    Raises
    ------
    Refusal
        If an array of fixed length is among them.
    """
    rows = [one for one in operands if isinstance(one, RaggedRow)]
    if any(isinstance(one, Array) and one.shape for one in operands):
        raise Refusal("a row whose length only data says stands beside an array of fixed length; index that by the "
                      "row, as in w[indices] * values")
    settled = [one if isinstance(one, RaggedRow) else emit.fixed(plain(one)) for one in operands]
    length = _common_length(emit, rows)

    def at(index: str) -> Number:
        return operation(*(one.at(index) if isinstance(one, RaggedRow) else one for one in settled))

    kind = at("0").type.strong
    return RaggedRow(kind, length, lambda index: cast(at(index), kind).closed)


def _common_length(emit: Emitter, rows: list[RaggedRow]) -> str:
    """Return the length of rows, which the kernel checks to be one."""
    first = rows[0].length
    for other in dict.fromkeys(row.length for row in rows[1:]):
        if other != first:
            emit.line(f"check_length({first}, {other});")
    return first


def item_of_row(emit: Emitter, row: RaggedRow, index: Number, subscript: str) -> Number:
    """Return ``row[index]``; outside of the row the kernel ends with a fault."""
    if not isinstance(index, Number) or index.type.kind not in "iu":
        raise Refusal(f"a row whose length only data says is indexed by a whole number, and this is {describe(index)}")
    low, high = index.bounds or (-1, 0)
    if index.text in row.inside and low >= 0 and high >= 0:
        return row.at(index.text)
    place = emit.keep(Number(INT, f"row_index({index.text}, {row.length}, {subscript})", bounds=(0, _MOST)), "i")
    return row.at(place.text)


def gathered_by_row(emit: Emitter, array: Array, row: RaggedRow, subscript: str) -> RaggedRow:
    """Return ``array[row]``: the items of an array at the places that a row names."""
    if row.type.kind not in "iu" or len(array.shape) != 1:
        raise Refusal(f"{describe(array)} is indexed by a row of {row.type}, where an array of one axis takes whole "
                      "numbers; loop over the row, as in for j in indices: y = table[j]")
    extent = array.shape[0]
    return RaggedRow(array.type, row.length,
                     lambda index: array.element(f"checked_index<{extent}>({row.element(index)}, {subscript})"))


def folded_row(emit: Emitter, row: RaggedRow, step: Callable[[Number, Number], Number], start: Number,
               kind: Scalar) -> Number:
    """Return the fold of a row's items from a start on, one after the other."""
    if emit.lanes > 1:
        raise Serial
    total = emit.variable(kind, "total", cast(start, kind))
    index = emit.name("i")
    with emit.block(f"for (int {index} = 0; {index} < {row.length}; ++{index})"):
        emit.line(f"{total.text} = {cast(step(total, row.at(index)), kind).text};")
    return replace(total, variable=False)


@lowers_for(RaggedRow, "len")
def len_of_row(emit: Emitter, row: RaggedRow, name: str) -> Number:
    """Return ``len(row)``."""
    return length_of(row)


@lowers_for(SparseRow, "len")
def len_of_sparse(emit: Emitter, row: SparseRow, name: str) -> Number:
    """Return ``len(vector)``: its size, zeros included."""
    return row.size


@lowers_for(RaggedRow, *_REDUCED)
def reduce_row(emit: Emitter, row: RaggedRow, *rest: Value, name: str, **keywords: Value) -> Any:
    """Return a reduction of NumPy's."""
    if rest or any(not isinstance(one, Nothing) for one in keywords.values()):
        raise Refusal(f"{name.replace('numpy', 'np')} of a row whose length only data says takes no axis and the like")
    return _reduced(emit, name.removeprefix("numpy."), row)


@lowers_for(RaggedRow, *_FOLDED)
def fold_row(emit: Emitter, row: RaggedRow, *rest: Value, name: str, **keywords: Value) -> Any:
    """Return ``sum(row)`` and its like."""
    if keywords or (rest and name != "sum"):
        raise Refusal(f"{name}() of a row whose length only data says takes the row alone")
    if name in ("any", "all"):
        # Python's own give Python's bool.
        return replace(_reduced(emit, name, row), type=BOOL)
    if name != "sum":
        return _reduced(emit, name, row)
    start = as_number(rest[0]) if rest else literal(0)
    kind = scalars.binary("+", start, row.at("0")).type
    return folded_row(emit, row, lambda a, b: scalars.binary("+", a, b), start, kind)


def _reduced(emit: Emitter, name: str, row: RaggedRow) -> Number:
    if name == "mean":
        kind = row.type if row.type.kind in "fc" else Scalar("float64")
        total = _reduced(emit, "sum", elementwise_ragged(emit, lambda a: numbers.convert(a, kind), (row,)))
        return scalars.ufunc("divide", total, cast(length_of(row), kind))
    if name in ("any", "all"):
        symbol, start = ("||", "false") if name == "any" else ("&&", "true")
        kind = Scalar("bool")
        return folded_row(emit, row, lambda a, b: Number(kind, f"{a.closed} {symbol} {truth(b).closed}", atom=False),
                          Number(kind, start), kind)
    if name in ("min", "max"):
        function = "minimum" if name == "min" else "maximum"
        emit.line(f"check_items({row.length});")
        return folded_row(emit, row, lambda a, b: scalars.ufunc(function, a, b), _neutral(name, row.type), row.type)
    kind = _sum_type(row.type)
    wide = Scalar("float64") if kind.dtype in ("float16", "float32") else kind
    function, first = ("add", 0) if name == "sum" else ("multiply", 1)
    result = folded_row(emit, row, lambda a, b: scalars.ufunc(function, a, numbers.convert(b, wide)),
                        numbers.convert(literal(first), wide), wide)
    return numbers.convert(result, kind)


def _sum_type(kind: Scalar) -> Scalar:
    """Return the type of ``np.sum`` and ``np.prod``: at least 64 bits for integers."""
    return Scalar("int64") if kind.kind in "bi" else Scalar("uint64") if kind.kind == "u" else kind


def _neutral(name: str, kind: Scalar) -> Number:
    """Return a number that no item is beyond."""
    if kind.kind == "f":
        return cast(literal(math.inf if name == "min" else -math.inf), kind)
    if kind.kind == "b":
        return Number(kind, "true" if name == "min" else "false")
    if kind.kind not in "iu":
        raise Refusal(f"np.{name} of complex numbers in a row whose length only data says; use .real or abs()")
    limits = np.iinfo(kind.numpy)
    return numbers.convert(literal(int(limits.max if name == "min" else limits.min)), kind)


def product_of_rows(emit: Emitter, left: Value, right: Value) -> Number:
    """Return ``np.dot(left, right)`` of which one is a row whose length only data says, or a sparse vector."""
    if isinstance(left, SparseRow) or isinstance(right, SparseRow):
        sparse, other = (left, right) if isinstance(left, SparseRow) else (right, left)
        assert isinstance(sparse, SparseRow)
        if not isinstance(other, Array) or len(other.shape) != 1:
            raise Refusal(f"the product of a sparse vector is with an array of one axis, and this is {describe(other)}")
        emit.line(f"check_length({sparse.size.text}, {other.shape[0]});")
        left, right = gathered_by_row(emit, other, sparse.indices, "0"), sparse.values
    terms = elementwise_ragged(emit, lambda a, b: scalars.ufunc("multiply", a, b), (left, right))
    kind = terms.type
    wide = Scalar("float64") if kind.dtype in ("float16", "float32") else kind
    total = folded_row(emit, terms, lambda a, b: scalars.ufunc("add", a, numbers.convert(b, wide)),
                       numbers.convert(literal(0), wide), wide)
    return numbers.convert(total, kind)


@lowers_for(RaggedRow, "numpy.dot", "numpy.matmul", "numpy.inner")
@lowers_for(SparseRow, "numpy.dot", "numpy.matmul", "numpy.inner")
def dot_of_row(emit: Emitter, a: Value, b: Value, name: str) -> Value:
    """Return ``np.dot(row, b)``."""
    return product_of_rows(emit, a, b)


@lowers_for(Array, "numpy.dot", "numpy.matmul", "numpy.inner")
def dot_with_row(emit: Emitter, a: Array, b: Value, name: str) -> Any:
    """Return ``np.dot(w, row)``; of arrays it is left to theirs."""
    return product_of_rows(emit, a, b) if isinstance(b, RaggedRow | SparseRow) else NotImplemented
