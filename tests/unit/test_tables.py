"""Tables without Spark: what is imported when, and what is said where Arrow is missing."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql.types import FloatType, StructField, StructType

from vispark.data.records import pack
from vispark.data.records.ragged import FlatRows
from vispark.data.records.rows import Rows
from vispark.data.records.streamed_rows import StreamedRows
from vispark.data.records.text.splits import TextSplit
from vispark.data.tables.arrow import pa
from vispark.data.tables.csv import CsvTask
from vispark.data.tables.csv_schema import check_integers, schema_of
from vispark.data.tables.files import (
    READINGS,
    REMOTE_READINGS,
    FilePart,
    FileSlice,
    ReadTask,
    check_schema,
    columns_of,
    expression,
    partitions,
    respelled,
)
from vispark.data.tables.orc import OrcFormat
from vispark.data.tables.orc_stripes import stripes
from vispark.data.tables.output import VALUE, OutputColumn, fitted
from vispark.data.tables.parquet import ParquetFormat
from vispark.data.tables.selection import select
from vispark.data.tables.types import VECTOR, ColumnType
from vispark.errors import PlanError, RecordError


def _said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True,
                          timeout=60).stdout


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["import vispark", "import vispark.api.vrdd"])
def test_arrow_is_imported_by_tables_alone(statement: str):
    assert _said(f"import sys\n{statement}\nprint('pyarrow' in sys.modules)") == "False\n"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["from_dataframe(None)", "read_parquet(None, 'x')", "read_orc(None, 'x')",
                                  "read_csv(None, 'x')"])
def test_a_missing_arrow_is_told_with_the_command(call: str):
    output = _said("import sys\nsys.modules['pyarrow'] = None\nimport vispark\n"
                   f"try:\n    vispark.{call}\nexcept vispark.PlanError as error:\n    print(error)")
    assert f"{call.partition('(')[0]} needs pyarrow: pip install '.[dataframe]'" in output


def _parts(*sizes: int) -> list[FileSlice]:
    return [FileSlice("f", FilePart(number, 100, nbytes << 20)) for number, nbytes in enumerate(sizes)]


@pytest.mark.parametrize(("sizes", "least", "expected"), [
    ((1, 1, 1), None, [[0, 1, 2]]),                 # small ones go together
    ((50, 50, 50, 50), None, [[0], [1], [2], [3]]),     # never more than 64 MiB
    ((30, 30, 30), None, [[0], [1], [2]]),          # for four cores
    ((1, 200), None, [[0], [1], [1], [1], [1]]),    # a huge one is cut
    ((8, 8), 4, [[0], [0], [1], [1]]),              # as many as are asked for
    ((1, 1, 30), 3, [[0], [1], [2]]),
    ((11, 10, 10, 10, 10, 10, 10, 11), None, [[0, 1], [2, 3], [4, 5], [6, 7]]),     # nearly as much for each core
    ((), None, []),
])
def test_parts_are_packed_in_order(sizes, least, expected):
    packed = partitions(_parts(*sizes), 64 << 20, 4, least)
    assert [[each.part.number for each in share] for share in packed] == expected


def test_slices_of_a_part_have_each_row_once():
    for count in range(1, 9):
        slices = [FileSlice("f", FilePart(0, 7, 1), index, count) for index in range(count)]
        rows = [row for each in slices for row in range(*each.rows(7))]
        assert rows == list(range(7))


# -- arrays that are made while they are written ----------------------------------------------------------------------

class WrittenMemory:
    """Memory that arrays are put to, each behind the one before."""

    def __init__(self) -> None:
        self.arrays: dict[int, np.ndarray] = {}

    def put(self, offset: int, array: np.ndarray) -> None:
        if self.arrays:
            last = max(self.arrays)
            assert offset >= last + self.arrays[last].nbytes
        self.arrays[offset] = array.copy()


def test_fields_of_a_file_are_read_while_they_are_written(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, x = str(tmp_path / "points.parquet"), np.arange(30_000.0)
    pq.write_table(pa.table({"x": x, "y": -x, "k": np.int32(x)}), path, row_group_size=9000)
    form = ParquetFormat()
    selection = select(form.footer(path, None, None).schema, {"k": "k", "p": ["y", "x"]}, {"p": "float32"}, "error",
                       "the file")
    slices = [FileSlice(path, part) for part in form.footer(path, selection, None).parts]
    streamed = ReadTask(form, selection, None, False)([(*slices[:2], *slices[2:])])
    assert isinstance(streamed, StreamedRows)
    packed = pack(streamed, seal=bytes)
    assert [field.shape for field in packed.signatures[0].fields] == [(30_000,), (30_000, 2)]
    for _ in range(2):      # a worker that is lost has it sent again
        memory = WrittenMemory()
        packed.write_blocks(memory, 0)
        arrays = list(memory.arrays.values())
        np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 1]), np.int32(x))
        np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 2]),
                                      np.float32(np.stack([-x, x], axis=1)))
    assert len(list(ReadTask(form, selection, None, False)([tuple(slices)]))) == 30_000


def _written(form, path: str, filter, count: int, dtype=None) -> tuple[list[tuple[int, ...]], list[np.ndarray]]:
    """Return the shapes of a file's fields, and what is written of them where each part is cut into two slices."""
    selection = select(form.footer(path, None, None).schema, {"k": "k", "p": ["y", "x"]}, dtype, "error", "the file")
    condition = expression(filter)
    slices = tuple(FileSlice(path, part, index, 2) for part in form.footer(path, selection, condition).parts
                   for index in range(2))
    streamed = ReadTask(form, selection, condition, False)([slices])
    assert isinstance(streamed, StreamedRows)
    packed = pack(streamed, seal=bytes)
    memory = WrittenMemory()
    packed.write_blocks(memory, 0)
    assert len(list(ReadTask(form, selection, condition, False)([slices]))) == packed.count == count
    return [field.shape for field in packed.signatures[0].fields], list(memory.arrays.values())


