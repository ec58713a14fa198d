"""Files of columns: equal to what Spark reads, or an error that names file and column."""

from __future__ import annotations

import gzip
import traceback
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import vispark
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context
from vispark import read_csv, read_orc, read_parquet
from vispark.errors import PlanError, RecordError, TaskError

pa = pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyarrow.orc")
pc = pytest.importorskip("pyarrow.compute")


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture
def points(tmp_path: Path) -> Path:
    """Write 1000 rows in row groups of 128."""
    path = tmp_path / "points.parquet"
    x = np.arange(1000)
    pq.write_table(pa.table({"x": x / 4, "k": x.astype("int32"), "b": x % 3 == 0}), path, row_group_size=128)
    return path


def test_as_spark_reads_them(spark: SparkSession, sc: SparkContext, tmp_path: Path):
    path = str(tmp_path / "frames")
    df = spark.range(300).selectExpr("id", "cast(id % 100 as tinyint) as t", "id % 2 = 0 as b", "float(id / 7) as f",
                                     "array(id, id + 1) as a", "named_struct('i', cast(id as int), 'd', id / 3) as s")
    df.repartition(3).write.option("parquet.block.size", 1024).parquet(path)
    rows = spark.read.parquet(path).collect()
    expected = [{"id": np.int64(row.id), "t": np.int8(row.t), "b": np.bool_(row.b), "f": np.float32(row.f),
                 "a": np.int64(row.a), "s.i": np.int32(row.s.i), "s.d": np.float64(row.s.d)} for row in rows]
    def by_id(record):
        return record["id"]
    assert exact(sorted(read_parquet(sc, path).collect(), key=by_id)) == exact(sorted(expected, key=by_id))
    assert exact(sorted(read_parquet(sc, path).cache("GPU").collect(), key=by_id)) == exact(sorted(expected, key=by_id))


@pytest.mark.parametrize("read", [read_parquet, read_orc])
def test_directories_are_columns(spark: SparkSession, sc: SparkContext, tmp_path: Path, read):
    path = str(tmp_path / "frames")
    df = spark.range(60).selectExpr("id", "id % 3 as day", "if(id % 2 = 0, 0.5, -1.5) as w")
    df.repartition(2).write.partitionBy("day", "w").format(read.__name__.removeprefix("read_")).save(path)

    def rows(**named):
        return sorted((r["id"], r["day"], r["w"]) for r in read(sc, path, ["id", "day", "w"], **named).collect())

    expected = [(n, n % 3, -1.5 if n % 2 else 0.5) for n in range(60)]
    assert rows() == expected
    assert rows(filter=[("day", "==", 1), ("id", ">", 9)]) == [row for row in expected if row[1] == 1 and row[0] > 9]
    assert sorted(read(sc, f"{path}/day=2", "id", minPartitions=4).collect()) == list(range(2, 60, 3))
    assert read(sc, path).cache("GPU").vmap(lambda day: day).sum() == 60


def test_rows_without_a_value_of_their_directory(spark: SparkSession, sc: SparkContext, tmp_path: Path):
    path = str(tmp_path / "frames")
    spark.range(4).selectExpr("id", "if(id = 1, null, id) as k").write.partitionBy("k").parquet(path)
    with pytest.raises(PlanError, match="without a value of 'k'; read the other directories"):
        read_parquet(sc, path)
    assert read_parquet(sc, f"{path}/k=[02]", ["id", "k"]).count() == 2


def test_a_thousand_files(sc: SparkContext, tmp_path: Path):
    for number in range(1000):
        place = tmp_path / f"day={number % 10}"
        place.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [float(number)]}), place / f"{number}.parquet")
    rows = read_parquet(sc, tmp_path, ["x", "day"], filter=[("day", "<", 5)])
    assert rows.getNumPartitions() <= 4 and rows.count() == 500


@pytest.mark.parametrize("parts", [None, 3, 8, 20])
@pytest.mark.parametrize("condition", [None, [("k", ">", 130), ("x", "<", 200.0)], "expression"])
def test_filters_and_partitions(sc: SparkContext, points: Path, parts, condition):
    if condition == "expression":
        condition = (pc.field("k") > 130) & (pc.field("x") < 200)
    rdd = read_parquet(sc, points, "x", filter=condition, minPartitions=parts)
    assert rdd.getNumPartitions() >= (parts or 1)
    wanted = np.arange(1000) / 4
    assert rdd.collect() == list(wanted if condition is None else wanted[131:800])


