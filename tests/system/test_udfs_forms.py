"""Functions over columns in other forms: structs, arrays, SQL, in Python, on every PySpark."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import vispark
from tests import leaks
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context, sql_session
from vispark.api.udfs.translated import ARROW_ITERATOR
from vispark.errors import FallbackWarning, PlanError, RecordError

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"
needs_arrow_udfs = pytest.mark.skipif(ARROW_ITERATOR is None, reason="PySpark has UDFs of Arrow arrays from 4.1 on")


@pytest.fixture(scope="module")
def sc(one_core: Topology) -> Iterator[SparkContext]:
    with host_context(one_core, udfBytes="8k") as context:
        yield context


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> SparkSession:
    return sql_session(sc)


def doubled(x):
    return 2.0 * x


@needs_arrow_udfs
def test_structs_and_arrays(spark: SparkSession):
    frame = spark.createDataFrame([(1.5, 2), (None, 3)], "x double, k int")

    @vispark.udf("struct<k:bigint,d:float>")
    def both(x, k):
        return {"d": np.float32(x * k), "k": np.int64(k + 1)}

    @vispark.udf("struct<a:double,b:boolean>")
    def pair(x):
        return x + 1, x > 0

    @vispark.udf("array<float>")
    def powers(x):
        return np.array([x, x * x, 1.0])

    rows = frame.select(both("x", "k").alias("s"), pair("x").alias("p"), powers("x").alias("a")).collect()
    assert [row.s and row.s.asDict() for row in rows] == [{"k": 3, "d": 3.0}, None]
    assert [row.p and tuple(row.p) for row in rows] == [(2.5, True), None]
    assert [row.a for row in rows] == [[1.5, 2.25, 1.0], None]
    with pytest.raises(PythonException, match=r"pair gives struct<_1:double,_2:boolean>, and is declared to return"):
        frame.select(vispark.udf("double")(pair.__wrapped__)("x")).collect()


@needs_arrow_udfs
def test_sql(spark: SparkSession):
    spark.udf.register("twice", vispark.udf("double")(doubled))
    spark.createDataFrame([(1.5,), (None,), (4.0,)], "x double").createOrReplaceTempView("numbers")
    assert [row[0] for row in spark.sql("select twice(x) from numbers where twice(x) > 3 or x is null").collect()] \
        == [None, 8.0]


def test_what_cannot_be_translated_is_an_error_at_its_line(spark: SparkSession):
    with pytest.raises(vispark.TranslationError) as error:
        @vispark.udf("double")
        def named(x):
            return {"a": 1.0}[str(x)]
    assert error.value.file == __file__
    assert 'return {"a": 1.0}[str(x)]' in str(error.value)
    with pytest.raises(vispark.TranslationError, match="the parameter x takes None"):
        @vispark.udf("double")
        def optional(x: float | None):
            return x


@needs_arrow_udfs
def test_fallback_calls_the_function_and_says_so(spark: SparkSession):
    with pytest.warns(FallbackWarning, match="named is not translated, and runs in Python"):
        @vispark.udf("string", fallback=True)
        def named(x, k):
            return f"{k}: {x}"
    frame = spark.createDataFrame([(1.5, "a"), (None, "b")], "x double, k string")
    assert [row[0] for row in frame.select(named("x", "k")).collect()] == ["a: 1.5", None]
    with pytest.warns(FallbackWarning):
        @vispark.udf("boolean", fallback=True)
        def missing(x: float | None):
            return x is None
    assert [row[0] for row in frame.select(missing("x")).collect()] == [False, True]
    with pytest.warns(FallbackWarning, match="is to return string"):
        joined = vispark.udf("string", fallback=True)(lambda x, y: x + y)
    assert [row[0] for row in frame.select(joined("k", "k")).collect()] == ["aa", "bb"]
    ragged = spark.createDataFrame([([1.0, 2.0],), ([3.0],)], "p array<double>")
    total = vispark.udf("double", fallback=True)(lambda p: p.sum())
    assert [row[0] for row in ragged.select(total("p")).collect()] == [3.0, 3.0]


@needs_arrow_udfs
def test_chained_and_several_functions_in_one_stage_of_one_core_end(spark: SparkSession):
    first, second, third = (vispark.udf("double")(each) for each in (doubled, lambda x: x + 1, lambda x, y: x * y))
    frame = spark.range(0, 5000, 1, 2).selectExpr("id", "cast(id as double) as x")
    rows = frame.select("id", third(second(first("x")), first("x")).alias("a"), second(first("x") + 1).alias("b"),
                        first("x").alias("c")).collect()
    assert [(row.a, row.b, row.c) for row in sorted(rows)] \
        == [((2.0 * n + 1) * 2 * n, 2.0 * n + 2, 2.0 * n) for n in range(5000)]


@needs_arrow_udfs
def test_a_worker_killed_in_between(spark: SparkSession, one_core: Topology):
    slow = vispark.udf("double")(doubled)
    node, = one_core.nodes
    running = [each for each in leaks.processes_of(node.runtime_dir) if "device_process" in each.command]
    assert len(running) == 1
    killer = threading.Timer(0.5, leaks.kill, (running,))
    killer.start()
    rows = spark.range(0, 40000, 1, 2).select(slow("id").alias("y")).collect()
    killer.join()
    assert sorted(row.y for row in rows) == [2.0 * n for n in range(40000)]
    rows = spark.range(0, 400, 1, 2).select(slow("id").alias("y")).collect()
    assert sorted(row.y for row in rows) == [2.0 * n for n in range(400)]


def test_with_column_on_every_pyspark(spark: SparkSession):
    frame = spark.createDataFrame([(1.5, "a", 2), (None, "b", 3), (2.5, None, None)], "x double, name string, k int")
    scaled = vispark.udf("double")(lambda x, k: x * k)
    extended = vispark.with_column(frame, "y", scaled, "x", k=frame.k + 1)
    assert extended.columns == ["x", "name", "k", "y"]
    assert [tuple(row) for row in extended.collect()] == [(1.5, "a", 2, 4.5), (None, "b", 3, None),
                                                          (2.5, None, None, None)]
    assert [tuple(row) for row in vispark.with_column(frame, "x", scaled, "x", "k").collect()] \
        == [(3.0, "a", 2), (None, "b", 3), (None, None, None)]
    many = vispark.with_column(spark.range(0, 3000, 1, 2), "y", vispark.udf("double")(doubled), "id")
    assert sorted(map(tuple, many.collect())) == [(n, 2.0 * n) for n in range(3000)]
    with pytest.raises(RecordError, match=r"the column 'name', its parameter x, is string"):
        vispark.with_column(frame, "y", scaled, "name", "k")
    with pytest.raises(PlanError, match="with_column takes what"):
        vispark.with_column(frame, "y", doubled, "x")


@pytest.mark.skipif(ARROW_ITERATOR is not None, reason="for PySpark before 4.1")
def test_pyspark_without_arrow_udfs_names_with_column(spark: SparkSession):
    with pytest.raises(PlanError, match=re.escape('vispark.with_column(df, "name", f, *columns)')):
        vispark.udf("double")(doubled)("x")


def test_explanation(spark: SparkSession):
    udf = vispark.udf("double")(doubled)
    text = udf.explanation("x int")
    assert text.startswith("vispark.udf doubled(x) of double\ntranslated: ")
    assert "== Kernel for x int ==\ngives double" in text and "__global__" in text
    assert "__global__" not in udf.explanation()
    with pytest.warns(FallbackWarning):
        plain = vispark.udf("string", fallback=True)(lambda x: str(x))
    assert "not translated, runs in Python, row by row: " in plain.explanation()
