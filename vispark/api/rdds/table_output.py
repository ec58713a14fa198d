"""Tables of a VRDD's records: DataFrames and files, from the workers' arrays by Arrow batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.types import _parse_datatype_string

from vispark._utils.callers import user_call
from vispark.data.records.partition_schema import FetchedPartition
from vispark.data.tables import output
from vispark.data.tables.arrow import require
from vispark.data.tables.columns_read import columns_read
from vispark.data.tables.read_by_jvm import BatchFrame, schemas
from vispark.data.tables.writing import COMPRESSIONS, TableDirectory, WriteTask
from vispark.errors import PlanError
from vispark.runtime.driver.session import Session

Schema = str | spark.DataType | Sequence[str] | None


class ColumnarSource(Protocol):
    """Interface of a VRDD for tables."""

    ctx: SparkContext

    def columnar(self) -> RDD[FetchedPartition]:
        """Return the RDD of the partitions' arrays."""

    def held_columnar(self) -> RDD[FetchedPartition] | None:
        """Return the RDD of the partitions' arrays as far as workers have them; None if they never do."""

    def tokens(self, *,
               columnar: bool = False) -> tuple[RDD[Any], Callable[[int, Iterable[Any]], Iterable[Any]]] | None:
        """Return an RDD of tokens, and the function that takes a partition's arrays by a token."""

    def sent(self) -> RDD[Any] | None:
        """Return the RDD that was sent, if the records are still its own; else None."""

    def forget_places(self) -> None:
        """Ask the workers again for the places of the data."""


def to_dataframe(vrdd: ColumnarSource, schema: Schema) -> DataFrame:
    """See :meth:`vispark.VRDD.toDF`."""
    require("toDF")
    columns = vrdd.columnar()
    session = SparkSession._instantiatedSession
    if session is None or session.sparkContext is not vrdd.ctx:     # of a context that was stopped without its session
        session = SparkSession(vrdd.ctx)
    return BatchFrame(session, _schema(vrdd, columns, schema), user_call()).of(columns, vrdd.held_columnar())


def _schema(vrdd: ColumnarSource, columns: RDD[FetchedPartition], schema: Schema) -> spark.StructType:
    """Return the schema of the DataFrame; without types, of the first partition that has records, or else of the
    columns that were read.
    """
    schema = _parsed(schema)
    if isinstance(schema, spark.StructType):
        return schema
    if isinstance(schema, spark.DataType):
        return spark.StructType([spark.StructField(output.VALUE, schema)])
    if schema is not None and not all(isinstance(name, str) for name in schema):
        raise PlanError(f"schema={schema!r}; it is DDL text such as \"x array<float>, y double\", a StructType, names "
                        "of columns, or left out")
    arrow = next(iter(Session.of(columns.ctx).jobs.run(lambda: columns.mapPartitions(schemas).take(1))), None)
    arrow = _columns_read(vrdd) if arrow is None else arrow
    if arrow is None:
        raise PlanError("there are no records to tell the columns by; give toDF a schema, such as \"x double\"")
    return output.named(arrow, list(schema) if schema is not None else None)


def _columns_read(vrdd: ColumnarSource) -> Any:
    """Return the Arrow schema of the records, as far as they are those of a reader; else None."""
    sent = vrdd.sent()
    return None if sent is None else columns_read(sent)


def _parsed(schema: Schema) -> Schema:
    """Return a schema, of a text the types that it has."""
    return _parse_datatype_string(schema) if isinstance(schema, str) else schema


def write_parquet(vrdd: ColumnarSource, path: str | os.PathLike[str], compression: str, *, overwrite: bool,
                  schema: str | spark.StructType | None) -> None:
    """See :meth:`vispark.VRDD.write_parquet`."""
    require("write_parquet")
    if compression not in COMPRESSIONS:
        raise PlanError(f"compression={compression!r}; there are {', '.join(COMPRESSIONS)}")
    kinds = _parsed(schema)
    if kinds is not None and not isinstance(kinds, spark.StructType):
        raise PlanError(f"schema={schema!r}; a table has columns with names, such as \"x array<float>, y double\"")
    target = TableDirectory(os.fspath(path), overwrite=overwrite)
    target.begin()
    try:
        task = WriteTask(target.partial, compression, kinds)
        parts = vrdd.columnar().mapPartitionsWithIndex(task).collect()
        if not parts and kinds is None:
            arrow = _columns_read(vrdd)
            if arrow is None:
                raise PlanError("there are no records, and nothing that tells their columns: give write_parquet a "
                                'schema, such as schema="x double"')
            task = WriteTask(target.partial, compression, output.named(arrow, None))
        parts = parts or [task.without_rows()]
        for part in parts:
            if part.schema != parts[0].schema:
                raise PlanError(f"partition {part.partition} has the columns {_columns(part.schema)}, and partition "
                                f"{parts[0].partition} {_columns(parts[0].schema)}; the files of a table are alike")
        target.commit(parts)
    finally:
        target.abandon()


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


@dataclass(frozen=True)
class ColumnarTokens:
    """Source of a VRDD's tokens for RDDs over its partitions' arrays."""

    vrdd: ColumnarSource

    def tokens(self) -> tuple[RDD[Any], Callable[[int, Iterable[Any]], Iterable[Any]]] | None:
        """Return the VRDD's tokens, and the function that takes a partition's arrays by a token."""
        return self.vrdd.tokens(columnar=True)

    def forget_places(self) -> None:
        """Ask the workers again for the places of the data."""
        self.vrdd.forget_places()
