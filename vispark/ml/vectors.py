"""Columns of vectors as columns of arrays, and back; pyspark's own functions for it import pandas."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql


def arrays_of(df: DataFrame, column: str) -> Column:
    """Return the arrays of a column of vectors."""
    return _called(df, "vector_to_array", column, "float64")


def vectors_of(df: DataFrame, column: str) -> Column:
    """Return the dense vectors of a column of arrays."""
    return _called(df, "array_to_vector", column)


def _called(df: DataFrame, function: str, column: str, *arguments: str) -> Column:
    argument: Any = sql.col(f"`{column}`")
    jvm: Any = df.sparkSession.sparkContext._jvm
    called: Column = type(argument)(getattr(jvm.org.apache.spark.ml.functions, function)(argument._jc, *arguments))
    return called
