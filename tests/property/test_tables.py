"""Any table of numbers gives what Spark's ``collect`` gives, or an error that names a column.

``VISPARK_EXAMPLES`` sets how many tables are tried; Spark is asked for a quarter of them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark import SparkContext
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors, VectorUDT
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import _parse_datatype_string

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context
from vispark import from_dataframe, read_parquet
from vispark.data.tables.batches import BatchReader
from vispark.data.tables.selection import select
from vispark.data.tables.types import of_arrow
from vispark.errors import RecordError

pa = pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm"

EXAMPLES = int(os.environ.get("VISPARK_EXAMPLES", "20"))
FILL = -1.0

#: Spark's name of a type, its dtype, its values.
NUMBERS = {"boolean": ("bool", st.booleans()), "tinyint": ("int8", st.integers(-128, 127)),
           "int": ("int32", st.integers(-2**31, 2**31 - 1)), "bigint": ("int64", st.integers(-2**63, 2**63 - 1)),
           "float": ("float32", st.floats(width=32)), "double": ("float64", st.floats())}


@st.composite
def columns(draw: st.DrawFn, count: int) -> tuple[str, list[Any]]:
    """Return a column's type and values: numbers, arrays or vectors, at times with nulls and of several lengths."""
    kind = draw(st.sampled_from([*NUMBERS, "vector"]))
    form = draw(st.sampled_from(["number", "array"])) if kind != "vector" else "vector"
    nulls, ragged = draw(st.sampled_from([False, False, True])), draw(st.sampled_from([False, False, False, True]))
    number = NUMBERS[kind][1] if kind != "vector" else st.floats(-9, 9)
    width = draw(st.integers(1, 3))

    def value() -> Any:
        if nulls and draw(st.integers(0, 3)) == 0:
            return None
        if form == "number":
            return draw(number)
        size = width + (draw(st.integers(0, 1)) if ragged else 0)
        if form == "vector":
            numbers = draw(st.lists(number, min_size=size, max_size=size))
            kept = [place for place in range(size) if numbers[place]]
            return Vectors.dense(numbers) if draw(st.booleans()) else \
                Vectors.sparse(size, kept, [numbers[place] for place in kept])
        return draw(st.lists(number | st.none() if nulls else number, min_size=size, max_size=size))

    return kind if form != "array" else f"array<{kind}>", [value() for _ in range(count)]


tables = st.integers(0, 6).flatmap(lambda count: st.lists(columns(count), min_size=1, max_size=3))


def expected(kind: str, value: Any, width: int) -> Any:
    """Return a value as a record has it, with what stands for nulls."""
    if kind == "vector":
        return np.full(width, FILL) if value is None else np.array(value.toArray(), "float64")
    dtype = NUMBERS[kind.removeprefix("array<").removesuffix(">")][0]
    fill = FILL if dtype != "bool" else 1
    if not kind.startswith("array"):
        return np.array(fill if value is None else value, dtype)[()]
    return np.array([fill if item is None else item for item in ([None] * width if value is None else value)], dtype)


def size_of(value: Any) -> int:
    return len(value) if isinstance(value, list | DenseVector | SparseVector) else 0


def is_refused(kind: str, values: list[Any], nulls: float | None) -> bool:
    """Return whether a column is an error: nulls where these are errors, arrays of several lengths, none but nulls."""
    lengths = {size_of(value) for value in values if value is not None}
    is_array = kind == "vector" or kind.startswith("array")
    holes = any(value is None or (isinstance(value, list) and None in value) for value in values)
    return (holes and nulls is None) or (is_array and bool(values) and len(lengths) != 1)


# -- one batch, without Spark -----------------------------------------------------------------------------------------

def arrow(kind: str, values: list[Any]) -> Any:
    if kind == "vector":
        rows = [None if value is None else
                {"type": 1, "size": None, "indices": None, "values": list(map(float, value.values))}
                if isinstance(value, DenseVector) else
                {"type": 0, "size": value.size, "indices": value.indices.tolist(), "values": value.values.tolist()}
                for value in values]
        return pa.array(rows, pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())),
                                         ("values", pa.list_(pa.float64()))]))
    item = pa.from_numpy_dtype(np.dtype(NUMBERS[kind.removeprefix("array<").removesuffix(">")][0]))
    return pa.array(values, pa.list_(item) if kind.startswith("array") else item)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(tables, st.sampled_from([None, FILL]), st.integers(0, 2), st.integers(0, 2))
def test_a_batch_and_its_slices(table, nulls, before, behind):
    batch = pa.RecordBatch.from_arrays([arrow(kind, values) for kind, values in table],
                                       [f"c{number}" for number in range(len(table))])
    batch = batch.slice(before, max(0, len(batch) - before - behind))
    kept = [(kind, values[before:before + len(batch)]) for kind, values in table]
    fill = 1 if any("boolean" in kind for kind, _ in table) and nulls is not None else nulls
    selection = select([(field.name, of_arrow(field.type)) for field in batch.schema],
                       {field.name: field.name for field in batch.schema}, None,
                       "error" if fill is None else fill, "the table")
    try:
        blocks = list(BatchReader(selection).arrays(batch))
    except RecordError as error:
        assert "column 'c" in str(error)
        assert any(is_refused(kind, values, nulls) for kind, values in kept)
        return
    assert not any(is_refused(kind, values, nulls) for kind, values in kept)
    for number, (kind, values) in enumerate(kept):
        if not values:
            assert blocks == []
            continue
        array, = [each[f"c{number}"] for each in blocks]
        assert array.flags.writeable and array.flags.c_contiguous
        for element, value in zip(array, values, strict=True):
            wanted = expected(kind, value, array.shape[-1])
            if fill == 1 and nulls is not None and "boolean" not in kind:
                wanted = np.array(_filled_with_one(kind, value, array.shape[-1]), wanted.dtype)[()]
            assert exact(element) == exact(wanted)


