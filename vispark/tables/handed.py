"""Batches that one Python process of a Spark task hands to the next one, in memory that both map.

Spark runs each operator in Python of a task in a process of its own, and what passes between two of them is copied four
times by the JVM. Here only a line passes, which names a memfd of the first process; the second one opens it below
``/proc`` and gives its memory back when it has read all.
"""

from __future__ import annotations

import mmap
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

from pyspark import SparkConf

from gpu_worker.protocol.errors import WorkerUnavailable
from gpu_worker.protocol.system import new_memfd, system_call
from vispark.tables.arrow import pa

#: What a line begins with; a stream of Arrow begins otherwise.
_MARK = b"vispark-batches-"

#: Seconds after which memory is given back that no process has taken, as the task was cancelled.
_PATIENCE = 60.0

#: Descriptors that this process handed on, and when.
_handed: dict[int, float] = {}


def can_hand(conf: SparkConf) -> bool:
    """Return whether Spark's Python processes outlive a task, so that the second one finds what the first one has."""
    return all(conf.get(name, "true") == "true" for name in ("spark.python.worker.reuse", "spark.python.use.daemon"))


def hand(batches: Iterable[Any], schema: Any) -> bytes:
    """Write batches of a schema to a memfd of this process, and return the line that names it."""
    _close_taken()
    name = _MARK.decode() + uuid.uuid4().hex
    with ExitStack() as undone:
        descriptor = new_memfd(name)
        undone.callback(os.close, descriptor)
        with system_call("shared memory for a partition's rows"), \
                pa.OSFile(f"/proc/self/fd/{descriptor}", "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        undone.pop_all()
    _handed[descriptor] = time.monotonic()
    return f"{name} {os.getpid()} {descriptor}".encode()


def is_handed(cell: memoryview) -> bool:
    """Return whether a cell is a line that names batches."""
    return cell[:len(_MARK)] == _MARK


def take(line: memoryview) -> Iterator[Any]:
    """Yield the batches that a line names, and give their memory back.

    Raises
    ------
    WorkerUnavailable
        If the process that has them has ended.
    """
    name, pid, number = line.tobytes().decode().split()
    path = f"/proc/{pid}/fd/{number}"
    with ExitStack() as held:
        try:
            descriptor = os.open(path, os.O_RDWR)
            held.callback(os.close, descriptor)
            is_it = os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"/memfd:{name}")
        except OSError as error:
            raise _gone(pid) from error
        if not is_it or not os.fstat(descriptor).st_size:
            raise _gone(pid)
        mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        held.callback(_give_back, mapped, descriptor)
        yield from _read(mapped)


def _read(mapped: mmap.mmap) -> Iterator[Any]:
    reader = pa.ipc.open_stream(pa.py_buffer(mapped))
    schema = reader.schema
    yield from reader
    del reader
    # Who takes the batches has the last one until it has the next: an empty one, which is of no use of this memory.
    yield pa.RecordBatch.from_pylist([], schema=schema)


def _give_back(mapped: mmap.mmap, descriptor: int) -> None:
    with suppress(BufferError):     # somebody has a batch still; the first process gives it back later
        mapped.close()
        os.ftruncate(descriptor, 0)


def _gone(pid: str) -> WorkerUnavailable:
    return WorkerUnavailable(f"the Python process {pid}, which had a partition's rows for a DataFrame, has ended or "
                             "given them back; Spark repeats the task")


def _close_taken() -> None:
    """Close what was taken, and what nobody took for long."""
    now = time.monotonic()
    for descriptor, since in list(_handed.items()):
        if not os.fstat(descriptor).st_size or now - since > _PATIENCE:
            del _handed[descriptor]
            os.close(descriptor)
