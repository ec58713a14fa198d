"""Columns of vectors as columns of arrays, and back; pyspark's own functions for it import pandas."""

from __future__ import annotations

from typing import Any

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, NumericType


def check_vectors(df: DataFrame, estimator: Any) -> None:
    """Check the column of vectors of an estimator of vispark's own; Spark has its words for one that is not there.

    Raises
    ------
    ValueError
        If none is named.
    TypeError
        If it holds neither vectors nor arrays of numbers.
    """
    if not estimator.isSet("inputCol"):
        raise ValueError(f"{type(estimator).__name__} needs inputCol, the column of vectors")
    name = estimator.getInputCol()
    kind = df.select(sql.col(f"`{name}`")).schema.fields[0].dataType
    if not isinstance(kind, VectorUDT) and not (
            isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType)):
        raise TypeError(f"column {name!r} is {kind.simpleString()}: {type(estimator).__name__} is of vectors, or of "
                        "arrays of numbers")


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
