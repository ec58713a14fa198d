"""Speed at which text of numbers is parsed in Python workers, against reading as many bytes and against a map of lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

import vispark
from benchmarks.measure import Case, interleave, load_seconds
from benchmarks.points import FEATURES, Points
from benchmarks.results import Group
from vispark.data.records.text.parsing import Format
from vispark.data.records.text.reader import Reader
from vispark.data.records.text.splits import TextSplit, opened, splits

#: How the points are read: all columns, in one array.
POINTS = Format("", "float32", FEATURES + 1, (("", tuple(range(FEATURES + 1))),))

READ = "read alone"
OURS, STOCK = "read_text", "textFile and map"

#: Lines that are made; the file repeats them.
_LINES = 4000
_PIECE = 1 << 20


def write(path: Path, nbytes: int, rows: np.ndarray | None = None) -> int:
    """Write rows as text, over and over, numbers with seven digits between spaces; the bytes.

    Without rows they are points of logistic regression.
    """
    block = Points(_LINES, 1).block(0) if rows is None else rows
    lines = "".join(" ".join(map("{:.7g}".format, row)) + "\n" for row in block.tolist()).encode()
    with path.open("wb") as file:
        for _ in range(-(-nbytes // len(lines))):
            file.write(lines)
    return path.stat().st_size


def run(sc: SparkContext, directory: Path, nbytes: int, samples: int, done: Callable[[str], None]) -> Group:
    """Measure on a file of about so many bytes, which is in the file system's cache then."""
    path = directory / "points.txt"
    nbytes = write(path, nbytes)
    parts = max(sc.defaultParallelism, len(splits(str(path), sc.defaultParallelism)))
    group = Group(f"text, {nbytes / 1e6:.0f} MB", {"bytes": nbytes, "columns": FEATURES + 1, "dtype": "float32",
                                                   "partitions": parts, "samples": samples})
    one, = splits(str(path), 1)[:1]
    cases = [
        Case("read alone, one process", lambda: _read([one]), one.end),
        Case("parsed, one process", lambda: _parse(one), one.end, ("read alone, one process",)),
        Case(f"a job: {READ}", lambda: _reading(sc, path, parts).count(), nbytes, repeat=False),
        Case(f"a job: {OURS}", lambda: _blocks(sc, path, parts).map(len).sum(), nbytes, (f"a job: {READ}",),
             repeat=False),
        Case(f"a job: {STOCK}", lambda: _stock(sc, path, parts).count(), nbytes, (f"a job: {OURS}",), repeat=False)]
    cases += [Case(f'{name}, cache("GPU")', lambda make=make: load_seconds(make(sc, path, parts)), nbytes, against,
                   repeat=False, times_itself=True)
              for name, make, against in ((OURS, _rows, (f"a job: {READ}",)),
                                          (STOCK, _stock, (f'{OURS}, cache("GPU")',)))]
    ours, stock = (make(sc, path, parts).take(3) for make in (_rows, _stock))
    group.checks["rows"] = {"equal": bool(np.array_equal(ours, stock))}
    assert group.checks["rows"]["equal"], "read_text and the map of lines give other rows"
    group.series = interleave(cases, samples, done=done)
    path.unlink()
    return group


def _read(pieces: Iterable[TextSplit]) -> Iterator[int]:
    total = 0
    for split in pieces:
        with opened(split.path) as file:
            file.seek(split.start)
            left = split.end - split.start
            while left > 0 and (data := file.read(_PIECE)):
                left -= len(data)
            total += split.end - split.start
    return iter([total])


def _parse(split: TextSplit) -> None:
    for _ in Reader(POINTS, 0, False).pieces(split):
        pass


def _reading(sc: SparkContext, path: Path, parts: int) -> RDD[Any]:
    pieces = splits(str(path), parts)
    return sc.parallelize(pieces, len(pieces)).mapPartitions(_read)


def _rows(sc: SparkContext, path: Path, parts: int) -> RDD[Any]:
    return vispark.read_text(sc, path, minPartitions=parts)


def _blocks(sc: SparkContext, path: Path, parts: int) -> RDD[Any]:
    return vispark.read_text(sc, path, minPartitions=parts, blocks=True)


def _stock(sc: SparkContext, path: Path, parts: int) -> RDD[Any]:
    return sc.textFile(os.fspath(path), parts).map(parse)


def parse(line: str) -> np.ndarray:
    """Return a row, as the stock PySpark examples read it."""
    return np.array([float(x) for x in line.split(" ")], np.float32)


def numbers(split: TextSplit) -> np.ndarray:
    """Return the rows of a split, each read as the stock PySpark examples do."""
    rows, place = [], split.start
    with open(split.path, "rb") as file:
        if split.start:     # as the one before it ends with the line that its last byte is in
            file.seek(split.start - 1)
            place += len(file.readline()) - 1
        for line in file:
            if place >= split.end:
                break
            place += len(line)
            rows.append(parse(line.decode()))
    return np.array(rows, np.float32)
