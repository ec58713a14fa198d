"""Columns of the RDDs that readers give, which tell those of tables of no records."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pyspark import RDD

from vispark.data.tables.arrow import pa
from vispark.data.tables.output import VALUE
from vispark.data.tables.selection import FieldSpec, Selection
from vispark.data.tables.types import ColumnType

_KNOWN: WeakKeyDictionary[RDD[Any], Any] = WeakKeyDictionary()


def with_columns(rdd: RDD[Any], selection: Selection, *, is_ragged: bool = False) -> RDD[Any]:
    """Return an RDD, of whose columns it is known then that they are a selection's."""
    _KNOWN[rdd] = pa.schema([(field.name or VALUE, _arrow(selection, field, is_ragged)) for field in selection.fields])
    return rdd


def columns_read(rdd: RDD[Any]) -> Any:
    """Return the Arrow schema of the table that an RDD's records are; None where no reader gave it."""
    return _KNOWN.get(rdd)


def _arrow(selection: Selection, field: FieldSpec, is_ragged: bool) -> Any:
    kinds = [selection.columns[number].type.kind for number in field.columns]
    number = pa.from_numpy_dtype(np.dtype(field.dtype))
    if is_ragged and kinds == ["vector"]:
        return ColumnType("vector", "float64").arrow()
    return pa.list_(number) if field.is_stacked or kinds != ["number"] else number
