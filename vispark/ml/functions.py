"""Functions of columns: all are those of ``pyspark.ml.functions``, which needs pandas before Spark 4."""

from __future__ import annotations

from typing import Any

from pyspark.ml import functions

from vispark.ml.names import of_pyspark


def __getattr__(name: str) -> Any:
    return of_pyspark(functions, name)
