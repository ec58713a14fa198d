"""DataFrames of VRDDs: the records that they have, under the names and types that were asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import TranslationError, from_dataframe, read_csv, read_parquet
from vispark.errors import PlanError

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"

INT8 = ("int8", "tinyint", [1, -2, 3])
DTYPES = [INT8, ("bool", "boolean", [True, False, True]), ("int16", "smallint", [1, -2, 300]),
          ("int32", "int", [1, -2, 2**31 - 1]), ("int64", "bigint", [1, -2**63, 2**63 - 1]),
          ("float32", "float", [1.5, 0.25, -0.0]), ("float64", "double", [1e300, float("inf"), 0.1]),
          ("uint8", "smallint", [1, 255, 0]), ("uint16", "int", [1, 65535, 0]), ("uint32", "bigint", [1, 2**32 - 1, 0]),
          ("float16", "float", [1.5, 0.25, 0.0])]


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.mark.parametrize(("dtype", "kind", "values"), DTYPES, ids=[dtype for dtype, _, _ in DTYPES])
def test_a_dtype_becomes_a_type(spark: SparkSession, sc: SparkContext, dtype, kind, values):
    numbers = np.array(values, dtype)
    frame = sc.parallelize([{"x": x, "a": np.array([x, x])} for x in numbers], 2).cache("GPU").toDF()
    assert frame.dtypes == [("x", kind), ("a", f"array<{kind}>")]
    assert [tuple(row) for row in frame.collect()] == [(x, [x, x]) for x in numbers.tolist()]


def test_sparks_own_way_to_a_dataframe(spark: SparkSession, sc: SparkContext):
    held = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    for rows in (held.map(lambda x: (x,)), held.repartition(1).map(lambda x: (x,)), held.recv().map(lambda x: (x,))):
        assert sorted(row.x for row in rows.toDF(["x"]).collect()) == [1.0, 2.0]


def test_forms_of_records(spark: SparkSession, sc: SparkContext):
    numbers = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert numbers.toDF().collect() == [(1.0,), (2.0,)] and numbers.toDF().columns == ["value"]
    assert numbers.toDF("float").dtypes == [("value", "float")]
    nested = numbers.vmap(lambda x: (x, (2 * x, x > 1))).toDF()
    assert nested.dtypes == [("_1", "double"), ("_2", "struct<_1:double,_2:boolean>")]
    assert nested.collect() == [(1.0, (2.0, False)), (2.0, (4.0, True))]
    assert sc.parallelize([(1, 2.5, True)]).cache("GPU").toDF(["k"]).collect() == [(1, 2.5, True)]
    pairs = sc.parallelize([("a", 1.0), ("b", 2.0)]).cache("GPU").vmap(lambda x: 2 * x)
    assert pairs.toDF(["k", "v"]).collect() == [("a", 2.0), ("b", 4.0)]
    assert pairs.toDF("k string, v float").dtypes == [("k", "string"), ("v", "float")]
    rows = numbers.vmap(lambda x: np.array([x, 2 * x]))
    assert rows.toDF("a float, b int").collect() == [(1.0, 2), (2.0, 4)]
    assert rows.toDF(["a", "b"]).columns == ["a", "b"]
    assert rows.toDF("a array<float>").collect() == [([1.0, 2.0],), ([2.0, 4.0],)]


def test_fields_go_by_name(spark: SparkSession, sc: SparkContext):
    fields = sc.parallelize([1.0, 2.0], 2).cache("GPU").vmap(lambda x: {"x": x, "y": x * x})
    assert fields.toDF("y float, x int").collect() == [(1.0, 1), (4.0, 2)]
    assert fields.toDF("y double").collect() == [(1.0,), (4.0,)]
    with pytest.raises(Exception, match="column 'z', and the records have the fields x, y"):
        fields.toDF("x float, z float").collect()


def test_there_and_back(spark: SparkSession):
    df = spark.range(5000).selectExpr("id", "id / 3 as x", "array(float(id), float(1)) as a", "id % 2 = 0 as b")
    assert sorted(from_dataframe(df).cache("GPU").toDF().collect()) == sorted(df.collect())


def test_not_cached_and_empty_partitions(spark: SparkSession, sc: SparkContext):
    sent = sc.parallelize([1.0, 2.0, 3.0], 8).send().htod().vmap(lambda x: 2 * x)
    assert sent.toDF("x double").selectExpr("sum(x)").collect() == [(12.0,)]
    empty = sc.parallelize([], 2).cache("GPU")
    assert empty.toDF("x double").count() == 0
    with pytest.raises(PlanError, match="give toDF a schema"):
        empty.toDF()


@pytest.mark.parametrize("read", [
    {}, {"ragged": True}, {"columns": "a"}, {"columns": "x"}, {"columns": "v", "ragged": True}, {"dtype": "float32"},
    {"columns": {"p": ["x", "id"], "b": "b"}, "dtype": {"p": "float32"}},
])
def test_columns_of_no_rows_are_those_of_some(spark: SparkSession, read):
    df = spark.range(3).selectExpr("int(id) as id", "id / 3 as x", "array(float(id)) as a", "id > 0 as b",
                                   "struct(id) as s")
    if read.get("columns") == "v":
        df = spark.createDataFrame([(Vectors.sparse(3, {1: 2.0}),)], ["v"])
    some, none = (from_dataframe(table, **read).cache("GPU") for table in (df, df.limit(0)))
    assert none.toDF().schema == some.toDF().schema
    assert none.toDF().count() == 0 and none.persist("GPU_AND_HOST").toDF(["first"]).columns[0] == "first"
    with pytest.raises(PlanError, match="give toDF a schema"):
        none.vmap(lambda *values: 1.0).toDF()


def test_columns_of_no_rows_of_files(spark: SparkSession, sc: SparkContext, tmp_path: Path):
    spark.range(9).selectExpr("id", "id / 3 as x").write.parquet(str(tmp_path / "rows"))
    for chosen in ([("id", ">", 99)], [("x", "==", 2.5)]):      # of which statistics tell, and not
        none = read_parquet(sc, tmp_path / "rows", filter=chosen).cache("GPU")
        assert none.toDF().dtypes == [("id", "bigint"), ("x", "double")] and none.toDF().collect() == []
        none.write_parquet(tmp_path / "none", overwrite=True)
        assert spark.read.parquet(str(tmp_path / "none")).dtypes == none.toDF().dtypes
    (tmp_path / "a.csv").write_text("k,b\n1,true\n")
    none = read_csv(sc, tmp_path / "a.csv", filter=[("k", ">", 1)]).cache("GPU")
    assert none.toDF().dtypes == [("k", "bigint"), ("b", "boolean")]


def test_a_schema_makes_no_job_and_what_is_lost_is_made_again(spark: SparkSession, sc: SparkContext):
    loads = sc.accumulator(0)

    def counted(x: float) -> float:
        loads.add(1)
        return x

    numbers = sc.parallelize(map(float, range(100)), 2).map(counted).cache("GPU")
    assert numbers.count() == 100 and loads.value == 100
    frame = numbers.vmap(lambda x: 2 * x).toDF("x double")
    assert frame.selectExpr("sum(x)").collect() == [(9900.0,)] and loads.value == 100
    numbers.unpersist()
    assert frame.selectExpr("sum(x)").collect() == [(9900.0,)] and loads.value == 200


@pytest.mark.parametrize(("schema", "words"), [
    ("x double, y double", "has 2 columns, x, y, and the records have 1"), ("x date", "is to be date"),
    ([1], "names of columns"), (["x", "y"], "2 names, x, y"),
])
def test_schemas_that_do_not_fit(spark: SparkSession, sc: SparkContext, schema, words):
    with pytest.raises(Exception, match=words):
        sc.parallelize([1.0, 2.0], 2).cache("GPU").toDF(schema).collect()


def test_records_that_are_no_rows(spark: SparkSession, sc: SparkContext):
    with pytest.raises(PlanError, match="records of two dimensions or more are no rows"):
        sc.parallelize([np.eye(2)]).cache("GPU").toDF()
    with pytest.raises(PlanError, match="which tables do not have"):
        sc.parallelize([1j]).cache("GPU").toDF()
    frame = sc.parallelize([1.0, 1000.0], 2).cache("GPU").toDF("x tinyint")
    with pytest.raises(Exception, match=r"'x' of double does not fit int8.*partition 1, operation toDF at .*out.py:\d+]"
                       ) as raised:
        frame.collect()
    assert "_message" not in str(raised.value)      # the frames of vispark
    with pytest.raises(TranslationError, match=r"(?s)outside an axis of length 3.*_out.py"):
        sc.parallelize([np.zeros(3)]).cache("GPU").vmap(lambda x: x[3]).toDF()


def test_arrays_of_several_lengths_and_sparse_vectors(spark: SparkSession, sc: SparkContext, tmp_path: Path):
    df = spark.createDataFrame([(float(n), [0.5 * n] * n, Vectors.sparse(9, {n: 1.5, 7: -1.0})) for n in range(6)],
                               ["y", "w", "s"]).repartition(2)
    held = from_dataframe(df, ragged=True).cache("GPU")
    scored = held.vmap(lambda y, w, s: {"sum": w.sum() + s.values.sum()})
    expected = {(row.y, tuple(row.w), row.s, 0.5 * row.y * row.y + 0.5) for row in df.collect()}
    out = scored.toDF()
    assert dict(out.dtypes) == {"sum": "double", "y": "double", "w": "array<double>", "s": "vector"}
    assert {(row.y, tuple(row.w), row.s, row.sum) for row in out.collect()} == expected
    assert sorted(row.w for row in scored.toDF("w array<float>").collect()) == [[0.5 * n] * n for n in range(6)]
    scored.write_parquet(tmp_path / "rows")
    written = spark.read.parquet(str(tmp_path / "rows"))
    assert {(row.y, tuple(row.w), row.s, row.sum) for row in written.collect()} == expected
    again = read_parquet(sc, tmp_path / "rows", ["w", "s"], ragged=True).cache("GPU")
    assert sorted(again.vmap(lambda w, s: len(w) + s.values.sum()).collect()) == [n + 0.5 for n in range(6)]
    with pytest.raises(Exception, match="the schema has a column 'z'"):
        scored.toDF("w array<double>, z double, s double, y double").collect()


def test_what_workers_hold_is_not_computed_by_spark(spark: SparkSession, sc: SparkContext):
    """Neither are the rows fed to a task that would skip them, nor do Python processes end."""
    computed = sc.accumulator(0)

    def counted(part: Iterator[int]) -> Iterator[float]:
        for x in part:
            computed.add(1)
            yield float(x)

    held = sc.parallelize(range(1000), 2).mapPartitions(counted).cache("GPU")
    assert held.count() == 1000 and computed.value == 1000
    frame = held.vmap(lambda x: {"x": x, "p": 0.0}).toDF("x double, p double")
    processes = {os.getpid() for _ in range(2)} | set(sc.parallelize(range(2), 2).map(lambda _: os.getpid()).collect())
    for _ in range(3):
        assert frame.selectExpr("sum(x)").first()[0] == 499_500.0
    assert computed.value == 1000
    assert set(sc.parallelize(range(2), 2).map(lambda _: os.getpid()).collect()) <= processes
    held.unpersist()
    assert frame.selectExpr("sum(x)", "count(*)").first() == (499_500.0, 1000) and computed.value == 2000