@pytest.mark.parametrize(("scheme", "readings"), [("", READINGS), ("memory://", REMOTE_READINGS)])
@pytest.mark.parametrize("name", ["orc", "parquet"])
def test_a_wide_or_remote_file_is_read_a_share_of_its_fields_at_a_time(tmp_path: Path, name: str, scheme: str,
                                                                       readings: int):
    pa, module = pytest.importorskip("pyarrow"), pytest.importorskip(f"pyarrow.{name}")
    fsspec = pytest.importorskip("fsspec")
    path = f"{scheme}{tmp_path}/wide"
    columns = {f"x{number}": np.arange(30_000.0) + number for number in range(40)}
    with fsspec.open(path, "wb") as file:
        module.write_table(pa.table(columns), file)
    calls: list[int] = []

    class CountedFormat(OrcFormat if name == "orc" else ParquetFormat):
        def batches(self, slices, selection, filter):
            calls.append(len(selection.columns))
            return super().batches(slices, selection, filter)

    form = CountedFormat()
    selection = select(form.footer(path, None, None).schema, None, None, "error", "the file")
    slices = tuple(FileSlice(path, part) for part in form.footer(path, selection, None).parts)
    streamed = ReadTask(form, selection, None, False)([slices])
    assert isinstance(streamed, StreamedRows)
    packed = pack(streamed, seal=bytes)
    for _ in range(2):
        memory = WrittenMemory()
        packed.write_blocks(memory, 0)
        np.testing.assert_array_equal(np.concatenate([*memory.arrays.values()]), np.concatenate([*columns.values()]))
        assert len(calls) == readings and sum(calls) == len(columns)
        calls.clear()


