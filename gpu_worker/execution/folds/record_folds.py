"""Folds of records by the operators of ``fold.cu``: of all records of a partition, or inside each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.execution.folds.element_folds import ElementFold, element_fold, field_fold, guard_fold
from gpu_worker.execution.folds.folder import Folder, chunk_of
from gpu_worker.execution.folds.partial_folds import FieldTotal, PartitionFold
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Field, FieldFold, FoldInsideStep, FoldStep


def enqueue(fold: Callable[[Sequence[Block], PartitionFold], None], value: Partition,
            folder: Folder) -> PartitionFold | None:
    """Fold one partition on its device, by ``folder``'s launches; do nothing if it has no records.

    ``fold`` is :func:`all_records` of a step.

    Raises
    ------
    PlanError
        If the records have a type without a kernel, or blocks of different shapes.
    """
    blocks = [block for block in value.blocks if block]
    if not value.count or not blocks:
        return None
    signatures = {tuple(array.field for array in block) for block in blocks}
    if len(signatures) > 1:
        raise PlanError("blocks of different shapes or dtypes cannot be folded on the device")
    partial = PartitionFold(value.index, value.count, [], folder)
    fold(blocks, partial)
    return partial


def all_records(step: FoldStep, blocks: Sequence[Block], partial: PartitionFold) -> None:
    """Enqueue the fold of all records of a partition's blocks into one."""
    folder, piece = partial.folder, partial.folder.of_partition
    chunk = chunk_of([array.field for array in blocks[0]], piece.whole if piece else 0) if step.over == "rows" else 0
    for arrays in zip(*blocks, strict=True):
        how, described = field_fold(step.fields, arrays[0].field), arrays[0].field
        shape = described.shape[1:] if step.over == "rows" else described.shape
        fold = functools.partial(folder.rows, arrays[0], chunk=chunk) if step.over == "rows" else \
            functools.partial(folder.blocks, arrays)
        partial.parts.append(_part(how, replace(described, shape=shape), fold))


def fold_inside(step: FoldInsideStep, block: Block, folder: Folder) -> Block:
    """Fold each record of a block along its leading axis, by a folder's launches; return the results.

    Raises
    ------
    PlanError
        If there is a type without a kernel, or no axis.
    """
    axis = 1 if step.over == "rows" else 0
    results = []
    for array in block:
        described = array.field
        if len(described.shape) <= axis:
            raise PlanError(f"there is nothing to fold inside records of shape {described.shape[axis:]}")
        shape = described.shape[:axis] + described.shape[axis + 1:]
        result = HeldArray(replace(described, shape=shape))
        result.buffer = folder.scratch.allocate(result.nbytes, folder.device, folder.stream)
        results.append(result)
        if result.nbytes:
            folder.axis(array, result.buffer, element_fold(field_fold(step.fields, described), described), axis)
    return tuple(results)


def _part(how: FieldFold, described: Field, fold: Callable[[ElementFold], np.ndarray]) -> FieldTotal:
    operation = element_fold(how, described)
    guard = guard_fold(how, operation)
    return FieldTotal(how, described, fold(operation), None if guard is None else fold(guard))
