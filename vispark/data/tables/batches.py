"""Batches of Arrow columns as NumPy arrays, one for each field of the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import RecordError
from vispark.data.records.ragged import FlatRows
from vispark.data.tables.arrow import pa
from vispark.data.tables.selection import ColumnSpec, FieldSpec, Selection, holds

#: Rows that are put side by side at once: they and what they become stay in a core's cache.
ROWS = 8192


@dataclass
class BatchReader:
    """Reader of a partition's batches; it knows how many rows came before, and how wide columns of arrays are.

    Parameters
    ----------
    selection : Selection
        Which columns become which fields; batches have its columns in its order.
    place : str
        What errors call the rows' source, such as a file.
    is_ragged : bool
        Whether columns of arrays and vectors give rows of several lengths and sparse vectors.
    rows : int
        How many rows came before.
    reuses : bool
        Whether an array may lie where the one before did, or be the batch's own.
    remedy : str
        What errors advise against nulls.
    """

    selection: Selection
    place: str = "the partition"
    is_ragged: bool = False
    rows: int = 0
    reuses: bool = False
    remedy: str = 'leave such rows out, or say what stands for nulls, as nulls=float("nan")'

    def __post_init__(self) -> None:
        self._widths: dict[str, int] = {}
        self._reused: np.ndarray = np.empty(0)

    def arrays(self, batch: Any) -> Iterator[Any]:
        """Yield the arrays of a batch's rows, by field, or the record's own where it has no fields.

        Raises
        ------
        RecordError
            If a column has nulls where they are errors, or arrays of several lengths; it names column and row.
        """
        # What is taken as it is needs no place in a cache.
        rows = batch.num_rows if self.reuses and not any(field.is_stacked for field in self.selection.fields) else ROWS
        for start in range(0, batch.num_rows, max(rows, 1)):
            piece = batch if rows == batch.num_rows else batch.slice(start, rows)
            columns = [self._numbers(spec, column)
                       for spec, column in zip(self.selection.columns, piece.columns, strict=True)]
            arrays = {field.name: self._field(field, columns, piece.num_rows) for field in self.selection.fields}
            self.rows += piece.num_rows
            yield arrays.get("", arrays)

    # -- from columns to fields ---------------------------------------------------------------------------------------

    def _field(self, field: FieldSpec, columns: list[_Numbers], count: int) -> np.ndarray | FlatRows:
        parts = [columns[number] for number in field.columns]
        dtype = np.dtype(field.dtype)
        flat = parts[0].flat
        if flat is not None:
            return replace(flat, items=self._filled(parts[0], np.empty(parts[0].values.shape, dtype)))
        if not field.is_stacked:
            if self.reuses and parts[0].missing is None and parts[0].values.dtype == dtype:
                return parts[0].values
            return self._filled(parts[0], np.empty(parts[0].values.shape, dtype))
        widths = [part.values.shape[1] if part.values.ndim > 1 else 1 for part in parts]
        out, start = self._array_for(count, sum(widths), dtype), 0
        for part, width in zip(parts, widths, strict=True):
            self._filled(part, out[:, start:start + width] if part.values.ndim > 1 else out[:, start])
            start += width
        return out

    def _array_for(self, count: int, width: int, dtype: np.dtype) -> np.ndarray:
        """Return an array for rows, at the place of the one before where that is allowed."""
        if not self.reuses:
            return np.empty((count, width), dtype)
        if self._reused.shape[1:] != (width,) or len(self._reused) < count:
            self._reused = np.empty((count, width), dtype)
        return self._reused[:count]

    def _filled(self, numbers: _Numbers, out: np.ndarray) -> np.ndarray:
        """Write a column's numbers, with what stands for nulls, to an array of their shape, and return that."""
        spec, values, dtype = numbers.spec, numbers.values, out.dtype
        if values.dtype == dtype:
            out[...] = values
        else:
            self._check_range(spec, values, dtype)
            with np.errstate(over="ignore"):
                np.copyto(out, values, casting="unsafe")
        if numbers.missing is not None and spec.nulls is not None:
            if not holds(spec.nulls, dtype):
                raise RecordError(f"column {spec.name!r} has a null in row {self._first(numbers.missing)} of "
                                  f"{self.place}, and nulls={spec.nulls} does not fit {dtype}; give a number "
                                  f"that does, or a dtype that holds {spec.nulls}, such as \"float64\"")
            out[numbers.missing] = spec.nulls
        return out

    def _first(self, rows: np.ndarray) -> int:
        return self.rows + int(np.argmax(rows if rows.ndim == 1 else rows.any(axis=1)))

    def _check_range(self, spec: ColumnSpec, values: np.ndarray, dtype: np.dtype) -> None:
        if dtype.kind not in "iu" or values.dtype.kind not in "iu" or np.can_cast(values.dtype, dtype) \
                or not values.size:
            return
        limits = np.iinfo(dtype)
        low, high = int(values.min()), int(values.max())
        if low < limits.min or high > limits.max:
            odd = (values < limits.min) | (values > limits.max) if limits.min else (values < 0) | (values > limits.max)
            raise RecordError(f"column {spec.name!r} has {low if low < limits.min else high} in row "
                              f"{self._first(odd)} of {self.place} or behind it, which {dtype} cannot hold")

    # -- from Arrow to NumPy ------------------------------------------------------------------------------------------

    def _numbers(self, spec: ColumnSpec, column: Any) -> _Numbers:
        if spec.type.kind == "number":
            return self._plain(spec, column)
        if self.is_ragged:
            return self._flat(spec, column)
        return self._vectors(spec, column) if spec.type.kind == "vector" else self._arrays(spec, column)

    def _refuse_null(self, spec: ColumnSpec, row: int, what: str = "null") -> None:
        if spec.nulls is None:
            raise RecordError(f"column {spec.name!r} is {what} in row {self.rows + row} of {self.place}; {self.remedy}")

    def _plain(self, spec: ColumnSpec, column: Any) -> _Numbers:
        if not column.null_count:
            return _Numbers(spec, column.to_numpy(zero_copy_only=False), None)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        self._refuse_null(spec, int(np.argmax(missing)))
        return _Numbers(spec, _filled(column).to_numpy(zero_copy_only=False), missing)

    def _arrays(self, spec: ColumnSpec, column: Any) -> _Numbers:
        whole, missing = self._without_null_rows(spec, column)
        if pa.types.is_fixed_size_list(column.type):
            width, child = column.type.list_size, whole.flatten()
            return self._rebuilt(spec, self._items(spec, child, whole, width), missing, len(column), width)
        offsets = whole.offsets.to_numpy()
        width = self._width(spec, np.diff(offsets), missing)
        child = whole.values.slice(offsets[0], offsets[-1] - offsets[0]) if len(whole) else whole.values.slice(0, 0)
        return self._rebuilt(spec, self._items(spec, child, whole, width), missing, len(column), width)

    def _flat(self, spec: ColumnSpec, column: Any) -> _Numbers:
        """Return arrays or vectors as rows of their own lengths."""
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise RecordError(f"column {spec.name!r} is null in row {self.rows + row} of {self.place}, and no row of "
                              "some length stands for that; leave such rows out")
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        vectors = column.flatten() if spec.type.kind == "vector" else []
        lists = vectors[3] if vectors else column
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        offsets = lists.offsets.to_numpy().astype(np.int64) - first
        child = lists.values.slice(first, last - first)
        missing = child.is_null().to_numpy(zero_copy_only=False) if child.null_count else None
        if missing is not None:
            row = int(np.searchsorted(offsets, int(np.argmax(missing)), "right")) - 1
            self._refuse_null(spec, row, "an array with a null")
        items = (child if missing is None else _filled(child)).to_numpy(zero_copy_only=False)
        if not vectors:
            return _Numbers(spec, items, missing, FlatRows(offsets, items))
        kinds, sizes, indices, _ = vectors
        dense = kinds.to_numpy(zero_copy_only=False) == 1
        lengths = np.diff(offsets)
        places = (np.arange(len(items)) - np.repeat(offsets[:-1], lengths)).astype(np.int32)
        places[np.repeat(~dense, lengths)] = indices.flatten().to_numpy(zero_copy_only=False)
        widths = np.where(dense, lengths, sizes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
        return _Numbers(spec, items, missing, FlatRows(offsets, items, places, widths))

    def _without_null_rows(self, spec: ColumnSpec, column: Any) -> tuple[Any, np.ndarray | None]:
        if not column.null_count:
            return column, None
        missing = column.is_null().to_numpy(zero_copy_only=False)
        self._refuse_null(spec, int(np.argmax(missing)))
        return column.drop_null(), missing

    def _width(self, spec: ColumnSpec, lengths: np.ndarray, missing: np.ndarray | None) -> int:
        """Return the length of a column's arrays, which is that of the batches before too."""
        if spec.name not in self._widths:
            if not len(lengths):
                raise RecordError(f"column {spec.name!r} is null in all rows from row {self.rows} of {self.place} on, "
                                  "as far as they were read, so that nothing says how long its arrays are; leave such "
                                  "rows out")
            self._widths[spec.name] = int(lengths[0])
        width = self._widths[spec.name]
        if not width:
            raise RecordError(f"column {spec.name!r} has an empty array in row {self.rows} of {self.place} or behind "
                              "it; an array has at least one number")
        odd = np.flatnonzero(lengths != width)
        if len(odd):
            row = int(odd[0]) if missing is None else int(np.flatnonzero(~missing)[odd[0]])
            raise RecordError(f"column {spec.name!r} has {lengths[odd[0]]} numbers in row {self.rows + row} of "
                              f"{self.place}, and {width} in the rows before it; rows are stacked and must be of one "
                              "length: pad or cut them, as with slice()")
        return width

    def _items(self, spec: ColumnSpec, child: Any, kept: Any, width: int) -> _Numbers:
        """Return the numbers inside arrays, as rows of ``width``."""
        if not child.null_count:
            return _Numbers(spec, child.to_numpy(zero_copy_only=False).reshape(len(kept), width), None)
        missing = child.is_null().to_numpy(zero_copy_only=False).reshape(len(kept), width)
        self._refuse_null(spec, int(np.argmax(missing.any(axis=1))), "an array with a null")
        return _Numbers(spec, _filled(child).to_numpy(zero_copy_only=False).reshape(len(kept), width), missing)

    def _rebuilt(self, spec: ColumnSpec, inner: _Numbers, missing: np.ndarray | None, count: int,
                 width: int) -> _Numbers:
        """Return numbers with the rows that were left out as nulls put back."""
        if missing is None:
            return inner
        values = np.zeros((count, width), inner.values.dtype)
        values[~missing] = inner.values
        all_missing = np.zeros((count, width), bool)
        all_missing[missing] = True
        if inner.missing is not None:
            all_missing[~missing] = inner.missing
        return _Numbers(spec, values, all_missing)

    def _vectors(self, spec: ColumnSpec, column: Any) -> _Numbers:
        whole, missing = self._without_null_rows(spec, column)
        kinds, sizes, indices, values = whole.flatten()
        dense = kinds.to_numpy(zero_copy_only=False) == 1
        offsets = values.offsets.to_numpy()
        lengths = np.diff(offsets)
        width = self._width(spec, np.where(dense, lengths, sizes.fill_null(0).to_numpy(zero_copy_only=False)), missing)
        flat = values.values.slice(offsets[0], offsets[-1] - offsets[0]).to_numpy() if len(whole) else np.empty(0)
        if dense.all():
            return self._rebuilt(spec, _Numbers(spec, flat.reshape(len(whole), width), None), missing, len(column),
                                 width)
        places = np.arange(len(flat)) - np.repeat(offsets[:-1] - offsets[0], lengths)
        places[np.repeat(~dense, lengths)] = indices.flatten().to_numpy(zero_copy_only=False)
        rows = np.zeros((len(whole), width))
        rows[np.repeat(np.arange(len(whole)), lengths), places] = flat
        return self._rebuilt(spec, _Numbers(spec, rows, None), missing, len(column), width)


@dataclass(frozen=True)
class _Numbers:
    """A column's numbers, with rows along the first axis, and which of them are nulls, if any are."""

    spec: ColumnSpec
    values: np.ndarray
    missing: np.ndarray | None
    #: Of rows of several lengths, whose items are the values: where they lie.
    flat: FlatRows | None = None


def _filled(column: Any) -> Any:
    """Return a column of numbers or booleans with zeros in place of its nulls."""
    return column.fill_null(False if pa.types.is_boolean(column.type) else 0)
