"""Shuffles behind a VRDD: Spark keeps its Python workers, and records that are not wanted are not computed."""

from __future__ import annotations

import gzip
import io
import operator
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer, UTF8Deserializer, read_int

from tests.system.vrdd_tools import warm_up
from vispark.runtime.executor.task_input import InputCutShort, SkippableSerializer, WholeInput

_JOBS = 6


@pytest.fixture(scope="module", autouse=True)
def warmed(sc: SparkContext) -> None:
    """Start what a session keeps open to its end."""
    warm_up(sc)


def _pids(rows: RDD) -> set[int]:
    """Return the ids of a job's Python workers, on both sides of its shuffle."""
    def before(records: Iterable) -> Iterator:
        pid = os.getpid()
        return ((int(np.sum(record)) % 3, frozenset([pid])) for record in records)

    pids = rows.mapPartitions(before).reduceByKey(operator.or_).map(lambda pair: pair[1] | {os.getpid()}).collect()
    return set().union(*pids)


def _numbers(sc: SparkContext, _: Path) -> RDD:
    return sc.parallelize(list(range(1000)), 2)


def _mapped(sc: SparkContext, _: Path) -> RDD:
    return sc.parallelize(list(range(1000)), 2).map(float)


def _arrays(sc: SparkContext, _: Path) -> RDD:
    return sc.parallelize([np.full(50_000, at, np.float32) for at in range(8)], 2)


def _lines(sc: SparkContext, folder: Path) -> RDD:
    path = folder / "lines.txt"
    path.write_text("".join(f"{at}\n" for at in range(20_000)))
    return sc.textFile(str(path), 2).map(float)


def _pairs(sc: SparkContext, _: Path) -> RDD:
    return sc.parallelize(list(range(30)), 2).cartesian(sc.parallelize([1.0], 1)).map(lambda pair: pair[0] + pair[1])


def _shuffled(sc: SparkContext, _: Path) -> RDD:
    return sc.parallelize([(at, float(at)) for at in range(100)], 2).reduceByKey(operator.add, 2).values()


@pytest.mark.parametrize("make", [_numbers, _mapped, _arrays, _lines, _pairs, _shuffled])
def test_spark_keeps_its_python_workers(sc: SparkContext, tmp_path: Path, make: Callable[..., RDD]) -> None:
    held = make(sc, tmp_path).cache("GPU")
    held.count()
    used = set().union(*(_pids(held) for _ in range(_JOBS)))
    # Those that the jobs before left idle may be chosen too, and no other.
    assert len(used) <= 4, f"{len(used)} Python workers for {_JOBS} jobs of 2 tasks a stage"


def test_programs_that_shuffle_are_right(sc: SparkContext) -> None:
    plain = sc.parallelize([float(at) for at in range(60)], 2)
    held = plain.cache("GPU")
    held.count()

    def results(rows: RDD) -> list:
        keyed = rows.map(lambda x: (x % 7, x))
        return [sorted(keyed.reduceByKey(operator.add).collect()), sorted(keyed.join(keyed).collect()),
                sorted(rows.map(lambda x: x % 5).distinct().collect()), rows.sortBy(lambda x: -x).collect(),
                sorted(keyed.groupByKey().mapValues(sorted).collect()), rows.union(rows).repartition(3).sum()]

    assert results(held) == results(plain)


def test_records_that_are_held_are_not_made_again(sc: SparkContext) -> None:
    computed = sc.accumulator(0)

    def noted(x: float) -> float:
        computed.add(1)
        return x

    first = sc.parallelize([1.0, 2.0, 3.0], 2).map(noted).cache("GPU")
    second = first.map(lambda x: noted(x) * 2).cache("GPU")
    assert second.count() == 3
    before = computed.value
    assert sorted(second.map(lambda x: (1, x)).reduceByKey(operator.add).collect()) == [(1, 12.0)]
    assert computed.value == before


def test_input_that_cannot_be_read_is_no_crash(sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "numbers.gz"
    file.write_bytes(gzip.compress("\n".join(map(str, range(50_000))).encode())[:50_000])
    held = sc.textFile(str(file)).map(float).cache("GPU")
    with pytest.raises(Py4JJavaError, match="EOFException"):
        held.count()
    assert "crashed" not in caplog.text


# -- the stream, without Spark ----------------------------------------------------------------------------------------

def _stream(frames: Iterable[bytes | None]) -> io.BufferedReader:
    written = b"".join(struct.pack("!i", -5) if frame is None else struct.pack("!i", len(frame)) + frame
                       for frame in frames)
    return _reader(written + struct.pack("!ii", -1, -4))


def _reader(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content))


def test_what_is_skipped_ends_where_spark_looks_for_its_end() -> None:
    stream = _stream([b"1", None, b"\xff" * 1_000_000, b""])
    records = SkippableSerializer(UTF8Deserializer()).load_stream(stream)
    assert next(records) == "1"
    assert records.skip()
    assert read_int(stream) == -4
    assert list(records) == []


def test_skipping_stops_between_frames_when_its_time_is_over() -> None:
    batches = io.BytesIO()
    serializer = AutoBatchedSerializer(CPickleSerializer())
    serializer.dump_stream(iter(range(1000)), batches)
    size = len(batches.getvalue())
    stream = _reader(batches.getvalue() + struct.pack("!ii", -1, -4))
    records = SkippableSerializer(serializer).load_stream(stream)
    assert not records.skip(budget=0)
    assert stream.tell() == 0
    assert list(records) == list(range(1000))
    assert stream.tell() == size + 4


def test_a_stream_that_breaks_off_is_not_read_to_its_end() -> None:
    for cut in (b"", b"\0\0", struct.pack("!i", 100) + b"only this"):
        assert not SkippableSerializer(UTF8Deserializer()).load_stream(_reader(cut)).skip()
        with pytest.raises(InputCutShort):
            list(WholeInput(UTF8Deserializer()).load_stream(_reader(cut)))