def test_a_small_remote_file_is_opened_once(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = f"memory://{tmp_path}/small"
    with pytest.importorskip("fsspec").open(path, "wb") as file:
        pq.write_table(pa.table({"x": [1.0], "y": [2.0]}), file)
    selection = select(ParquetFormat().footer(path, None, None).schema, None, None, "error", "the file")
    slices = tuple(FileSlice(path, part) for part in ParquetFormat().footer(path, selection, None).parts)
    records = ReadTask(ParquetFormat(), selection, None, False)([slices])
    assert not isinstance(records, StreamedRows) and list(records) == [{"x": 1.0, "y": 2.0}]


@pytest.mark.parametrize(("table", "more"), [("the DataFrame", ""), ("a.parquet", r"; of files Spark takes such.*")])
def test_expressions_for_columns_without_numbers_are_sparks(table: str, more: str):
    schema = [("d", ColumnType("other", text="decimal(10,2)"))]
    with pytest.raises(RecordError, match=r'cast it, as in col\("d"\)\.cast\("double"\)' + more + "$"):
        select(schema, None, None, "error", table)


def test_names_in_any_case_mean_the_only_column_that_they_may():
    number = ColumnType("number", "float64", "double")
    inner = ColumnType("struct", "", "struct", (("A", number), ("b", number)))
    schema = [("x", number), ("Point", inner), ("y", number), ("Y", number)]

    def fields(columns, dtype=None, nulls="error"):
        choice = select(schema, columns, dtype, nulls, "the table", is_case_sensitive=False)
        return {field.name: (choice.columns[field.columns[0]].name, field.dtype, choice.columns[field.columns[0]].nulls)
                for field in choice.fields}

    assert fields(["X", "POINT.a"]) == {"X": ("x", "float64", None), "POINT.a": ("Point.A", "float64", None)}
    assert list(fields(["point", "Y"])) == ["point.A", "point.b", "Y"] and fields(["Y", "x"])["Y"][0] == "Y"
    assert fields({"p": ["X", "y"]}, {"P": "float32"}, {"X": 0, "POINT": 7})["p"] == ("x", "float32", 0)
    assert fields({"a": "point.A", "x": "x"}, nulls={"pOint": 7, "y": "error"}) == {
        "a": ("Point.A", "float64", 7), "x": ("x", "float64", None)}
    with pytest.raises(PlanError, match=r"'Z'.*there are 'x', 'Point', 'y', 'Y'"):
        fields(["x"], nulls={"Z": 0})
    with pytest.raises(PlanError, match="no column 'X'"):
        select(schema, ["X"], None, "error", "the table")
    with pytest.raises(PlanError, match=r"nulls='no'.*a dict has these by column"):
        fields(["x"], nulls={"x": "no"})
    twice = [("Ab", number), ("aB", number)]
    with pytest.raises(PlanError, match="'ab' may be 'Ab' or 'aB' of the table"):
        select(twice, ["ab"], None, "error", "the table", is_case_sensitive=False)
    assert str(expression([("X", ">", 0), ("y", "in", [1])], ["x", "y", "Y"])) == \
        str(expression([("x", ">", 0), ("y", "in", [1])]))


@pytest.mark.parametrize("name", ["orc", "parquet"])
@pytest.mark.parametrize("filter", [None, [("z", ">=", 12_345)], [("k", "<", 9_500), ("day", "==", 3)]])
def test_what_filters_keep_is_read_while_it_is_written(tmp_path: Path, name: str, filter):
    pa, module = pytest.importorskip("pyarrow"), pytest.importorskip(f"pyarrow.{name}")
    (tmp_path / "day=3").mkdir()
    path, x = str(tmp_path / "day=3" / f"points.{name}"), np.arange(30_000.0)
    z = pa.array(x, mask=x % 1000 == 0)     # a row whose condition is null is not kept
    size = {"stripe_size": 1 << 16} if name == "orc" else {"row_group_size": 9000}
    module.write_table(pa.table({"x": x, "y": -x, "k": np.int32(x), "z": z}), path, **size)
    kept = x[slice(None) if filter is None else {"z": (x >= 12_345) & (x % 1000 != 0), "k": x < 9_500}[filter[0][0]]]
    shapes, arrays = _written(OrcFormat() if name == "orc" else ParquetFormat(), path, filter, len(kept),
                              {"p": "float32"})
    assert shapes == [(len(kept),), (len(kept), 2)]
    np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 1]), np.int32(kept))
    np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 2]),
                                  np.float32(np.stack([-kept, kept], axis=1)))