def test_one_huge_row_group_is_cut(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"x": np.arange(5000.0)}), path)
    rdd = read_parquet(sc, path, minPartitions=7)
    assert rdd.glom().map(len).collect() == [714, 714, 714, 715, 714, 714, 715]
    assert rdd.cache("GPU").collect() == list(np.arange(5000.0))


def test_blocks_are_one_record_for_a_partition(sc: SparkContext, points: Path):
    block, = read_parquet(sc, points, ["x", "k"], dtype="float32", blocks=True).collect()
    assert block.shape == (1000, 2) and block.dtype == np.float32
    fields, = read_parquet(sc, points, blocks=True).cache("GPU").collect()
    assert {name: len(array) for name, array in fields.items()} == {"x": 1000, "k": 1000, "b": 1000}


def test_nothing_to_read(sc: SparkContext, points: Path, tmp_path: Path):
    assert read_parquet(sc, points, filter=[("k", ">", 5000)]).cache("GPU").collect() == []
    assert read_parquet(sc, points, filter=[("b", "==", True), ("b", "==", False)]).cache("GPU").count() == 0
    pq.write_table(pa.table({"x": pa.array([], "float64")}), tmp_path / "none.parquet")
    assert read_parquet(sc, tmp_path / "none.parquet").count() == 0


