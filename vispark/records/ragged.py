"""Rows of several lengths, and sparse vectors: their items one behind the other, and where each row's lie.

A field ``f`` of such records is two arrays of the partition's block, or three of sparse vectors: ``f#`` has a row of
int64 for each record (where its items begin, how many there are, and the size of a sparse vector), ``f`` the items of
all records, and ``f@`` the places of a sparse vector's items (int32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_worker.protocol.errors import ProtocolError, RecordError
from gpu_worker.protocol.payload import Target
from vispark._utils.lazy import LazyModule
from vispark.records.layout import PLACES, STARTS, RecordPart
from vispark.records.validation import Subject

if TYPE_CHECKING:
    from pyspark.ml import linalg
else:
    linalg = LazyModule("pyspark.ml.linalg")        # it imports Spark SQL


class FlatColumn:
    """Column of a block whose first extent is that of all items, or of all records, as records' columns are written.

    Parameters
    ----------
    part : RecordPart
        The array's name and type.
    arrays : list of array
        What it is made of, one behind the other.
    """

    def __init__(self, part: RecordPart, arrays: list[np.ndarray]):
        self.part, self._arrays = part, arrays

    def stacked_shape(self) -> tuple[int, ...]:
        """Return the array's shape."""
        return sum(map(len, self._arrays)), *(self._arrays[0].shape[1:] if self._arrays else ())

    def stack(self, payload: Target, offset: int) -> None:
        """Write the array to ``offset``, in native byte order."""
        for array in self._arrays:
            payload.put(offset, np.ascontiguousarray(array, self.part.dtype))
            offset += array.nbytes


def flat_columns(part: RecordPart, rows: list[np.ndarray], subject: Subject) -> list[FlatColumn]:
    """Return the columns of rows of several lengths."""
    if rows[0].ndim != 1:
        raise RecordError(f"{subject.of(0)} has {rows[0].ndim} dimensions beside rows of several lengths")
    return [FlatColumn(starts_part(part), [_starts(list(map(len, rows)))]), FlatColumn(part, rows)]


def sparse_columns(part: RecordPart, vectors: list[Any]) -> list[FlatColumn]:
    """Return the columns of sparse vectors."""
    starts = _starts([len(each.values) for each in vectors])
    sizes = np.fromiter((each.size for each in vectors), np.int64, len(vectors))
    return [FlatColumn(starts_part(part), [np.column_stack([starts, sizes])]),
            FlatColumn(part, [each.values for each in vectors]),
            FlatColumn(replace(part, name=part.name + PLACES, types=("<i4",)),
                       [np.asarray(each.indices, np.int32) for each in vectors])]


def is_sparse(value: Any) -> bool:
    """Return whether a record is a sparse vector of ``pyspark.ml``."""
    kind = type(value)
    return kind.__name__ == "SparseVector" and kind.__module__ == "pyspark.ml.linalg"


def starts_part(part: RecordPart) -> RecordPart:
    """Return the part of where the items of each record lie."""
    return RecordPart(part.name + STARTS, "array", ("<i8",))


def rows_of(part: RecordPart, block: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """Yield the records, or a field of them, of a partition's block.

    Raises
    ------
    ProtocolError
        If the block does not have them.
    """
    names = [part.name + STARTS, part.name, *([part.name + PLACES] if part.form == "sparse" else [])]
    if any(name not in block for name in names):
        raise ProtocolError(f"rows of several lengths are not in a block with {sorted(block)}")
    starts, items = block[names[0]], block[part.name]
    dtype = np.dtype(part.types[0])
    if part.form == "sparse":
        places = block[names[2]]
        for start, length, size in starts.tolist():
            stop = start + length
            yield linalg.SparseVector(size, places[start:stop].copy(), items[start:stop].copy())
        return
    for start, length in starts.tolist():
        yield np.array(items[start:start + length], dtype)


def _starts(lengths: list[int]) -> np.ndarray:
    """Return the place of the first item and the number of items of each record."""
    counts = np.array(lengths, np.int64)
    return np.column_stack([np.cumsum(counts) - counts, counts])
