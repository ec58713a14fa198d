"""Step that makes new partitions of the rows of all by their keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.keys.keyed_rows import RowOrder, unordered
from gpu_worker.execution.keys.radix_sort import MOST_ROWS
from gpu_worker.execution.keys.row_exchange import MOST_PARTS as MOST_AT_ONCE
from gpu_worker.execution.keys.row_exchange import OrderedExchange, RowExchange
from gpu_worker.execution.keys.row_keys import RowKeys, in_order, words_of
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.memory.row_memory import arrays_of_rows
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, every_row, handles
from gpu_worker.execution.plan_checks import require
from gpu_worker.execution.steps.keys import KeyedStep, refuse_nan
from gpu_worker.execution.steps.node_keys import NodeKeys, check_reach
from gpu_worker.execution.steps.node_wave_exchange import NodeWaveExchange
from gpu_worker.execution.steps.wave_exchange import Exchanged, WaveExchange
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError
from gpu_worker.protocol.messages import Field, Launch, Plan
from gpu_worker.protocol.plans import KeyBounds, PartitionByKeyStep
from gpu_worker.system.failpoints import failpoint

_HOW = ("hash", "ascending", "descending")
#: The most partitions that rows are dealt to at once.
MOST_PARTS = 1 << 20
#: Keys that are looked at for the bounds of ranges: for each partition that is to come, and in all.
_SAMPLES, _MOST_SAMPLES = 64, 1 << 16


@handles(PartitionByKeyStep)
class PartitionByKeyHandler(KeyedStep):
    """Handler of a step that makes new partitions of the rows of all."""

    step: PartitionByKeyStep

    def verify(self, plan: Plan) -> None:
        require(self.step.how in _HOW, f"rows are partitioned by {', '.join(_HOW)}, not by {self.step.how[:40]!r}")
        require(1 <= self.step.parts <= MOST_PARTS,
                f"rows are dealt to 1 to {MOST_PARTS:,} partitions, not to {self.step.parts:,}")

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    def in_passes(self, context: RunContext, values: Sequence[Partition]) -> WaveExchange:
        return WaveExchange(self, context, values) if context.world is None else \
            NodeWaveExchange(self, context, values)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = [value for value in context.each(self, values, context.to_device) if value.count and value.blocks]
        if context.world is not None:
            return self._exchange_with_nodes(context, values)
        return context.run_together(self, values, partial(self._exchange_rows, context)) if values else \
            [self.empty(context, part) for part in range(self.step.parts)]

    def _exchange_rows(self, context: RunContext, values: Sequence[Partition]) -> list[Partition]:
        fields = _common_fields(values)
        keys = [RowKeys(context.streams, context.scratch, value, self.step.key) for value in values]
        bounds = None if self.step.how == "hash" else self.edges(
            in_order(np.concatenate(self.samples(keys, len(keys)))))
        self.report_bounds(context, keys, bounds)
        exchanges = self.counted(context, values, keys, bounds, apart=False)
        counts = np.array([exchange.rows for exchange, _ in exchanges]).astype(np.int64)
        failpoint("shuffle-counted")
        parts = self._allocated(context, fields, counts.sum(axis=0))
        for (exchange, moved), before in zip(exchanges, np.cumsum(counts, axis=0) - counts, strict=True):
            self._move(context, exchange, moved, parts, before)
        _wait(context, parts)
        failpoint("shuffle-moved")
        self._close(context, values, [*[exchange for exchange, _ in exchanges], *keys])
        return parts

    def _close(self, context: RunContext, values: Sequence[Partition],
               exchanges: Sequence[RowExchange | OrderedExchange | RowKeys]) -> None:
        """Give back what an exchange worked in, and the partitions that it began with."""
        for exchange in exchanges:
            exchange.close()
        for value in values:
            del context.values.used[id(value)]
            value.close(partial(_recycle, context, value.device))

    def _exchange_with_nodes(self, context: RunContext, values: Sequence[Partition]) -> list[Partition]:
        """Return this node's new partitions, of the rows of all nodes of the plan's world."""
        nodes = NodeKeys(context, values, self.step.parts)
        keys: list[RowKeys] = []

        def samples(partitions: int) -> Sequence[np.ndarray]:
            keys.extend(RowKeys(context.streams, context.scratch, value, self.step.key) for value in values)
            return self.samples(keys, partitions)

        bounds = None if self.step.how == "hash" else self.edges(nodes.bounds(samples))
        self.report_bounds(context, keys, bounds)

        def count() -> Sequence[RowExchange | OrderedExchange]:
            check_reach([*values, *[self.empty(context, part) for part in range(min(self.step.parts, 64))]])
            _common_fields(values) if values else ()
            keys[:] = keys or [RowKeys(context.streams, context.scratch, value, self.step.key) for value in values]
            return [exchange for exchange, _ in self.counted(context, values, keys, bounds, apart=True)]

        plan, exchanges = nodes.plan_counted(count)
        failpoint("shuffle-counted")
        parts = nodes.moved(plan, exchanges, partial(self._allocated, context))
        failpoint("shuffle-moved")
        self._close(context, values, [*exchanges, *keys])
        return parts

    def counted(self, context: RunContext, values: Sequence[Partition], keys: Sequence[RowKeys],
                 bounds: np.ndarray | None, *, apart: bool) -> list[Exchanged]:
        """Return exchanges of all rows, which are counted, each with the partitions that it takes: neighbours on one
        device, or each partition by itself.

        Raises
        ------
        KeysRefused
            If a key has NaN.
        """
        with context.progress.launching(self.label, [value.index for value in values],
                                        values[0].device if values else context.streams.devices[0]):
            by_tuples = bool(keys) and len(keys[0].arrays) > 1
            arrays = [each.numbers(self.step.parts, self.step.how, bounds) if by_tuples else each.arrays[0]
                      for each in keys]
            exchanges = self._exchanges(context, values, arrays, apart=apart)
            for exchange, _ in exchanges:
                if bounds is None or by_tuples:
                    exchange.count()
                else:
                    exchange.count(np.ascontiguousarray(bounds[:, 0]), descending=self.step.how == "descending")
        _wait(context, values)
        refuse_nan([*keys, *[exchange for exchange, _ in exchanges]], self.label)
        return exchanges

    def _exchanges(self, context: RunContext, values: Sequence[Partition], keys: Sequence[HeldArray], *,
                   apart: bool) -> list[Exchanged]:
        """Return exchanges of all rows by arrays of keys, which are not counted yet."""
        if self.step.parts > MOST_AT_ONCE:
            return [(OrderedExchange(value.blocks[0], RowOrder(array, value.device, context.streams.main(value.device),
                                                               context.scratch), self.step.parts), [value])
                    for value, array in zip(values, keys, strict=True)]
        by_place = enumerate(zip(values, keys, strict=True))
        groups = itertools.groupby(by_place, lambda each: (each[1][0].device.name, each[0] if apart else 0))
        exchanges: list[Exchanged] = []
        for group in [[each for _, each in group] for _, group in groups]:
            device = group[0][0].device
            exchanges.append((RowExchange([value.blocks[0] for value, _ in group], [array for _, array in group],
                                          self.step.parts, device, context.streams.main(device), context.scratch),
                              [value for value, _ in group]))
        return exchanges

    # -- ranges -------------------------------------------------------------------------------------------------------

    def samples(self, keys: Sequence[RowKeys], partitions: int) -> list[np.ndarray]:
        """Return words of keys of each partition that are numbers, at equal distances, where there are as many
        ``partitions`` in all; waits for them.
        """
        most = max(1, min(_SAMPLES * self.step.parts, _MOST_SAMPLES) // max(partitions, 1))
        samples = [each.sampled(most) for each in keys]
        for row_keys in keys:
            row_keys.device.synchronize(stream=row_keys.stream)
        return [words_of(each) for each in samples]

    def edges(self, words: np.ndarray) -> np.ndarray:
        """Return the bounds of the ranges, of sorted words of a sample of keys."""
        parts = self.step.parts
        if not len(words):
            return np.zeros((parts - 1, words.shape[1]), np.uint64)
        return words[[len(words) * (part + 1) // parts for part in range(parts - 1)]]

    @staticmethod
    def report_bounds(context: RunContext, keys: Sequence[RowKeys], bounds: np.ndarray | None) -> None:
        """Have the reply say which bounds were drawn; a node without keys does not know what they look like."""
        if bounds is not None and keys:
            columns = zip(keys[0].arrays, bounds.T, strict=False)
            context.results.bounds = tuple([KeyBounds(array.field.dtype, unordered(
                words, np.dtype(array.field.dtype)).tobytes()) for array, words in columns])

    # -- the new partitions -------------------------------------------------------------------------------------------

    def empty(self, context: RunContext, part: int) -> Partition:
        device = context.streams.place(context.request.vrdds[-1], part, context.plan.devices)
        return context.use(Partition(part, 0, None, self.step.empty, [], device))

    def _allocated(self, context: RunContext, fields: Sequence[HeldArray], rows: np.ndarray,
                   parts: Sequence[int] | None = None) -> list[Partition]:
        """Return the new partitions, or ``parts`` of them, with memory for their rows: of each field one buffer for all
        of a device's.

        Raises
        ------
        OutOfMemory
            If they do not fit; before any row has been moved.
        """
        empty = [self.empty(context, part) for part in (range(self.step.parts) if parts is None else parts)]
        self._check_rows(empty, rows, sum(map(row_bytes, fields)))
        blocks: dict[int, list[HeldArray]] = {partition.index: [] for partition in empty}
        for device in dict.fromkeys([partition.device for partition in empty]):
            there = [partition for partition in empty if partition.device is device and rows[partition.index]]
            for array in fields if there else ():
                held = arrays_of_rows(array.field, [int(rows[each.index]) for each in there], device,
                                      context.streams.main(device), context.scratch)
                for partition, memory in zip(there, held, strict=True):
                    blocks[partition.index].append(memory)
        for partition in empty:
            if rows[partition.index]:
                partition.blocks, partition.count = [tuple(blocks[partition.index])], int(rows[partition.index])
                partition.layout = self.step.layout
        return empty

    def _check_rows(self, parts: Sequence[Partition], rows: np.ndarray, nbytes: int) -> None:
        """Raise OutOfMemory, with the numbers of the largest partition, where a device has no room for all of its, and
        KeysRefused where it has more rows than are numbered.
        """
        largest = int(rows.argmax())
        if rows[largest] > MOST_ROWS:
            raise KeysRefused(f"{self.label}: partition {largest} would have {int(rows[largest]):,} of "
                              f"{int(rows.sum()):,} records, and {MOST_ROWS:,} are the most that are numbered in one")
        needed: dict[Device, int] = {}
        for partition in parts:
            needed[partition.device] = needed.get(partition.device, 0) + int(rows[partition.index]) * nbytes
        for device, wants in needed.items():
            memory = device.memory()
            if memory.total and memory.used + wants > memory.total:
                raise OutOfMemory(
                    f"{self.label} into {self.step.parts} partitions takes {wants:,} bytes on {device.name}, of which "
                    f"{max(memory.total - memory.used, 0):,} are free; the largest is partition {largest} with "
                    f"{int(rows[largest]):,} of {int(rows.sum()):,} records ({int(rows[largest]) * nbytes:,} bytes)")

    def _move(self, context: RunContext, exchange: RowExchange | OrderedExchange, moved: Sequence[Partition],
              parts: Sequence[Partition], before: np.ndarray) -> None:
        """Enqueue the moves of rows to the new partitions; ``before`` is the number of rows before them in each."""
        device = moved[0].device
        stream = context.streams.main(device)
        for other in dict.fromkeys([each.device for each in parts]):
            if other is not device:
                if not device.reaches(other):
                    raise KeysRefused(f"{device.name} does not reach the memory of {other.name}")
                device.wait(context.streams.main(other), stream=stream, of=other)
        addresses = np.array([[_address(each, place) for each in parts] for place in range(len(exchange.fields))],
                             np.uint64)
        behind = np.array([before * row_bytes(array) for array in exchange.fields]).astype(np.uint64)
        with context.progress.launching(self.label, [each.index for each in moved], device):
            exchange.move(addresses + behind)
        context.progress.mark(self.label, [each.index for each in moved], device, stream)


def _common_fields(values: Sequence[Partition]) -> Sequence[HeldArray]:
    """Return the fields of the partitions' rows, but for their number. Raises PlanError where they differ."""
    kinds = {tuple((array.field.name, array.field.dtype, array.field.shape[1:]) for array in value.blocks[0])
             for value in values if len(value.blocks) == 1}
    if len(kinds) != 1 or any(len(value.blocks) != 1 for value in values):
        raise PlanError("partitions whose records differ in shape or dtype cannot be put together by their keys")
    return values[0].blocks[0]


def _wait(context: RunContext, values: Sequence[Partition]) -> None:
    """Wait for the work on the devices of some partitions."""
    for device in dict.fromkeys([value.device for value in values]):
        device.synchronize(stream=context.streams.main(device))


def _address(partition: Partition, place: int) -> int:
    """Return the address of a field of a new partition; 0 where it has no rows."""
    buffer = partition.blocks[0][place].buffer if partition.blocks else None
    return 0 if buffer is None else buffer.address


def _recycle(context: RunContext, device: Device, buffer: Buffer) -> None:
    context.scratch.recycle(buffer, context.streams.main(device))
