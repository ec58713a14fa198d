"""Functions over columns equal the functions called row by row, on random columns with nulls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import vispark
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"


@pytest.fixture(scope="module")
def spark(local: Topology) -> Iterator[SparkSession]:
    with host_context(local, udfBytes="1k") as context:
        yield SparkSession(context)


def polynomial(x, k, a):
    total = np.float64(0.0)
    for n in range(3):
        total = total * x + a[0] * k if x > n else total - a[1]
    return total


NUMBERS = st.none() | st.floats(-4, 4, width=32)
ROWS = st.lists(st.tuples(NUMBERS, st.none() | st.integers(-9, 9), st.none() | st.tuples(
    st.floats(-2, 2, width=32), st.floats(-2, 2, width=32))), min_size=1, max_size=400)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, parts=st.integers(1, 3))
def test_equal_to_the_function_called_row_by_row(spark: SparkSession, rows, parts):
    frame = spark.createDataFrame([(n, x, k, a and list(a)) for n, (x, k, a) in enumerate(rows)],
                                  "n int, x double, k int, a array<double>").repartition(parts)
    frame_with_y = vispark.with_column(frame, "y", vispark.udf("double")(polynomial), "x", "k", "a")
    expected = [None if None in row else polynomial(*row) for row in rows]
    results = [row.y for row in frame_with_y.sort("n").collect()]
    assert [value is None for value in results] == [value is None for value in expected]
    assert [value or 0 for value in results] == pytest.approx([value or 0 for value in expected], rel=1e-12, abs=1e-12)
