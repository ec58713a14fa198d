"""Types of columns: which hold numbers, and what would make numbers of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import types as spark

from vispark.data.tables.arrow import pa

#: The fields of Spark's vectors, of which a column of ``pyspark.ml`` is a struct.
VECTOR = ("type", "size", "indices", "values")


@dataclass(frozen=True)
class ColumnType:
    """Type of a column.

    Attributes
    ----------
    kind : str
        ``"number"``, ``"array"`` (of numbers), ``"vector"`` (of ``pyspark.ml``), ``"struct"``, or ``"other"``.
    dtype : str
        Of the numbers; empty for structs and others.
    text : str
        The type as its source calls it.
    children : tuple of (str, ColumnType)
        A struct's fields.
    """

    kind: str
    dtype: str = ""
    text: str = ""
    children: tuple[tuple[str, ColumnType], ...] = ()

    def arrow(self) -> Any:
        """Return the Arrow type in which Spark ships a column of numbers, arrays or vectors."""
        number = pa.from_numpy_dtype(np.dtype(self.dtype))
        if self.kind == "number":
            return number
        if self.kind == "array":
            return pa.list_(number)
        return pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())),
                          ("values", pa.list_(pa.float64()))])

    def leaves(self, name: str) -> Iterator[tuple[str, tuple[str, ...], ColumnType]]:
        """Yield the columns in this one: the name with dots, the path, and the type."""
        if self.kind != "struct":
            yield name, (name,), self
        for child, kind in self.children:
            yield from ((f"{name}.{below}", (name, *path), found) for below, path, found in kind.leaves(child))


_SPARK_NUMBERS: dict[type, str] = {spark.BooleanType: "bool", spark.ByteType: "int8", spark.ShortType: "int16",
                  spark.IntegerType: "int32", spark.LongType: "int64", spark.FloatType: "float32",
                  spark.DoubleType: "float64"}


def of_spark(kind: Any) -> ColumnType:
    """Return the type of a DataFrame's column.

    Examples
    --------
    >>> of_spark(spark.ArrayType(spark.FloatType()))
    ColumnType(kind='array', dtype='float32', text='array<float>', children=())
    """
    text = kind.simpleString()
    if isinstance(kind, spark.UserDefinedType):
        return ColumnType("vector", "float64", "vector") if type(kind).__name__ == "VectorUDT" \
            else ColumnType("other", text=text)
    if type(kind) in _SPARK_NUMBERS:
        return ColumnType("number", _SPARK_NUMBERS[type(kind)], text)
    if isinstance(kind, spark.ArrayType) and type(kind.elementType) in _SPARK_NUMBERS:
        return ColumnType("array", _SPARK_NUMBERS[type(kind.elementType)], text)
    if isinstance(kind, spark.StructType):
        return ColumnType("struct", "", text, tuple((each.name, of_spark(each.dataType)) for each in kind.fields))
    return ColumnType("other", text=text)


def of_arrow(kind: Any) -> ColumnType:
    """Return the type of a file's column."""
    text = str(kind)
    if _is_number(kind):
        return ColumnType("number", np.dtype(kind.to_pandas_dtype()).name, text)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if _is_number(kind.value_type):
            return ColumnType("array", np.dtype(kind.value_type.to_pandas_dtype()).name, text)
    elif pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        if tuple(field.name for field in fields) == VECTOR and pa.types.is_list(fields[3].type):
            return ColumnType("vector", "float64", "vector")
        return ColumnType("struct", "", text, tuple((field.name, of_arrow(field.type)) for field in fields))
    return ColumnType("other", text=text)


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


#: What to do with a column that holds no numbers, by how its type's name begins.
_ADVICE = (
    (("decimal",), 'cast it, as in col("{name}").cast("double")'),
    (("date",), 'take days since 1970, as in unix_date("{name}")'),
    (("timestamp",), 'take seconds since 1970, as in col("{name}").cast("double")'),
    (("interval", "duration", "time"), 'take its number, as in col("{name}").cast("long")'),
    (("string", "large_string", "varchar", "char"),
     'leave it out; where it holds numbers, col("{name}").cast("double"), else StringIndexer'),
    (("map",), 'take single items, as in col("{name}")["key"]'),
    (("array", "list", "large_list", "fixed_size_list"),
     'an array holds numbers: cast it, as in col("{name}").cast("array<double>"), or flatten() it'),
    (("matrix",), "make a vector or an array of it"),
)


def advice(name: str, kind: ColumnType) -> str:
    """Return advice about a column that cannot be held.

    Examples
    --------
    >>> advice("day", ColumnType("other", text="date"))
    'take days since 1970, as in unix_date("day")'
    """
    for begins, text in _ADVICE:
        if kind.text.startswith(begins):
            return text.format(name=name)
    return "leave it out"
