"""Records of arrays that are made while they are written, where their number is known before: as of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, tee
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.payload import Target
from vispark.data.records.columns import Stackable
from vispark.data.records.layout import PLACES, RecordPart
from vispark.data.records.ragged import FlatRows, starts_of, starts_part
from vispark.data.records.rows import Rows

#: Makes the arrays of a field, or its rows of several lengths, each of which may take the place of the one before;
#: called again where they are to be written again.
RowSource = Callable[[], Iterator[Any]]

#: Rows of which it is written at once where their items begin.
_ROWS = 1 << 16


class StreamedRows(Rows):
    """The rows of arrays of which each is written as soon as it is made, so that a partition does not lie in memory.

    Parameters
    ----------
    arrays : iterable of array, or of dict of str to array
        As of :class:`Rows`, for everybody who reads records.
    count : int or callable
        The number of records, or what finds it out once the records are to be written.
    sources : mapping of str to callable
        Of each field what makes its arrays.

    Examples
    --------
    >>> made = lambda: (np.full(2, number) for number in range(3))
    >>> column, = StreamedRows(made(), 6, {"": made}).columns()
    >>> column.stacked_shape()
    (6,)
    """

    def __init__(self, arrays: Iterable[Any], count: int | Callable[[], int], sources: Mapping[str, RowSource]):
        super().__init__(arrays)
        self._count, self._sources = count, sources

    def columns(self) -> list[Any]:
        count = self._count() if callable(self._count) else self._count
        return [_column(name, count, source) for name, source in self._sources.items()] if count else []


class SharedSource:
    """Source of several fields, whose arrays are made together; what one of the fields has not taken yet is held.

    Parameters
    ----------
    read : callable
        Makes dicts of the fields' arrays.
    names : sequence of str
        The fields.

    Examples
    --------
    >>> shared = SharedSource(lambda: ({"x": np.full(2, number), "y": np.zeros(2)} for number in range(3)), ["x", "y"])
    >>> [len(list(shared.arrays(name))) for name in ("x", "y", "x")]
    [3, 3, 3]
    """

    def __init__(self, read: Callable[[], Iterator[Mapping[str, np.ndarray]]], names: Sequence[str]):
        self._read, self._names = read, names
        self._begun: dict[str, Iterator[Mapping[str, np.ndarray]]] = {}

    def arrays(self, name: str) -> Iterator[np.ndarray]:
        """Return the arrays of a field; they are made anew where it had them already."""
        if name not in self._begun:
            self._begun = dict(zip(self._names, tee(self._read(), len(self._names)), strict=True))
        return map(itemgetter(name), self._begun.pop(name))


def _column(name: str, count: int, source: RowSource) -> _StreamedColumn | _StreamedFlatColumn:
    """Return the column of a field's arrays, the first of which is made at once."""
    arrays = source()
    first = next(arrays, None)
    if first is None:
        raise _changed(count, 0)
    begun = chain([first], arrays)
    if isinstance(first, FlatRows):
        return _StreamedFlatColumn(name, count, begun, source)
    return _StreamedColumn(name, count, first, begun, source)


class _StreamedArray:
    """Array of a known shape, whose rows are made while they are written."""

    def __init__(self, part: RecordPart, shape: tuple[int, ...], source: RowSource):
        self.part, self._shape, self._source = part, shape, source

    def stacked_shape(self) -> tuple[int, ...]:
        """Return the shape of all rows."""
        return self._shape

    def stack(self, payload: Target, offset: int) -> None:
        """Write all rows to ``offset``."""
        rows = 0
        for array in self._source():
            rows += len(array)
            if rows > self._shape[0]:
                break
            payload.put(offset, array)
            offset += array.nbytes
        if rows != self._shape[0]:
            raise _changed(self._shape[0], rows)


class _StreamedColumn(_StreamedArray):
    """Column whose arrays, along their first axes, are several records each."""

    def __init__(self, name: str, count: int, first: np.ndarray, begun: Iterator[np.ndarray], source: RowSource):
        row = first.shape[1:]
        part = RecordPart(name, "array" if row else "number", (first.dtype.str,))
        super().__init__(part, (count, *row), self._arrays)
        self.count, self._again = count, source
        self._begun: Iterator[np.ndarray] | None = begun

    def stacked(self) -> tuple[RecordPart, Sequence[Stackable]]:
        """Return the part and its columns, as ``Column.stacked`` does."""
        return self.part, (self,)

    def _arrays(self) -> Iterator[np.ndarray]:
        begun, self._begun = self._begun, None
        return self._again() if begun is None else begun


class _StreamedFlatColumn:
    """Column of rows of several lengths, or of sparse vectors: all are read at once for their lengths, which alone are
    held, and again while they are written.
    """

    def __init__(self, name: str, count: int, begun: Iterator[FlatRows], source: RowSource):
        self.count, self._source = count, source
        lengths, sizes, dtype = [], list[np.ndarray](), ""
        for rows in begun:
            lengths.append(rows.lengths.astype(np.int32))
            if rows.sizes is not None:
                sizes.append(rows.sizes.astype(np.int32))
            dtype = rows.items.dtype.str
        self._lengths = np.concatenate(lengths)
        self._sizes = np.concatenate(sizes) if sizes else None
        if len(self._lengths) != count:
            raise _changed(count, len(self._lengths))
        is_table = self._sizes is None and bool((self._lengths == self._lengths[0]).all())
        form = "array" if is_table else "ragged" if self._sizes is None else "sparse"
        self.part = RecordPart(name, form, (dtype,))

    def stacked(self) -> tuple[RecordPart, Sequence[Stackable]]:
        """Return the part and the columns as which all records are written, as ``FlatRowsColumn.stacked`` does."""
        if self.part.form == "array":
            shape = (self.count, int(self._lengths[0]))
            return self.part, (_StreamedArray(self.part, shape, self._table),)
        total = int(self._lengths.sum(dtype=np.int64))
        starts = _StreamedArray(starts_part(self.part), (self.count, 2 if self._sizes is None else 3), self._starts)
        items = _StreamedArray(self.part, (total,), partial(self._parts, "items"))
        if self._sizes is None:
            return self.part, (starts, items)
        places = replace(self.part, name=self.part.name + PLACES, types=("<i4",))
        return self.part, (starts, items, _StreamedArray(places, (total,), partial(self._parts, "places")))

    def _parts(self, name: str) -> Iterator[np.ndarray]:
        return map(attrgetter(name), self._source())

    def _table(self) -> Iterator[np.ndarray]:
        return (rows.items.reshape(len(rows), -1) for rows in self._source() if len(rows.items))

    def _starts(self) -> Iterator[np.ndarray]:
        begin = 0
        for row in range(0, self.count, _ROWS):
            starts = starts_of(self._lengths[row:row + _ROWS])
            starts[:, 0] += begin
            begin = starts[-1].sum()
            yield starts if self._sizes is None else np.column_stack([starts, self._sizes[row:row + _ROWS]])


def _changed(count: int, rows: int) -> PlanError:
    return PlanError(f"a partition of {count:,} rows had {rows:,} when they were read; files must stay as they were "
                     "when they were looked up")