def test_many_files_are_looked_up_by_a_job(sc: SparkContext, tmp_path: Path, monkeypatch):
    for number in range(70):
        pq.write_table(pa.table({"x": [float(number)]}), tmp_path / f"{number:02}.parquet")
    assert read_parquet(sc, tmp_path).sum() == 70 * 69 / 2
    pq.write_table(pa.table({"y": [1.0]}), tmp_path / "70.parquet")
    with pytest.raises(RecordError, match=r"70.parquet has no column 'x', which .*00.parquet has as double"):
        read_parquet(sc, tmp_path)
    (tmp_path / "71.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(PlanError, match=r"71.parquet cannot be read as Parquet"):
        read_parquet(sc, tmp_path)


def test_a_url(sc: SparkContext, points: Path):
    pytest.importorskip("fsspec")
    assert read_parquet(sc, f"file://{points}", "k").sum() == 999 * 500


def test_other_schemas_are_named(sc: SparkContext, points: Path):
    pq.write_table(pa.table({"x": pa.array([1], "int64"), "k": pa.array([1], "int32"), "b": [True]}),
                   points.parent / "z.parquet")
    with pytest.raises(RecordError, match=r"column 'x' is int64 in .*/z.parquet, and double in .*/points.parquet"):
        read_parquet(sc, points.parent)
    assert read_parquet(sc, points.parent, "k").count() == 1001


def test_files_that_change_or_go(sc: SparkContext, points: Path):
    rdd = read_parquet(sc, points).cache("GPU")
    whole = points.read_bytes()
    points.write_bytes(whole[:-500])
    with pytest.raises(PlanError, match=r"points.parquet cannot be read as Parquet"):
        rdd.count()
    points.write_bytes(whole[:100] + bytes(2000) + whole[2100:])
    with pytest.raises(PlanError, match=r"points.parquet cannot be read as Parquet"):
        rdd.count()
    pq.write_table(pa.table({"x": ["a"], "k": [1], "b": [True]}), points)
    with pytest.raises(RecordError, match=r"column 'x' is string in .*points.parquet, and double"):
        rdd.count()
    points.unlink()
    with pytest.raises(PlanError, match=r"points.parquet is not there, or not any more"):
        rdd.count()
    points.write_bytes(whole)
    assert rdd.count() == 1000
    with pytest.raises(PlanError, match="there is no Parquet file"):
        read_parquet(sc, points.parent / "nothing")


def test_a_null_and_a_ragged_array_are_named_by_file_and_row(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "holes.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0, None, 4.0], "a": [[1], [2], [3], [4, 5]]}), path, row_group_size=2)
    with pytest.raises(RecordError, match=r"column 'x' is null in row 0 of row group 1 of .*holes.parquet"):
        read_parquet(sc, path, "x").cache("GPU").count()
    with pytest.raises(RecordError, match=r"column 'a' has 2 numbers in row 1 of row group 1 of .*, and 1 in"):
        read_parquet(sc, path, "a").cache("GPU").count()
    assert read_parquet(sc, path, "x", nulls=0).cache("GPU").sum() == 7


def test_conditions_keep_no_row_of_which_they_are_null(sc: SparkContext, spark: SparkSession, tmp_path: Path):
    table = pa.table({"id": [1, 2, 3, 4], "i": pa.array([1, None, 5, 2]), "s": pa.array(["a", "b", None, "c"])})
    pq.write_table(table, tmp_path / "rows.parquet")
    pa.orc.write_table(table, str(tmp_path / "rows.orc"))
    (tmp_path / "rows.csv").write_text("id,i,s\n1,1,a\n2,,b\n3,5,\n4,2,c\n")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    for condition, sql in (([("i", "not in", [1, 2])], "i not in (1, 2)"), ([("i", "in", [1, None])], "i in (1, null)"),
                           ([("i", "not in", [1, None])], "i not in (1, null)"), ([("i", "!=", 1)], "i != 1"),
                           ([[("i", "not in", [5])], [("id", "==", 2)]], "i not in (5) or id = 2")):
        wanted = [row.id for row in frame.filter(sql).select("id").collect()]
        for read, name in ((read_parquet, "rows.parquet"), (read_orc, "rows.orc"), (read_csv, "rows.csv")):
            assert read(sc, tmp_path / name, "id", filter=condition).collect() == wanted, (condition, name)
    assert read_parquet(sc, tmp_path / "rows.parquet", "id", filter=[("s", "not in", ["a"])]).collect() == [2, 4]


def test_columns_of_another_case_in_a_later_file(sc: SparkContext, spark: SparkSession, tmp_path: Path):
    tables = (pa.table({"id": [1, 2], "x": [0.5, 1.5], "s": [{"a": 1, "b": 2}] * 2}),
              pa.table({"X": [2.5, 3.5], "ID": [3, 4], "s": [{"B": 3, "A": 4}] * 2}))
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
        pa.orc.write_table(table, str(tmp_path / f"{number}.orc"))
    (tmp_path / "0.csv").write_text("id,x\n1,0.5\n2,1.5\n")
    (tmp_path / "1.csv").write_text("ID,X\n3,2.5\n4,3.5\n")
    for read, kind in ((read_parquet, "parquet"), (read_orc, "orc"), (read_csv, "csv")):
        path = str(tmp_path / f"*.{kind}")
        names = ["id", "x"] + ["s.a", "s.b"] * (kind != "csv")
        schema = "id long, x double" + ", s struct<a: long, b: long>" * (kind != "csv")
        frame = spark.read.schema(schema).option("header", True).format(kind).load(path).select(*names)
        for condition in (None, [("Id", ">", 1)]):
            rows = frame if condition is None else frame.filter("Id > 1")
            records = read(sc, path, filter=condition).cache("GPU").collect()
            assert sorted(map(tuple, rows.collect())) == sorted(tuple([row[name] for name in names]) for row in records)
        spark.conf.set("spark.sql.caseSensitive", "true")
        try:
            with pytest.raises(RecordError, match=rf"1.{kind} has no column 'id'|column 0 of .*1.csv is 'ID'"):
                read(sc, path)
        finally:
            spark.conf.unset("spark.sql.caseSensitive")


def test_filters_that_do_not_fit_are_told_before_anything_is_read(sc: SparkContext, tmp_path: Path):
    table = pa.table({"x": [1.0, 2.0], "name": ["a", "b"], "day": pa.array([1, 2], pa.date32())})
    pq.write_table(table, tmp_path / "rows.parquet")
    pa.orc.write_table(table, str(tmp_path / "rows.orc"))
    (tmp_path / "rows.csv").write_text("x,name,day\n1,a,1\n2.5,b,2\n")
    for read, name in ((read_parquet, "rows.parquet"), (read_orc, "rows.orc"), (read_csv, "rows.csv")):
        path = tmp_path / name
        with pytest.raises(PlanError, match=rf"not fit .*{name}: No match for FieldRef.Name\(z\).* columns are x "):
            read(sc, path, "x", filter=[("z", ">", 1)])
        with pytest.raises(PlanError, match=rf"does not fit .*{name}: .*; the columns are x double, name string"):
            read(sc, path, "x", filter=pc.field("x") > "a")
        assert read(sc, path, "x", filter=[("name", "==", "b")]).count() == 1
    assert read_parquet(sc, tmp_path / "rows.parquet", "x",
                        filter=pc.field("day") > pa.scalar(1, pa.date32())).collect() == [2.0]
    (tmp_path / "more").mkdir()
    table = table.append_column("t", pa.array([1, 2], pa.timestamp("us", "UTC")))
    for number, version in enumerate((table, table.drop_columns("day"))):
        pq.write_table(version, tmp_path / "more" / f"{number}.parquet")
        pa.orc.write_table(version, str(tmp_path / "more" / f"{number}.orc"))
    for read, kind in ((read_parquet, "parquet"), (read_orc, "orc")):
        with pytest.raises(PlanError, match=rf"does not fit .*0.{kind}: .*timestamp.*; the columns are"):
            read(sc, tmp_path / "more" / f"0.{kind}", "x", filter=[("t", ">", datetime(2020, 1, 3))])
        with pytest.raises(PlanError, match=rf"not fit .*1.{kind}: No match for FieldRef.Name\(day\).*are x double"):
            read(sc, tmp_path / "more" / f"*.{kind}", "x", filter=pc.field("day") > pa.scalar(1, pa.date32()))


def test_errors_of_plain_actions_are_ours_and_fit_a_screen(sc: SparkContext, spark: SparkSession, tmp_path: Path):
    # Errors of readers' RDDs, and of what Spark makes of those, are the user's line, and the error alone.
    path, text = str(tmp_path / "hole.parquet"), tmp_path / "rows.txt"
    pq.write_table(pa.table({"x": pa.array([1.0, None]), "k": [1, 2]}), path)
    text.write_text("1 2\n3 x\n")
    points = read_parquet(sc, path)
    both = points.map(lambda point: (point["k"], point["x"]))
    for action, words in ((points.collect, "column 'x' is null in row 1 of row group 0"),
                          (both.values().sum, "column 'x' is null in row 1"),
                          (both.reduceByKey(max).collect, "column 'x' is null in row 1"),
                          (vispark.from_dataframe(spark.read.parquet(path)).count, "column 'x' is null in row 1"),
                          (vispark.read_text(sc, text).collect, "rows.txt, line 2: column 1: 'x' is no float32")):
        with pytest.raises(RecordError, match=words) as raised:
            action()
        assert len("".join(traceback.format_exception(raised.value)).splitlines()) < 12, words
    with pytest.raises(TaskError, match="ZeroDivisionError"):
        read_parquet(sc, path, "k").map(lambda k: 1 // int(k - 1)).collect()
    points = read_parquet(sc, path, nulls=0)
    assert points.map(lambda point: point["x"]).sum() == points.cache("GPU").vmap(lambda x, k: x).sum() == 1.0


def test_a_null_is_named_behind_what_was_sent(sc: SparkContext, tmp_path: Path):
    x = np.arange(2_200_000.0)      # in pieces
    whole, hole = tmp_path / "whole", tmp_path / "hole"
    pq.write_table(pa.table({"x": x, "k": np.int32(x)}), whole, row_group_size=500_000)
    pq.write_table(pa.table({"x": pa.array(x, mask=x == 2_100_000), "k": np.int32(x)}), hole, row_group_size=500_000)
    with pytest.raises(RecordError, match=r"'x' is null in row 100000 of row group 4 of .*hole.*partition 0"):
        read_parquet(sc, hole, minPartitions=1).cache("GPU").count()
    held = read_parquet(sc, whole, minPartitions=1).cache("GPU")
    assert held.vmap(lambda x, k: x - k).sum() == 0
    assert held.vmap(lambda x, k: x).sum() == x.sum()
    assert read_parquet(sc, hole, minPartitions=1, nulls=-1).cache("GPU").vmap(lambda x, k: x - k).sum() == -2_100_001


@pytest.mark.parametrize("read", [read_parquet, read_orc])
def test_lists_of_several_lengths(sc: SparkContext, tmp_path: Path, read):
    path, lists = tmp_path / "lists", [[float(k) for k in range(n % 5)] for n in range(40)]
    table = pa.table({"y": np.arange(40.0), "w": lists})
    pq.write_table(table, path, row_group_size=16) if read is read_parquet else \
        pytest.importorskip("pyarrow.orc").write_table(table, str(path))
    for rows in (read(sc, path, ragged=True), read(sc, path, ragged=True, minPartitions=5).cache("GPU")):
        assert [row["w"].tolist() for row in rows.collect()] == lists
    chosen = read(sc, path, "w", filter=[("y", ">", 30)], ragged=True).cache("GPU")
    assert chosen.vmap(lambda w: w.sum()).sum() == sum(map(sum, lists[31:]))
    with pytest.raises(PlanError, match="ragged=True and blocks=True"):
        read(sc, path, ragged=True, blocks=True)
    with pytest.raises(PlanError, match="'w' is to lie side by side"):
        read(sc, path, dtype="float32", ragged=True)


def test_columns_without_numbers(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"x": [1.0], "s": ["a"], "d": pa.array([1], pa.timestamp("us"))}), path)
    with pytest.raises(RecordError, match=r"'s' is string.*'d' is timestamp\[us\].*columns=\['x'\]"):
        read_parquet(sc, path)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"filter": "x > 0"}, "it is an expression such as"), ({"minPartitions": 0}, "1 or more"),
    ({"filter": [("nowhere", ">", 0)]}, "nowhere"), ({"columns": "nowhere"}, "no column 'nowhere'"),
])
def test_arguments_that_do_not_fit(sc: SparkContext, points: Path, arguments, words):
    with pytest.raises(PlanError, match=words):
        read_parquet(sc, points, **arguments)