@pytest.mark.parametrize(("condition", "kept"), [
    (("id", ">", 1), [2**63]), (("ID", "==", 2**63), [2**63]), (("id", "!=", 2**63), [1]), (("id", "in", [1, 2]), [1]),
    (("id", "in", [2**63, None]), [2**63]), (("id", "not in", [2**64 - 1]), [1, 2**63]),
    (("k", "<=", 2**63), [1, 2**63]),
])
def test_columns_of_uint64_are_compared_as_such(condition, kept: list[int]):
    pytest.importorskip("pyarrow")
    table = pa.table({"id": pa.array([1, 2**63], pa.uint64()), "k": pa.array([1, 2], pa.uint8())})
    assert table.filter(expression([condition], ["id", "k"], ["id"])).column("id").to_pylist() == kept


@pytest.mark.parametrize(("filter", "in_struct"), [
    (None, "b"), (None, "B"), ([("K", ">", 8500)], "b"), ([("x", "<", 20_000), ("day", "==", 3)], "B")])
@pytest.mark.parametrize("name", ["orc", "parquet"])
def test_columns_of_another_case_than_in_the_first_file(tmp_path: Path, name: str, filter, in_struct: str):
    module = pytest.importorskip(f"pyarrow.{name}")
    (tmp_path / "day=3").mkdir()
    paths, x = [str(tmp_path / f"first.{name}"), str(tmp_path / "day=3" / f"second.{name}")], np.arange(30_000.0)
    size = {"stripe_size": 1 << 16} if name == "orc" else {"row_group_size": 9000}
    def point(*names: str) -> Any:
        return pa.StructArray.from_arrays([pa.array(x), pa.array(-x)], list(names))

    module.write_table(pa.table({"k": np.int32(x), "x": x, "p": point("a", "b")}), paths[0])
    module.write_table(pa.table({"s": ["text"] * len(x), "X": x, "P": point("a", in_struct), "K": np.int32(x)}),
                       paths[1], **size)
    form = OrcFormat() if name == "orc" else ParquetFormat()
    schema = form.footer(paths[0], None, None).schema
    selection = select(schema, ["p.b", "k"], None, "error", "the file")
    names = tuple(column for column, _ in schema)
    form, condition = type(form)(schema), expression(filter, names)
    footer = form.footer(paths[1], selection, condition)
    check_schema(selection, footer, paths[0])
    assert all(part.nbytes and part.stop > part.start for part in footer.parts)
    kept = x[slice(None) if filter is None else {"K": x > 8500, "x": x < 20_000}[filter[0][0]]]
    for slices in ([tuple(FileSlice(paths[1], part) for part in footer.parts)],
                   [tuple(FileSlice(paths[1], part, index, 2) for part in footer.parts for index in range(2))]):
        rows = list(ReadTask(form, selection, condition, False)(slices))
        assert [(row["p.b"], row["k"]) for row in rows] == list(zip(-kept, kept, strict=True))
        memory = WrittenMemory()
        pack(ReadTask(form, selection, condition, False)(slices), seal=bytes).write_blocks(memory, 0)
        np.testing.assert_array_equal(np.concatenate([each for each in memory.arrays.values() if each.dtype == float]),
                                      -kept)
    with pytest.raises(RecordError, match=f"second.{name} has no column 'p.b', which .* has as double"):
        check_schema(selection, type(form)().footer(paths[1], None, None), paths[0])