def _filled_with_one(kind: str, value: Any, width: int) -> Any:
    if kind == "vector":
        return np.ones(width) if value is None else value.toArray()
    if not kind.startswith("array"):
        return 1 if value is None else value
    return np.ones(width) if value is None else [1 if item is None else item for item in value]


# -- against Spark ----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.mark.timeout(400)
@settings(max_examples=max(1, EXAMPLES // 4), deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables, st.sampled_from([None, FILL]), st.integers(1, 4), st.booleans())
def test_as_spark_collects_it(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory, table, nulls, parts, parquet):
    session = SparkSession(sc)
    table = [(kind, values) for kind, values in table if "boolean" not in kind] or [("int", [1] * len(table[0][1]))]
    fields = [spark_types.StructField(f"c{number}", VectorUDT() if kind == "vector" else _parse_datatype_string(kind))
              for number, (kind, _) in enumerate(table)]
    rows = [Row(*row) for row in zip(*(values for _, values in table), strict=True)]
    frame = session.createDataFrame(sc.parallelize(rows, parts), spark_types.StructType(fields), verifySchema=False)
    names = {field.name: field.name for field in fields}
    options = {} if nulls is None else {"nulls": nulls}
    if parquet and rows:
        path = str(tmp_path_factory.mktemp("table") / "t")
        frame.write.parquet(path)
        frame = session.read.parquet(path)
        rdd = read_parquet(sc, path, names, **options)
    else:
        rdd = from_dataframe(frame, names, **options)
    collected = frame.collect()
    assert len(collected) == len(rows)
    try:
        records = rdd.cache("GPU").collect()
    except RecordError as error:
        assert "column 'c" in str(error)
        assert any(is_refused(kind, values, nulls) or None in values for kind, values in table)
        return
    wanted = records_of(collected, table, records)
    if parquet:     # Spark's reader begins with the largest file
        assert sorted(map(repr, map(exact, records))) == sorted(map(repr, map(exact, wanted)))
    else:
        assert exact(records) == exact(wanted)


def records_of(collected: list[Row], table: list[tuple[str, list[Any]]], records: list[dict[str, Any]]) -> list[Any]:
    """Return the rows that Spark collected, as records; a null array is as long as the others."""
    widths = {name: np.size(value) for name, value in records[0].items()} if records else {}
    return [{f"c{number}": expected(kind, row[number], widths[f"c{number}"])
             for number, (kind, _) in enumerate(table)} for row in collected]


# -- there and back ---------------------------------------------------------------------------------------------------

@st.composite
def regular_tables(draw: st.DrawFn) -> tuple[list[tuple[str, list[Any]]], int]:
    """Return columns that records can be made of, some with nulls, and how many of the last ones are a struct's fields.
    """
    count = draw(st.integers(1, 6))
    table = draw(st.lists(columns(count).filter(lambda column: not is_refused(*column, 1.0)), min_size=1, max_size=4))
    return table, draw(st.integers(0, len(table)))


@pytest.mark.timeout(400)
@settings(max_examples=max(1, EXAMPLES // 4), deadline=None)
@given(regular_tables(), st.integers(1, 3))
@example(([("boolean", [False] * 5), ("array<boolean>", [None, None, None, None, [False]])], 0), 2)
def test_a_data_frame_there_and_back(sc: SparkContext, given_table, parts):
    table, inside = given_table
    outside, session = len(table) - inside, SparkSession(sc)
    fields = [spark_types.StructField(f"c{number}", VectorUDT() if kind == "vector" else _parse_datatype_string(kind))
              for number, (kind, _) in enumerate(table)]
    rows = [(*row[:outside], Row(*row[outside:]))[:outside + (inside > 0)]
            for row in zip(*(values for _, values in table), strict=True)]
    if inside:
        fields = [*fields[:outside], spark_types.StructField("s", spark_types.StructType(fields[outside:]))]
    frame = session.createDataFrame(sc.parallelize(rows, parts), spark_types.StructType(fields), verifySchema=False)

    held = from_dataframe(frame, nulls=1).cache("GPU")
    if lengths_are_unknown(table, parts):
        with pytest.raises(RecordError, match="nothing says how long its arrays are"):
            held.collect()
        return
    back = held.toDF()
    names = [f"c{number}" if number < outside else f"s.c{number}" for number in range(len(table))]
    assert back.columns == (names if len(table) > 1 else ["value"])
    assert [field.dataType.simpleString() for field in back.schema.fields] == \
        [kind if kind != "vector" else "array<double>" for kind, _ in table]
    wanted = [[_as_spark(kind, _filled_with_one(kind, value, max(map(size_of, values)))) for value in values]
              for kind, values in table]
    assert repr([tuple(row) for row in back.collect()]) == repr(list(zip(*wanted, strict=True)))
    held.uncache()


def lengths_are_unknown(table: list[tuple[str, list[Any]]], parts: int) -> bool:
    """Return whether a partition of Spark's has nulls alone in a column of arrays, which are as long as nothing says.
    """
    count = len(table[0][1])
    ends = [number * count // parts for number in range(parts + 1)]
    return any(begin < end and all(value is None for value in values[begin:end])
               for kind, values in table if kind == "vector" or kind.startswith("array")
               for begin, end in itertools.pairwise(ends))


def _as_spark(kind: str, value: Any) -> Any:
    """Return a value as Spark collects it: Python's, of the column's type."""
    dtype = "float64" if kind == "vector" else NUMBERS[kind.removeprefix("array<").removesuffix(">")][0]
    return np.array(value, dtype).tolist()
