"""Step that sorts the rows of each partition by their keys: all partitions of a device in one sort."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.radix_sort import SORTING_BYTES, RadixSort
from gpu_worker.execution.row_chunks import row_bytes
from gpu_worker.execution.row_keys import RowKeys, key_arrays
from gpu_worker.execution.row_memory import arrays_of_rows
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.step_handlers import handles
from gpu_worker.execution.steps.keys import KeyedStep, refuse_nan
from gpu_worker.execution.steps.partitioning import PartitionByKeyHandler
from gpu_worker.execution.steps.wave_exchange import WaveExchange
from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.plans import PartitionByKeyStep, SortByKeyStep

#: The copies of rows that a sort, and a fold of what it gives, have at once.
_COPIES = 3
#: How many ranges are made for each that would do if all were alike, as they come from a sample of the keys.
_SHARES = 2
#: How many keys are looked at for the one that most records have.
_LOOKED_AT = 1 << 16


class RangesOfKeys(PartitionByKeyHandler):
    """Handler that puts the rows of one partition into ranges of their keys, for a sort of each.

    Parameters
    ----------
    label : str
        The user's call.
    sort : SortByKeyStep
        The sort.
    value : Partition
        The partition.
    parts : int
        How many ranges there are.
    """

    def __init__(self, label: str, sort: SortByKeyStep, value: Partition, parts: int):
        how = "descending" if sort.descending else "ascending"
        super().__init__(PartitionByKeyStep(label, sort.key, parts, how, value.layout, value.layout))
        self._whole = value

    @staticmethod
    def report_bounds(context: RunContext, keys: Sequence[RowKeys], bounds: np.ndarray | None) -> None:
        """Say nothing, as nobody else meets these ranges."""

    def in_passes(self, context: RunContext, values: Sequence[Partition]) -> WaveExchange:
        return _RangeExchange(self, context, values)

    def check_sizes(self, rows: np.ndarray) -> None:
        """Check that the device can sort each of the ranges, which have some numbers of rows.

        Raises
        ------
        OutOfMemory
            If it cannot, with the key that has most of the records; no row has been moved.
        """
        memory, most = self._whole.device.memory(), int(rows.max(initial=0))
        nbytes = most * (SORTING_BYTES + 2 * sum(map(row_bytes, self._whole.blocks[0])))
        if nbytes > memory.total - memory.used:
            raise OutOfMemory(f"{most:,} records of about one key, which most often is {self._often()}, take "
                              f"{nbytes:,} bytes while they are sorted, of {memory.total - memory.used:,} that "
                              f"{self._whole.device.name} has left: spark.vispark.memory of a larger device, or keys "
                              "that part these records, find room for them")

    def _often(self) -> str:
        """Return the key that most of the records have, by some of them."""
        key = self.step.key
        words = [each.host.view(each.field.dtype) for each in self._whole.blocks[0] if each.host is not None
                 and (each.field.name == key or each.field.name.startswith(f"{key}."))]
        few = np.stack([each[::-(-len(each) // _LOOKED_AT)] for each in words], axis=1)
        found, counts = np.unique(few, axis=0, return_counts=True)
        often = found[counts.argmax()].tolist()
        return repr(often[0] if len(often) == 1 else tuple(often))

    def empty(self, context: RunContext, part: int) -> Partition:
        return context.use(replace(self._whole, count=0, blocks=[], index=part))


class _RangeExchange(WaveExchange):
    """Exchange that checks its ranges before it takes memory for them."""

    def __init__(self, ranges: RangesOfKeys, context: RunContext, values: Sequence[Partition]):
        super().__init__(ranges, context, values)
        self._ranges = ranges

    def _reserve(self) -> None:
        self._ranges.check_sizes(self._rows)
        super()._reserve()


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
        values = context.each(self, values, context.to_device)
        found = {value.index: value for value in values}
        for group in self._groups([value for value in values if value.count and value.blocks]):
            for made in context.run_together(self, group, partial(self._sorted, context)):
                found[made.index] = made
        return [found[value.index] for value in values]

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
        made = arrays_of_rows(arrays[0].field, counts, order.device, order.stream, context.scratch)
        order.take_sorted(arrays, [each.on_device for each in made], counts)
        return made


def _kind(value: Partition) -> object:
    return tuple([(array.field.name, array.field.dtype, array.field.shape[1:]) for array in value.blocks[0]])