def test_fields_of_structs_in_structs_are_called_as_in_the_first_file():
    pa = pytest.importorskip("pyarrow")
    first = pa.schema([("p", pa.struct([("q", pa.struct([("X", pa.int64()), ("y", pa.int64())]))]))])
    rows = [{"Q": {"x": 1, "y": 2}}, None, {"Q": None}, {"Q": {"x": 3, "y": None}}]
    batch = pa.RecordBatch.from_arrays([pa.array([{"Q": {"x": 0, "y": 0}}, *rows])], ["P"]).slice(1)
    spelled = ParquetFormat(columns_of("a", first)).spelled(batch.schema)
    assert spelled == first
    assert respelled(batch, list(spelled)).to_pylist() == [
        {"p": {"q": {"X": 1, "y": 2}}}, {"p": None}, {"p": {"q": None}}, {"p": {"q": {"X": 3, "y": None}}}]


@pytest.mark.parametrize("filter", [None, [("k", ">", 20_000)]])
def test_stripes_of_a_footer_that_is_not_decompressed_are_streamed(tmp_path: Path, filter, monkeypatch):
    """Read what a file of LZO is like, which Arrow reads and does not write."""
    pa, orc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.orc")
    path, k = str(tmp_path / "points.orc"), np.random.default_rng(0).permutation(30_000)
    orc.write_table(pa.table({"k": k, "y": k * 0.5, "x": k * 0.25}), path, stripe_size=1 << 14, compression="zlib")
    monkeypatch.setattr("vispark.data.tables.orc_stripes._INFLATED", {})
    schema = OrcFormat().footer(path, None, None).schema
    footer = OrcFormat().footer(path, select(schema, "k", None, "error", "the file"), None)
    assert len(footer.parts) > 1 and {part.rows for part in footer.parts} == {-1}
    kept = k[k > 20_000] if filter else k
    shapes, arrays = _written(OrcFormat(), path, filter, len(kept))
    assert (len(kept),) in shapes
    np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 1]), kept)


@pytest.mark.parametrize("name", ["orc", "parquet"])
def test_statistics_leave_out_no_row_that_a_filter_keeps(tmp_path: Path, name: str):
    """Neither where there are nulls or NaN, of which statistics do not tell."""
    pa, module = pytest.importorskip("pyarrow"), pytest.importorskip(f"pyarrow.{name}")
    form = OrcFormat() if name == "orc" else ParquetFormat()
    path, rows, x = str(tmp_path / "points"), 30_000, np.arange(30_000.0) // 10_000
    x[25_000] = np.nan
    table = pa.table({"x": pa.array(x, mask=np.arange(rows) < 100), "k": np.arange(rows), "s": ["a"] * rows,
                      "f": np.float32(x)})
    module.write_table(table, path, **({"stripe_size": 1 << 14} if name == "orc" else {"row_group_size": 5000}))
    x, k, f = (pa.compute.field(each) for each in "xkf")
    selection = select(form.footer(path, None, None).schema, ["k"], None, "error", "the file")
    parts = form.footer(path, selection, None).parts
    assert len(parts) > 2
    fewer = [x > 1.5, k < 100, x.is_null(), ~(f < 3) & (k > 20_000), (x > 1) | (k < 5)]
    all_of_parquet = [~(x <= 2), x != 0]         # as any row group may have NaN; stripes say whether they have
    for condition in [*fewer, *all_of_parquet, x.is_nan(), k * 2 > 59_000, pa.compute.field("s") == "a"]:
        kept = form.footer(path, selection, condition).parts
        for slices in ([FileSlice(path, part) for part in kept],
                       [FileSlice(path, part, index, 2) for part in kept for index in range(2)]):
            read = [number for _, batch in form.batches(slices, selection, condition)
                    for number in batch.column(0).to_pylist()]
            assert read == table.filter(condition).column("k").to_pylist(), condition
        if any(condition is each for each in fewer + all_of_parquet * (name == "orc")):
            assert len(kept) < len(parts), condition


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "zstd", "lz4"])
def test_stripes_are_those_that_arrow_reads(tmp_path: Path, codec: str):
    pa, orc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.orc")
    path = str(tmp_path / "points.orc")
    columns = {f"a column of many, number {number}": np.random.default_rng(number).random(30_000)
               for number in range(40)}
    orc.write_table(pa.table(columns), path, compression=codec, stripe_size=1 << 20)
    with open(path, "rb") as source:
        file = orc.ORCFile(source)
        cut = stripes(source, file)
        assert [each.rows for each in cut] == [file.read_stripe(number).num_rows for number in range(file.nstripes)]
    assert len(cut) > 1 and cut[0].start < cut[0].stop <= cut[1].start


