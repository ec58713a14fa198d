"""Order of the rows of one array of keys, on its device: the kernels of ``keys.cu``.

Everything is made of one primitive, a stable partition of rows by a digit of 8 bits
(:class:`~gpu_worker.execution.keys.radix_sort.RadixSort`): the order of rows is computed from words, which are made of
keys, and rows are moved once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_worker.device.base import Buffer, Device, LaunchValue, Stream
from gpu_worker.device.memory.partition import HeldArray
from gpu_worker.execution.keys.radix_sort import C_OF_WORDS, RadixSort, key_type
from gpu_worker.execution.memory.row_chunks import chunk_of, row_bytes
from gpu_worker.execution.memory.scratch import Scratch


class RowOrder(RadixSort):
    """Order of the rows of one array of keys, computed on its device.

    Parameters
    ----------
    keys : HeldArray
        One key a row.
    device, stream, scratch
        Where, and from which memory.
    """

    def __init__(self, keys: HeldArray, device: Device, stream: Stream, scratch: Scratch):
        super().__init__([keys.field.shape[0]], device, stream, scratch)
        self.keys = keys

    # -- words --------------------------------------------------------------------------------------------------------

    def by_hash(self, parts: int) -> None:
        """Make each row's word the partition that Python's hash of its key gives."""
        self._words("hash_words", _word_bytes(parts), [np.int64(parts)])

    def by_range(self, bounds: np.ndarray, *, descending: bool) -> None:
        """Make each row's word the number of ``bounds`` (uint64, ascending, as :func:`ordered`) below its key; where
        the order is descending, of those that are not.
        """
        table = self.written(bounds)
        self._words("range_words", _word_bytes(len(bounds) + 1), [table, np.int64(len(bounds)), np.int32(descending)])

    def by_key(self, *, descending: bool) -> None:
        """Make each row's word a number that is in the order of the keys."""
        self.by_order([self.keys], descending=descending)

    def _words(self, kernel: str, size: int, arguments: Sequence[LaunchValue]) -> None:
        dtype = np.dtype(self.keys.field.dtype)
        self._start_words(size)
        self.launch(f"{kernel}<{key_type(dtype)}, {C_OF_WORDS[size]}>", self.rows,
                    [self.keys.buffer, self.words, np.int64(self.rows), *arguments, self._count_wrong()])
        self._read_wrong(dtype)

    def starts(self, parts: int) -> np.ndarray:
        """Return the places at which the rows of each of ``parts`` words begin, and their number (int64); valid once
        the stream is synchronized.
        """
        first_rows, starts = np.zeros(parts + 1, np.int64), self.take(8 * (parts + 1))
        self.launch(f"run_starts<{self._c}>", parts + 1, [self.words, np.int64(self.rows), np.int64(parts), starts])
        self.copy_out(first_rows, starts)
        return first_rows

    # -- moving rows --------------------------------------------------------------------------------------------------

    def take_rows(self, array: HeldArray, target: Buffer, rows: int | None = None, order: Buffer | None = None) -> None:
        """Copy rows of an array to ``target`` in this order, or another one."""
        self.take_places(array, target, self.rows if rows is None else rows, order or self.order)

    def deal_rows(self, array: HeldArray, bases: Buffer) -> None:
        """Copy the rows of an array to one array for each word; ``bases`` are their addresses, less what comes before
        the word's first row.
        """
        nbytes = row_bytes(array)
        if not self.rows or not nbytes:
            return
        size, chunk = chunk_of(nbytes)
        self.launch(f"deal_rows<{chunk}, {self._c}>", self.threads(self.rows, nbytes // size), [
            array.buffer, self.order, self.words, bases, np.int64(self.rows), np.int64(nbytes // size)])


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


def unordered(words: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the keys of a dtype that :func:`ordered` gives numbers for.

    Examples
    --------
    >>> keys = np.array([-np.inf, -1.5, 0.0, 2.5])
    >>> bool((unordered(ordered(keys), keys.dtype) == keys).all())
    True
    >>> unordered(ordered(np.array([-128, 127], np.int8)), np.dtype(np.int8)).tolist()
    [-128, 127]
    """
    if dtype.kind == "i":
        size = 8 if dtype.itemsize == 8 else 4
        return (words - np.uint64(1 << (8 * size - 1))).view(np.int64).astype(dtype)
    if dtype.kind != "f":
        return words.astype(dtype)
    bits = words.astype(f"u{dtype.itemsize}")
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits & sign, bits ^ sign, ~bits).view(dtype)


def _word_bytes(parts: int) -> int:
    return next(size for size in (1, 2, 4) if parts <= 1 << 8 * size)
