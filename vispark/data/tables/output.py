"""Partitions as Arrow batches: the columns that records become, and the types that Spark has for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import types as spark

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark._utils.lazy import LazyModule
from vispark.data.records.layout import RAGGED, RecordLayout, RecordPart, held_as
from vispark.data.records.partition_schema import FetchedPartition
from vispark.data.records.ragged import FlatRows, flat_rows
from vispark.data.tables.arrow import pa
from vispark.data.tables.row_lists import arrow_lists
from vispark.data.tables.types import VECTOR, ColumnType

if TYPE_CHECKING:
    from pyspark.ml import linalg
else:
    linalg = LazyModule("pyspark.ml.linalg")

#: Bytes of rows that are made columns at once.
_IN_CACHE = 1 << 18

#: The name of the only column of records that are numbers or arrays, as ``createDataFrame`` calls it.
VALUE = "value"


@dataclass(frozen=True)
class OutputColumn:
    """Column of a table that is made of records.

    Attributes
    ----------
    name : str
        The field's; ``_1`` and so on for places of tuples and pairs.
    values : ndarray, FlatRows, list or tuple of OutputColumn
        Numbers with rows along the first axis, or those of arrays with a second axis; arrays of several lengths, or
        sparse vectors; a list of keys; the fields of a struct.
    """

    name: str
    values: Any

    def arrow(self) -> Any:
        """Return the column as an Arrow array.

        Raises
        ------
        PlanError
            If Arrow has no type for it.
        """
        if isinstance(self.values, tuple):
            return pa.StructArray.from_arrays([each.arrow() for each in self.values],
                                              [each.name for each in self.values])
        if isinstance(self.values, list):
            return _keys(self.values)
        is_ragged = isinstance(self.values, FlatRows)
        numbers = self.values.items if is_ragged else self.values
        if numbers.dtype.kind not in "biuf" or numbers.dtype.itemsize > 8:
            raise PlanError(f"column {self.name!r} is {numbers.dtype}, which tables do not have; take .real and "
                            ".imag, or convert it, in a vmap")
        if is_ragged:
            return arrow_lists(self.values)
        flat = pa.array(np.ascontiguousarray(self.values).reshape(-1))
        if self.values.ndim == 1:
            return flat
        offsets = np.arange(len(self.values) + 1, dtype=np.int64) * self.values.shape[1]
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)

    def rows(self, start: int, stop: int) -> OutputColumn:
        """Return some of the rows."""
        if isinstance(self.values, tuple):
            return OutputColumn(self.name, tuple(each.rows(start, stop) for each in self.values))
        return OutputColumn(self.name, self.values[start:stop])


def _keys(keys: list[Any]) -> Any:
    try:
        return pa.array(keys)
    except (pa.ArrowException, TypeError) as error:
        raise PlanError(f"keys of type {type(keys[0]).__name__} are no column of a table: {error}; use values(), or "
                        "recv().toDF()") from error


def columns_of(content: FetchedPartition) -> list[OutputColumn]:
    """Return the columns of a partition.

    Raises
    ------
    PlanError
        If its records are no rows of a table: arrays of two dimensions or more, or the keys of pairs alone.
    """
    layout = content.schema.layout
    if layout.kind != "elements" or layout.only:
        what = "records of two dimensions or more" if layout.kind != "elements" else "keys or values alone"
        raise PlanError(f"{what} are no rows of a table; map them to numbers, arrays, tuples or dicts of these by "
                        "vmap, or use recv()")
    if not content.schema.count:
        return []
    values = _values(layout, content.blocks[0])
    if not layout.keyed:
        return values
    value = values[0].values if len(values) == 1 and values[0].name == VALUE else tuple(values)
    return [OutputColumn("_1", content.keys), OutputColumn("_2", value)]


def _values(layout: RecordLayout, block: dict[str, np.ndarray]) -> list[OutputColumn]:
    if layout.tupled:
        return _nested([(part.name.split("."), _of_part(part, block)) for part in layout.parts])
    if layout.named:
        return [OutputColumn(part.name, _of_part(part, block)) for part in layout.parts]
    part, = layout.parts
    if part.form != "tuple":
        return [OutputColumn(VALUE, _of_part(part, block))]
    types = part.types * block[""].shape[1] if len(part.types) == 1 else part.types
    return [OutputColumn(f"_{number + 1}", column.astype(held_as(name), copy=False))
            for number, (name, column) in enumerate(zip(types, _transposed(block[""]), strict=True))]


def _transposed(rows: np.ndarray) -> np.ndarray:
    """Return the columns of rows, each in one piece: some rows at a time, which stay in a core's cache."""
    columns = np.empty(rows.shape[::-1], rows.dtype)
    step = max(1, _IN_CACHE // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), step):
        columns[:, start:start + step] = rows[start:start + step].T
    return columns


def _of_part(part: RecordPart, block: dict[str, np.ndarray]) -> np.ndarray | FlatRows:
    return flat_rows(part, block) if part.form in RAGGED else block[part.name]


def _nested(places: Sequence[tuple[list[str], np.ndarray | FlatRows]]) -> list[OutputColumn]:
    """Return the columns of tuples: ``1.0`` is the first field of the struct that is the second column."""
    columns = []
    for first in dict.fromkeys(path[0] for path, _ in places):
        inside = [(path[1:], values) for path, values in places if path[0] == first]
        name = f"_{int(first) + 1}"
        columns.append(OutputColumn(name, inside[0][1] if not inside[0][0] else tuple(_nested(inside))))
    return columns


# -- as a schema has them ---------------------------------------------------------------------------------------------

_TO_SPARK = {"bool": spark.BooleanType, "int8": spark.ByteType, "int16": spark.ShortType, "int32": spark.IntegerType,
             "int64": spark.LongType, "float32": spark.FloatType, "float64": spark.DoubleType,
             "uint8": spark.ShortType, "uint16": spark.IntegerType, "uint32": spark.LongType,
             "float16": spark.FloatType}
_TO_ARROW: dict[type, str] = {spark.BooleanType: "bool_", spark.ByteType: "int8", spark.ShortType: "int16",
                              spark.IntegerType: "int32", spark.LongType: "int64", spark.FloatType: "float32",
                              spark.DoubleType: "float64", spark.StringType: "string", spark.BinaryType: "binary"}


def is_vector(kind: Any) -> bool:
    """Return whether an Arrow type is that of Spark's vectors."""
    return bool(pa.types.is_struct(kind)) and tuple(field.name for field in kind) == VECTOR


def spark_type(name: str, kind: Any) -> spark.DataType:
    """Return Spark's type for an Arrow type; of unsigned integers the next wider one.

    Raises
    ------
    PlanError
        If Spark has none.
    """
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type(name, kind.value_type))
    if pa.types.is_struct(kind):
        if is_vector(kind):
            return linalg.VectorUDT()
        return spark.StructType([spark.StructField(field.name, spark_type(name, field.type)) for field in kind])
    if pa.types.is_string(kind):
        return spark.StringType()
    if pa.types.is_binary(kind):
        return spark.BinaryType()
    kind_of = None if pa.types.is_null(kind) or pa.types.is_nested(kind) else \
        _TO_SPARK.get({"float": "float32", "double": "float64", "halffloat": "float16"}.get(str(kind), str(kind)))
    if kind_of is None:
        raise PlanError(f"column {name!r} is {kind}, for which Spark has no type; convert it in a vmap, as with "
                        "np.int64(x)")
    return kind_of()