def test_a_file_that_has_more_rows_than_were_counted(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "points.parquet")

    class Growing(ParquetFormat):
        def masks(self, slices, filter):
            for batch, mask in super().masks(slices, filter):
                yield batch, mask.slice(1)

    pq.write_table(pa.table({"x": np.arange(10.0)}), path)
    form, condition = Growing(), expression([("x", ">", 3)])
    selection = select(form.footer(path, None, None).schema, None, None, "error", "the file")
    slices = tuple(FileSlice(path, part) for part in form.footer(path, selection, condition).parts)
    with pytest.raises(PlanError, match=r"more rows than before.*changed"):
        pack(ReadTask(form, selection, condition, False)([slices]), seal=bytes)


@pytest.mark.parametrize(("arrays", "words"), [([], "of 3 rows had 0"), ([np.zeros(2)], "of 3 rows had 2"),
                                               ([np.zeros(2), np.zeros(2)], "of 3 rows had 4")])
def test_other_rows_than_were_looked_up(arrays, words):
    with pytest.raises(PlanError, match=words):
        pack(StreamedRows([], 3, {"": lambda: iter(arrays)}), seal=bytes).write_blocks(WrittenMemory(), 0)


def test_no_rows_are_not_read():
    assert pack(StreamedRows([], 0, {"": lambda: iter(())}), seal=bytes).count == 0


class Passed:
    """Target that keeps of what is put a digest, and how much memory was held then."""

    def __init__(self) -> None:
        self.most = self.nbytes = 0
        self.digest = hashlib.sha256()

    def put(self, offset: int, array: np.ndarray) -> None:
        self.nbytes += array.nbytes
        self.digest.update(np.ascontiguousarray(array).tobytes())
        self.most = max(self.most, tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())


def _passed(records: Any) -> tuple[Passed, Any]:
    """Write records, and return the writing, and their layout, shapes and content."""
    gc.collect()        # what is freed meanwhile would count as not held
    tracemalloc.start()
    before, target = pa.total_allocated_bytes(), Passed()
    try:
        packed = pack(records, seal=bytes)
        packed.write_blocks(target, 0)
    finally:
        tracemalloc.stop()
    target.most -= before
    return target, (packed.layout, packed.signatures, packed.count, target.digest.hexdigest())


def _ragged(lengths: np.ndarray) -> Any:
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, np.random.default_rng(0).random(offsets[-1]))


def _vectors(lengths: np.ndarray) -> Any:
    values = _ragged(lengths)
    places = pa.array(np.arange(len(values.values)) % 601, pa.int32())
    return pa.StructArray.from_arrays(
        [pa.array(np.zeros(len(lengths), np.int8)), pa.array(np.full(len(lengths), 601, np.int32)),
         pa.ListArray.from_arrays(values.offsets, places), values], list(VECTOR))


@pytest.mark.parametrize(("make", "form"), [(_ragged, "ragged"), (_vectors, "sparse"),
                                            (lambda lengths: _ragged(lengths * 0 + 300), "array")])
