"""Columns added to DataFrames by functions over columns, on every PySpark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark

from vispark._utils.boundary import brief
from vispark.api.udfs.task import UdfTask
from vispark.api.udfs.translated import ColumnFunction, text_of
from vispark.data.tables.arrow import pa
from vispark.data.tables.mapped import map_in_arrow
from vispark.errors import PlanError


@dataclass(frozen=True)
class AddingTask:
    """Task that replaces the arguments, behind the other columns of a batch, by the results.

    Attributes
    ----------
    task : UdfTask
        Task of the function.
    columns : int
        Columns before the arguments.
    place : int
        Place of the column that the results replace; ``columns`` where they are a new one.
    """

    task: UdfTask
    columns: int
    place: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for joined, column in self.task.computed((batch.columns for batch in batches), self._arguments):
            start = 0
            for columns in joined:
                count = len(columns[0])
                arrays = list(columns[:self.columns])
                arrays[self.place:self.place + 1] = [column.slice(start, count)]
                start += count
                yield pa.RecordBatch.from_arrays(arrays, [f"c{number}" for number in range(len(arrays))])

    def _arguments(self, columns: Sequence[Any]) -> Sequence[Any]:
        return columns[self.columns:]


@brief
def with_column(df: DataFrame, name: str, f: ColumnFunction, *columns: Column | str,
                **named: Column | str) -> DataFrame:
    """Return a DataFrame with the results of a function over columns as a column, as ``withColumn`` does.

    It is for PySpark before 4.1, where columns of :func:`vispark.udf` are refused, and works on all. The whole rows
    pass through the Python workers, as Arrow batches.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a classic session.
    name : str
        Of the column; one that is there is replaced.
    f : ColumnFunction
        Made by :func:`vispark.udf`.
    *columns, **named
        Columns for its parameters, by place and by name, or their names.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns of ``df``, and the new one behind them or in the place of that of its name, of the type that
        :func:`vispark.udf` was told.

    Raises
    ------
    PlanError, RecordError
        As of :func:`vispark.udf`, columns without numbers here and now.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(0.5, 3), (None, 1)], "x double, k int")
    >>> @udf("double")
    ... def scaled(x, k):
    ...     return k * x
    >>> with_column(df, "y", scaled, "x", "k").collect()
    [Row(x=0.5, k=3, y=1.5), Row(x=None, k=1, y=None)]
    """
    if not isinstance(f, ColumnFunction):
        raise PlanError("with_column takes what vispark.udf makes of a function, as in vispark.udf(\"double\")(f), and "
                        f"not a {type(f).__name__}")
    by_name = f.given(columns, named)
    fields = list(df.schema.fields)
    plain = df.toDF(*[f"c{number}" for number in range(len(fields))])
    chosen = df.select(*by_name.values())
    kinds = chosen.schema.fields
    task = f.task(df.sparkSession.sparkContext, tuple(by_name), tuple(map(text_of, by_name.values())))
    f.check_columns(task.parameters, [field.dataType for field in kinds])
    both = df.select("*", *by_name.values())
    both = both.toDF(*plain.columns, *[f"a{number}" for number in range(len(by_name))])
    place = next((number for number, field in enumerate(fields) if field.name == name), len(fields))
    fields[place:place + 1] = [spark.StructField(name, task.returns.kind)]
    return map_in_arrow(both, AddingTask(task, len(plain.columns), place), spark.StructType(fields))
