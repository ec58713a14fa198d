"""DataFrames whose Arrow batches a function maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyspark
from pyspark.rdd import PythonEvalType
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.udf import UserDefinedFunction

#: The first number of PySpark's version.
SPARK = int(pyspark.__version__.partition(".")[0])


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], schema: spark.StructType) -> DataFrame:
    """Return the DataFrame of the batches that a function makes of a DataFrame's.

    ``DataFrame.mapInArrow`` does the same, but refuses to without pandas, which it does not use.
    """
    mapped = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = mapped(*[frame[f"`{name}`"] for name in frame.columns])
    java: Any = frame._jdf
    rows = java.mapInArrow(column._jc, False, None) if SPARK >= 4 else \
        java.pythonMapInArrow(column._jc.expr(), False)
    return type(frame)(rows, frame.sparkSession)
