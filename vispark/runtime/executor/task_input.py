"""Input of tasks, which Spark feeds: read to its very end, or skipped.

Where reading the input fails in the JVM, as where a shuffle's files are lost with an executor, Spark closes the stream,
and PySpark takes that for the end of the records. Spark drops such a task's results; what it has put into a worker
would stay, so a task must know: :class:`WholeInput`.

Spark keeps a Python worker for the next task only if the last one has read all of its input. A task that takes a
worker's results in place of the records skips these as bytes: nothing is unpickled, and no function of the RDD that was
sent is called.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.rdd import PipelinedRDD
from pyspark.serializers import Serializer, SpecialLengths

#: Seconds that a task skips at most: a new Python worker costs about as much.
BUDGET = 0.3

_CHUNK = 1 << 18
_LENGTH = struct.Struct("!i")

_PartitionFunction = Callable[[int, Iterable[Any]], Iterable[Any]]


class SkippableRecords(Iterator[Any]):
    """Stream of records that are decoded on demand; :meth:`skip` skips the rest."""

    def __init__(self, stream: Any, records: Iterable[Any]):
        self._stream, self._records = stream, iter(records)

    def __next__(self) -> Any:
        return next(self._records)

    def skip(self, budget: float = BUDGET) -> bool:
        """Read to the end, and return whether it was reached; stops after ``budget`` seconds, between two frames.

        Notes
        -----
        Never within a frame: what stands there might look like the end of Spark's stream.
        """
        until = time.monotonic() + budget
        while time.monotonic() < until:
            head = self._stream.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return False
            length, = _LENGTH.unpack(head)
            if length == SpecialLengths.END_OF_DATA_SECTION:
                self._records = iter(())
                return True
            while length > 0:
                read = self._stream.read(min(length, _CHUNK))
                if not read:
                    return False
                length -= len(read)
        return False


class InputCutShort(Exception):
    """Error of a task that Spark fed a part of its partition only; Spark itself knows why, and has failed the task."""


class WholeInput(Serializer):
    """Deserializer of Spark's, whose records end in :class:`InputCutShort` where their stream was closed early."""

    def __init__(self, of: Serializer):
        self._of = of

    def load_stream(self, stream: Any) -> Iterator[Any]:
        return itertools.chain(self._of.load_stream(stream), _verified_end(stream))

    def __repr__(self) -> str:
        return f"WholeInput({self._of})"


def _verified_end(stream: Any) -> Iterator[Any]:
    """Yield nothing; behind the records Spark writes that there is no more, so the stream has not ended yet."""
    if not stream.peek(1):
        raise InputCutShort("Spark fed this task a part of its partition only")
    yield from ()


def reading_whole(rdd: PipelinedRDD) -> PipelinedRDD:
    """Return an RDD that has not run yet, whose tasks end in an error where their input is cut short."""
    if not isinstance(rdd._prev_jrdd_deserializer, WholeInput | SkippableSerializer):
        rdd._prev_jrdd_deserializer = WholeInput(rdd._prev_jrdd_deserializer)
    return rdd


class SkippableSerializer(Serializer):
    """Deserializer of Spark's, whose records can be skipped."""

    def __init__(self, of: Serializer):
        self._of = of if isinstance(of, WholeInput) else WholeInput(of)

    def load_stream(self, stream: Any) -> SkippableRecords:
        return SkippableRecords(stream, self._of.load_stream(stream))

    def __repr__(self) -> str:
        return f"SkippableSerializer({self._of._of})"


class DeferredInput:
    """Iterator of a partition's records, which are computed once iteration starts."""

    def __init__(self, function: _PartitionFunction, partition: int, fed: Iterable[Any]):
        self._function, self._partition, self._fed = function, partition, fed
        self._is_used = False

    def __iter__(self) -> Iterator[Any]:
        self._is_used = True
        return iter(self._function(self._partition, self._fed))

    def close(self) -> None:
        """Skip what Spark feeds, if the records were not asked for."""
        if not self._is_used and isinstance(self._fed, SkippableRecords):
            self._fed.skip()


class SkippingFunction:
    """Task function that may skip its input: the records of ``before``, or, if it is None, those that Spark feeds."""

    def __init__(self, before: _PartitionFunction | None, function: _PartitionFunction):
        self._before, self._function = before or _as_fed, function

    def __call__(self, partition: int, fed: Iterable[Any]) -> Iterable[Any]:
        records = DeferredInput(self._before, partition, fed)
        results = self._function(partition, records)
        records.close()
        return results


def _as_fed(_: int, fed: Iterable[Any]) -> Iterable[Any]:
    return fed
