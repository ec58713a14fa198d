"""Rows of several lengths, and sparse vectors: their items one behind the other, and where each row's lie.

A field ``f`` of such records is two arrays of the partition's block, or three of sparse vectors: ``f#`` has a row of
int64 for each record (where its items begin, how many there are, and the size of a sparse vector), ``f`` the items of
all records, and ``f@`` the places of a sparse vector's items (int32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_worker.protocol.errors import ProtocolError, RecordError
from gpu_worker.protocol.payload import Target
from vispark._utils.lazy import LazyModule
from vispark.data.records.layout import PLACES, STARTS, RecordPart
from vispark.data.records.validation import Subject

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


@dataclass(frozen=True, slots=True, eq=False)
class FlatRows:
    """Rows of several lengths, or sparse vectors, one behind the other: what :class:`~vispark.data.records.rows.Rows`
    takes in place of an array, and what tables are written from.

    Attributes
    ----------
    offsets : ndarray of int64
        Where each row's items begin, from 0 on, and behind them where the last ones end.
    items : ndarray
        The items of all rows.
    places : ndarray of int32, optional
        Of sparse vectors the place of each item.
    sizes : ndarray of int64, optional
        Of sparse vectors their sizes.
    """

    offsets: np.ndarray
    items: np.ndarray
    places: np.ndarray | None = None
    sizes: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray:
        """The number of items of each row."""
        return np.diff(self.offsets)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the mean."""
        return 8 + (self.items.nbytes + (0 if self.places is None else self.places.nbytes)) // max(1, len(self))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice) -> FlatRows:
        start, stop, _ = rows.indices(len(self))
        offsets = self.offsets[start:stop + 1]
        items = slice(offsets[0], offsets[-1])
        return FlatRows(offsets - offsets[0], self.items[items], None if self.places is None else self.places[items],
                        None if self.sizes is None else self.sizes[start:stop])

    def __iter__(self) -> Iterator[Any]:
        for row, (start, stop) in enumerate(pairwise(self.offsets.tolist())):
            if self.places is None or self.sizes is None:
                yield self.items[start:stop]
            else:
                yield linalg.SparseVector(int(self.sizes[row]), self.places[start:stop], self.items[start:stop])

    def is_like(self, other: Any) -> bool:
        """Return whether rows of ``other`` are records like these."""
        return isinstance(other, FlatRows) and self.items.dtype == other.items.dtype \
            and (self.places is None) == (other.places is None)


def flat_rows(part: RecordPart, block: Mapping[str, np.ndarray]) -> FlatRows:
    """Return the rows of one part of a partition's block.

    Examples
    --------
    >>> block = {"w#": np.array([[2, 1], [0, 2]]), "w": np.array([1.0, 2.0, 3.0])}
    >>> list(flat_rows(RecordPart("w", "ragged", ("<f8",)), block))
    [array([3.]), array([1., 2.])]
    """
    starts = block[part.name + STARTS]
    begins, lengths = starts[:, 0], starts[:, 1]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = np.ascontiguousarray(block[part.name], part.dtype)
    places = block[part.name + PLACES] if part.form == "sparse" else None
    if not np.array_equal(begins, offsets[:-1]) or len(items) != offsets[-1]:
        chosen = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        items, places = items[chosen], None if places is None else places[chosen]
    return FlatRows(offsets, items, places, starts[:, 2] if part.form == "sparse" else None)


@dataclass(frozen=True, slots=True, eq=False)
class FlatRowsColumn:
    """Column of the rows of some :class:`FlatRows`, one behind the other."""

    name: str
    rows: list[FlatRows]

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(map(len, self.rows))

    def stacked(self) -> tuple[RecordPart, list[FlatColumn]]:
        """Return the part and the columns as which all records are written; rows of one length are a table."""
        lengths = np.concatenate([each.lengths for each in self.rows])
        items = [each.items for each in self.rows]
        part = RecordPart(self.name, "array", (items[0].dtype.str,))
        if self.rows[0].places is not None:
            part = RecordPart(self.name, "sparse", ("<f8",))
            sizes = np.concatenate([each.sizes for each in self.rows])
            return part, [FlatColumn(starts_part(part), [np.column_stack([starts_of(lengths), sizes])]),
                          FlatColumn(part, items),
                          FlatColumn(replace(part, name=part.name + PLACES, types=("<i4",)),
                                     [each.places for each in self.rows if each.places is not None])]
        if len(set(lengths.tolist())) == 1:
            return part, [FlatColumn(part, [each.reshape(-1, int(lengths[0])) for each in items if each.size] or
                                     [np.empty((len(lengths), 0), items[0].dtype)])]
        part = replace(part, form="ragged")
        return part, [FlatColumn(starts_part(part), [starts_of(lengths)]), FlatColumn(part, items)]


def flat_columns(part: RecordPart, rows: list[np.ndarray], subject: Subject) -> list[FlatColumn]:
    """Return the columns of rows of several lengths."""
    if rows[0].ndim != 1:
        raise RecordError(f"{subject.of(0)} has {rows[0].ndim} dimensions beside rows of several lengths")
    return [FlatColumn(starts_part(part), [starts_of(list(map(len, rows)))]), FlatColumn(part, rows)]


def sparse_columns(part: RecordPart, vectors: list[Any]) -> list[FlatColumn]:
    """Return the columns of sparse vectors."""
    starts = starts_of([len(each.values) for each in vectors])
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


def starts_of(lengths: list[int] | np.ndarray) -> np.ndarray:
    """Return the place of the first item and the number of items of each record."""
    counts = np.array(lengths, np.int64)
    return np.column_stack([np.cumsum(counts) - counts, counts])