def arrow_type(name: str, kind: spark.DataType) -> Any:
    """Return the Arrow type for one of Spark's.

    Raises
    ------
    PlanError
        If a column of numbers cannot become it.
    """
    if isinstance(kind, spark.ArrayType):
        return pa.list_(arrow_type(name, kind.elementType))
    if isinstance(kind, spark.UserDefinedType) and type(kind).__name__ == "VectorUDT":
        return ColumnType("vector", "float64").arrow()
    if isinstance(kind, spark.StructType):
        return pa.struct([(field.name, arrow_type(name, field.dataType)) for field in kind.fields])
    if type(kind) not in _TO_ARROW:
        raise PlanError(f"column {name!r} is to be {kind.simpleString()}; toDF gives numbers, booleans, and arrays and "
                        "structs of these: cast it in the DataFrame")
    return getattr(pa, _TO_ARROW[type(kind)])()


def fitted(columns: list[OutputColumn], schema: spark.StructType) -> list[OutputColumn]:
    """Return the columns in the order and under the names of a schema: by name where records have names, of which
    not all need be there, else by place.

    Raises
    ------
    PlanError
        If there are others.
    """
    names, have = [field.name for field in schema.fields], [column.name for column in columns]
    if set(names) <= set(have):
        return [columns[have.index(name)] for name in names]
    only = columns[0].values
    if have == [VALUE] and isinstance(only, np.ndarray) and only.ndim == 2 and only.shape[1] == len(names) \
            and not (len(names) == 1 and isinstance(schema.fields[0].dataType, spark.ArrayType)):
        return [OutputColumn(name, column) for name, column in zip(names, _transposed(only), strict=True)]
    if len(names) != len(have):
        raise PlanError(f"the schema has {len(names)} columns, {', '.join(names)}, and the records have {len(have)}: "
                        f"{', '.join(have)}")
    if any(not name.startswith("_") and name != VALUE for name in have):
        missing = next(name for name in names if name not in have)
        raise PlanError(f"the schema has a column {missing!r}, and the records have the fields {', '.join(have)}")
    return [OutputColumn(name, column.values) for name, column in zip(names, columns, strict=True)]


