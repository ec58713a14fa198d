"""Records that are the rows of arrays: packed as whole arrays, and rows to everybody else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import RecordError
from gpu_worker.protocol.payload import Target
from vispark.data.records.columns import Column, Stackable
from vispark.data.records.layout import NUMERIC, RecordPart
from vispark.data.records.ragged import FlatRows, FlatRowsColumn
from vispark.data.records.validation import Subject

RowValues = np.ndarray | FlatRows | Mapping[str, np.ndarray | FlatRows]


class _StackedColumn(Column):
    """A column whose items are arrays of several records each, along their first axes."""

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(map(len, self.items))

    def stacked(self) -> tuple[RecordPart, Sequence[Stackable]]:
        return self.part, (self,)

    def stacked_shape(self) -> tuple[int, ...]:
        return (self.count, *self.items[0].shape[1:])

    def stack(self, payload: Target, offset: int) -> None:
        for array in self.items:
            payload.put(offset, array.astype(self.part.dtype, copy=False, casting="equiv"))
            offset += array.nbytes


class Rows:
    """The rows of arrays, as a partition's records.

    A function of ``mapPartitions`` that has its records in arrays gives them as they are. ``cache("GPU")`` copies them
    array by array, where single rows would cost about 0.2 µs each. Everything else that reads the partition finds rows:
    1-D arrays of an array with two dimensions, NumPy scalars of one with one, dicts of these where there are fields.

    Parameters
    ----------
    arrays : iterable of array, or of dict of str to array
        Arrays with the records along the first axis, all of one dtype and width. It is read once, when the partition
        is.

    Raises
    ------
    RecordError
        When read, if an array has no or more than two dimensions, no numbers, or is not like those before it.

    Examples
    --------
    >>> def points(seeds):
    ...     return Rows(np.random.default_rng(seed).random((1000, 3), np.float32) for seed in seeds)
    >>> rdd = sc.parallelize(range(4), 2).mapPartitions(points)
    >>> rdd.cache("GPU").vmap(lambda p: p.sum()).count()
    4000
    >>> rdd.first().shape
    (3,)
    """

    def __init__(self, arrays: Iterable[RowValues]):
        self._arrays = arrays

    def __repr__(self) -> str:
        if not isinstance(self._arrays, list | tuple):
            return "Rows(of arrays that are read once, when the partition is)"
        if not self._arrays:
            return "Rows(of no arrays)"
        first = self._arrays[0]
        if isinstance(first, Mapping):
            kind = "{" + ", ".join(f"{name}: {_kind(array)}" for name, array in first.items()) + "}"
            first = next(iter(first.values()), ())
        else:
            kind = _kind(first)
        count = sum(len(next(iter(given.values()), ())) if isinstance(given, Mapping) else len(given)
                    for given in self._arrays)
        return f"Rows({count:,} rows of {kind}, in {len(self._arrays)} array{'s' * (len(self._arrays) != 1)}, on host)"

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(_rows, self._arrays))

    def columns(self) -> list[_StackedColumn | FlatRowsColumn]:
        """Return the columns of all records; none where there is no record."""
        arrays: dict[str, list[Any]] = {}
        for number, rows in enumerate(self._arrays):
            fields = _fields(rows)
            if number and fields.keys() != arrays.keys():
                raise RecordError(f"array {number} of Rows has the fields {sorted(fields)}, and array 0 "
                                  f"{sorted(arrays)}; all have the same")
            for name, array in fields.items():
                _check(number, name, array, arrays.setdefault(name, []))
                arrays[name].append(array)
        return [_column(name, parts) for name, parts in arrays.items() if sum(map(len, parts))]


def _fields(rows: RowValues) -> Mapping[str, Any]:
    if not isinstance(rows, Mapping):
        return {"": rows}
    lengths = {name: len(array) for name, array in rows.items()}
    if len(set(lengths.values())) != 1:
        raise RecordError(f"the fields of an array of Rows have as many rows each, and not {lengths}")
    return rows


def _rows(array: RowValues) -> Iterator[Any]:
    if not isinstance(array, Mapping):
        return iter(array)
    return (dict(zip(array, row, strict=True)) for row in zip(*_fields(array).values(), strict=True))


def _check(number: int, name: str, array: Any, before: list[Any]) -> None:
    """Raise RecordError for an array whose rows are no records, or not like those before it."""
    what = f"array {number} of Rows" + (f", field {name!r}," if name else "")
    if isinstance(array, FlatRows):
        if before and not array.is_like(before[0]):
            raise RecordError(f"{what} has rows of another kind or dtype than array 0; rows are stacked and must be "
                              "alike")
        return
    if type(array) is not np.ndarray or array.ndim not in (1, 2) or array.dtype.char not in NUMERIC:
        raise RecordError(f"{what} must be an array of numbers with one or two dimensions, and is "
                          f"{_described(array)}")
    if before and (isinstance(before[0], FlatRows)
                   or (array.dtype, array.shape[1:]) != (before[0].dtype, before[0].shape[1:])):
        raise RecordError(f"{what} is {_described(array)}, and array 0 is {_described(before[0])}; rows are stacked "
                          "and must be alike")


def _kind(array: Any) -> str:
    """Return the dtype and the shape of a row of an array."""
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    return str(array.dtype.name + (f"[{', '.join(map(str, array.shape[1:]))}]" if array.ndim > 1 else ""))


def _described(array: Any) -> str:
    return f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"


def _column(name: str, parts: list[Any]) -> _StackedColumn | FlatRowsColumn:
    first = parts[0]
    if isinstance(first, FlatRows):
        return FlatRowsColumn(name, [rows for rows in parts if len(rows)])
    # The scalars of a big-endian array are native ones.
    part = RecordPart(name, "array", (first.dtype.str,)) if first.ndim == 2 else \
        RecordPart(name, "number", (first.dtype.newbyteorder("=").str,))
    subject = Subject(False, f"field {name!r}" if name else "")
    return _StackedColumn(part, subject, first.ndim - 1, [array for array in parts if len(array)])
