"""Sums of floats: short ones number by number, long ones as the sums of blocks, so that they do not drift.

A block's numbers are added one after the other, by each lane of a row its own; the sums of blocks are added with what
rounding takes from each addition. So a sum errs as that of one block does, however long the row is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.scalar import numbers
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, Number

#: The sum so far and a number, added.
Accumulate = Callable[[Number, Number], Number]
_SUMS = ("sum", "dot")
_VECTORS_BLOCK = "VISPARK_BLOCK"
#: The numbers of a block that a lane adds; of a row's only thread, ``vispark/rows.h`` says it for the machine.
_BLOCK = 32
_IN_VECTORS = 1024
#: The most numbers that a lane adds one after the other without blocks; and that a row's only thread does, which on the
#: host has vectors of some lanes.
_IN_ORDER = 128
#: From so many numbers on a float sum is taken in an order that suits the machine.
_SUMMED = 16


def advance(emit: Emitter, total: Number, index: Number) -> None:
    """Give a variable its next value."""
    text, plain = cast(index, total.type).text, f"{total.text} + "
    emit.line(f"{total.text} += {text[len(plain):]};" if text.startswith(plain) and total.type.kind == "f"
              else f"{total.text} = {text};")


def hint_order(emit: Emitter, total: Number, name: str, turns: int) -> None:
    """Write that a float sum of many numbers may be taken in any order, or that a short loop is written out."""
    if emit.hints and turns >= _SUMMED and total.type.dtype in ("float32", "float64") and name in _SUMS:
        emit.line(f"VISPARK_SUM({total.text})")
    else:
        emit.unroll(turns)


def drifts(emit: Emitter, array: Array, name: str, kind: Scalar) -> bool:
    """Return whether a fold is a sum of more floats than are added one after the other."""
    if name not in _SUMS or kind.kind not in "fc":
        return False
    if emit.is_dealt(array.size):
        return -(-array.size // emit.lanes) > _IN_ORDER
    return array.size > (_IN_VECTORS if _in_vectors(emit, kind) else _IN_ORDER)


def in_blocks(emit: Emitter, array: Array, step: Accumulate, name: str, kind: Scalar, start: Number | None) -> Number:
    """Return the variable of a sum that drifts; of the lanes of a row each has the sum of its own numbers."""
    zero, parts = numbers.convert(literal(0), kind), emit.name(f"{name}_parts")
    first = zero if start is None else cast(start, kind)
    emit.line(f"sum_of_parts<{kind.c}> {parts} = {{{first.text}, {zero.text}}};")
    if emit.is_dealt(array.size):
        with _sum_blocks(emit, str(-(-array.size // emit.lanes)), str(_BLOCK)) as turns, \
                _sum_part(emit, parts, kind) as part, emit.along(array.shape, turns) as indices:
            advance(emit, part, step(part, array.at(*indices)))
    else:
        _row_in_blocks(emit, array, step, name, kind, parts)
    whole = "complex_whole_sum" if kind.kind == "c" else "whole_sum"
    return emit.variable(kind, name, Number(kind, f"{whole}({parts})"))


def _row_in_blocks(emit: Emitter, array: Array, step: Accumulate, name: str, kind: Scalar, parts: str) -> None:
    """Write the blocked sum of a row by its only thread: a block is some turns of the first axis whose inner
    extents are small.
    """
    shape = array.shape
    axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1:]) <= _BLOCK)
    inner_shape = shape[axis + 1:]
    count = math.prod(inner_shape)
    turns = str(_BLOCK // count) if not _in_vectors(emit, kind) else \
        _VECTORS_BLOCK if count == 1 else f"{_VECTORS_BLOCK} / {count}"
    with emit.over(shape[:axis]) as outer, _sum_blocks(emit, str(shape[axis]), turns) as (begin, end), \
            _sum_part(emit, parts, kind) as part:
        hint_order(emit, part, name, array.size)
        index = emit.name("j")
        with emit.block(f"for (int {index} = {begin}; {index} < {end}; ++{index})"), emit.over(inner_shape) as inner:
            advance(emit, part, step(part, array.at(*outer, index, *inner)))
        emit.taken.discard(index)


def _in_vectors(emit: Emitter, kind: Scalar) -> bool:
    return emit.hints and kind.kind == "f"


@contextlib.contextmanager
def _sum_blocks(emit: Emitter, turns: str, length: str) -> Iterator[tuple[str, str]]:
    """Yield a loop over blocks of turns: the first of a block, and the one behind its last."""
    begin, end = emit.name("block"), emit.name("end")
    with emit.block(f"for (int {begin} = 0; {begin} < {turns}; {begin} += {length})"):
        emit.line(f"const int {end} = {begin} + {length} < {turns} ? {begin} + {length} : {turns};")
        yield begin, end
    emit.taken -= {begin, end}


@contextlib.contextmanager
def _sum_part(emit: Emitter, parts: str, kind: Scalar) -> Iterator[Number]:
    """Yield the sum of a block, which becomes one of the parts."""
    part: Number = emit.variable(kind, "part", numbers.convert(literal(0), kind))
    yield part
    emit.line(f"{parts} = with_part({parts}, {part.text});")
    emit.taken.discard(part.text)