@pytest.mark.parametrize("filter", [None, [("k", ">", 100)]])
@pytest.mark.parametrize("name", ["orc", "parquet"])
def test_rows_of_several_lengths_are_read_while_they_are_written(tmp_path: Path, name: str, filter, make, form: str):
    module = pytest.importorskip(f"pyarrow.{name}")
    path, rows = str(tmp_path / "rows"), 4000
    size = {"stripe_size": 1 << 16, "batch_size": 64} if name == "orc" else {"row_group_size": 200}
    module.write_table(pa.table({"k": np.arange(rows), "w": make(np.arange(rows) % 7 * 100)}), path, **size)
    files, condition = OrcFormat() if name == "orc" else ParquetFormat(), expression(filter)
    selection = select(files.footer(path, None, None).schema, ["w", "k"], None, "error", "the file")
    slices = tuple(FileSlice(path, part) for part in files.footer(path, selection, condition).parts)
    task = ReadTask(files, selection, condition, False, True)
    records = task([slices])
    assert isinstance(records, StreamedRows)
    streamed, content = _passed(records)
    held, expected = _passed(Rows(task._arrays(slices)))
    assert content == expected and expected[0].parts[0].form == form
    assert 2 * held.most > streamed.nbytes > 9_000_000 and streamed.most < streamed.nbytes / 4


def test_a_little_of_rows_of_several_lengths_is_read_once(tmp_path: Path):
    pq = pytest.importorskip("pyarrow.parquet")
    path, files = str(tmp_path / "rows"), ParquetFormat()
    pq.write_table(pa.table({"w": [[1.0], [2.0, 3.0]]}), path)
    selection = select(files.footer(path, None, None).schema, None, None, "error", "the file")
    slices = tuple(FileSlice(path, part) for part in files.footer(path, selection, None).parts)
    records = ReadTask(files, selection, None, False, True)([slices])
    assert not isinstance(records, StreamedRows) and list(map(list, records)) == [[1.0], [2.0, 3.0]]


@pytest.mark.parametrize(("rows", "words"), [(1, "of 3 rows had 1"), (4, "of 3 rows had 4")])
def test_other_rows_of_several_lengths_than_were_looked_up(rows: int, words: str):
    batch = FlatRows(np.arange(rows + 1), np.zeros(rows))
    with pytest.raises(PlanError, match=words):
        pack(StreamedRows([], 3, {"": lambda: iter([batch])}), seal=bytes)


