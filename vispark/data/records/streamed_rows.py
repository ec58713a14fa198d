"""Records of arrays that are made while they are written, where their number is known before: as of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, tee
from operator import itemgetter
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.payload import Target
from vispark.data.records.columns import Stackable
from vispark.data.records.layout import RecordPart
from vispark.data.records.rows import Rows

#: Makes the arrays of a field, each of which may take the place of the one before; called again where they are to be
#: written again.
Source = Callable[[], Iterator[np.ndarray]]


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

    def __init__(self, arrays: Iterable[Any], count: int | Callable[[], int], sources: Mapping[str, Source]):
        super().__init__(arrays)
        self._count, self._sources = count, sources

    def columns(self) -> list[Any]:
        count = self._count() if callable(self._count) else self._count
        return [_StreamedColumn(name, count, source) for name, source in self._sources.items()] if count else []


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


class _StreamedColumn:
    """Column whose arrays, along their first axes, are several records each; the first one is made at once."""

    def __init__(self, name: str, count: int, source: Source):
        self._source, self.count = source, count
        batches = source()
        first = next(batches, None)
        if first is None:
            raise _changed(count, 0)
        self._begun: Iterator[np.ndarray] | None = chain([first], batches)
        self._row = first.shape[1:]
        self.part = RecordPart(name, "array" if self._row else "number", (first.dtype.str,))

    def stacked(self) -> tuple[RecordPart, Sequence[Stackable]]:
        """Return the part and its columns, as ``Column.stacked`` does."""
        return self.part, (self,)

    def stacked_shape(self) -> tuple[int, ...]:
        """Return the shape of all records."""
        return (self.count, *self._row)

    def stack(self, payload: Target, offset: int) -> None:
        """Write all records to ``offset``."""
        arrays, self._begun = self._begun or self._source(), None
        rows = 0
        for array in arrays:
            rows += len(array)
            if rows > self.count:
                break
            payload.put(offset, array)
            offset += array.nbytes
        if rows != self.count:
            raise _changed(self.count, rows)


def _changed(count: int, rows: int) -> PlanError:
    return PlanError(f"a partition of {count:,} rows had {rows:,} when they were read; files must stay as they were "
                     "when they were looked up")
