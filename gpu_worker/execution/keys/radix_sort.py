"""Stable radix sort of rows on one device, of one or more runs of rows at once: the kernels of ``keys.cu``.

A run is the rows of one partition. The order of each run's rows is computed from words, which are made of keys, by
digits of 8 bits, the lowest first; a round takes three launches, however many runs there are. Rows are moved once, at
the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, LaunchValue, Source, Stream
from gpu_worker.device.memory.partition import HeldArray
from gpu_worker.execution.memory.row_chunks import chunk_of, row_bytes
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.protocol.errors import KeysRefused, PlanError

SOURCE = Source((Path(__file__).parent / "keys.cu").read_text(), file="keys.cu")

#: The dtypes of keys, by kind and size, to their types in C++; bools are ints, as they are in Python.
KEYS = {
    "f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
    "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int", "u8": "unsigned long long",
}
C_OF_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}

_THREADS = 256
_DIGITS = 256
#: Rows of a tile, whose digits one thread block counts.
TILE = 4096
#: Rows are numbered with 32 bits.
MOST_ROWS = (1 << 32) - 1
#: The bytes that a sort works in for each row: words and numbers, before and after a round.
SORTING_BYTES = 2 * (8 + 4)


def key_type(dtype: np.dtype) -> str:
    """Return the type of keys in C++.

    Raises
    ------
    PlanError
        If there are no kernels for such keys.
    """
    name = KEYS.get(f"{dtype.kind}{dtype.itemsize}")
    if name is None:
        raise PlanError(f"keys on the device are integers of 8 to 64 bits, float32 or float64, and not {dtype}")
    return name


class RowKernels:
    """Launches of the kernels of ``keys.cu`` on a stream, and the memory that they work in, which goes back with
    :meth:`close`.

    Parameters
    ----------
    device, stream, scratch
        Where, and from which memory.
    """

    def __init__(self, device: Device, stream: Stream, scratch: Scratch):
        self.device, self.stream, self.scratch = device, stream, scratch
        self._buffers: list[Buffer] = []

    def launch(self, kernel: str, threads: int, arguments: Sequence[LaunchValue | None]) -> None:
        """Launch a kernel with at least so many threads."""
        if threads:
            compiled = self.device.compile(SOURCE, kernel)
            self.device.launch(compiled, (min(-(-threads // _THREADS), (1 << 31) - 1),), (_THREADS,),
                               [each for each in arguments if each is not None], stream=self.stream)

    def take(self, nbytes: int) -> Buffer:
        """Return memory until :meth:`close`."""
        buffer = self.scratch.allocate(max(nbytes, 1), self.device, self.stream)
        self._buffers.append(buffer)
        return buffer

    def give(self, buffer: Buffer | None) -> None:
        """Give memory back to later work of the stream."""
        if buffer is not None:
            self._buffers.remove(buffer)
            self.scratch.recycle(buffer, self.stream)

    def written(self, array: np.ndarray) -> Buffer:
        """Return memory with an array's bytes."""
        buffer = self.take(array.nbytes)
        if array.nbytes:
            self.scratch.write(buffer, np.ascontiguousarray(array), self.device, self.stream)
        return buffer

    def zeroed(self, nbytes: int) -> Buffer:
        """Return memory of zeros."""
        return self.written(np.zeros(nbytes, np.uint8))

    def take_places(self, array: HeldArray, target: Buffer, rows: int, places: Buffer | None) -> None:
        """Copy the rows of an array at some places (uint32) to memory."""
        nbytes = row_bytes(array)
        if rows and nbytes:
            size, chunk = chunk_of(nbytes)
            self.launch(f"take_rows<{chunk}>", self.threads(rows, nbytes // size),
                        [array.buffer, target, places, np.int64(rows), np.int64(nbytes // size)])

    def threads(self, rows: int, chunks: int) -> int:
        """Return the threads that go over rows of chunks: a CPU has one for each row."""
        return rows * chunks if self.device.asynchronous else rows

    def copy_out(self, target: np.ndarray, source: Buffer) -> None:
        """Enqueue a copy to the host."""
        self.device.copy_out(target.reshape(-1).view(np.uint8), source, stream=self.stream)

    def close(self) -> None:
        """Give all memory back to later work of the stream."""
        while self._buffers:
            self.scratch.recycle(self._buffers.pop(), self.stream)


class RadixSort(RowKernels):
    """Order of the rows of some runs, each by itself.

    Parameters
    ----------
    runs : sequence of int
        The rows of each run.
    device, stream, scratch
        Where, and from which memory.

    Attributes
    ----------
    order : Buffer or None
        The rows' numbers (uint32) in their run, in their order, one run behind the other; None for the order in which
        they are.
    words : Buffer or None
        The words, in that order where they were wanted.
    wrong : ndarray of uint64
        The number of keys that are NaN, once the stream is synchronized.
    """

    def __init__(self, runs: Sequence[int], device: Device, stream: Stream, scratch: Scratch):
        super().__init__(device, stream, scratch)
        self.order: Buffer | None = None
        self.words: Buffer | None = None
        self.wrong = np.zeros(1, np.uint64)
        self._runs, self._word = tuple(runs), 1
        self._tables: dict[tuple[int, ...], Buffer] = {}
        self._wrong: Buffer | None = None

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(self._runs)

    def by_order(self, keys: Sequence[HeldArray], *, descending: bool) -> None:
        """Set each row's word to a number in the order of the keys; there is an array of keys for each run of rows.

        Raises
        ------
        KeysRefused
            If a run has more rows than are numbered.
        """
        dtype = np.dtype(keys[0].field.dtype)
        self._start_words(8 if dtype.itemsize == 8 else 4)
        addresses = self.written(np.array([array.on_device.address if array.buffer else 0 for array in keys],
                                          np.uint64))
        self._launch_tiles(f"ordered_words<{key_type(dtype)}, {self._c}>", self._runs, [
            addresses, self.order or np.uint64(0), self.words, np.int32(descending), self._count_wrong()])
        self._read_wrong(dtype)

    def sort(self, parts: int = 0) -> None:
        """Put the rows of each run in the order of their words, stably.

        Parameters
        ----------
        parts : int
            The words are below this number, and wanted in their order; 0 where they may be any.
        """
        bits = max((parts - 1).bit_length(), 1) if parts else self._different().bit_length()
        shifts = range(0, bits, 8)
        for shift in shifts:
            self._round(shift, keeps_words=bool(parts) or shift != shifts[-1])

    def take_sorted(self, arrays: Sequence[HeldArray], targets: Sequence[Buffer], counts: Sequence[int]) -> None:
        """Copy the first ``counts`` rows of each run, of its array, to its target in this order."""
        nbytes = row_bytes(arrays[0])
        if not nbytes or not any(counts):
            return
        size, chunk = chunk_of(nbytes)
        addresses = [[array.on_device.address if rows else 0 for array, rows in zip(arrays, counts, strict=True)],
                     [target.address for target in targets]]
        starts = np.cumsum([0, *self._runs])[:-1]
        self._launch_tiles(f"take_sorted<{chunk}>", tuple(counts), [
            self.written(np.array(addresses, np.uint64)), self.written(starts.astype(np.uint64)),
            self.order or np.uint64(0), np.int64(nbytes // size)])

    # -- words --------------------------------------------------------------------------------------------------------

    @property
    def _c(self) -> str:
        return C_OF_WORDS[self._word]

    def _start_words(self, size: int) -> None:
        """Take memory for words of ``size`` bytes in place of those before."""
        if max(self._runs, default=0) > MOST_ROWS:
            raise KeysRefused(f"a partition has {max(self._runs):,} records, and {MOST_ROWS:,} are the most that are "
                              "put in order by their keys: give the RDD more partitions")
        self.give(self.words)
        self._word, self.words = size, self.take(self.rows * size)

    def _count_wrong(self) -> Buffer:
        """Return the memory in which kernels count the keys that are NaN."""
        if self._wrong is None:
            self._wrong = self.zeroed(8)
        return self._wrong

    def _read_wrong(self, dtype: np.dtype) -> None:
        if dtype.kind == "f":
            assert self._wrong is not None
            self.copy_out(self.wrong, self._wrong)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _launch_tiles(self, kernel: str, rows: Sequence[int], arguments: Sequence[LaunchValue | None]) -> None:
        """Launch a kernel with a block for each tile of some runs; it is given their table first."""
        rows = tuple(rows)
        if rows not in self._tables:
            self._tables[rows] = self.written(_table(rows))
        tiles = sum(-(-each // TILE) for each in rows)
        self.launch(kernel, tiles * _THREADS, [self._tables[rows], np.int32(len(rows)), np.int32(TILE), *arguments])

    def _different(self) -> int:
        """Return the bits in which words of one run differ; waits for the stream."""
        bits, result = self.zeroed(8), np.zeros(1, np.uint64)
        self._launch_tiles(f"different_bits<{self._c}>", self._runs, [self.words, bits])
        self.copy_out(result, bits)
        self.device.synchronize(stream=self.stream)
        return int(result[0])

    def _round(self, shift: int, *, keeps_words: bool) -> None:
        runs, rows = self._runs, self.rows
        tiles = sum(-(-each // TILE) for each in runs)
        counts, totals = self.take(_DIGITS * tiles * 4), self.take(_DIGITS * len(runs) * 8)
        after, placed = self.take(rows * 4), self.take(rows * self._word) if keeps_words else None
        self._launch_tiles(f"count_digits<{self._c}>", runs, [self.words, np.int32(shift), counts])
        if tiles:
            self.launch("scan_digits", _DIGITS * len(runs) * _THREADS, [self._tables[runs], np.int32(len(runs)), counts,
                                                                        totals])
        self._launch_tiles(f"place_rows<{self._c}>", runs, [
            self.words, self.order or np.uint64(0), np.int32(shift), counts, totals, placed or np.uint64(0), after])
        for buffer in (counts, totals, self.order, self.words):
            self.give(buffer)
        self.order, self.words = after, placed


def _table(rows: Sequence[int]) -> np.ndarray:
    """Return the table of runs that kernels read: the first tile of each, and of all tiles; the first row of each, and
    of all rows.
    """
    tiles = [-(-each // TILE) for each in rows]
    return np.array([*np.cumsum([0, *tiles]), *np.cumsum([0, *rows])], np.uint64)
