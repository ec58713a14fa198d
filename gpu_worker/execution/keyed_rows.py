"""Rows by their keys, on one device: the kernels of ``keys.cu``.

Everything is made of one primitive, a stable partition of rows by a digit of 8 bits (:meth:`RowOrder.sort`): the order
of rows is computed from words, which are made of keys, and rows are moved once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, Given, Source, Stream
from gpu_worker.execution.scratch import Scratch
from gpu_worker.memory.partition import HeldArray
from gpu_worker.protocol.errors import PlanError

SOURCE = Source((Path(__file__).parent / "keys.cu").read_text(), file="keys.cu")

#: The dtypes of keys, by kind and size, to their types in C++; bools are ints, as they are in Python.
KEYS = {
    "f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
    "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int", "u8": "unsigned long long",
}
_C_OF_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
#: By their bytes, what rows are moved in.
_CHUNKS = ((16, "uint4"), (8, "unsigned long long"), (4, "unsigned int"), (2, "unsigned short"), (1, "unsigned char"))

_THREADS = 256
_DIGITS = 256
#: Rows of a tile, whose digits one thread block counts.
TILE = 4096
#: Rows are numbered with 32 bits.
MOST_ROWS = (1 << 32) - 1


def key_type(dtype: np.dtype) -> str:
    """Return the type of keys in C++.

    Raises
    ------
    PlanError
        If there are no kernels for such keys.
    """
    found = KEYS.get(f"{dtype.kind}{dtype.itemsize}")
    if found is None:
        raise PlanError(f"keys on the device are integers of 8 to 64 bits, float32 or float64, and not {dtype}")
    return found


def chunk_of(nbytes: int) -> tuple[int, str]:
    """Return the bytes and the type of the largest chunks that rows of ``nbytes`` bytes consist of."""
    return next((size, name) for size, name in _CHUNKS if nbytes % size == 0)


@dataclass
class RowOrder:
    """Order of the rows of one array of keys, computed on its device; its memory goes back with :meth:`close`.

    Parameters
    ----------
    keys : HeldArray
        One key a row.
    device, stream, scratch
        Where, and from which memory.

    Attributes
    ----------
    order : Buffer or None
        The rows' numbers (uint32) in their order; None for the order in which they are.
    words : Buffer or None
        The words, in that order where they were wanted.
    wrong : ndarray of uint64
        The number of keys that are NaN, once the stream is synchronized.
    """

    keys: HeldArray
    device: Device
    stream: Stream
    scratch: Scratch
    order: Buffer | None = None
    words: Buffer | None = None
    wrong: np.ndarray = field(default_factory=lambda: np.zeros(1, np.uint64))
    _word: int = 1
    _buffers: list[Buffer] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.keys.field.shape[0]

    # -- words --------------------------------------------------------------------------------------------------------

    def by_hash(self, parts: int) -> None:
        """Make each row's word the partition that Python's hash of its key gives."""
        self._words("hash_words", _word_bytes(parts), [np.int64(parts)])

    def by_range(self, bounds: np.ndarray, *, descending: bool) -> None:
        """Make each row's word the number of ``bounds`` (uint64, ascending, as :func:`ordered`) below its key; where
        the order is descending, of those that are not.
        """
        table = self.take(max(bounds.nbytes, 8))
        if bounds.nbytes:
            self.scratch.write(table, bounds, self.device, self.stream)
        self._words("range_words", _word_bytes(len(bounds) + 1), [table, np.int64(len(bounds)), np.int32(descending)])

    def by_order(self, *, descending: bool) -> None:
        """Make each row's word a number that is in the order of the keys."""
        size = 8 if np.dtype(self.keys.field.dtype).itemsize == 8 else 4
        self._words("ordered_words", size, [np.int32(descending)])

    def _words(self, kernel: str, size: int, arguments: Sequence[Given]) -> None:
        if self.rows > MOST_ROWS:
            raise PlanError(f"a partition has {self.rows:,} records, and {MOST_ROWS:,} are the most that are put in "
                            "order by their keys: give the RDD more partitions")
        self._word, self.words = size, self.take(self.rows * size)
        wrong = self.zeroed(8)
        self.launch(f"{kernel}<{key_type(np.dtype(self.keys.field.dtype))}, {_C_OF_WORDS[size]}>", self.rows,
                    [self.keys.buffer, self.words, np.int64(self.rows), *arguments, wrong])
        if np.dtype(self.keys.field.dtype).kind == "f":
            self.copy_out(self.wrong, wrong)

    # -- the order ----------------------------------------------------------------------------------------------------

    def sort(self, parts: int = 0) -> None:
        """Put the rows in the order of their words, stably.

        Parameters
        ----------
        parts : int
            The words are below this number, and wanted in their order; 0 where they may be any.
        """
        bits = max((parts - 1).bit_length(), 1) if parts else self._different().bit_length()
        shifts = range(0, bits, 8)
        for shift in shifts:
            self._round(shift, keeps_words=bool(parts) or shift != shifts[-1])

    def _different(self) -> int:
        """Return the bits in which words differ; waits for the stream."""
        bits, found = self.zeroed(8), np.zeros(1, np.uint64)
        if self.rows:
            self.launch(f"different_bits<{self._c}>", min(self.rows, _THREADS * 16 * self.device.multiprocessors),
                        [self.words, np.int64(self.rows), bits])
        self.copy_out(found, bits)
        self.device.synchronize(stream=self.stream)
        return int(found[0])

    def _round(self, shift: int, *, keeps_words: bool) -> None:
        rows, tiles = self.rows, -(-self.rows // TILE)
        counts, totals = self.take(_DIGITS * tiles * 4), self.take(_DIGITS * 8)
        after, placed = self.take(rows * 4), self.take(rows * self._word) if keeps_words else None
        launched = np.int64(rows), np.int64(TILE), np.int32(shift)
        self.launch(f"count_digits<{self._c}>", tiles * _THREADS, [self.words, *launched, counts, np.int64(tiles)])
        self.launch("scan_tiles", _DIGITS * _THREADS, [counts, np.int64(tiles), totals])
        self.launch(f"place_rows<{self._c}>", tiles * _THREADS, [
            self.words, _address(self.order), *launched, counts, np.int64(tiles), totals, _address(placed), after])
        for buffer in (counts, totals, self.order, self.words):
            self.give(buffer)
        self.order, self.words = after, placed

    def starts(self, parts: int) -> np.ndarray:
        """Return the places at which the rows of each of ``parts`` words begin, and their number (int64); valid once
        the stream is synchronized.
        """
        found, starts = np.zeros(parts + 1, np.int64), self.take(8 * (parts + 1))
        self.launch(f"run_starts<{self._c}>", parts + 1, [self.words, np.int64(self.rows), np.int64(parts), starts])
        self.copy_out(found, starts)
        return found

    # -- moving rows --------------------------------------------------------------------------------------------------

    def take_rows(self, array: HeldArray, target: Buffer, rows: int | None = None, order: Buffer | None = None) -> None:
        """Copy rows of an array to ``target`` in this order, or another one."""
        rows, order = self.rows if rows is None else rows, order or self.order
        nbytes = row_bytes(array)
        if not rows or not nbytes:
            return
        size, chunk = chunk_of(nbytes)
        self.launch(f"take_rows<{chunk}>", self._threads(rows, nbytes // size),
                    [array.buffer, target, order, np.int64(rows), np.int64(nbytes // size)])

    def deal_rows(self, array: HeldArray, bases: Buffer) -> None:
        """Copy the rows of an array to one array for each word; ``bases`` are their addresses, less what comes before
        the word's first row.
        """
        nbytes = row_bytes(array)
        if not self.rows or not nbytes:
            return
        size, chunk = chunk_of(nbytes)
        self.launch(f"deal_rows<{chunk}, {self._c}>", self._threads(self.rows, nbytes // size), [
            array.buffer, self.order, self.words, bases, np.int64(self.rows), np.int64(nbytes // size)])

    def _threads(self, rows: int, chunks: int) -> int:
        return rows * chunks if self.device.asynchronous else rows

    # -- memory and launches ------------------------------------------------------------------------------------------

    @property
    def _c(self) -> str:
        return _C_OF_WORDS[self._word]

    def launch(self, kernel: str, threads: int, arguments: Sequence[Given | None]) -> None:
        """Launch a kernel of ``keys.cu`` with at least so many threads."""
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

    def zeroed(self, nbytes: int) -> Buffer:
        """Return memory of zeros."""
        buffer = self.take(nbytes)
        self.scratch.write(buffer, np.zeros(nbytes, np.uint8), self.device, self.stream)
        return buffer

    def copy_out(self, target: np.ndarray, source: Buffer) -> None:
        """Enqueue a copy to the host."""
        self.device.copy_out(target.reshape(-1).view(np.uint8), source, stream=self.stream)

    def close(self) -> None:
        """Give all memory back to later work of the stream."""
        while self._buffers:
            self.scratch.recycle(self._buffers.pop(), self.stream)


def ordered(keys: np.ndarray) -> np.ndarray:
    """Return numbers (uint64) that are in the order of keys, as the kernels have them.

    Examples
    --------
    >>> bool((np.diff(ordered(np.array([-np.inf, -1.5, 0.0, 2.5])).astype(object)) > 0).all())
    True
    """
    if keys.dtype.kind in "iu":
        wide = keys.astype(np.int64 if keys.dtype.itemsize == 8 else np.int32) if keys.dtype.kind == "i" else keys
        unsigned = wide.view(f"u{wide.dtype.itemsize}")
        return (unsigned ^ unsigned.dtype.type(1 << (8 * unsigned.itemsize - 1)) if keys.dtype.kind == "i"
                else unsigned).astype(np.uint64)
    if keys.dtype.kind == "b":
        return keys.astype(np.uint64)
    bits = np.where(keys == 0, keys.dtype.type(0), keys).view(f"u{keys.dtype.itemsize}")
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign).astype(np.uint64)


def row_bytes(array: HeldArray) -> int:
    """Return the bytes of one row of an array."""
    return math.prod(array.field.shape[1:]) * np.dtype(array.field.dtype).itemsize


def _word_bytes(parts: int) -> int:
    return next(size for size in (1, 2, 4) if parts <= 1 << 8 * size)


def _address(buffer: Buffer | None) -> Given:
    return np.uint64(0) if buffer is None else buffer
