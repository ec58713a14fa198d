"""Step that leaves the rows of each partition that a function has chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gpu_worker.execution.keyed_rows import ordered
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.step_handlers import StepHandler, handles
from gpu_worker.execution.steps.keys import order_of
from gpu_worker.memory.partition import HeldArray, Partition
from gpu_worker.protocol.plans import SelectRowsStep


@handles(SelectRowsStep)
class SelectRowsHandler(StepHandler[SelectRowsStep]):
    """Handler of a step whose results have as many rows as keys are above 0, which is not known before."""

    on_device = True

    @property
    def label(self) -> str:
        return self.step.label

    @property
    def leaves_host_memory(self) -> bool:
        return True         # how many rows there are, which a replay would not bring

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._selected, context))

    def _selected(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        order = order_of(context, value, self.step.key)
        with context.progress.launching(self.label, (value.index,), value.device):
            # Descending, so that the chosen rows come first.
            order.by_range(ordered(np.zeros(1, order.keys.field.dtype)), descending=True)
            order.sort(2)
            starts = order.starts(2)
            with context.progress.waiting():
                value.device.synchronize(stream=order.stream)
            count = int(starts[1])
            block = [self._taken(context, value, array, count) for array in value.blocks[0]] if count else []
            for array, held in zip(value.blocks[0], block, strict=False):
                assert held.buffer is not None
                order.take_rows(array, held.buffer, count)
        order.close()
        context.progress.mark(self.label, (value.index,), value.device, order.stream)
        made = Partition(value.index, count, None, self.step.layout if count else self.step.empty,
                         [tuple(block)] if count else [], value.device)
        return context.after(value, made, own=False)

    def _taken(self, context: RunContext, value: Partition, array: HeldArray, count: int) -> HeldArray:
        """Return an array with memory for some rows of another."""
        held = HeldArray(replace(array.field, shape=(count, *array.field.shape[1:])))
        held.buffer = context.scratch.allocate(held.nbytes, value.device, context.streams.main(value.device))
        return held
