"""How fast DataFrames and Parquet files come to a worker and back, against Spark's own ways."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession

import vispark
from benchmarks.measure import Case, interleave
from benchmarks.results import Group
from vispark.tables.arrow import pa

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


def run(sc: SparkContext, directory: Path, nbytes: int, samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure on about so many bytes of float32."""
    count = nbytes // ROW_BYTES
    about = {"rows": count, "columns": COLUMNS, "dtype": "float32", "samples": samples}
    yield _frames(sc, count, samples, about, done)
    yield _files(sc, directory, count, samples, about, done)


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
    cases = [Case(f'{ARROW}, cache("GPU")', lambda: _cached(vispark.from_dataframe(frame, dtype="float32")), moved,
                  repeat=False, times_itself=True),
             Case(f'{ROWS}, cache("GPU")', lambda: _cached(frame.rdd.map(_row)), moved, (f'{ARROW}, cache("GPU")',),
                  repeat=False, times_itself=True),
             Case(TO_DF, lambda: _consumed(held.toDF(SCHEMA)), moved, repeat=False),
             Case(BY_ROWS, lambda: _consumed(held.recv().map(_numbers).toDF(DOUBLES)), moved, (TO_DF,), repeat=False),
             Case(CREATE, lambda: _consumed(session.createDataFrame(plain, SCHEMA)), moved, (TO_DF,), repeat=False)]
    group.series = interleave(cases, samples, done=done)
    for each in (frame, plain, held):
        each.unpersist()
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
             Case(f'{OURS}, cache("GPU")', lambda: _cached(vispark.read_parquet(sc, path, dtype="float32")), moved,
                  (DECODED,), repeat=False, times_itself=True),
             Case(f'{SPARKS}, cache("GPU")',
                  lambda: _cached(vispark.from_dataframe(read.parquet(path), dtype="float32")), moved,
                  (f'{OURS}, cache("GPU")',), repeat=False, times_itself=True)]
    group.series = interleave(cases, samples, done=done)
    return group


def write(path: str, count: int) -> None:
    """Write a file of random numbers."""
    numbers = np.random.default_rng(0).random((count, COLUMNS), np.float32)
    table = pa.table({name: numbers[:, number] for number, name in enumerate(NAMES)})
    pa.parquet.write_table(table, path, row_group_size=_GROUP)


def decode(path: str) -> None:
    """Decode a file into row-major arrays, a row group after the other, on one core."""
    file = pa.parquet.ParquetFile(path)
    for number in range(file.num_row_groups):
        for batch in file.read_row_group(number, use_threads=False).to_batches(max_chunksize=_PIECE):
            rows = np.empty((batch.num_rows, COLUMNS), np.float32)
            for place, column in enumerate(batch.columns):
                rows[:, place] = column.to_numpy()


def _row(row: Any) -> np.ndarray:
    """A row as an array, as df.rdd is used."""
    return np.array(row, np.float32)


def _numbers(row: np.ndarray) -> list[float]:
    """A row as Python's numbers, which rows of a DataFrame are made of."""
    return row.tolist()


def _consumed(frame: DataFrame) -> None:
    frame.selectExpr("sum(x0)").collect()


def _cached(rdd: RDD[Any]) -> float:
    held = rdd.cache("GPU")
    start = time.perf_counter()
    held.count()
    seconds = time.perf_counter() - start
    held.unpersist()
    return seconds
