"""Steps that leave some rows of each partition, or number them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.keys.keyed_rows import RowOrder, ordered
from gpu_worker.execution.keys.radix_sort import MOST_ROWS
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, StepHandler, every_row, handles
from gpu_worker.execution.plan_checks import require
from gpu_worker.execution.steps import sampling
from gpu_worker.execution.steps.keys import order_of
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Field, Launch, Plan
from gpu_worker.protocol.plans import NumberRowsStep, SampleRowsStep, SelectRowsStep


class _RowsStep(StepHandler[SelectRowsStep | SampleRowsStep | NumberRowsStep]):
    """Handler of a step on the rows of each partition whose results' sizes are known only once it has run."""

    on_device = True

    @property
    def leaves_host_memory(self) -> bool:
        return True         # what a replay would not bring

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._select, context))

    def _select(self, context: RunContext, value: Partition) -> Partition:
        """Return the partition of the rows that are left, or of all with their numbers."""
        raise NotImplementedError


class _ChosenRows(_RowsStep):
    """Handler of a step that leaves some rows, of which there may be none."""

    step: SelectRowsStep | SampleRowsStep

    def _selected(self, context: RunContext, value: Partition, count: int,
                  take: Callable[[HeldArray, Buffer], None]) -> Partition:
        """Return a partition of ``count`` rows that ``take`` copies from an array to memory."""
        block = [_with_rows(context, value, array, count) for array in value.blocks[0]] if count else []
        for array, held in zip(value.blocks[0], block, strict=False):
            assert held.buffer is not None
            take(array, held.buffer)
        piece = None if value.piece is None else replace(value.piece, is_counted=True)
        return Partition(value.index, count, None, self.step.layout if count else self.step.empty,
                         [tuple(block)] if count else [], value.device, piece=piece)


@handles(SelectRowsStep)
class SelectRowsHandler(_ChosenRows):
    """Handler of a step whose results have as many rows as keys are above 0, which is not known before."""

    step: SelectRowsStep

    def _select(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        order = order_of(context, value, self.step.key)
        with context.progress.launching(self.label, (value.index,), value.device):
            # Descending, so that the chosen rows come first.
            order.by_range(ordered(np.zeros(1, order.keys.field.dtype)), descending=True)
            order.sort(2)
            starts = order.starts(2)
            value.device.synchronize(stream=order.stream)
            count = int(starts[1])
            chosen = self._selected(context, value, count, lambda array, target: order.take_rows(array, target, count))
        order.close()
        context.progress.mark(self.label, (value.index,), value.device, order.stream)
        return context.after(value, chosen, own=False)


@handles(SampleRowsStep)
class SampleRowsHandler(_ChosenRows):
    """Handler of a step that leaves the rows which PySpark's sampler draws."""

    step: SampleRowsStep

    def verify(self, plan: Plan) -> None:
        require(math.isfinite(self.step.upper) and self.step.upper >= 0, f"rows are drawn with a share that is finite "
                f"and not negative, not {self.step.upper}")

    def _select(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        _check_rows(value)
        places = self._places(context, value)
        order = _rows_of(context, value)
        with context.progress.launching(self.label, (value.index,), value.device):
            chosen = order.take(places.nbytes)
            if len(places):
                context.scratch.write(chosen, places, value.device, order.stream)
            sampled = self._selected(context, value, len(places),
                                     lambda array, target: order.take_rows(array, target, len(places), chosen))
        order.close()
        context.progress.mark(self.label, (value.index,), value.device, order.stream)
        return context.after(value, sampled, own=False)

    def _places(self, context: RunContext, value: Partition) -> np.ndarray:
        """Return the places of the rows that were drawn of a partition, or of a piece of it."""
        if value.piece is None:
            return self._drawn(value)
        drawn = context.values.drawn
        if value.index not in drawn:
            drawn.clear()       # one partition's pieces come after another's
            drawn[value.index] = self._drawn(value)
        first, behind = np.searchsorted(drawn[value.index], [value.piece.first, value.piece.behind])
        return drawn[value.index][first:behind] - np.uint32(value.piece.first)

    def _drawn(self, value: Partition) -> np.ndarray:
        draws, step = sampling.generator(self.step.seed, value.index), self.step
        return sampling.drawn_with_replacement(draws, value.count, step.upper) if step.replaces \
            else sampling.drawn_between(draws, value.count, step.lower, step.upper)


@handles(NumberRowsStep)
class NumberRowsHandler(_RowsStep):
    """Handler of a step that puts the rows' numbers beside them."""

    step: NumberRowsStep

    def _select(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        if len(value.blocks[0]) != len(self.step.names) or value.index >= len(self.step.starts):
            raise PlanError(f"{self.label} names {len(self.step.names)} fields of {len(self.step.starts)} partitions, "
                            f"and partition {value.index} has {len(value.blocks[0])}")
        first = 0 if value.piece is None else value.piece.first
        numbers = np.arange(first, first + value.rows, dtype=np.int64) * self.step.stride
        numbers += self.step.starts[value.index]
        stream = context.streams.main(value.device)
        field = HeldArray(Field(self.step.number, numbers.dtype.str, numbers.shape))
        field.buffer = context.scratch.allocate(numbers.nbytes, value.device, stream)
        context.scratch.write(field.buffer, numbers, value.device, stream)
        block = [HeldArray(replace(array.field, name=name), array.host, array.buffer.share() if array.buffer else None)
                 for array, name in zip(value.blocks[0], self.step.names, strict=True)]
        numbered = Partition(value.index, value.count, None, self.step.layout, [(*block, field)], value.device,
                             piece=value.piece)
        context.progress.mark(self.label, (value.index,), value.device, stream)
        return context.after(value, numbered, own=True)


def _check_rows(value: Partition) -> None:
    if value.count > MOST_ROWS:
        raise PlanError(f"a partition has {value.count:,} records, and {MOST_ROWS:,} are the most that are drawn from: "
                        "give the RDD more partitions")


def _rows_of(context: RunContext, value: Partition) -> RowOrder:
    """Return an order of a partition's rows that is not computed; its kernels copy rows."""
    return RowOrder(value.blocks[0][0], value.device, context.streams.main(value.device), context.scratch)


def _with_rows(context: RunContext, value: Partition, array: HeldArray, count: int) -> HeldArray:
    """Return an array with memory for some rows of another."""
    held = HeldArray(replace(array.field, shape=(count, *array.field.shape[1:])))
    held.buffer = context.scratch.allocate(held.nbytes, value.device, context.streams.main(value.device))
    return held
