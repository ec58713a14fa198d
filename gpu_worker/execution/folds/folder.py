"""Launches of the kernels of ``fold.cu`` on one partition, with their memory and the results to copy out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.partition import HeldArray, PieceOfPartition
from gpu_worker.execution.folds.element_folds import ACCUMULATORS, SOURCE, ElementFold, accumulator_size, element_of
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.payload import field_bytes

THREADS = 256
_MAX_CHUNKS = 256
_MIN_CHUNK = 4096
#: Chunks of wide rows are of about so many bytes, and of some rows at least.
_CHUNK_BYTES, _LEAST_CHUNK = 1 << 20, 32
#: By key: the shared memory that one block may have, what all partial results may take, and how many there may be.
_SHARED_BYTES = 46 * 1024
_PARTIAL_BYTES = 64 << 20
_MAX_PARTIALS = 4096
_MIN_ROWS = 32


@dataclass
class Folder:
    """Launches of one partition's folds, their memory, and the results to copy out."""

    device: Device
    stream: Stream
    scratch: Scratch
    #: Which piece of the partition it folds, where that comes in pieces.
    of_partition: PieceOfPartition | None = None
    buffers: list[Buffer] = field(default_factory=list)
    results: list[tuple[np.ndarray, Buffer]] = field(default_factory=list)

    def rows(self, array: HeldArray, operation: ElementFold, chunk: int = 0) -> np.ndarray:
        """Fold an array along its first axis, so many rows by themselves; 0 for as many as :func:`chunk_of` says."""
        return self.out(*self.rows_on_device(array, operation, chunk), operation)

    def rows_on_device(self, array: HeldArray, operation: ElementFold, chunk: int = 0) -> tuple[Buffer, int]:
        """Fold an array along its first axis into accumulators on the device; return these, and how many there are."""
        columns = math.prod(array.field.shape[1:]) * operation.parts
        extents = array.field.shape[0], columns, chunk or chunk_of([array.field])
        return self._fold_rows(array.on_device, extents, operation), columns

    def blocks(self, arrays: Sequence[HeldArray], operation: ElementFold) -> np.ndarray:
        """Fold arrays of one shape, element by element."""
        size = math.prod(arrays[0].field.shape) * operation.parts
        target = self.allocate(size, operation.carried)
        for index, array in enumerate(arrays):
            self._fold_into(array.on_device, target, size, operation, starts=index == 0)
        return self.out(target, size, operation)

    def by_key(self, keys: HeldArray, array: HeldArray, groups: int, operation: ElementFold) -> Buffer:
        """Fold the rows of an array that have the same key; the accumulators lie one after the other."""
        rows, columns = array.field.shape[0], math.prod(array.field.shape[1:]) * operation.parts
        if not columns:
            return self.take(0)
        size = accumulator_size(operation.carried)
        across, high, staged = _lanes(groups, columns, size)
        partials = min(_MAX_PARTIALS, -(-rows // _MIN_ROWS), _PARTIAL_BYTES // (groups * columns * size))
        chunk = -(-rows // max(1, partials // high))
        chunks = -(-rows // chunk)
        parts = self.allocate(chunks * high * groups * columns, operation.carried)
        key = element_of(keys.field.dtype)
        kernel = self.device.compile(SOURCE, f"fold_by_key<{operation.functor}, {operation.of}, {operation.element}, "
                                             f"{operation.carried}, {key}>")
        self.device.launch(kernel, (-(-columns // across), chunks), (across, high), [
            keys.on_device, array.on_device, parts, np.int64(rows), np.int64(columns), np.int64(groups),
                                                                                     np.int64(chunk),
            np.int32(staged)], shared=across * high * groups * size if staged else 0, stream=self.stream)
        if chunks * high == 1:
            return parts
        extents = chunks * high, groups * columns, _chunk(chunks * high, _MIN_CHUNK)
        joined = self._fold_rows(parts, extents, operation.onward)
        self._give(parts)
        return joined

    def add(self, target: Buffer, other: Buffer, elements: int, operation: ElementFold) -> None:
        """Join accumulators with others, which later work may have; as many of each."""
        if not elements:
            return
        kernel = self.device.compile(SOURCE, f"fold_into<{operation.functor}, Value, {operation.carried}, "
                                             f"{operation.carried}>")
        self.device.launch(kernel, _grid(elements), (THREADS,), [other, target, np.int64(elements), np.int32(0)],
                           stream=self.stream)
        self._give(other)

    def write_elements(self, source: Buffer, elements: int, operation: ElementFold, dtype: str, target: Buffer) -> None:
        """Write accumulators as elements of a dtype, of complex numbers their parts; later work may have the former."""
        element = element_of(dtype)
        if element == operation.carried:
            self.move(source, target)
            return
        if elements:
            kernel = self.device.compile(SOURCE, f"settle<{operation.carried}, {element}>")
            self.device.launch(kernel, _grid(elements), (THREADS,), [source, target, np.int64(elements)],
                               stream=self.stream)
        self._give(source)

    def move(self, source: Buffer, target: Buffer) -> None:
        """Copy memory of :meth:`by_key` to other memory; later work may have it."""
        self.device.copy_across(target, source.part(0, target.nbytes), stream=self.stream)
        self._give(source)

    def axis(self, array: HeldArray, target: Buffer, operation: ElementFold, axis: int) -> None:
        """Fold an array along its first or second axis, into its own type."""
        shape = array.field.shape
        extent, inner = shape[axis], math.prod(shape[axis + 1:]) * operation.parts
        outer = math.prod(shape[:axis])
        chunk = chunk_inside(extent) if outer == 1 else 0
        if chunk:
            rows = self._fold_rows(array.on_device, (extent, inner, chunk), operation)
            self._write_result(rows, target, inner, operation)
            return
        lanes = 32 if inner == 1 else 1
        kernel = self.device.compile(SOURCE, f"fold_axis<{operation.functor}, {operation.element}, "
                                             f"{operation.carried}, {lanes}>")
        self.device.launch(kernel, (-(-outer * inner * lanes // THREADS),), (THREADS,), [
            array.on_device, target, np.int64(outer), np.int64(extent), np.int64(inner)], stream=self.stream)

    def _write_result(self, folded: Buffer, target: Buffer, elements: int, operation: ElementFold) -> None:
        """Write accumulators as elements of an operation's own type."""
        kernel = self.device.compile(SOURCE, f"settle<{operation.carried}, {operation.element}>")
        self.device.launch(kernel, _grid(elements), (THREADS,), [folded, target, np.int64(elements)],
                           stream=self.stream)

    def _fold_into(self, source: Buffer, target: Buffer, elements: int, operation: ElementFold, *,
                   starts: bool) -> None:
        """Fold elements into accumulators, which the first ones start."""
        kernel = self.device.compile(SOURCE, f"fold_into<{operation.functor}, {operation.of}, {operation.element}, "
                                             f"{operation.carried}>")
        self.device.launch(kernel, _grid(elements), (THREADS,), [source, target, np.int64(elements), np.int32(starts)],
                           stream=self.stream)

    # -- arrays -------------------------------------------------------------------------------------------------------

    def _fold_rows(self, source: Buffer, extents: tuple[int, int, int], operation: ElementFold) -> Buffer:
        rows, columns, chunk = extents
        parts = self.allocate(-(-rows // chunk) * columns, operation.carried)
        self._launch_rows(source, parts, operation, extents)
        return self._fold_chunks(parts, -(-rows // chunk), columns, operation)

    def _fold_chunks(self, parts: Buffer, chunks: int, columns: int, operation: ElementFold) -> Buffer:
        """Fold what was left of each chunk of rows."""
        if chunks == 1:
            return parts
        target = self.allocate(columns, operation.carried)
        self._launch_rows(parts, target, operation.onward, (chunks, columns, chunks))
        return target

    def _launch_rows(self, source: Buffer, target: Buffer, operation: ElementFold,
                     extents: tuple[int, int, int]) -> None:
        """Fold each chunk of some rows into a row of ``target``."""
        rows, columns, chunk = extents
        chunks = -(-rows // chunk)
        across = threads_across(columns)
        kernel = self.device.compile(SOURCE, f"fold_rows<{operation.functor}, {operation.of}, {operation.element}, "
                                             f"{operation.carried}, {across}>")
        self.device.launch(kernel, (max(1, -(-columns // across)), chunks), (across, THREADS // across),
                           [source, target, np.int64(rows), np.int64(columns), np.int64(chunk)], stream=self.stream)

    def allocate(self, elements: int, carried: str) -> Buffer:
        return self.take(elements * accumulator_size(carried))

    def take(self, nbytes: int) -> Buffer:
        buffer = self.scratch.allocate(nbytes, self.device, self.stream)
        self.buffers.append(buffer)
        return buffer

    def _give(self, buffer: Buffer) -> None:
        """Give back memory of :meth:`take`, for later work of the stream."""
        self.buffers.remove(buffer)
        self.scratch.recycle(buffer, self.stream)

    def out(self, source: Buffer, elements: int, operation: ElementFold) -> np.ndarray:
        """Reserve host memory for accumulators, to be copied out; return it."""
        dtype, width = ACCUMULATORS[operation.carried]
        values = self.scratch.host(elements * accumulator_size(operation.carried), self.device).view(dtype)
        values = values.reshape(elements, width)
        self.results.append((values, source))
        return values


def chunk_of(fields: Sequence[Field], rows: int = 0) -> int:
    """Return the number of rows that are folded to one accumulator before accumulators are joined: fewer of wide rows,
    more of many rows. ``rows`` is the number of the whole block where the fields are of a piece of it.
    """
    widest = max([field_bytes(each) // max(each.shape[0], 1) for each in fields], default=0)
    return _chunk(rows or fields[0].shape[0], max(_LEAST_CHUNK, min(_MIN_CHUNK, _CHUNK_BYTES // max(widest, 1))))


def chunk_inside(rows: int) -> int:
    """Return the number of rows of a record that are folded by themselves; 0 where one row is folded after the other.
    """
    return _chunk(rows, _MIN_CHUNK) if rows > _MIN_CHUNK else 0


def _chunk(rows: int, least: int) -> int:
    return max(least, -(-rows // _MAX_CHUNKS))


def threads_across(columns: int) -> int:
    """Return the number of threads side by side, a power of two."""
    return min(32, 1 << max(columns - 1, 0).bit_length())


def _grid(size: int) -> tuple[int]:
    return (max(1, min(1024, -(-size // THREADS))),)


def _lanes(groups: int, columns: int, size: int) -> tuple[int, int, bool]:
    """Return a block's threads side by side and above each other, and whether their groups fit shared memory."""
    across = threads_across(columns)
    high = THREADS // across
    while high > 1 and across * high * groups * size > _SHARED_BYTES:
        high //= 2
    if across * high * groups * size <= _SHARED_BYTES:
        return across, high, True
    return across, max(1, min(THREADS // across, _PARTIAL_BYTES // (groups * columns * size))), False