# -- ORC and CSV ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("codec", ["zstd", "lzo"])
def test_orc_as_spark_reads_it(spark: SparkSession, sc: SparkContext, tmp_path: Path, codec: str):
    path = str(tmp_path / "frames")
    df = spark.range(3000).selectExpr("id", "id % 2 = 0 as b", "float(id / 7) as f", "array(id, id + 1) as a",
                                      "named_struct('i', int(id), 'd', id / 3) as s")
    df.repartition(2).write.option("compression", codec).orc(path)
    assert sorted(read_orc(sc, path, "id").cache("GPU").collect()) == list(range(3000))
    for parts in (None, 7):
        rdd = read_orc(sc, path, ["id", "s.i", "a"], filter=[("f", ">", 100), ("b", "==", True)],
                       minPartitions=parts)
        expected = {row.id: row for row in spark.read.orc(path).filter("f > 100 and b").collect()}
        records = rdd.cache("GPU").collect()
        assert len(records) == len(expected)
        for record in records:
            row = expected[int(record["id"])]
            assert exact(record) == exact({"id": np.int64(row.id), "s.i": np.int32(row.s.i), "a": np.int64(row.a)})
    assert rdd.getNumPartitions() >= 7


def test_orc_that_is_cut(sc: SparkContext, tmp_path: Path):
    orc = pytest.importorskip("pyarrow.orc")
    path = tmp_path / "points.orc"
    orc.write_table(pa.table({"x": np.arange(1000.0)}), path)
    rdd = read_orc(sc, path).cache("GPU")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(PlanError, match=r"points.orc cannot be read as ORC"):
        rdd.count()


