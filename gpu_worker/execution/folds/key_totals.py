"""Folds of held pairs by key, by the operators of ``fold.cu``: of all partitions of a device, joined there.

Each partition's records are folded into accumulators by key, which are joined in the order of the partitions, element
by element: so a fold gives the same bits each time, and a table comes to the host once, or stays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.execution.folds import work_folds
from gpu_worker.execution.folds.element_folds import ElementFold, element_fold, element_of, field_fold, guard_fold
from gpu_worker.execution.folds.folder import Folder
from gpu_worker.execution.folds.partial_folds import FieldTotal, PartitionFold
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Accumulators, Field, FieldFold, FoldByKeyStep


@dataclass
class _KeyTotal:
    """Accumulators by key of one field, or of what guards it, on the device.

    ``how`` and ``field`` are None of the number of records of each key, and of the least and the greatest one, which
    guard it.
    """

    operation: ElementFold
    buffer: Buffer
    elements: int
    how: FieldFold | None
    field: Field | None
    is_guard: bool = False

    @property
    def dtype(self) -> str:
        """The dtype of the elements that these become; empty of guards, which stay accumulators."""
        if self.is_guard:
            return ""
        return "<i8" if self.how is None or self.field is None else np.dtype(self.how.result or self.field.dtype).str


def enqueue(step: FoldByKeyStep, values: Sequence[Partition], stream: Stream, scratch: Scratch,
            alone: bool) -> PartitionFold | None:
    """Fold the records of some partitions of one device by key, in memory from ``scratch``.

    Parameters
    ----------
    step : FoldByKeyStep
        The fold.
    values : sequence of Partition
        In ascending order; each has its records as the rows of its only block.
    stream, scratch
        Where, and from which memory.
    alone : bool
        Whether nothing else is joined with the result, so that it becomes elements of the fields' dtypes.

    Returns
    -------
    PartitionFold or None
        None if there are no records.

    Raises
    ------
    PlanError
        If the records have no such keys, a type without a kernel, or partitions are unlike each other.
    """
    values = [value for value in values if value.count and any(value.blocks)]
    if not values:
        return None
    blocks = [next(block for block in value.blocks if block) for value in values]
    if len({tuple([(each.field.name, each.field.dtype, each.field.shape[1:]) for each in block])
            for block in blocks}) > 1:
        raise PlanError("partitions whose records differ in shape or dtype cannot be folded on the device")
    folder = Folder(values[0].device, stream, scratch)
    fold = PartitionFold(values[0].index if len(values) == 1 else -1, sum(value.count for value in values), [], folder,
                         groups=step.groups)
    totals, extremes = list[_KeyTotal](), list[_KeyTotal]()
    for block in blocks:
        keys = _keys(step, block)
        extremes += _extremes(folder, keys)
        for place, total in enumerate(_totals(step, folder, keys, block)):
            if place < len(totals):
                folder.add(totals[place].buffer, total.buffer, total.elements, total.operation)
            else:
                totals.append(total)
    accumulators = (_written_totals if alone else _accumulators)(fold, totals + extremes)[len(totals):]
    fold.ranges = list(zip([value.index for value in values], accumulators[::2], accumulators[1::2], strict=True))
    return fold


def _keys(step: FoldByKeyStep, block: Block) -> HeldArray:
    keys = next((array for array in block if array.field.name == step.key), None)
    if keys is None or len(keys.field.shape) != 1 or np.dtype(keys.field.dtype).kind not in "biu":
        raise PlanError(f"keys to fold by are integers in a field {step.key!r}, and there is none")
    return keys


def _extremes(folder: Folder, keys: HeldArray) -> list[_KeyTotal]:
    """Return the least and the greatest key."""
    element = element_of(keys.field.dtype)
    operations = [ElementFold(functor, "Value", element, element) for functor in ("Minimum", "Maximum")]
    return [_KeyTotal(operation, *folder.rows_on_device(keys, operation), None, None, is_guard=True)
            for operation in operations]


def _totals(step: FoldByKeyStep, folder: Folder, keys: HeldArray, block: Block) -> list[_KeyTotal]:
    """Return a partition's accumulators: the number of records of each key, then of each field itself and its guards.
    """
    fold = functools.partial(folder.by_key, keys)
    counted = ElementFold("Add", "One", element_of(keys.field.dtype), "long long")
    totals = [_KeyTotal(counted, fold(keys, step.groups, counted), step.groups, None, None)]
    for array in block:
        if array is keys:
            continue
        how, described = field_fold(step.fields, array.field), array.field
        operation = element_fold(how, described)
        elements = step.groups * math.prod(described.shape[1:])
        shaped = replace(described, shape=(step.groups, *described.shape[1:]))
        for folding, is_guard in ((operation, False), (guard_fold(how, operation), True)):
            if folding is not None:
                buffer = fold(array, step.groups, folding)
                totals.append(_KeyTotal(folding, buffer, elements * folding.parts, how, shaped, is_guard))
    return totals


def _written_totals(fold: PartitionFold, totals: Sequence[_KeyTotal]) -> list[np.ndarray]:
    """Leave the totals as elements in one piece of memory, which is the result; return their host parts."""
    folder = fold.folder
    described = [Accumulators("", "add", total.operation.carried, total.elements) for total in totals]
    buffer, pieces = work_folds.piece(folder, described, [total.dtype for total in totals])
    for total, one in zip(totals, pieces, strict=True):
        target = buffer.part(one.offset, one.values.nbytes)
        if total.dtype:
            folder.write_elements(total.buffer, total.elements, total.operation, total.dtype, target)
        else:
            folder.move(total.buffer, target)
        _note(fold, total, one.values, one.offset)
    return [one.values for one in pieces]


def _accumulators(fold: PartitionFold, totals: Sequence[_KeyTotal]) -> list[np.ndarray]:
    """Leave the totals as accumulators, each in memory of its own, to be joined with others on the host; return their
    host parts.
    """
    accumulators = [fold.folder.out(total.buffer, total.elements, total.operation) for total in totals]
    for total, values in zip(totals, accumulators, strict=True):
        _note(fold, total, values, -1)
    return accumulators


def _note(fold: PartitionFold, total: _KeyTotal, values: np.ndarray, offset: int) -> None:
    """Note where a total comes to lie: as elements at an offset, or as accumulators."""
    if total.is_guard:
        if total.how is not None:
            fold.parts[-1].guards = values
    elif total.how is None or total.field is None:
        fold.counts, fold.counts_at = values.reshape(-1, 1), offset
    else:
        field = replace(total.field, dtype=total.dtype) if offset >= 0 else total.field
        values = values.view(total.dtype).reshape(field.shape) if offset >= 0 else values
        fold.parts.append(FieldTotal(total.how, field, values, None, offset, total.operation.carried))


def joined_devices(partials: Sequence[PartitionFold], device: Device, stream: Stream,
                   scratch: Scratch) -> PartitionFold:
    """Join folds by key of several devices on one of them, in order; their streams are synchronized.

    What guards them, and how many records each key has, was copied to the host and is not joined here. Of each field
    there are two tables there at a time, however many devices there are.

    Raises
    ------
    PlanError
        If the devices' records differ in shape or dtype.
    """
    if any([part.field for part in each.parts] != [part.field for part in partials[0].parts] for each in partials):
        raise PlanError("partitions whose records differ in shape or dtype cannot be folded on the device")
    folder = Folder(device, stream, scratch)
    joined = PartitionFold(-1, sum(partial.count for partial in partials), [], folder, groups=partials[0].groups)
    joined.counts = np.sum([partial.counts for partial in partials if partial.counts is not None], axis=0)
    totals = list[_KeyTotal]()
    for parts in zip(*[partial.parts for partial in partials], strict=True):
        described = Accumulators("", parts[0].how.operator, parts[0].carried, len(parts[0].values))
        operation = work_folds.joining(described)
        total: Buffer | None = None
        for partial, part in zip(partials, parts, strict=True):
            # The memory of the one before, which was added: large tables of many devices would not fit at once.
            buffer = work_folds.accumulators(folder, described, 1)
            device.copy_across(buffer, partial.on_device(part.values), stream=stream)
            if total is None:
                total = buffer
            else:
                folder.add(total, buffer, described.width, operation)
        assert total is not None
        totals.append(_KeyTotal(operation, total, described.width, parts[0].how, parts[0].field))
    _written_totals(joined, totals)
    return joined
