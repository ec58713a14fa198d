"""Batches that one process hands to another: read as they were written, and given back once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_worker.protocol.errors import WorkerUnavailable
from vispark.tables import handed

pa = pytest.importorskip("pyarrow")

SCHEMA = pa.schema([("x", pa.int64()), ("a", pa.list_(pa.float32()))])


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    for descriptor in handed._handed:
        os.close(descriptor)
    handed._handed.clear()


def batches(count: int) -> list:
    return [pa.RecordBatch.from_pydict({"x": [number, number + 1], "a": [[0.5], [float(number), 2.0]]}, SCHEMA)
            for number in range(count)]


def table(found: list) -> object:
    return pa.Table.from_batches(found, SCHEMA)


def test_batches_are_read_as_they_were_written():
    for count in (0, 1, 5):
        line = memoryview(handed.hand(batches(count), SCHEMA))
        assert handed.is_handed(line)
        assert table(list(handed.take(line))).equals(table(batches(count)))
    assert not handed.is_handed(memoryview(b"\xff\xff\xff\xff and a stream"))


def test_another_process_takes_them_and_gives_their_memory_back():
    line = handed.hand(batches(3), SCHEMA)
    descriptor, = handed._handed
    assert os.fstat(descriptor).st_size
    # As Spark's process does, it has a batch while it asks for the next one.
    program = "import sys\nfrom vispark.tables import handed\nrows = 0\n" \
              "for batch in handed.take(memoryview(sys.argv[1].encode())): rows += batch.num_rows\nprint(rows)"
    assert subprocess.run([sys.executable, "-c", program, line.decode()], capture_output=True, text=True, check=True,
                          timeout=100).stdout == "6\n"
    assert not os.fstat(descriptor).st_size
    with pytest.raises(WorkerUnavailable, match="given them back; Spark repeats the task"):
        list(handed.take(memoryview(line)))


def test_what_is_in_use_is_not_given_back():
    line = memoryview(handed.hand(batches(2), SCHEMA))
    descriptor, = handed._handed
    kept = list(handed.take(line))
    assert os.fstat(descriptor).st_size and table(kept).equals(table(batches(2)))


def test_what_was_taken_or_waits_for_long_is_closed(monkeypatch: pytest.MonkeyPatch):
    taken = memoryview(handed.hand(batches(1), SCHEMA))
    for _ in handed.take(taken):
        pass
    waiting = memoryview(handed.hand(batches(1), SCHEMA))
    assert len(handed._handed) == 1, "what was taken is closed"
    handed.hand(batches(1), SCHEMA)
    assert len(handed._handed) == 2
    monkeypatch.setattr(handed, "_PATIENCE", -1.0)
    handed.hand(batches(1), SCHEMA)
    assert len(handed._handed) == 1
    with pytest.raises(WorkerUnavailable):
        list(handed.take(waiting))


@pytest.mark.parametrize("line", ["vispark-batches-0 1 99999", "vispark-batches-0 {pid} 0", "vispark-batches-0 0 0"])
def test_a_process_that_has_ended_and_another_descriptor_are_errors(line: str):
    with pytest.raises(WorkerUnavailable, match="has ended"):
        list(handed.take(memoryview(line.format(pid=os.getpid()).encode())))


def test_processes_that_do_not_outlive_their_task_hand_nothing():
    assert handed.can_hand(Conf({}))
    assert not handed.can_hand(Conf({"spark.python.worker.reuse": "false"}))
    assert not handed.can_hand(Conf({"spark.python.use.daemon": "false"}))


class Conf(dict):
    """Configuration of Spark's, as far as it is asked."""
