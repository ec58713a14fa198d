"""Functions over columns of DataFrames: what Spark gets is what Python computes, or an error that says why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import vispark
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context, sql_session
from vispark.api.udfs.translated import ARROW_ITERATOR
from vispark.errors import PlanError

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(ARROW_ITERATOR is None, reason="PySpark has UDFs of Arrow arrays from 4.1 on")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, udfBytes="4k") as context:
        yield context


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> SparkSession:
    return sql_session(sc)


def logistic(x, r):
    for _ in range(8):
        x = r * x * (1 - x)
    return x


def test_select_with_column_and_names(spark: SparkSession):
    frame = spark.createDataFrame([(0.5, 3.0), (None, 1.0), (0.1, None), (0.1, 2.0)], "x double, r double")
    udf = vispark.udf("double")(logistic)
    expected = [logistic(0.5, 3.0), None, None, logistic(0.1, 2.0)]
    assert [row[0] for row in frame.select(udf("x", "r")).collect()] == expected
    assert [row.y for row in frame.withColumn("y", udf(r="r", x=frame.x)).collect()] == expected
    assert frame.select(udf("x", "r")).columns == ["logistic(x, r)"]


def test_batches_joined_in_several_partitions_keep_their_rows(spark: SparkSession):
    frame = spark.range(3000).repartition(3).selectExpr("id", "if(id % 7 = 0, null, id / 3000) as x")
    rows = frame.select("id", "x", vispark.udf("double")(logistic)("x", "x").alias("y")).collect()
    assert len(rows) == 3000
    assert all(row.y == (None if row.id % 7 == 0 else logistic(row.x, row.x)) for row in rows)


def test_wrong_return_types(spark: SparkSession):
    with pytest.raises(PlanError, match="is to return string"):
        vispark.udf("string")(logistic)
    frame = spark.createDataFrame([(0.5, 3.0)], "x double, r double")
    with pytest.raises(PythonException, match=r"logistic gives double, and is declared to return int; declare "
                                              r'"double"'):
        frame.select(vispark.udf("int")(logistic)("x", "r")).collect()


def test_columns_that_do_not_fit_the_parameters(spark: SparkSession):
    udf = vispark.udf("double")(logistic)
    for columns, named, message in [((), {}, "no column for x, r"), (("x",), {}, "no column for r"),
                                    (("x", "r", "z"), {}, "given 3 columns"), (("x",), {"x": "x"}, "given x twice"),
                                    (("x",), {"z": "x"}, "no parameter z"),
                                    (("x", 2.0), {}, r"a number is lit\(2.0\)")]:
        with pytest.raises(PlanError, match=message):
            udf(*columns, **named)


def test_columns_of_text_are_named_in_the_error(spark: SparkSession):
    frame = spark.createDataFrame([("a", 3.0)], "name string, r double")
    with pytest.raises(PythonException, match=r"the column 'name', its parameter x, is string") as raised:
        frame.select(vispark.udf("double")(logistic)("name", "r")).collect()
    assert str(raised.value).count("/vispark/") <= 1 and str(raised.value).count("Traceback") == 1


def test_columns_of_arrays(spark: SparkSession):
    frame = spark.createDataFrame([([1.0, 2.0], 3), (None, 4), ([5.0, 6.0], 7)], "p array<float>, k int")

    @vispark.udf("float")
    def weighted(p, k):
        return np.float32(p.sum() * k)

    assert [row[0] for row in frame.select(weighted("p", "k")).collect()] == [9.0, None, 77.0]
