"""Speed at which DataFrames and Parquet files come to a worker and back, against Spark's own ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

import vispark
from benchmarks.measure import Case, interleave, load_seconds
from benchmarks.results import Group
from vispark.data.tables.arrow import pa

#: Columns of float32, as the project's notes have them.
COLUMNS = 8
ROW_BYTES = 4 * COLUMNS
NAMES = [f"x{number}" for number in range(COLUMNS)]
SCHEMA = ", ".join(f"{name} float" for name in NAMES)
DOUBLES = SCHEMA.replace("float", "double")

ARROW, ROWS = "from_dataframe", "df.rdd and map"
TO_DF, BY_ROWS, CREATE = "toDF", "recv, map and toDF", "createDataFrame of cached rows"
OURS, SPARKS = "read_parquet", "spark.read.parquet and from_dataframe"
DECODED = "decoded, one process"

#: Rows of a row group.
_GROUP = 250_000
_PIECE = 8192

#: What half of the random numbers are above.
HALF = 0.5


def run(sc: SparkContext, directory: Path, nbytes: int, samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure on about so many bytes of float32."""
    count = nbytes // ROW_BYTES
    about = {"rows": count, "columns": COLUMNS, "dtype": "float32", "samples": samples}
    yield _frames(sc, count, samples, about, done)
    yield _files(sc, directory, count, samples, about, done)
    yield from _others(sc, directory, count, samples, about, done)


def _frames(sc: SparkContext, count: int, samples: int, about: dict[str, Any], done: Callable[[str], None]) -> Group:
    session = SparkSession(sc)
    frame = session.range(count).selectExpr(*[f"float(id % 1000 + {number}) {name}"
                                              for number, name in enumerate(NAMES)]).cache()
    frame.count()
    held = vispark.from_dataframe(frame, dtype="float32").cache("GPU")
    total = held.vmap(lambda row: row[0].astype("float64")).sum()
    plain = frame.rdd.map(tuple).cache()
    plain.count()
    group = Group(f"DataFrames, {count:,} rows", about)
    group.checks["sum"] = {"equal": bool(frame.selectExpr("sum(double(x0))").first()[0] == total
                                         == held.toDF(SCHEMA).selectExpr("sum(double(x0))").first()[0])}
    assert group.checks["sum"]["equal"], "the ways give different sums"
    moved = count * ROW_BYTES
    cases = [Case(f'{ARROW}, cache("GPU")', lambda: load_seconds(vispark.from_dataframe(frame, dtype="float32")), moved,
                  repeat=False, times_itself=True),
             Case(f'{ROWS}, cache("GPU")', lambda: load_seconds(frame.rdd.map(_row)), moved,
                  (f'{ARROW}, cache("GPU")',), repeat=False, times_itself=True),
             Case(TO_DF, lambda: _consumed(held.toDF(SCHEMA)), moved, repeat=False),
             Case(BY_ROWS, lambda: _consumed(held.recv().map(_numbers).toDF(DOUBLES)), moved, (TO_DF,), repeat=False),
             Case(CREATE, lambda: _consumed(session.createDataFrame(plain, SCHEMA)), moved, (TO_DF,), repeat=False)]
    group.series = interleave(cases, samples, done=done)
    for cached in (frame, plain, held):
        cached.unpersist()
    return group


def _files(sc: SparkContext, directory: Path, count: int, samples: int, about: dict[str, Any],
           done: Callable[[str], None]) -> Group:
    path = str(directory / "points.parquet")
    write(path, count)
    read = SparkSession(sc).read
    group = Group(f"Parquet, {count:,} rows", about | {"row group": _GROUP, "compression": "snappy"})
    ours = vispark.read_parquet(sc, path, dtype="float32").count()
    group.checks["rows"] = {"equal": ours == read.parquet(path).count() == count}
    assert group.checks["rows"]["equal"], "the ways give different numbers of rows"
    moved = count * ROW_BYTES
    cases = [Case(DECODED, lambda: decode(path), moved),
             Case(f"a job: {OURS}", lambda: vispark.read_parquet(sc, path, dtype="float32", blocks=True).map(len).sum(),
                  moved, (DECODED,), repeat=False),
             Case(f'{OURS}, cache("GPU")', lambda: load_seconds(vispark.read_parquet(sc, path, dtype="float32")), moved,
                  (DECODED,), repeat=False, times_itself=True),
             Case(f'{SPARKS}, cache("GPU")',
                  lambda: load_seconds(vispark.from_dataframe(read.parquet(path), dtype="float32")), moved,
                  (f'{OURS}, cache("GPU")',), repeat=False, times_itself=True)]
    group.series = interleave(cases, samples, done=done)
    return group