@pytest.mark.parametrize("filter", [None, [("k", "!=", 2)]])
def test_text_is_read_while_it_is_written(tmp_path: Path, filter, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("vispark.data.tables.csv.READ_ONCE", 1 << 21)
    monkeypatch.setattr("vispark.data.records.text.reader._PIECE", 1 << 16)
    path = tmp_path / "points.csv"
    path.write_text("k,x,y\n\n" + "".join(f"{number % 5},{number},{number % 7}\n\r\n"[:None if number % 9 == 0 else -2]
                                          for number in range(600_000)))
    names, schema, _ = schema_of([str(path)], True, ",")
    selection = select(schema, None, None, "error", "the file")
    kinds = tuple((name, "int64") for name in names)
    task = CsvTask(tuple(names), kinds, True, ",", selection, expression(filter), False, str(path))
    middle = path.stat().st_size // 3
    splits = [TextSplit(str(path), 0, middle), TextSplit(str(path), middle, path.stat().st_size)]
    records = task(splits)
    assert isinstance(records, StreamedRows)
    streamed, content = _passed(records)
    held, expected = _passed(Rows(task._arrays(splits)))
    assert content == expected and expected[2] == (600_000 if filter is None else 480_000)
    assert 2 * held.most > streamed.nbytes > 10 << 20 and streamed.most < streamed.nbytes / 4
    assert not isinstance(task([TextSplit(str(path), 0, 1 << 21)]), StreamedRows)


@pytest.mark.parametrize("count", [0, 1, 8192, 20_001])
def test_columns_of_rows_are_each_in_one_piece(count: int):
    pytest.importorskip("pyarrow")
    rows = np.arange(count * 9, dtype="float32").reshape(count, 9)
    schema = StructType([StructField(f"x{number}", FloatType()) for number in range(9)])
    columns = fitted([OutputColumn(VALUE, rows)], schema)
    assert [column.name for column in columns] == schema.names
    for number, column in enumerate(columns):
        assert column.values.flags.c_contiguous
        np.testing.assert_array_equal(column.values, rows[:, number])


# -- types of CSV files -----------------------------------------------------------------------------------------------

def _kinds(path: Path, text: str) -> dict[str, tuple[str, str]]:
    path.write_text(text)
    return {name: (kind.dtype, kind.text) for name, kind in schema_of([str(path)], True, ",")[1]}


def test_integers_beyond_int64_need_a_dtype(tmp_path: Path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.csv"
    kinds = _kinds(path, f"id,n,x,f\n1,{-2**63},2.5,{2**63}\n\n{2**63},5,{2**63},1e30\n,{-2**63 - 1},1,1\n")
    assert {name: dtype for name, (dtype, _) in kinds.items()} == {"id": "object", "n": "object", "x": "float64",
                                                                   "f": "float64"}
    assert kinds["id"][1].startswith(f"integers beyond int64: {2**63} in line 4 of {path}; \"uint64\" holds them")
    assert f"{-2**63 - 1} in line 5 of {path}; \"float64\" rounds them" in kinds["n"][1]
    schema = schema_of([str(path)], True, ",")[1]
    for columns, dtype in (("id", "uint64"), (["id", "x"], {"id": "float64"}), ({"p": ["n", "x"]}, "float32"),
                           (["x", "f"], None)):
        check_integers(select(schema, columns, dtype, "error", str(path)), str(path))
    for columns, dtype, advice in (("id", None, '"uint64"'), (["n", "id"], {"n": "float64"}, "{'id': \"uint64\"}"),
                                   (["n"], None, '"float64"'), ({"p": ["x", "n"]}, None, "{'p': \"float64\"}"),
                                   ({"p": ["x", "id"]}, None, "{'p': \"float64\"}")):
        with pytest.raises(RecordError, match=rf"'(id|n)' of {path} has integers beyond int64.*by dtype={advice}, or"):
            check_integers(select(schema, columns, dtype, "error", str(path)), str(path))
    with pytest.raises(PlanError, match=r"'id' is integers beyond int64.*which bool cannot hold"):
        select(schema, "id", "bool", "error", str(path))


def test_digits_among_booleans_are_none(tmp_path: Path):
    pytest.importorskip("pyarrow")
    assert _kinds(tmp_path / "a.csv", "b,m\ntrue,true\nFALSE,1\n,0\n") == {"b": ("bool", "bool"), "m": ("", "string")}
    selection = select([("b", ColumnType("number", "bool", "bool"))], None, None, "error", "a")
    read = CsvTask(("b",), (("b", "bool"),), True, ",", selection, None, False, "a")
    (tmp_path / "b.csv").write_text("b\ntrue\n1\n")
    with pytest.raises(RecordError, match=r"b.csv, line 3: '1' is not read as b bool"):
        list(read([TextSplit(str(tmp_path / "b.csv"), 0, 100)]))


def test_types_are_those_of_the_first_file_that_has_lines(tmp_path: Path):
    pytest.importorskip("pyarrow")
    for name, text in (("a", ""), ("b", "\n"), ("c", f"1,\n2,{2**53}\n"), ("d", f"3,{2**53 + 1}\n")):
        (tmp_path / name).write_text("k,x\n" + text)
    paths = [str(tmp_path / name) for name in "abcd"]
    assert [kind.dtype for _, kind in schema_of(paths, True, ",")[1]] == ["int64", "int64"]
    names, schema, empty = schema_of(paths[:2], True, ",")
    assert [kind.dtype for _, kind in schema] == ["float64", "float64"] and empty == ["k", "x"]
    selection = select(schema, "x", None, 0, "a")
    read = CsvTask(tuple(names), (("x", "float64"),), True, ",", selection, None, False, paths[0], ("x",))
    splits = [TextSplit(path, 0, 100) for path in paths]
    assert list(read(splits[:3])) == [0, 2**53]
    with pytest.raises(RecordError, match=rf"'x' has {2**53 + 1} in line 2 of {paths[3]}, which float64 rounds; it is "
                                          f"empty in the first lines of {paths[0]}.*dtype="):
        list(read(splits))
