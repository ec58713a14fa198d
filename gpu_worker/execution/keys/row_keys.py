"""Keys of the rows of one partition on its device: an array of numbers, or one for each item of tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_worker.device.base import Buffer, LaunchValue
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.keys.keyed_rows import ordered
from gpu_worker.execution.keys.radix_sort import KEYS, RowKernels, key_type
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Field

#: The most items of a key that is a tuple.
MOST_ITEMS = 8

_CODES = {name: place for place, name in enumerate(KEYS)}
_HOW = {"hash": 0, "ascending": 1, "descending": 2}


def key_arrays(value: Partition, key: str) -> tuple[HeldArray, ...]:
    """Return the arrays of a partition's keys: the field ``key``, or those of a tuple's items, named after it; on its
    device, or, of a piece whose rows have one key, in host memory.

    Raises
    ------
    PlanError
        If the partition has not one block with such keys, one a row.
    """
    keys = keys_of(value, key)
    if any(array.buffer is None and not value.is_of_one_key for array in keys):
        raise PlanError(f"the keys {key!r} of partition {value.index} are not on {value.device.name}")
    return keys


def keys_of(value: Partition, key: str) -> tuple[HeldArray, ...]:
    """Return the arrays of a partition's keys as :func:`key_arrays` does, wherever they are.

    Raises
    ------
    PlanError
        If the partition has not one block with such keys, one a row.
    """
    block = value.blocks[0] if len(value.blocks) == 1 else ()
    below = f"{key}." if key else ""
    keys = [array for array in block if array.field.name == key] or \
        [array for array in block if array.field.name.startswith(below)]
    if not 1 <= len(keys) <= MOST_ITEMS or any(len(array.field.shape) != 1 for array in keys):
        raise PlanError(f"there is no field {key!r} with one key for each record, nor a tuple of up to {MOST_ITEMS} "
                        "numbers")
    for array in keys:
        key_type(np.dtype(array.field.dtype))
    return tuple(keys)


class RowKeys(RowKernels):
    """Keys of a partition's rows, whose memory goes back with :meth:`close`.

    Parameters
    ----------
    streams : Streams
        What the devices work on.
    scratch : Scratch
        The memory of the pass.
    value : Partition
        The rows.
    key : str
        The field of their keys, or what the fields of a tuple's items are named after.
    """

    def __init__(self, streams: Streams, scratch: Scratch, value: Partition, key: str):
        super().__init__(value.device, streams.main(value.device), scratch)
        self.arrays, self.rows = key_arrays(value, key), value.rows
        self._whole, self._first = (value.count, 0) if value.piece is None else (value.piece.whole, value.piece.first)
        #: The number of keys that have NaN, where they are tuples, once the stream is synchronized.
        self.wrong = np.zeros(1, np.uint64)

    def sampled(self, most: int) -> list[np.ndarray]:
        """Return keys at equal distances in their partition, ``most`` of it, an array for each item, once the stream is
        synchronized; of a piece of it those that it has.
        """
        chosen = np.linspace(0, self._whole - 1, min(most, self._whole)).astype(np.int64) - self._first
        chosen = chosen[(chosen >= 0) & (chosen < self.rows)].astype(np.uint32)
        places, samples = self.written(chosen), []
        for array in self.arrays:
            samples.append(np.zeros(len(chosen), array.field.dtype))
            if len(chosen):
                buffer = self.take(samples[-1].nbytes)
                self.take_places(array, buffer, len(chosen), places)
                self.copy_out(samples[-1], buffer)
        return samples

    def numbers(self, parts: int, how: str, bounds: np.ndarray | None) -> HeldArray:
        """Return the partition of each row, of ``parts``, as keys of it (uint32), by tuples: by their hash, or by their
        place among ``bounds``, of shape (bounds, items).
        """
        target, wrong = self.take(4 * self.rows), self.zeroed(8)
        edges: LaunchValue = np.uint64(0) if bounds is None or not len(bounds) else self.written(bounds)
        self.launch("tuple_parts", self.rows, [
            self.items(), np.int32(len(self.arrays)), np.int64(self.rows), np.int64(parts), edges,
            np.int64(0 if bounds is None else len(bounds)), np.int32(_HOW[how]), target, wrong])
        self.copy_out(self.wrong, wrong)
        return HeldArray(Field("", "<u4", (self.rows,)), buffer=target)

    def items(self) -> Buffer:
        """Return the table of the items' types and addresses that kernels read."""
        return self.written(table_of(self.arrays))


def table_of(arrays: Sequence[HeldArray]) -> np.ndarray:
    """Return the table of types and addresses of the items of keys that kernels read."""
    dtypes = [np.dtype(array.field.dtype) for array in arrays]
    return np.array([*[_CODES[f"{dtype.kind}{dtype.itemsize}"] for dtype in dtypes],
                     *[array.on_device.address for array in arrays]], np.uint64)


def words_of(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Return words (uint64) of the keys of a sample, an array for each item, that have no NaN; a row for each key.

    Examples
    --------
    >>> words_of([np.array([1, 2], "u4"), np.array([0.0, np.nan])]).tolist()
    [[1, 9223372036854775808]]
    """
    is_number = np.all([each == each for each in samples], axis=0)
    return np.stack([ordered(each[is_number]) for each in samples], axis=1)


def in_order(words: np.ndarray) -> np.ndarray:
    """Return rows of words in their order, the first column first."""
    return words[np.lexsort(words.T[::-1])]
