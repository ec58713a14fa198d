"""Speed at which a logistic map of 64 steps runs over a column: by the UDFs of Spark, by ours, and without the map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.udf import UserDefinedFunction

import vispark
from benchmarks.measure import Case, interleave
from benchmarks.results import Group
from vispark.api.udfs.translated import ARROW_ITERATOR

_BYTES = 16
#: Of the rows, those whose sums are compared before the measurement.
_COMPARED = 50_000


def logistic(x: float, r: float) -> float:
    """Return x after 64 steps; also of Arrow's columns as NumPy's arrays."""
    for _ in range(64):
        x = r * x * (1 - x)
    return x


def identity(columns: Iterator[Any]) -> Iterator[Any]:
    """Give the first column back."""
    return (x for x, _ in columns)


def by_numpy(columns: Iterator[Any]) -> Iterator[Any]:
    """Compute by NumPy, a batch at a time."""
    for x, r in columns:
        yield type(x).from_pandas(logistic(x.to_numpy(), r.to_numpy()))


def run(sc: SparkContext, rows: int, samples: int, done: Callable[[str], None]) -> Group:
    """Measure sums of the column over so many rows."""
    session = SparkSession(sc)
    group = Group(f"functions over columns, {rows:,} rows", {"rows": rows, "steps": 64, "samples": samples})
    if ARROW_ITERATOR is None:
        group.skipped["all"] = "PySpark has UDFs of Arrow arrays from 4.1 on"
        return group
    arrow = {name: UserDefinedFunction(function, "double", name, ARROW_ITERATOR)
             for name, function in (("identity", identity), ("numpy", by_numpy))}
    ours, stock = vispark.udf("double")(logistic), sql.udf(logistic, "double")

    def total(function: Callable[..., Any], count: int = rows) -> float:
        frame = session.range(count).selectExpr(f"id / {rows} as x", "3.5d as r")
        return float(frame.select(function("x", "r").alias("y")).agg(sql.sum("y")).first()[0])

    few = min(rows, _COMPARED)
    sums = total(ours, few), total(stock, few), total(arrow["numpy"], few)
    group.checks["sums"] = {"values": sums, "equal": max(sums) - min(sums) <= 1e-9 * abs(sums[0])}
    assert group.checks["sums"]["equal"], f"the sums differ: {sums}"
    floor = "arrow_udf, identity"
    group.series = interleave([
        Case(floor, lambda: total(arrow["identity"]), rows * _BYTES, repeat=False),
        Case("arrow_udf, NumPy", lambda: total(arrow["numpy"]), rows * _BYTES, (floor,), repeat=False),
        Case("vispark.udf", lambda: total(ours), rows * _BYTES, (floor,), repeat=False),
        Case("@udf", lambda: total(stock), rows * _BYTES, ("vispark.udf",), repeat=False),
    ], samples, warm_up=1, done=done)
    return group
