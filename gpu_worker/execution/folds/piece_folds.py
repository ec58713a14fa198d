"""Folds of partitions whose rows come to their device in pieces.

Rows are folded by chunks, whose size depends on how many rows the partition has, and then what the chunks left. A piece
has whole chunks, so that its launch leaves what theirs would; the last one folds what all of them left. Inside a record
of few rows they are folded one after the other, and so they are from piece to piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import HeldArray, PieceOfPartition
from gpu_worker.execution.folds.element_folds import ElementFold
from gpu_worker.execution.folds.folder import Folder, chunk_inside


@dataclass
class PieceFolder(Folder):
    """Launches of the folds of one partition's pieces, one after the other."""

    #: What the chunks of all pieces left so far, of each fold of a piece in their order.
    _left: list[Buffer] = field(default_factory=list)
    _number: int = 0

    def begin(self, piece: PieceOfPartition) -> None:
        """Go on to a piece."""
        self.of_partition, self._number = piece, 0

    def rows(self, array: HeldArray, operation: ElementFold, chunk: int = 0) -> np.ndarray:
        """Fold a piece of an array along its first axis; the result is of the whole array once the piece is the last.
        """
        assert self.of_partition is not None
        columns = math.prod(array.field.shape[1:]) * operation.parts
        accumulators = self._folded_chunks(array, operation, columns, chunk)
        if not self.of_partition.is_last:
            return np.empty((0, 1))
        chunks = -(-self.of_partition.whole // chunk)
        return self.out(self._fold_chunks(accumulators, chunks, columns, operation), columns, operation)

    def axis(self, array: HeldArray, target: Buffer, operation: ElementFold, axis: int) -> None:
        """Fold a piece of an array along its first axis; ``target`` has the result once the piece is the last."""
        assert self.of_partition is not None and axis == 0
        piece, elements = self.of_partition, math.prod(array.field.shape[1:]) * operation.parts
        chunk = chunk_inside(piece.whole)
        if chunk:
            accumulators = self._folded_chunks(array, operation, elements, chunk)
            if piece.is_last:
                accumulators = self._fold_chunks(accumulators, -(-piece.whole // chunk), elements, operation)
        else:
            accumulators, rows = self._next(elements, operation.carried), array.field.shape[0]
            row = array.nbytes // rows
            for number in range(rows):
                self._fold_into(array.on_device.part(number * row, row), accumulators, elements, operation,
                                starts=piece.first + number == 0)
        if piece.is_last:
            self._write_result(accumulators, target, elements, operation)

    def _folded_chunks(self, array: HeldArray, operation: ElementFold, columns: int, chunk: int) -> Buffer:
        """Fold the chunks of a piece, and return what those of all pieces left so far."""
        assert self.of_partition is not None
        chunks = -(-self.of_partition.whole // chunk)
        accumulators = self._next(chunks * columns, operation.carried)
        offset = self.of_partition.first // chunk * (accumulators.nbytes // chunks)
        self._launch_rows(array.on_device, accumulators.part(offset, accumulators.nbytes - offset), operation,
                          (array.field.shape[0], columns, chunk))
        return accumulators

    def _next(self, elements: int, carried: str) -> Buffer:
        """Return the accumulators of the next fold of a piece, which are those of the pieces before."""
        if self._number == len(self._left):
            self._left.append(self.allocate(elements, carried))
        self._number += 1
        return self._left[self._number - 1]
