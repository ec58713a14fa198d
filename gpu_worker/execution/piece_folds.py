"""Folds of partitions whose rows come to their device in pieces.

Rows are folded by chunks, whose size depends on how many rows the partition has, and then what the chunks left. A piece
has whole chunks, so that its launch leaves what theirs would; the last one folds what all of them left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import HeldArray, PieceOfPartition
from gpu_worker.execution.element_folds import ElementFold
from gpu_worker.execution.folder import Folder


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
        chunks = -(-self.of_partition.whole // chunk)
        if self._number == len(self._left):
            self._left.append(self.allocate(chunks * columns, operation.carried))
        left = self._left[self._number]
        self._number += 1
        offset = self.of_partition.first // chunk * (left.nbytes // chunks)
        self._launch_rows(array.on_device, left.part(offset, left.nbytes - offset), operation,
                          (array.field.shape[0], columns, chunk))
        if not self.of_partition.is_last:
            return np.empty((0, 1))
        return self.out(self._fold_chunks(left, chunks, columns, operation), columns, operation)
