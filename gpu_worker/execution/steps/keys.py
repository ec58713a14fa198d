"""Steps that open keys, fold runs of rows with equal ones, and keep what has new partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.keys.keyed_folds import folded_runs, rows_of_runs
from gpu_worker.execution.keys.keyed_rows import RowOrder
from gpu_worker.execution.keys.row_keys import key_arrays
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, KeepingHandler, StepHandler, every_row, handles
from gpu_worker.execution.plan_checks import check_folds, dtype_of, require
from gpu_worker.execution.steps.results import placed
from gpu_worker.protocol.errors import KeysRefused, PlanError
from gpu_worker.protocol.keys import NUMBERS, of_value
from gpu_worker.protocol.messages import Field, KeepStep, Launch, Plan
from gpu_worker.protocol.plans import (
    FoldRunsStep,
    GroupRowsStep,
    KeepKeyedStep,
    OpenKeysStep,
    PartitionByKeyStep,
    SortByKeyStep,
)
from gpu_worker.protocol.publications import TAG_BYTES


class NanKeyCounter(Protocol):
    """Interface of what counted the keys that are NaN."""

    wrong: np.ndarray


def order_of(context: RunContext, value: Partition, key: str) -> RowOrder:
    """Return an order of a partition's rows, by a field, that is not computed yet.

    Raises
    ------
    PlanError
        If the partition has not one block with such keys, one a row.
    """
    keys = key_arrays(value, key)
    if len(keys) > 1:
        raise PlanError(f"the key {key!r} of each record is a tuple, and rows are put in one array's order here")
    return RowOrder(keys[0], value.device, context.streams.main(value.device), context.scratch)


def refuse_nan(orders: Sequence[NanKeyCounter], label: str) -> None:
    """Raise KeysRefused if a key is NaN; the streams are synchronized."""
    wrong = sum(int(each.wrong[0]) for each in orders)
    if wrong:
        raise KeysRefused(f"{wrong:,} of the keys are NaN, which equals nothing and has no place in an order: {label} "
                          "of such keys is Spark's")


class KeyedStep(StepHandler[PartitionByKeyStep | SortByKeyStep | FoldRunsStep | GroupRowsStep]):
    """Handler of a step whose results depend on keys, so that their sizes are not known before."""

    on_device = True

    @property
    def leaves_host_memory(self) -> bool:
        return True         # the host looks at what a replay would not bring


@handles(OpenKeysStep)
class OpenKeysHandler(StepHandler[OpenKeysStep]):
    """Handler of a step that makes a field of the keys of pairs that were sent."""

    @property
    def leaves_host_memory(self) -> bool:
        return True

    def verify(self, plan: Plan) -> None:
        dtype_of(self.step.dtype)

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        shape = () if self.step.by_block else fields[0].shape[:1]
        return (Field("0", self.step.dtype, shape),
                *[replace(each, name=of_value(each.name)) for each in fields])

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return () if self.step.by_block else every_row(fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, values, partial(self._opened, context))

    def _opened(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        blob = b"" if value.keys is None else value.keys[TAG_BYTES:TAG_BYTES + 64].tobytes()
        name, semicolon, _ = blob.partition(b";")
        dtype = np.dtype(self.step.dtype)
        data = np.empty(0, np.uint8) if value.keys is None else value.keys[TAG_BYTES + len(name) + 1:]
        if not name.startswith(NUMBERS) or not semicolon or data.nbytes != value.count * dtype.itemsize:
            raise PlanError(f"the keys of partition {value.index} are not {value.count} numbers of {dtype}")
        first, rows = (0 if value.piece is None else value.piece.first), value.rows
        if self.step.by_block and len(value.blocks) != value.count:
            raise PlanError(f"partition {value.index} has {len(value.blocks)} blocks for {value.count} records")
        data = data[first * dtype.itemsize:]
        of_each = dtype.itemsize if self.step.by_block else rows * dtype.itemsize
        shape = () if self.step.by_block else (rows,)
        blocks = [(HeldArray(Field("0", dtype.str, shape), host=data[at * of_each:(at + 1) * of_each]),
                   *[HeldArray(replace(array.field, name=of_value(array.field.name)), array.host,
                               array.buffer.share() if array.buffer else None) for array in block])
                  for at, block in enumerate(value.blocks)]
        opened = Partition(value.index, value.count, None, self.step.layout, blocks, value.device, value.variants,
                           piece=value.piece)
        return context.after(value, opened, own=True)


@handles(FoldRunsStep)
class FoldRunsHandler(KeyedStep):
    """Handler of a step that makes one row of each run of rows with equal keys."""

    step: FoldRunsStep
    by_ranges = True

    def verify(self, plan: Plan) -> None:
        check_folds(self.step.fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._folded, context))

    def _folded(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        with context.progress.launching(self.label, (value.index,), value.device):
            block, runs = folded_runs(self.step, value, context.streams.main(value.device), context.scratch)
        folded = Partition(value.index, runs, None, self.step.layout, [block], value.device, piece=value.piece)
        context.progress.mark(self.label, (value.index,), value.device, context.streams.main(value.device))
        return context.after(value, folded, own=False)


@handles(GroupRowsStep)
class GroupRowsHandler(KeyedStep):
    """Handler of a step that makes one record of each run of rows with equal keys."""

    step: GroupRowsStep
    by_ranges = True

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._grouped, context))

    def _grouped(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        stream = context.streams.main(value.device)
        with context.progress.launching(self.label, (value.index,), value.device):
            block, runs = rows_of_runs(self.step.key, value, stream, context.scratch)
        context.progress.mark(self.label, (value.index,), value.device, stream)
        grouped = Partition(value.index, runs, None, self.step.layout, [block], value.device, piece=value.piece)
        return context.after(value, grouped, own=False)


@handles(KeepKeyedStep)
class KeepKeyedHandler(KeepingHandler[KeepKeyedStep]):
    """Handler of a step that makes new partitions resident: on their devices, or, where a plan runs in waves because
    these have no room for all, below them too.
    """

    by_ranges = True

    def verify(self, plan: Plan) -> None:
        require(plan.steps[-1] == self.step, "partitions by keys are kept by a plan's last step")

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        if context.is_in_waves:
            return context.each(self, values, partial(self._placed, context, context.place_below))
        keep = KeepStep(self.step.slot, self.step.name, "device")
        for value in values:
            context.results.pending.append((keep, context.kept(value)))
        return values

    def _placed(self, context: RunContext, place: str, value: Partition) -> Partition:
        value, copy = placed(context, place, value, is_below=value.tier == place)
        copy.tier = place
        context.results.pending.append((KeepStep(self.step.slot, self.step.name, place), copy))
        return value
