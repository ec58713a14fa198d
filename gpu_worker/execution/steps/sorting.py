"""Step that sorts the rows of each partition by their keys: all partitions of a device in one sort."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter

from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.keys.radix_sort import SORTING_BYTES, RadixSort
from gpu_worker.execution.keys.row_keys import key_arrays
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.memory.row_memory import arrays_of_rows
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import handles
from gpu_worker.execution.steps.key_ranges import RangesOfKeys
from gpu_worker.execution.steps.keys import KeyedStep, refuse_nan
from gpu_worker.protocol.plans import SortByKeyStep

#: The copies of rows that a sort, and a fold of what it gives, have at once.
_COPIES = 3
#: How many ranges are made for each that would do if all were alike, as they come from a sample of the keys.
_SHARES = 2


@handles(SortByKeyStep)
class SortByKeyHandler(KeyedStep):
    """Handler of a step that sorts the rows of each partition."""

    step: SortByKeyStep

    @property
    def by_ranges(self) -> bool:    # type: ignore[override]
        return self.step.limit < 0

    def ranging(self, value: Partition, most: int) -> RangesOfKeys | None:
        nbytes = value.count * (SORTING_BYTES + _COPIES * sum(map(row_bytes, value.blocks[0]))) if value.blocks else 0
        if nbytes <= most:
            return None
        return RangesOfKeys(self.label, self.step, value, min(_SHARES * nbytes // max(most, 1) + 1, value.count))

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = [self._as_sorted(context, value) if value.is_of_one_key else value
                  for value in context.each(self, values, context.to_device)]
        by_index = {value.index: value for value in values}
        for group in self._groups([each for each in values if each.count and each.blocks and not each.is_of_one_key]):
            for ordered in context.run_together(self, group, partial(self._sorted, context)):
                by_index[ordered.index] = ordered
        return [by_index[value.index] for value in values]

    def _as_sorted(self, context: RunContext, value: Partition) -> Partition:
        """Return a piece whose rows have one key, as a sort leaves it."""
        ordered = value.share()
        ordered.layout = self.step.layout or value.layout
        return context.after(value, ordered, own=False)

    def _groups(self, values: Sequence[Partition]) -> Iterator[Sequence[Partition]]:
        """Yield partitions that are sorted at once: those of a device whose rows are alike, if it has room for all."""
        for device, there in itertools.groupby(sorted(values, key=lambda each: each.device.name), attrgetter("device")):
            together = list(there)
            memory = device.memory()
            nbytes = sum(each.count * (SORTING_BYTES + sum(map(row_bytes, each.blocks[0]))) for each in together)
            alike = len({_kind(each) for each in together}) == 1
            if alike and (not memory.total or memory.used + nbytes <= memory.total):
                yield together
            else:
                yield from ([each] for each in together)

    def _sorted(self, context: RunContext, group: Sequence[Partition]) -> Sequence[Partition]:
        device, indexes = group[0].device, [value.index for value in group]
        stream = context.streams.main(device)
        keys = list(zip(*[key_arrays(value, self.step.key) for value in group], strict=True))
        order = RadixSort([value.count for value in group], device, stream, context.scratch)
        with context.progress.launching(self.label, indexes, device):
            # Of keys that are tuples the last item first, as rounds are stable.
            for items in reversed(keys):
                order.by_order(items, descending=self.step.descending)
                order.sort()        # which waits for the stream
                refuse_nan([order], self.label)
            limit = self.step.limit
            counts = [value.count if limit < 0 else min(value.count, limit) for value in group]
            if order.order is None and counts == [value.count for value in group] and not self.step.layout:
                order.close()
                return group
            blocks = [self._first(context, order, arrays, counts)
                      for arrays in zip(*[value.blocks[0] for value in group], strict=True)]
        order.close()
        context.progress.mark(self.label, indexes, device, stream)
        return [context.after(value, Partition(value.index, count, value.keys, self.step.layout or value.layout,
                                               [tuple(block)], device, piece=value.piece), own=False)
                for value, count, block in zip(group, counts, zip(*blocks, strict=True), strict=True)]

    def _first(self, context: RunContext, order: RadixSort, arrays: Sequence[HeldArray],
               counts: Sequence[int]) -> list[HeldArray]:
        """Return the first rows of an array of each partition, in their order."""
        first = arrays_of_rows(arrays[0].field, counts, order.device, order.stream, context.scratch)
        order.take_sorted(arrays, [each.on_device for each in first], counts)
        return first


def _kind(value: Partition) -> object:
    return tuple([(array.field.name, array.field.dtype, array.field.shape[1:]) for array in value.blocks[0]])