@pytest.mark.parametrize("name", ["points.csv", "points.csv.gz"])
@pytest.mark.parametrize("parts", [1, 5])
def test_csv_as_spark_reads_it(spark: SparkSession, sc: SparkContext, tmp_path: Path, parts, name):
    text = "k,x,b,note\n" + "".join(f'{i},{i / 8},{str(i % 3 == 0).lower()},"n, {i}"\n' for i in range(1000))
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    read = spark.read.csv(str(tmp_path / name), header=True, inferSchema=True).filter("x > 50").drop("note")
    expected = [{"k": np.int64(row.k), "x": np.float64(row.x), "b": np.bool_(row.b)} for row in read.collect()]
    rdd = read_csv(sc, tmp_path / name, ["k", "x", "b"], filter=pc.field("x") > 50, minPartitions=parts)
    assert exact(rdd.cache("GPU").collect()) == exact(expected)


def test_csv_nulls_types_and_no_header(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "points.csv"
    path.write_text("1;2.5\n;NaN\n3;inf\n")
    records = read_csv(sc, path, header=False, delimiter=";", nulls=-1, minPartitions=1).cache("GPU").collect()
    assert exact([row["c0"] for row in records]) == exact(list(np.int64([1, -1, 3])))
    assert exact([row["c1"] for row in records]) == exact(list(np.float64([2.5, float("nan"), float("inf")])))
    rows = read_csv(sc, path, header=False, delimiter=";", dtype="float32", nulls=0).collect()
    assert exact(rows[0]) == exact(np.float32([1, 2.5]))
    with pytest.raises(RecordError, match=r"column 'c0' is null in row 1 of the lines from byte 0 on of .*points.csv"):
        read_csv(sc, path, "c0", header=False, delimiter=";", minPartitions=1).cache("GPU").count()


def test_csv_lines_and_files_at_fault_are_named(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("k,x\n" + "1,2\n" * 300000 + "1.5,2\n")
    with pytest.raises(RecordError, match=r"a.csv, line 300002: '1.5,2' is not read as k int64.*dtype"):
        read_csv(sc, path).cache("GPU").count()
    assert read_csv(sc, path, dtype="float32").cache("GPU").count() == 300001
    (tmp_path / "b.csv").write_text("k,y\n1,2\n")
    with pytest.raises(RecordError, match=r"column 1 of .*b.csv is 'y', and 'x' in .*a.csv"):
        read_csv(sc, tmp_path)
    (tmp_path / "c.csv").write_text("x,x,s\n1,2,a\n")
    with pytest.raises(PlanError, match="2 columns called 'x'"):
        read_csv(sc, tmp_path / "c.csv", "x")
    with pytest.raises(RecordError, match="'s' is string"):
        read_csv(sc, tmp_path / "c.csv", "s")
    (tmp_path / "d.csv").write_text("k,s\n1,a\n2.5,b\noops,c\n")
    with pytest.raises(RecordError, match=r"d.csv, line 4: 'oops,c' is not read as k float32"):
        read_csv(sc, tmp_path / "d.csv", "k", dtype="float32")


def test_csv_of_integers_beyond_int64(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text(f"id,x\n1,2\n{2**63},3\n")
    with pytest.raises(RecordError, match=rf"'id' of .*a.csv has integers beyond int64: {2**63} in line 3"):
        read_csv(sc, path)
    with pytest.raises(RecordError, match=r"'id' of .*a.csv, which filter= names, has integers beyond int64"):
        read_csv(sc, path, "x", filter=[("id", ">", 1)])
    for condition in (None, [("x", ">", 1)]):
        assert exact(read_csv(sc, path, "x", filter=condition).collect()) == exact(list(np.int64([2, 3])))
    records = read_csv(sc, path, dtype={"id": "uint64"}, filter=[("id", ">", 1)]).cache("GPU").collect()
    assert exact(records) == exact([{"id": np.uint64(2**63), "x": np.int64(3)}])
    with pytest.raises(RecordError, match=rf"a.csv, line 3: '{2**63},3' is not read as id int64"):
        read_csv(sc, path, "id", dtype="int64").count()


def test_csv_of_a_compressed_file_is_sent_field_by_field(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "points.csv.gz"
    lines = [f"{number},{number / 4},{number % 3}" for number in range(200_000)]
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("\n".join(["k,x,y", *lines, ""]))
    read = read_csv(sc, path, {"k": "k", "p": ["y", "x"]}, filter=[("y", "!=", 1)], dtype={"p": "float32"})
    cached = read.cache("GPU")
    kept = np.flatnonzero(np.arange(200_000) % 3 != 1)
    assert cached.count() == len(kept) == read.count()
    assert exact(cached.vmap(lambda k: k).collect()[::1000]) == exact(list(kept[::1000]))
    assert exact(cached.take(3)[2]) == exact({"k": np.int64(3), "p": np.float32([0, 0.75])})
    assert read_csv(sc, path, "x", filter=[("y", ">", 5)]).cache("GPU").collect() == []
    with gzip.open(path, "wt") as file:
        file.write("k,x\n" + "1,2\n" * 300_000 + "1,2,3\n")
    with pytest.raises(RecordError, match=r"points.csv.gz, line 300002: '1,2,3' is not read as k int64"):
        read_csv(sc, path).cache("GPU").count()


# -- writing ----------------------------------------------------------------------------------------------------------

RECORDS = {"numbers": [1.0, 2.0, 3.0], "rows": list(np.arange(12, dtype="float32").reshape(4, 3)),
           "fields": [{"k": np.int32(i), "b": np.bool_(i > 1), "x": np.arange(2.0) + i} for i in range(5)],
           "unsigned": [np.uint8(200), np.uint8(1)]}


@pytest.mark.parametrize("url", [False, True])
@pytest.mark.parametrize("kind", RECORDS)
def test_what_is_written_is_read_again(spark: SparkSession, sc: SparkContext, tmp_path: Path, kind, url):
    path = tmp_path / "new"
    name = f"file://{path}" if url else str(path)
    records = [np.float64(record) if kind == "numbers" else record for record in RECORDS[kind]]
    sc.parallelize(RECORDS[kind], 3).cache("GPU").write_parquet(name)
    assert exact(read_parquet(sc, name).collect()) == exact(records)
    assert spark.read.parquet(str(path)).count() == len(records)
    names = sorted(file.name for file in path.iterdir())
    assert names[0] == "_SUCCESS" and all(file.startswith("part-0000") for file in names[1:])
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_a_table_without_rows_is_written_by_its_schema(spark: SparkSession, sc: SparkContext, tmp_path: Path):
    kinds = "k int, x array<double>"
    numbers = sc.parallelize([1, 2], 2).cache("GPU")
    for chosen, rows in ((numbers.filter(lambda k: k > 5), []), (numbers, [(1, [0.5, 1.0]), (2, [1.0, 2.0])])):
        table = chosen.vmap(lambda k: {"x": np.array([k / 2, 1.0 * k]), "k": k})
        table.write_parquet(tmp_path / f"{len(rows)}", schema=kinds)
        read = spark.read.parquet(str(tmp_path / f"{len(rows)}"))
        assert read.schema.simpleString() == "struct<k:int,x:array<double>>"
        assert sorted(map(tuple, read.collect())) == rows
    with pytest.raises(PlanError, match=r'give write_parquet a schema, such as schema="x double"'):
        numbers.filter(lambda k: k > 5).vmap(lambda k: k).write_parquet(tmp_path / "none")
    with pytest.raises(PlanError, match="a table has columns with names"):
        numbers.write_parquet(tmp_path / "none", schema="double")
    with pytest.raises(RecordError, match="does not fit int8"):
        numbers.vmap(lambda k: {"k": 300 * k}).write_parquet(tmp_path / "none", schema="k tinyint")


def test_a_directory_is_replaced_only_if_asked(sc: SparkContext, tmp_path: Path):
    path = tmp_path / "new"
    numbers = sc.parallelize([1.0, 2.0, 3.0], 3).cache("GPU")
    numbers.write_parquet(path)
    with pytest.raises(PlanError, match="is there already; give another path, or overwrite=True"):
        numbers.write_parquet(path)
    numbers.filter(lambda x: x > 2).cache("GPU").write_parquet(path, "zstd", overwrite=True)
    assert read_parquet(sc, path).collect() == [3.0]
    assert sorted(file.name for file in path.iterdir()) == ["_SUCCESS", "part-00002.parquet"]
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(("records", "words"), [
    ([], "no records"), ([np.eye(2)], "two dimensions"), ([1j], "which tables do not have"),
    ([1.0, np.arange(2.0)], "the files of a table are alike"),
])
def test_what_cannot_be_written_leaves_nothing(sc: SparkContext, tmp_path: Path, records, words):
    with pytest.raises(PlanError, match=words):
        sc.parallelize(records, 2).cache("GPU").write_parquet(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_compression_that_is_none(sc: SparkContext, tmp_path: Path):
    with pytest.raises(PlanError, match="there are snappy, zstd"):
        sc.parallelize([1.0]).cache("GPU").write_parquet(tmp_path / "new", "lzma")
    with pytest.raises(PlanError, match="new cannot be made"):
        sc.parallelize([1.0]).cache("GPU").write_parquet("/proc/nowhere/new")
