"""Return types of functions over columns: which are possible, and columns of them from computed arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import types as spark

from vispark.data.records.partition_schema import FetchedPartition
from vispark.data.tables import output
from vispark.data.tables.arrow import pa
from vispark.data.tables.output import VALUE, OutputColumn
from vispark.data.tables.types import of_spark
from vispark.errors import PlanError, RecordError


def check_type(kind: spark.DataType, name: str) -> None:
    """Check that a type is one of columns that a kernel can write.

    Raises
    ------
    PlanError
        If it is of strings, dates, maps or the like.
    """
    if isinstance(kind, spark.StructType) and kind.fields:
        for field in kind.fields:
            check_type(field.dataType, name)
    elif of_spark(kind).kind not in ("number", "array"):
        raise PlanError(f"{name} is to return {kind.simpleString()}; a translated function returns numbers, booleans, "
                        'arrays of these, or structs of these, as in "double", "array<float>" and '
                        '"struct<k int, d double>"')


@dataclass(frozen=True)
class ReturnType:
    """Type of the column that a function's results become.

    Attributes
    ----------
    name : str
        The function's, for errors.
    kind : pyspark.sql.types.DataType
        The column's type.
    """

    name: str
    kind: spark.DataType

    @property
    def arrow(self) -> Any:
        """The column's Arrow type."""
        return output.arrow_type(self.name, self.kind)

    def column(self, content: FetchedPartition) -> Any:
        """Return the Arrow array of a partition's results.

        Raises
        ------
        PlanError
            If the function gives something of another type.
        RecordError
            If a number does not fit the type.
        """
        columns = output.columns_of(content)
        if not isinstance(self.kind, spark.StructType):
            schema = spark.StructType([spark.StructField(VALUE, self.kind)])
            self._check(schema, columns)
            return self._batch(schema, columns).column(0)
        names = {field.name for field in self.kind.fields}
        # A dict leaves the fields of arguments that it does not name.
        chosen = [column for column in columns if column.name in names]
        if len(chosen) != len(names):
            chosen = columns
        chosen = self._by_schema(self.kind, chosen)
        batch = self._batch(self.kind, chosen)
        return pa.StructArray.from_arrays(batch.columns, list(batch.schema.names))

    def _batch(self, schema: spark.StructType, columns: list[OutputColumn]) -> Any:
        batch = pa.RecordBatch.from_arrays([each.arrow() for each in columns], [each.name for each in columns])
        target = pa.schema([(field.name, output.arrow_type(field.name, field.dataType)) for field in schema.fields])
        try:
            return output.cast(batch, target)
        except RecordError as error:
            raise RecordError(f"{self.name} is declared to return {self.kind.simpleString()}, and gives what that does "
                              f"not hold: {error.message}") from error

    def _by_schema(self, schema: spark.StructType, columns: list[OutputColumn]) -> list[OutputColumn]:
        try:
            fitted = output.fitted(columns, schema)
        except PlanError:
            raise self._other(columns) from None
        self._check(schema, fitted, columns)
        return fitted

    def _check(self, schema: spark.StructType, columns: list[OutputColumn],
               named: list[OutputColumn] | None = None) -> None:
        kinds = [field.dataType for field in schema.fields]
        alike = len(kinds) == len(columns) and all(map(_becomes, columns, kinds))
        if not alike or (schema is not self.kind and columns[0].name != VALUE):
            raise self._other(named or columns)

    def _other(self, columns: list[OutputColumn]) -> PlanError:
        text = ddl(columns)
        return PlanError(f"{self.name} gives {text}, and is declared to return {self.kind.simpleString()}; declare "
                         f'"{text}", or convert the result in the function, as by np.float64(...)')


def _becomes(column: OutputColumn, kind: spark.DataType) -> bool:
    """Return whether a column's values are of a type up to their width."""
    if isinstance(kind, spark.StructType):
        return isinstance(column.values, tuple) and len(column.values) == len(kind.fields) \
            and all(_becomes(one, field.dataType) for one, field in zip(column.values, kind.fields, strict=True))
    described = of_spark(kind)
    if not isinstance(column.values, np.ndarray) or (column.values.ndim == 2) != (described.kind == "array"):
        return False
    return np.can_cast(column.values.dtype, np.dtype(described.dtype), "same_kind")


def ddl(columns: list[OutputColumn]) -> str:
    """Return the type of computed columns as Spark writes it."""
    if len(columns) == 1 and columns[0].name == VALUE:
        return _type_of(columns[0])
    return f"struct<{','.join(f'{column.name}:{_type_of(column)}' for column in columns)}>"


def _type_of(column: OutputColumn) -> str:
    if isinstance(column.values, tuple):
        return ddl(list(column.values))
    if column.values.dtype.kind == "c":
        return str(column.values.dtype)
    return output.spark_type(column.name, column.rows(0, 1).arrow().type).simpleString()
