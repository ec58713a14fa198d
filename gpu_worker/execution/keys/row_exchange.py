"""Rows of several partitions to new ones by their keys, on one device: the kernels of ``row_exchange.cu``.

Keys are read twice and rows moved once, whatever their number of fields: how many rows of each tile go to each new
partition is counted and scanned, and then every row is written to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, LaunchValue, Source, Stream
from gpu_worker.device.memory.partition import Block, HeldArray
from gpu_worker.execution.keys import radix_sort
from gpu_worker.execution.keys.keyed_rows import RowOrder
from gpu_worker.execution.keys.radix_sort import key_type
from gpu_worker.execution.memory.row_chunks import chunk_of, row_bytes
from gpu_worker.execution.memory.scratch import Scratch

SOURCE = Source((Path(__file__).parent / "row_exchange.cu").read_text(), file="row_exchange.cu")

#: The most new partitions that the kernels have room for.
MOST_PARTS = 1024

_THREADS = 256
_BY_HASH, _BY_RANGE = 0, 1


class RowExchange:
    """Exchange of the rows of some blocks of one device; its memory goes back with :meth:`close`.

    Parameters
    ----------
    blocks : sequence of Block
        The rows, all of the same fields, in their order.
    keys : sequence of HeldArray
        The keys of each block's rows.
    parts : int
        How many new partitions there are, at most :data:`MOST_PARTS`.
    device, stream, scratch
        Where, and from which memory.

    Attributes
    ----------
    rows : ndarray of uint64
        The rows of each new partition, once they were counted and the stream is synchronized.
    wrong : ndarray of uint64
        The number of keys that are NaN, likewise.
    """

    def __init__(self, blocks: Sequence[Block], keys: Sequence[HeldArray], parts: int, device: Device, stream: Stream,
                 scratch: Scratch):
        self._blocks, self._keys, self._parts = blocks, keys, parts
        self._device, self._stream, self._scratch = device, stream, scratch
        self._digits, tile = (256, 2048) if parts <= 256 else (MOST_PARTS, 4096)
        self._tiles = [-(-block[0].field.shape[0] // tile) for block in blocks]
        self.rows, self.wrong = np.zeros(parts, np.uint64), np.zeros(1, np.uint64)
        self._buffers: list[Buffer] = []
        self._given: list[LaunchValue] = []
        self._counts: Buffer | None = None
        self._how = _BY_HASH

    @property
    def fields(self) -> Sequence[HeldArray]:
        """The fields of the rows, of one of the blocks."""
        return self._blocks[0]

    def count(self, bounds: np.ndarray | None = None, *, descending: bool = False) -> None:
        """Enqueue the count of the rows that go to each new partition.

        Parameters
        ----------
        bounds : ndarray of uint64, optional
            The bounds of the partitions' ranges, ascending, as :func:`gpu_worker.execution.keys.keyed_rows.ordered`;
            left out, rows go by Python's hash of their keys.
        descending : bool
            Whether the last range comes first.
        """
        tiles = sum(self._tiles)
        self._how = _BY_HASH if bounds is None else _BY_RANGE
        table = self._written(self._table())
        edges: LaunchValue = np.uint64(0) if bounds is None or not len(bounds) else self._written(bounds)
        wrong = self._written(np.zeros(1, np.uint64))
        self._given = [table, np.int32(len(self._blocks)), np.int32(len(self.fields)), np.int64(self._parts),
                       np.uint64((2**64 - 1) // self._parts), edges, np.int32(descending)]
        self._counts = self._take(4 * self._parts * tiles)
        totals = self._take(8 * self._parts)
        self._launch(SOURCE, "count_parts", [*self._given, self._counts, np.int64(tiles), wrong])
        kernel = self._device.compile(radix_sort.SOURCE, "scan_tiles")
        self._device.launch(kernel, (self._parts,), (_THREADS,), [self._counts, np.int64(tiles), totals],
                            stream=self._stream)
        self._copy_out(self.rows, totals)
        if np.dtype(self._keys[0].field.dtype).kind == "f":
            self._copy_out(self.wrong, wrong)
        self._given += [self._counts, np.int64(tiles)]
        self._wrong = wrong

    def move(self, bases: np.ndarray) -> None:
        """Enqueue the copies of all rows to the new partitions.

        Parameters
        ----------
        bases : ndarray of uint64
            Of shape (fields, parts): the address of the first row that goes there.
        """
        self._launch(SOURCE, "move_rows", [*self._given, np.int32(len(self.fields)), self._written(bases),
                                           self._wrong])

    def close(self) -> None:
        """Give all memory back to later work of the stream."""
        while self._buffers:
            self._scratch.recycle(self._buffers.pop(), self._stream)

    def _table(self) -> np.ndarray:
        """Return the table of the blocks that the kernels read: their tiles, rows, fields and keys."""
        words = [0, *np.cumsum(self._tiles).tolist(), *[block[0].field.shape[0] for block in self._blocks]]
        for arrays in (*zip(*self._blocks, strict=True), self._keys):
            nbytes = row_bytes(arrays[0])
            size = chunk_of(nbytes)[0] if nbytes else 0
            words += [size, nbytes // size if size else 0, *[array.on_device.address for array in arrays]]
        return np.array(words, np.uint64)

    def _launch(self, source: Source, kernel: str, arguments: Sequence[LaunchValue]) -> None:
        keys = key_type(np.dtype(self._keys[0].field.dtype))
        compiled = self._device.compile(source, f"{kernel}<{keys}, {self._how}, {self._digits}>")
        self._device.launch(compiled, (sum(self._tiles),), (_THREADS,), arguments, stream=self._stream)

    def _take(self, nbytes: int) -> Buffer:
        buffer = self._scratch.allocate(nbytes, self._device, self._stream)
        self._buffers.append(buffer)
        return buffer

    def _written(self, array: np.ndarray) -> Buffer:
        buffer = self._take(array.nbytes)
        self._scratch.write(buffer, np.ascontiguousarray(array), self._device, self._stream)
        return buffer

    def _copy_out(self, target: np.ndarray, source: Buffer) -> None:
        self._device.copy_out(target.view(np.uint8), source, stream=self._stream)


class OrderedExchange:
    """Exchange like :class:`RowExchange` of one block's rows to any number of new partitions: by an order of the rows.

    Parameters
    ----------
    block : Block
        The rows.
    order : RowOrder
        An order of them that is not computed yet; it is closed with the exchange.
    parts : int
        How many new partitions there are.
    """

    def __init__(self, block: Block, order: RowOrder, parts: int):
        self.fields, self._order, self._parts = block, order, parts
        self.wrong, self._starts = order.wrong, np.zeros(parts + 1, np.int64)

    @property
    def rows(self) -> np.ndarray:
        """The rows of each new partition, as of :class:`RowExchange`."""
        return np.diff(self._starts)

    def count(self, bounds: np.ndarray | None = None, *, descending: bool = False) -> None:
        """Enqueue the order of the rows by their partitions, as :meth:`RowExchange.count` does their count."""
        if bounds is None:
            self._order.by_hash(self._parts)
        else:
            self._order.by_range(bounds, descending=descending)
        self._order.sort(self._parts)
        self._starts = self._order.starts(self._parts)

    def move(self, bases: np.ndarray) -> None:
        """Enqueue the copies, as :meth:`RowExchange.move` does."""
        for array, addresses in zip(self.fields, bases, strict=True):
            less = (self._starts[:-1] * row_bytes(array)).astype(np.uint64)
            table = self._order.take(addresses.nbytes)
            self._order.scratch.write(table, addresses - less, self._order.device, self._order.stream)
            self._order.deal_rows(array, table)

    def close(self) -> None:
        """Give all memory back to later work of the stream."""
        self._order.close()
