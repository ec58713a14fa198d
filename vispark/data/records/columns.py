"""Columns of a partition's checked values: one for the record, or one for each field of dicts.

Checks go over whole columns (the set of all types, of all dtypes, ...), which costs tens of nanoseconds a record; the
record at fault is looked for only when there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import numpy as np

from gpu_worker.protocol.errors import RecordError
from gpu_worker.protocol.payload import Target
from vispark.data.records.layout import PYTHON, RecordPart, held_as
from vispark.data.records.ragged import flat_columns, is_sparse, sparse_columns
from vispark.data.records.validation import ARRAYS, Subject, describe, is_array, is_number, is_pair, mixed, refused

_ROW_ADVICE = "a row holds numbers; for arrays with names use a dict"
#: Rows are joined this many bytes at a time, so that they stay in the cache until they are written.
_SCRATCH_BYTES = 1 << 19
_NAMES = {number: number.__name__ for number in PYTHON}


class Stackable(Protocol):
    """Interface of a column of which all records can be written one after another."""

    @property
    def part(self) -> RecordPart: ...
    def stacked_shape(self) -> tuple[int, ...]: ...
    def stack(self, payload: Target, offset: int) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class SparseColumn:
    """One sparse vector of ``pyspark.ml`` for each record."""

    part: RecordPart
    subject: Subject
    items: list[Any]
    ndim: int = 1

    def stacked(self) -> tuple[RecordPart, Sequence[Stackable]]:
        """Return the part and its columns, as :meth:`Column.stacked` does."""
        return self.part, sparse_columns(self.part, self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One array for each record.

    ``items`` is one array with the records along its first axis where they had to be converted, or else the records'
    own arrays, all with ``ndim`` dimensions.
    """

    part: RecordPart
    subject: Subject
    ndim: int
    items: np.ndarray | list[np.ndarray]

    def stacked(self) -> tuple[RecordPart, Sequence[Stackable]]:
        """Return the part and the columns as which all records are written: of rows of several lengths there are two.
        """
        if not isinstance(self.items, list) or self.ndim != 1 or len(set(map(len, self.items))) < 2:
            return self.part, (self,)
        part = replace(self.part, form="ragged")
        return part, flat_columns(replace(part, types=(self.part.dtype.str,)), self.items, self.subject)

    def stacked_shape(self) -> tuple[int, ...]:
        return (len(self.items), *self.items[0].shape)

    def stack(self, payload: Target, offset: int) -> None:
        """Write all records to ``offset``, one after another, in native byte order."""
        if not isinstance(self.items, list):
            payload.put(offset, self.items)
            return
        row = self.part.dtype.itemsize * self.items[0].size
        at_once = max(1, _SCRATCH_BYTES // max(row, 1))
        for first in range(0, len(self.items), at_once):
            payload.put(offset + first * row, _joined(self.items[first:first + at_once], self.part.dtype))

    def write(self, index: int, payload: Target, offset: int) -> None:
        """Write one record to ``offset``, in native byte order."""
        payload.put(offset, self.items[index].astype(self.part.dtype, copy=False, casting="equiv"))


def _joined(rows: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return rows one after another, in native byte order."""
    if rows[0].dtype == dtype:
        try:
            # Half the time of np.concatenate where rows are short.
            return np.frombuffer(b"".join(rows), dtype)     # type: ignore[arg-type]
        except TypeError:
            pass        # one of them is strided
    return np.concatenate(rows, dtype=dtype, casting="equiv")


def columns(values: list[Any], keyed: bool) -> list[Column | SparseColumn]:
    """Return the columns of a partition's values, which are not empty; of tuples with arrays in them one for each
    position, as :attr:`RecordLayout.tupled` has them.

    Raises
    ------
    RecordError
        If a value cannot be held, or is of another type than those before it.
    """
    subject = Subject(keyed)
    if type(values[0]) is dict:
        return _fields(values, subject)
    if type(values[0]) is tuple:
        return _tuples(values, subject)
    return [_column(values, "", subject)]


def _fields(values: list[dict[Any, Any]], subject: Subject) -> list[Column | SparseColumn]:
    _check_types(values, subject)
    names = list(values[0])
    if not names:
        raise refused(subject, 0, values[0])
    for name in names:
        if type(name) is not str or not name:
            raise RecordError(f"{subject.of(0)} is a dict with the key {name!r}; fields must have names of type str")
    if not all(map(values[0].keys().__eq__, map(dict.keys, values))):
        index = _first(values, lambda value: value.keys() != values[0].keys())
        raise RecordError(f"{subject.of(index)} is {describe(values[index])}, but {subject.of(0)} is "
                          f"{describe(values[0])}; the dicts of a partition must have the same fields")
    return [_column(list(map(itemgetter(name), values)), name, Subject(subject.keyed, f"field {name!r}"))
            for name in names]


def _column(values: list[Any], name: str, subject: Subject) -> Column | SparseColumn:
    """Return a column of numbers or of arrays."""
    if is_sparse(values[0]) and len(set(map(type, values))) == 1:
        return SparseColumn(RecordPart(name, "sparse", ("<f8",)), subject, values)
    _check_types(values, subject)
    kind = type(values[0])
    if kind in ARRAYS:
        return _arrays(values, name, subject)
    dtype = PYTHON[kind] if kind in PYTHON else values[0].dtype
    return Column(RecordPart(name, "number", (_type_name(values[0]),)), subject, 0, _numbers(values, dtype, subject))


def _check_types(values: list[Any], subject: Subject) -> None:
    """Check that all values are of the first value's type, and that workers can hold it."""
    first = values[0]
    kind = type(first)
    whole = not subject.part
    if not (is_number(first) or is_array(first) or (whole and kind in (dict, tuple))):
        raise refused(subject, 0, first, _nested_advice(first, subject))
    types = set(map(type, values))
    if len(types) == 1 or (kind in ARRAYS and types <= set(ARRAYS)) or _one_dtype(types):
        return
    alike = ARRAYS if kind in ARRAYS else (kind,)
    raise _unlike_the_first(values, subject, _first(values, lambda value: type(value) not in alike))


def _unlike_the_first(values: list[Any], subject: Subject, index: int) -> RecordError:
    """Return the error for the value at ``index``, which is not like the first."""
    value = values[index]
    whole = not subject.part
    if is_number(value) or is_array(value) or (whole and (type(value) is dict or _is_row(value) or is_pair(value))):
        return mixed(subject, index, value, values[0])
    return refused(subject, index, value, _nested_advice(value, subject))


def _nested_advice(value: object, subject: Subject) -> str:
    """Return the advice for a dict or a tuple inside of a record."""
    if not subject.part or type(value) not in (dict, tuple):
        return ""
    return _ROW_ADVICE if subject.part.startswith("position") else "a field is a number or an array"


def _is_row(value: Any) -> bool:
    return type(value) is tuple and len(value) > 0 and all(map(is_number, value))


def _one_dtype(types: set[type]) -> bool:
    """Return whether all are NumPy scalars of equal dtype; C has several names for some of them."""
    return all(issubclass(each, np.generic) for each in types) and len(set(map(np.dtype, types))) == 1


def _numbers(values: Sequence[Any], dtype: np.dtype, subject: Subject) -> np.ndarray:
    try:
        return np.fromiter(values, dtype, len(values))
    except OverflowError:
        index = _first(values, lambda value: not -2**63 <= value < 2**63)
        raise _too_large(subject, index, values[index]) from None


def _arrays(values: list[np.ndarray], name: str, subject: Subject) -> Column:
    first = values[0]
    if len(set(map(attrgetter("dtype"), values))) > 1 or len(set(map(attrgetter("ndim"), values))) > 1:
        index = _first(values, lambda value: (value.dtype, value.ndim) != (first.dtype, first.ndim))
        raise _unlike_the_first(values, subject, index)
    part = RecordPart(name, "array", (first.dtype.str,))
    if first.ndim:
        return Column(part, subject, first.ndim, values)
    native = first.dtype.newbyteorder("=")
    return Column(part, subject, 0, np.fromiter(map(itemgetter(()), values), native, len(values)))


def _tuples(values: list[tuple[Any, ...]], subject: Subject) -> list[Column | SparseColumn]:
    """Return the columns of tuples: one of rows where they hold numbers, or one for each position, named after it."""
    _check_types(values, subject)
    width = len(values[0])
    if not width:
        raise refused(subject, 0, (), "a row has at least one number")
    if width == 2:
        raise refused(subject, 0, values[0])
    if len(set(map(len, values))) > 1:
        index = _first(values, lambda value: len(value) != width)
        raise mixed(subject, index, values[index], values[0]) if is_pair(values[index]) else \
            _ragged(subject, index, list(map(len, values)))
    if len(set(map(type, chain.from_iterable(values)))) == 1 and is_number(values[0][0]):
        return [_uniform(values, width, subject)]
    parts = [_column(list(map(itemgetter(position), values)), "", _position(subject, position))
             for position in range(width)]
    if any(part.ndim for part in parts):
        return [_item(part, position, values[0]) for position, part in enumerate(parts)]
    return [_varied(parts, values, subject)]


def _uniform(values: list[tuple[Any, ...]], width: int, subject: Subject) -> Column:
    """Return rows of numbers of one type."""
    name = _type_name(values[0][0])
    try:
        array = np.fromiter(chain.from_iterable(values), held_as(name), len(values) * width)
    except OverflowError:
        for position in range(width):
            _numbers(list(map(itemgetter(position), values)), held_as(name), _position(subject, position))
        raise
    return Column(RecordPart("", "tuple", (name,)), subject, 1, array.reshape(len(values), width))


def _item(column: Column | SparseColumn, position: int, first: tuple[Any, ...]) -> Column | SparseColumn:
    """Return the column of one position of tuples with arrays in them, which it is named after."""
    if column.ndim > 1:
        raise refused(column.subject, 0, first[position], "a tuple holds numbers and rows; use a dict with a name for "
                      "each")
    return replace(column, part=replace(column.part, name=str(position)))


def _varied(parts: list[Any], values: list[tuple[Any, ...]], subject: Subject) -> Column:
    """Return rows with numbers of several types, held in the smallest dtype that NumPy promotes them to."""
    for position, part in enumerate(parts):
        if part.part.form != "number":
            raise refused(part.subject, 0, values[0][position], _ROW_ADVICE)
    row = RecordPart("", "tuple", tuple(part.part.types[0] for part in parts))
    array = np.empty((len(values), len(parts)), row.dtype)
    for position, part in enumerate(parts):
        array[:, position] = part.items
        _check_exact(np.asarray(part.items), array[:, position], part.subject)
    return Column(row, subject, 1, array)


def _check_exact(values: np.ndarray, held: np.ndarray, subject: Subject) -> None:
    """Check that integers are still the same in the floating-point dtype that the rest of their row needs."""
    if values.dtype.kind not in "iu" or held.dtype.kind not in "fc":
        return
    exact = 2 ** (np.finfo(held.dtype).nmant + 1)
    if -exact <= int(values.min()) and int(values.max()) <= exact:
        return
    for index, (number, copy) in enumerate(zip(values, held.real, strict=True)):
        if int(number) != int(copy):
            raise RecordError(f"{subject.of(index)} is {number}, which {held.dtype}, needed by the rest of its "
                              "row, cannot hold exactly; use float(), or a dict with a field for each")


def _position(subject: Subject, position: int) -> Subject:
    return Subject(subject.keyed, f"position {position}")


def _type_name(number: Any) -> str:
    return _NAMES[type(number)] if type(number) in _NAMES else str(number.dtype.str)


def _ragged(subject: Subject, index: int, lengths: list[int]) -> RecordError:
    return RecordError(f"{subject.of(index)} has length {lengths[index]}, but {subject.of(0)} has length {lengths[0]}; "
                       "rows are stacked and must be of one length: pad them, or use records of two dimensions, "
                       "such as record[np.newaxis]")


def _too_large(subject: Subject, index: int, number: int) -> RecordError:
    return RecordError(f"{subject.of(index)} is an int of {number.bit_length()} bits, outside of int64; "
                       "use float(record), or np.uint64 where it fits")


def _first(values: Sequence[Any], odd: Callable[[Any], bool]) -> int:
    return next(index for index, value in enumerate(values) if odd(value))