def named(schema: Any, names: Sequence[str] | None) -> spark.StructType:
    """Return Spark's schema for an Arrow schema, with other names from the first column on.

    Raises
    ------
    PlanError
        If there are more names than columns.
    """
    kinds = [(field.name, field.type) for field in schema]
    if names and len(names) > len(kinds) == 1 and pa.types.is_list(kinds[0][1]):
        kinds = [("", kinds[0][1].value_type)] * len(names)
    if names and len(names) > len(kinds):
        raise PlanError(f"there are {len(names)} names, {', '.join(names)}, and the records have {len(kinds)} columns")
    new = [*(names or ()), *(name for name, _ in kinds[len(names or ()):])]
    return spark.StructType([spark.StructField(name, spark_type(name, kind))
                             for name, (_, kind) in zip(new, kinds, strict=True)])


def batches(columns: list[OutputColumn], nbytes: int) -> Iterator[Any]:
    """Yield record batches of about so many bytes each."""
    if not columns:
        return
    count = _count(columns[0])
    row = max(1, sum(map(_row_bytes, columns)))
    step = max(1, nbytes // row)
    for start in range(0, count, step):
        chosen = [column.rows(start, min(start + step, count)) for column in columns]
        yield pa.RecordBatch.from_arrays([each.arrow() for each in chosen], [each.name for each in chosen])


def shares(columns: list[OutputColumn], count: int) -> Iterator[Any]:
    """Yield so many record batches of nearly as many rows each, fewer where there are fewer rows."""
    rows = _count(columns[0])
    count = min(count, rows)
    for index in range(count):
        chosen = [column.rows(rows * index // count, rows * (index + 1) // count) for column in columns]
        yield pa.RecordBatch.from_arrays([each.arrow() for each in chosen], [each.name for each in chosen])


def _count(column: OutputColumn) -> int:
    return _count(column.values[0]) if isinstance(column.values, tuple) else len(column.values)


def nbytes_of(columns: Sequence[OutputColumn]) -> int:
    """Return the bytes of all columns, about."""
    return sum(_count(column) * _row_bytes(column) for column in columns)


def _row_bytes(column: OutputColumn) -> int:
    if isinstance(column.values, tuple):
        return sum(map(_row_bytes, column.values))
    if isinstance(column.values, FlatRows):
        return column.values.row_bytes
    return 16 if isinstance(column.values, list) else column.values[:1].nbytes


def cast(batch: Any, schema: Any) -> Any:
    """Return a batch whose columns are of a schema's types.

    Raises
    ------
    RecordError
        If a value does not fit.
    """
    arrays = []
    for field, column in zip(schema, batch.columns, strict=True):
        try:
            arrays.append(column if column.type == field.type else
                          column.cast(field.type, safe=not _loses_digits(column.type, field.type)))
        except pa.ArrowException as error:
            raise RecordError(f"column {field.name!r} of {column.type} does not fit {field.type}, which the schema "
                              f"asks for: {error}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _loses_digits(source: Any, target: Any) -> bool:
    """Return whether a cast is one to floats, which round."""
    while pa.types.is_list(source) and pa.types.is_list(target):
        source, target = source.value_type, target.value_type
    return bool(pa.types.is_floating(target))
