"""Sums of floats: short ones number by number, long ones as the sums of blocks, so that they do not drift.

A block's numbers are added one after the other, by each lane of a row its own; the sums of blocks are added with what
rounding takes from each addition. So a sum errs as that of one block does, however long the row is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

from vispark.translate.codegen.scalar import numbers
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.scalar.writer import Writer
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, Number

#: From so many numbers on a float sum is taken in an order that suits the machine.
_SUMMED = 16

#: The most numbers that a lane adds one after the other without blocks; and that a row's only thread does, which on the
#: host has vectors of some lanes.
_IN_ORDER = 128
_IN_VECTORS = 1024

#: The numbers of a block that a lane adds; of a row's only thread, ``vispark/rows.h`` says it for the machine.
_BLOCK = 32
_VECTORS_BLOCK = "VISPARK_BLOCK"

_SUMS = ("sum", "dot")

#: The sum so far and a number, added.
Step = Callable[[Number, Number], Number]


class Sums(Writer):
    """Sums of a row's numbers into variables."""

    def step(self, total: Number, found: Number) -> None:
        """Give a variable its next value."""
        text, plain = cast(found, total.type).text, f"{total.text} + "
        self.line(f"{total.text} += {text[len(plain):]};" if text.startswith(plain) and total.type.kind == "f"
                  else f"{total.text} = {text};")

    def hint(self, total: Number, name: str, turns: int) -> None:
        """Float sums of many numbers may be taken in any order; short loops are written out."""
        if self.hints and turns >= _SUMMED and total.type.dtype in ("float32", "float64") and name in _SUMS:
            self.line(f"VISPARK_SUM({total.text})")
        else:
            self.unroll(turns)

    def drifts(self, array: Array, name: str, kind: Scalar) -> bool:
        """Return whether a fold is a sum of more floats than are added one after the other."""
        if name not in _SUMS or kind.kind not in "fc":
            return False
        if self.dealt(array.size):
            return -(-array.size // self.lanes) > _IN_ORDER
        return array.size > (_IN_VECTORS if self._in_vectors(kind) else _IN_ORDER)

    def in_blocks(self, array: Array, step: Step, name: str, kind: Scalar, start: Number | None) -> Number:
        """Return the variable of a sum that drifts; of the lanes of a row each has the sum of its own numbers."""
        zero, parts = numbers.convert(literal(0), kind), self.name(f"{name}_parts")
        first = zero if start is None else cast(start, kind)
        self.line(f"sum_of_parts<{kind.c}> {parts} = {{{first.text}, {zero.text}}};")
        if self.dealt(array.size):
            with self._sum_blocks(str(-(-array.size // self.lanes)), str(_BLOCK)) as turns, \
                    self._sum_part(parts, kind) as part, self.along(array.shape, turns) as indices:
                self.step(part, step(part, array.at(*indices)))
        else:
            self._row_in_blocks(array, step, name, kind, parts)
        whole = "complex_whole_sum" if kind.kind == "c" else "whole_sum"
        return self.variable(kind, name, Number(kind, f"{whole}({parts})"))

    def _row_in_blocks(self, array: Array, step: Step, name: str, kind: Scalar, parts: str) -> None:
        """Write the blocked sum of a row by its only thread: a block is some turns of the first axis whose inner
        extents are small.
        """
        shape = array.shape
        axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1:]) <= _BLOCK)
        rest = shape[axis + 1:]
        count = math.prod(rest)
        turns = str(_BLOCK // count) if not self._in_vectors(kind) else \
            _VECTORS_BLOCK if count == 1 else f"{_VECTORS_BLOCK} / {count}"
        with self.over(shape[:axis]) as outer, self._sum_blocks(str(shape[axis]), turns) as (begin, end), \
                self._sum_part(parts, kind) as part:
            self.hint(part, name, array.size)
            index = self.name("j")
            with self.block(f"for (int {index} = {begin}; {index} < {end}; ++{index})"), self.over(rest) as inner:
                self.step(part, step(part, array.at(*outer, index, *inner)))
            self.taken.discard(index)

    def _in_vectors(self, kind: Scalar) -> bool:
        return self.hints and kind.kind == "f"

    @contextlib.contextmanager
    def _sum_blocks(self, turns: str, length: str) -> Iterator[tuple[str, str]]:
        """Yield a loop over blocks of turns: the first of a block, and the one behind its last."""
        begin, end = self.name("block"), self.name("end")
        with self.block(f"for (int {begin} = 0; {begin} < {turns}; {begin} += {length})"):
            self.line(f"const int {end} = {begin} + {length} < {turns} ? {begin} + {length} : {turns};")
            yield begin, end
        self.taken -= {begin, end}

    @contextlib.contextmanager
    def _sum_part(self, parts: str, kind: Scalar) -> Iterator[Number]:
        """Yield the sum of a block, which becomes one of the parts."""
        part: Number = self.variable(kind, "part", numbers.convert(literal(0), kind))
        yield part
        self.line(f"{parts} = with_part({parts}, {part.text});")
        self.taken.discard(part.text)
