"""DataFrames in: equal to what Spark collects, or an error that names the column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

from tests import doctests
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context
from vispark import from_dataframe
from vispark.errors import PlanError, RecordError

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


NAN = float("nan")

#: Type, values, dtype of a record's array.
COLUMNS = [("boolean", [True, False, True], "bool"), ("tinyint", [1, -2, 3], "int8"),
           ("smallint", [1, -2, 300], "int16"), ("int", [1, -2, 2**31 - 1], "int32"),
           ("bigint", [1, -2**63, 2**63 - 1], "int64"), ("float", [1.5, NAN, -0.0], "float32"),
           ("double", [1e300, float("inf"), 0.1], "float64"), ("array<int>", [[1, 2], [3, 4], [5, 6]], "int32"),
           ("array<boolean>", [[True], [False], [True]], "bool"),
           ("array<double>", [[1.5, NAN], [0.1, 0.2], [3.0, 4.0]], "float64")]


@pytest.mark.parametrize(("kind", "values", "dtype"), COLUMNS, ids=[kind for kind, _, _ in COLUMNS])
def test_a_column_keeps_its_dtype(spark: SparkSession, kind, values, dtype):
    df = spark.createDataFrame([(value,) for value in values], f"v {kind}").repartition(3)
    expected = [np.array(row.v, dtype)[()] for row in df.collect()]
    rdd = from_dataframe(df)
    assert exact(rdd.collect()) == exact(expected)
    assert exact(rdd.cache("GPU").collect()) == exact(expected)


def test_fields_structs_and_columns_side_by_side(spark: SparkSession):
    df = spark.createDataFrame([(1, 2.5, (3, [4.0, 5.0])), (6, 7.5, (8, [9.0, 10.0]))],
                               "k int, x double, s struct<i:int, a:array<float>>")
    record = from_dataframe(df).cache("GPU").first()
    assert exact(record) == exact({"k": np.int32(1), "x": np.float64(2.5), "s.i": np.int32(3),
                                   "s.a": np.float32([4, 5])})
    rows = from_dataframe(df, ["s.a", "k"], "float32").cache("GPU").collect()
    assert exact(rows) == exact([np.float32([4, 5, 1]), np.float32([9, 10, 6])])
    named = from_dataframe(df, {"y": "k", "x": ["x", "s"]}, {"y": "int8"}).cache("GPU").first()
    assert exact(named) == exact({"y": np.int8(1), "x": np.float64([2.5, 3, 4, 5])})
    assert exact(from_dataframe(df, "k").first()) == exact(np.int32(1))


def test_vectors_dense_sparse_and_null(spark: SparkSession):
    rows = [(Vectors.dense([1.0, 2.0, 3.0]),), (Vectors.sparse(3, {1: 5.0}),), (None,), (Vectors.sparse(3, {}),)]
    df = spark.createDataFrame(rows * 3, ["v"]).repartition(1)
    records = from_dataframe(df, nulls=-1).cache("GPU").collect()
    assert exact(records) == exact([np.full(3, -1.0) if row.v is None else row.v.toArray() for row in df.collect()])


def test_partitions_without_rows_and_no_rows_at_all(spark: SparkSession):
    df = spark.range(10).repartition(2).filter("id % 5 = 0").union(spark.range(0))
    assert sorted(from_dataframe(df).cache("GPU").collect()) == [0, 5]
    empty = from_dataframe(spark.createDataFrame([], "x double")).cache("GPU")
    assert empty.collect() == [] and empty.count() == 0


def test_a_null_is_an_error_that_names_it_or_a_number(spark: SparkSession):
    df = spark.createDataFrame([(1.0, [1, 2], 1), (None, [3, None], None), (2.0, None, 2)],
                               "x double, a array<int>, k int").coalesce(1)
    for name, row, what in (("x", 1, "null"), ("a", 2, "null"), ("a", 1, "an array with a null"), ("k", 1, "null")):
        with pytest.raises(RecordError,
                           match=f"column '{name}' is {what} in row {row} .*nulls=.*partition 0") as refused:
            from_dataframe(df.limit(row + 1), name).cache("GPU").count()
        assert len(str(refused.value)) < 400
    records = from_dataframe(df, nulls=NAN, dtype={"a": "float32", "k": "float64"}).cache("GPU").collect()
    assert exact([row["a"] for row in records]) == exact([np.float32(a) for a in ([1, 2], [3, NAN], [NAN, NAN])])
    assert exact([row["x"] for row in records]) == exact([np.float64(x) for x in (1, NAN, 2)])
    assert exact([row["k"] for row in records]) == exact([np.float64(k) for k in (1, NAN, 2)])
    with pytest.raises(RecordError, match="nulls=nan does not fit int32; give a number"):
        from_dataframe(df, "k", nulls=NAN).cache("GPU").count()
    assert from_dataframe(df, "k", nulls=0).cache("GPU").sum() == 3


def test_arrays_of_several_lengths_are_an_error(spark: SparkSession):
    df = spark.createDataFrame([([1, 2],), ([3],), ([],)], "a array<int>").coalesce(1)
    with pytest.raises(RecordError, match=r"column 'a' has 1 numbers in row 1 of the partition, and 2 in the rows"):
        from_dataframe(df).cache("GPU").count()
    with pytest.raises(RecordError, match="empty array"):
        from_dataframe(df.filter("size(a) = 0")).cache("GPU").count()


def test_rows_of_several_lengths_and_sparse_vectors(spark: SparkSession):
    rows = [(float(i), [float(k) for k in range(i % 4)], Vectors.dense([1.0, 2.0, 0.0]) if i % 3 == 0 else
             Vectors.sparse(1_000_000_000, {i: 2.0, 700 + i: -1.0})) for i in range(12)]
    frame = spark.createDataFrame(rows, ["y", "a", "v"]).repartition(2)
    rdd = from_dataframe(frame, columns={"y": "y", "a": "a", "v": "v"}, ragged=True)
    points = rdd.cache("GPU")
    cached = {record["y"]: record for record in points.collect()}
    plain = {record["y"]: record for record in rdd.collect()}
    for y, a, v in rows:
        for record in (cached[y], plain[y]):
            assert record["a"].tolist() == a
            assert dict(zip(record["v"].indices.tolist(), record["v"].values.tolist(), strict=True)) == \
                (dict(enumerate(v.values)) if y % 3 == 0 else dict(zip(v.indices, v.values, strict=True)))
            assert record["v"].size == v.size
    assert points.vmap(lambda y, a, v: y * a.sum()).sum() == sum(y * sum(a) for y, a, _ in rows)
    single = from_dataframe(frame, "v", ragged=True).cache("GPU")
    assert single.vmap(lambda v: v.values.sum()).sum() == 4 * 3 + 8 * 1
    alike = from_dataframe(frame.where("size(a) = 2"), "a", dtype="float32", ragged=True).cache("GPU")
    assert [record.tolist() for record in alike.collect()] == [[0, 1]] * 3


def test_what_ragged_columns_do_not_do_is_said(spark: SparkSession):
    frame = spark.createDataFrame([(1.0, [1.0, None]), (2.0, None)], "y double, a array<double>")
    with pytest.raises(PlanError, match=r"'a' is to lie side by side with others"):
        from_dataframe(frame, dtype="float32", ragged=True)
    with pytest.raises(RecordError, match=r"column 'a' is null in row 1 of the partition.*leave such rows out"):
        from_dataframe(frame.coalesce(1), "a", ragged=True, nulls=0).cache("GPU").count()
    with pytest.raises(RecordError, match="column 'a' is an array with a null in row 0"):
        from_dataframe(frame.coalesce(1).where("y < 2"), "a", ragged=True).cache("GPU").count()
    filled = from_dataframe(frame.where("y < 2"), "a", ragged=True, nulls=7).cache("GPU")
    assert [record.tolist() for record in filled.collect()] == [[1.0, 7.0]]
    vectors = spark.createDataFrame([(Vectors.dense([1.0]),)], ["v"])
    with pytest.raises(PlanError, match="'v' of vectors is to be float32; sparse vectors are of float64"):
        from_dataframe(vectors, columns={"v": "v"}, dtype="float32", ragged=True)


def test_columns_that_hold_no_numbers_are_named_with_what_to_select(spark: SparkSession):
    df = spark.sql("select 1.5BD as d, 'a' as s, 1 as i, date'2020-01-01' as t, map(1, 2) as m, array(array(1)) as aa")
    with pytest.raises(RecordError) as refused:
        from_dataframe(df)
    for words in ('col("d").cast("double")', "'s' is string", 'unix_date("t")', 'col("m")["key"]', "array<array<int>>",
                  "columns=['i']"):
        assert words in str(refused.value)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"columns": "y"}, "no column 'y'; there are 'x', 'a'"), ({"columns": []}, "names no column"),
    ({"columns": ["x", "x"]}, "names 'x' twice"), ({"columns": [1]}, "names of columns, and not 1"),
    ({"dtype": "int32"}, "column 'x' is double, which int32 cannot hold"), ({"dtype": "S3"}, "at most 64 bits"),
    ({"nulls": "drop"}, 'it is "error", or the number'), ({"columns": {}}, "at least one"),
    ({"dtype": {"z": "int8"}}, "the field 'z'; the fields are 'x', 'a'"),
])
def test_arguments_that_do_not_fit(spark: SparkSession, arguments, words):
    df = spark.createDataFrame([(1.0, [1])], "x double, a array<int>")
    with pytest.raises(PlanError, match=words):
        from_dataframe(df, **arguments)


def test_a_name_that_is_there_twice(spark: SparkSession):
    df = spark.range(3).selectExpr("id", "id + 1 as x", "id + 2 as x", "id + 3 as X")
    with pytest.raises(PlanError, match="2 columns called 'x'"):
        from_dataframe(df)
    assert from_dataframe(df, ["id", "X"], "float32").sum().tolist() == [3.0, 12.0]


def test_an_integer_that_does_not_fit(spark: SparkSession):
    df = spark.createDataFrame([(1,), (300,)], "x int").coalesce(1)
    with pytest.raises(RecordError, match=r"column 'x' has 300 in row 1 .* int8 cannot hold"):
        from_dataframe(df, dtype="int8").cache("GPU").count()


def test_what_is_no_dataframe(spark: SparkSession):
    with pytest.raises(PlanError, match=r"takes a pyspark.sql.DataFrame, and not a list"):
        from_dataframe([1])
    with pytest.raises(PlanError, match="streaming"):
        from_dataframe(spark.readStream.format("rate").load())


@pytest.mark.parametrize("page", ["dataframes", "parquet"])
def test_the_guides_programs(sc: SparkContext, page: str):
    """Run the programs on each Spark that runs these tests."""
    test, = [test for test in doctests.of_pages() if test.name == f"docs/guide/{page}.md"]
    doctests.run(test, sc=sc)
