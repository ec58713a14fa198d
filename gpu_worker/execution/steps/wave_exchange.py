"""Exchange of rows by their keys, of partitions that come to their devices in waves, or in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np

from gpu_worker.device.base import Device
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.device.memory.spill_files import store, sync
from gpu_worker.execution.keys.radix_sort import MOST_ROWS
from gpu_worker.execution.keys.row_exchange import OrderedExchange, RowExchange
from gpu_worker.execution.keys.row_keys import RowKeys, in_order
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError
from gpu_worker.protocol.payload import aligned
from gpu_worker.protocol.plans import PartitionByKeyStep
from gpu_worker.system.failpoints import failpoint

#: The least memory below devices that is taken at once, for one new partition or several.
_LEAST_BYTES = 1 << 20

AnyExchange = RowExchange | OrderedExchange
#: An exchange, and the partitions that it takes.
Exchanged = tuple[AnyExchange, Sequence[Partition]]


class Partitioner(Protocol):
    """Interface of the step that makes new partitions."""

    step: PartitionByKeyStep

    @property
    def label(self) -> str: ...

    def samples(self, keys: Sequence[RowKeys], partitions: int) -> list[np.ndarray]: ...

    def edges(self, words: np.ndarray) -> np.ndarray: ...

    def counted(self, context: RunContext, values: Sequence[Partition], keys: Sequence[RowKeys],
                bounds: np.ndarray | None, *, apart: bool) -> Sequence[Exchanged]: ...

    def report_bounds(self, context: RunContext, keys: Sequence[RowKeys], bounds: np.ndarray | None) -> None: ...

    def empty(self, context: RunContext, part: int) -> Partition: ...


class WaveExchange:
    """Exchange of the rows of all partitions, which come in waves: once for the bounds of ranges, if they go to ranges,
    once to be counted, so that their new memory is known before any is moved, and once to be moved.

    Parameters
    ----------
    partitioner : Partitioner
        The step.
    context : RunContext
        The pass.
    values : sequence of Partition
        All partitions.
    """

    #: Whether each partition, or piece of one, is exchanged by itself.
    apart = False

    def __init__(self, partitioner: Partitioner, context: RunContext, values: Sequence[Partition]):
        self._step, self._by, self._context = partitioner.step, partitioner, context
        self._partitions = sum(1 for value in values if value.count and value.blocks)
        self._words: list[np.ndarray] = []
        self._bounds: np.ndarray | None = None
        self._rows = np.zeros(self._step.parts, np.int64)
        self._filled = np.zeros(self._step.parts, np.int64)
        #: The fields of one row, of one of the blocks.
        self._fields: list[HeldArray] = []
        self._made: list[Partition] = []

    def passes(self) -> Iterator[Callable[[list[Partition]], None]]:
        """Yield a function for each pass, which takes one wave after the other."""
        if self._step.how != "hash":
            yield self._sample
            self._bounds = self._by.edges(in_order(np.concatenate(self._words)) if self._words
                                          else np.zeros((0, 1), np.uint64))
        yield self._count
        failpoint("shuffle-counted")
        self._context.run_together(self._by, [], lambda _: self._reserve())
        yield self._move
        self._context.run_together(self._by, [],
                                   lambda _: sync(array.host for each in self._made for array in each.arrays))
        failpoint("shuffle-moved")

    def made(self) -> list[Partition]:
        """Return the new partitions, below their devices; they are the caller's from now on."""
        parts, self._made = self._made, []
        return parts

    # -- passes -------------------------------------------------------------------------------------------------------

    def _sample(self, values: list[Partition]) -> None:
        keys = self._keys(self._on_devices(values))
        self._words += self._by.samples(keys, self._partitions) if keys else []
        for row_keys in keys:
            row_keys.close()

    def _count(self, values: list[Partition]) -> None:
        there = self._on_devices(values)
        for value in there:
            self._check_alike(value)
        with self._counted(there) as (exchanges, keys):
            if not self._rows.any():
                self._by.report_bounds(self._context, keys, self._bounds)
            for exchange, moved in exchanges:
                self._note(exchange.rows.astype(np.int64), moved)

    def _note(self, rows: np.ndarray, moved: Sequence[Partition]) -> None:
        """Add the rows of some partitions that go to each new one."""
        self._rows += rows

    def _move(self, values: list[Partition]) -> None:
        with self._counted(self._on_devices(values)) as (exchanges, _):
            for exchange, moved in exchanges:
                with self._context.progress.launching(self._by.label, [each.index for each in moved], moved[0].device):
                    self._moved(exchange, moved)

    @contextmanager
    def _counted(self, values: Sequence[Partition]) -> Iterator[tuple[Sequence[Exchanged], Sequence[RowKeys]]]:
        """Count where the rows of a wave go; give back what this took in the end."""
        keys = self._keys(values)
        exchanges = self._by.counted(self._context, values, keys, self._bounds, apart=self.apart) if values else ()
        yield exchanges, keys
        for resource in (*[exchange for exchange, _ in exchanges], *keys):
            resource.close()

    def _on_devices(self, values: Sequence[Partition]) -> list[Partition]:
        """Return the partitions of a wave that have rows, on their devices."""
        there = [value for value in values if value.count and value.blocks]
        return self._context.each(self._by, there, self._context.to_device)

    def _keys(self, values: Sequence[Partition]) -> list[RowKeys]:
        return [RowKeys(self._context.streams, self._context.scratch, value, self._step.key) for value in values]

    def _check_alike(self, value: Partition) -> None:
        fields = list(value.blocks[0])
        kinds = [[(each.field.name, each.field.dtype, each.field.shape[1:]) for each in found]
                 for found in (self._fields or fields, fields)]
        if kinds[0] != kinds[1]:
            raise PlanError("partitions whose records differ in shape or dtype cannot be put together by their keys")
        self._fields = self._fields or [HeldArray(each.field) for each in fields]

    # -- the new partitions -------------------------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Make the new partitions, with memory for their rows below their devices.

        Raises
        ------
        OutOfMemory, SpillError
            If there is no room for them, with the largest partition's numbers; before any row has been moved.
        KeysRefused
            If one has more rows than are numbered.
        """
        largest = int(self._rows.argmax())
        most, total = int(self._rows[largest]), int(self._rows.sum())
        if most > MOST_ROWS:
            raise KeysRefused(f"partition {largest} would have {most:,} of {total:,} records, and {MOST_ROWS:,} are "
                              "the most that are numbered in one")
        row_size = sum(map(row_bytes, self._fields))
        try:
            for parts, sizes in self._groups():
                memory = self._context.names.tiers.reserve(sum(sizes), place=self._context.place_below)
                ends = np.cumsum(sizes).tolist()
                self._made += [self._partition_below(part, memory[end - size:end])
                               for part, size, end in zip(parts, sizes, ends, strict=True)]
        except OutOfMemory as error:
            raise OutOfMemory(f"{self._by.label} into {self._step.parts} partitions takes {total * row_size:,} bytes; "
                              f"the largest is partition {largest} with {most:,} of {total:,} records "
                              f"({most * row_size:,} bytes); {error.message}") from error

    def _owned(self) -> range:
        """Return the new partitions that are made here."""
        return range(self._step.parts)

    def _groups(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the numbers of new partitions that share memory, and the bytes of each."""
        parts, sizes, total = list[int](), list[int](), 0
        for part in self._owned():
            parts.append(part)
            sizes.append(sum(aligned(int(self._rows[part]) * row_bytes(array)) for array in self._fields))
            total += sizes[-1]
            if total >= _LEAST_BYTES:
                yield parts, sizes
                parts, sizes, total = [], [], 0
        if parts:
            yield parts, sizes

    def _partition_below(self, part: int, memory: np.ndarray) -> Partition:
        """Return a new partition with memory for its rows."""
        part_below, rows = self._by.empty(self._context, part), int(self._rows[part])
        if rows:
            block, start = [], 0
            for array in self._fields:
                nbytes = rows * row_bytes(array)
                field = replace(array.field, shape=(rows, *array.field.shape[1:]))
                block.append(HeldArray(field, host=memory[start:start + nbytes]))
                start += aligned(nbytes)
            part_below.blocks, part_below.count, part_below.layout = [tuple(block)], rows, self._step.layout
        part_below.tier = self._context.place_below
        return part_below

    def _moved(self, exchange: AnyExchange, moved: Sequence[Partition]) -> None:
        """Move the rows of an exchange to the new partitions, by memory on the device and on the host."""
        counts, starts, staged = self._staged(exchange, moved[0].device)
        for part in counts.nonzero()[0].tolist():
            self._written(self._made[part].blocks[0], int(self._filled[part]), staged, int(starts[part]),
                          int(counts[part]))
        self._filled += counts

    def _staged(self, exchange: AnyExchange, device: Device) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return the numbers of an exchange's rows that go to each new partition, the first of these rows, and the rows
        of each field in host memory (uint8), by new partition.
        """
        context = self._context
        stream = context.streams.main(device)
        counts = exchange.rows.astype(np.int64)
        starts, total = np.cumsum(counts) - counts, int(counts.sum())
        sizes = [row_bytes(array) for array in exchange.fields]
        buffers = [context.scratch.allocate(total * size, device, stream) if size else None for size in sizes]
        exchange.move(np.array([(0 if buffer is None else buffer.address) + starts * size
                                for buffer, size in zip(buffers, sizes, strict=True)], np.uint64))
        staged = [np.empty(total * size, np.uint8) for size in sizes]
        for memory, buffer in zip(staged, buffers, strict=True):
            if buffer is not None:
                device.copy_out(memory, buffer, stream=stream)
        device.synchronize(stream=stream)
        for buffer in filter(None, buffers):
            context.scratch.recycle(buffer, stream)
        return counts, starts, staged

    @staticmethod
    def _written(block: Block, filled: int, staged: Sequence[np.ndarray], start: int, rows: int) -> None:
        for array, memory in zip(block, staged, strict=True):
            size = row_bytes(array)
            assert array.host is not None
            store(array.host[filled * size:(filled + rows) * size], memory[start * size:(start + rows) * size])