def _others(sc: SparkContext, directory: Path, count: int, samples: int, about: dict[str, Any],
            done: Callable[[str], None]) -> Iterator[Group]:
    """Measure the other formats, and a filter that keeps half of the rows."""
    read, path = SparkSession(sc).read, str(directory / "points")
    table = _table(count)
    pa.parquet.write_table(table, f"{path}.parquet", row_group_size=_GROUP)
    pa.orc.write_table(table, f"{path}.orc", stripe_size=8 << 20)
    pa.csv.write_csv(table, f"{path}.csv")
    text = read.schema(SCHEMA).option("header", True)
    half = pa.compute.field("x0") > HALF
    for name, decoded, ours, theirs in (
            ("Parquet and a filter", lambda: decode_rows(_kept(f"{path}.parquet", half)),
             lambda: vispark.read_parquet(sc, f"{path}.parquet", dtype="float32", filter=half),
             lambda: read.parquet(f"{path}.parquet").where(f"x0 > {HALF}")),
            ("ORC", lambda: decode_rows(_stripes(f"{path}.orc")),
             lambda: vispark.read_orc(sc, f"{path}.orc", dtype="float32"), lambda: read.orc(f"{path}.orc")),
            ("CSV", lambda: decode_rows(_parsed(f"{path}.csv")),
             lambda: vispark.read_csv(sc, f"{path}.csv", dtype="float32"), lambda: text.csv(f"{path}.csv"))):
        group = Group(f"{name}, {count:,} rows", about)
        equal = ours().count() == theirs().count()
        group.checks["rows"] = {"equal": equal}
        assert equal, "the ways give different numbers of rows"
        direct, spark = f'vispark, cache("GPU"): {name}', f'Spark and from_dataframe, cache("GPU"): {name}'
        moved = count * ROW_BYTES
        group.series = interleave([
            Case(f"{DECODED}: {name}", decoded, moved),
            Case(direct, lambda ours=ours: load_seconds(ours()), moved, (f"{DECODED}: {name}",), repeat=False,
                 times_itself=True),
            Case(spark, lambda theirs=theirs: load_seconds(vispark.from_dataframe(theirs(), dtype="float32")), moved,
                 (direct,), repeat=False, times_itself=True)], samples, done=done)
        yield group


def _table(count: int) -> Any:
    numbers = np.random.default_rng(0).random((count, COLUMNS), np.float32)
    return pa.table({name: numbers[:, number] for number, name in enumerate(NAMES)})


def write(path: str, count: int) -> None:
    """Write a file of random numbers."""
    pa.parquet.write_table(_table(count), path, row_group_size=_GROUP)


def decode(path: str) -> None:
    """Decode a file into row-major arrays, a row group after the other, on one core."""
    file = pa.parquet.ParquetFile(path)
    decode_rows(batch for number in range(file.num_row_groups)
                for batch in file.read_row_group(number, use_threads=False).to_batches())


def decode_rows(batches: Iterable[Any]) -> None:
    """Put batches into row-major arrays."""
    for whole in batches:
        for start in range(0, whole.num_rows, _PIECE):
            batch = whole.slice(start, _PIECE)
            rows = np.empty((batch.num_rows, COLUMNS), np.float32)
            for place, column in enumerate(batch.columns):
                rows[:, place] = column.to_numpy()


def _kept(path: str, filter: Any) -> Iterator[Any]:
    scanner = pa.dataset.dataset(path).scanner(filter=filter, use_threads=False, batch_readahead=0,
                                               fragment_readahead=0)
    yield from scanner.to_batches()


def _stripes(path: str) -> Iterator[Any]:
    file = pa.orc.ORCFile(path)
    return map(file.read_stripe, range(file.nstripes))


def _parsed(path: str) -> Iterator[Any]:
    kinds = dict.fromkeys(NAMES, pa.float32())
    yield from pa.csv.open_csv(path, pa.csv.ReadOptions(use_threads=False),
                               convert_options=pa.csv.ConvertOptions(column_types=kinds))


def _row(row: Any) -> np.ndarray:
    """Return a row as an array, as df.rdd is used."""
    return np.array(row, np.float32)


def _numbers(row: np.ndarray) -> list[float]:
    """Return a row as Python's numbers, which rows of a DataFrame are made of."""
    return row.tolist()


def _consumed(frame: DataFrame) -> None:
    frame.selectExpr("sum(x0)").collect()
