"""DataFrames whose rows the JVM reads from Arrow batches that Python tasks make.

Spark has such a reader for the batches of ``createDataFrame``, which the driver has: what it gives is an RDD of rows
over an RDD of batches in the JVM. Its function of a partition is taken here for an RDD of batches that tasks make, so
that no row is a Python object, and no second Python process runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaPackage
from pyspark import RDD, SparkContext, TaskContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from gpu_worker.protocol.errors import PlanError, VisparkError
from vispark._utils.boundary import cut
from vispark.data.records.partition_schema import FetchedPartition
from vispark.data.tables import output
from vispark.data.tables.arrow import pa
from vispark.data.tables.output import columns_of

_log = logging.getLogger(__name__)

#: Batches of a partition.
BATCHES = 16

#: Bytes of a batch at most, which is an array of bytes in the JVM.
_MOST = (1 << 31) - 1

#: Bytes of batches from which Spark makes an RDD of those that the driver has.
_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"


def schemas(partitions: Iterable[FetchedPartition]) -> Iterator[Any]:
    """Yield the Arrow schema of each partition that has records."""
    for content in partitions:
        for batch in output.batches([each.rows(0, 1) for each in columns_of(content)], 1):
            yield batch.schema


@dataclass(frozen=True)
class BatchesTask:
    """Task that makes Arrow batches of a partition, as messages without their schema.

    Attributes
    ----------
    schema : StructType
        The DataFrame's.
    target : pyarrow.Schema
        That of the batches.
    count : int
        The number of messages of a partition, as far as it has rows.
    pads : bool
        Whether a partition gives as many messages however few rows it has, empty ones among them.
    call : str
        The user's call that the DataFrame is of, for errors.
    """

    schema: StructType
    target: Any
    count: int
    pads: bool
    call: str

    def __call__(self, partitions: Iterable[FetchedPartition]) -> Iterator[Any]:
        try:
            yield from self._messages(partitions)
        except VisparkError as error:       # Spark shows the trace of whatever a task raises
            _log.info("a task of a DataFrame failed", exc_info=error)
            task = TaskContext.get()
            raise cut(error.at(partition=task.partitionId() if task else None, operation=self.call)) from None

    def _messages(self, partitions: Iterable[FetchedPartition]) -> Iterator[Any]:
        for content in partitions:
            columns, count = columns_of(content), 0
            if columns:
                for batch in output.shares(output.fitted(columns, self.schema), self.count):
                    yield self._message(batch)
                    count += 1
            yield from [b""] * (self.count - count) if self.pads else ()

    def _message(self, batch: Any) -> Any:
        message = output.cast(batch, self.target).serialize()
        if message.size > _MOST:
            raise PlanError(f"a partition becomes {self.count} Arrow batches, of which one has {message.size:,} bytes, "
                            "and the JVM takes at most 2 GiB: make more partitions")
        return message


@dataclass(frozen=True)
class BatchFrame:
    """DataFrame of the batches that tasks make of partitions.

    Attributes
    ----------
    session : SparkSession
        The DataFrame's.
    schema : StructType
        The DataFrame's.
    call : str
        The user's call that it is of, for errors.
    """

    session: SparkSession
    schema: StructType
    call: str

    def of(self, columns: RDD[FetchedPartition], held: RDD[FetchedPartition] | None = None) -> DataFrame:
        """Return the DataFrame of partitions.

        Parameters
        ----------
        columns : RDD of FetchedPartition
            Partitions, computed from whatever is there.
        held : RDD of FetchedPartition, optional
            The same partitions where workers have them, and nothing where they do not. Where it gives something, what
            the other one would be computed from is not computed.

        Raises
        ------
        PlanError
            If this Spark has no such reader.
        """
        fields = [(field.name, output.arrow_type(field.name, field.dataType)) for field in self.schema.fields]
        target = pa.schema(fields)
        # Fewer than are asked for, so that Spark reads this task to its end, too.
        batches = _java_rdd(columns, BatchesTask(self.schema, target, BATCHES - 1, False, self.call))
        union = None if held is None else _class(self._jvm, "org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
        if held is not None and union is not None:
            padded = BatchesTask(self.schema, target, BATCHES, True, self.call)
            batches = self._first(union, _java_rdd(held, padded), batches)
        return self._read(batches)

    @property
    def _jvm(self) -> Any:
        return self.session._jvm

    def _first(self, union: Any, held: Any, other: Any) -> Any:
        """Return an RDD that has ``held``'s messages of a partition if there are any, else ``other``'s.

        Spark computes the RDDs of such a union one after the other, as far as messages are asked for. An empty message
        lies between the two, and as many messages are asked for as ``held`` has, and that one: what ``other`` is
        computed from is not touched then, and ``held``'s task is read to its end, behind which Spark keeps its Python
        process.
        """
        context, binary = self.session.sparkContext, self._jvm.org.apache.spark.sql.Encoders.BINARY()
        parts = self._jvm.java.util.ArrayList()
        for part in (held, _empty(context, other.getNumPartitions()), other):
            parts.add(part)
        joined = union(context._jsc.sc(), self._jvm.PythonUtils.toSeq(parts), other.getNumPartitions(),
                       other.elementClassTag())
        java: Any = self.session._jsparkSession
        messages = java.createDataset(joined, binary)
        catalyst, types = self._jvm.org.apache.spark.sql.catalyst, self._jvm.org.apache.spark.sql.types.DataTypes
        most = catalyst.expressions.Literal(BATCHES + 1, types.IntegerType)
        limited = catalyst.plans.logical.LocalLimit(most, messages.queryExecution().logical())
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, limited)
        return getattr(dataset.filter("length(value) > 0"), "as")(binary).rdd()

    def _read(self, batches: Any) -> DataFrame:
        """Return the DataFrame of the JVM's RDD of messages."""
        java, tag = self.session._jsparkSession, batches.elementClassTag()
        kind, reader = _class(self._jvm, "org.apache.spark.rdd.MapPartitionsRDD"), _reader(self.session, self.schema)
        # Between the function and two tags there are flags, all false unless Spark says otherwise.
        mapped = kind(batches, reader.function, *[False] * reader.flags, tag, tag)
        return DataFrame(java.internalCreateDataFrame(mapped, reader.schema, False), self.session)


@dataclass(frozen=True)
class _BatchFunction:
    """Spark's reader of the batches of a schema.

    Attributes
    ----------
    function : JavaObject
        Its function of a partition.
    schema : JavaObject
        The JVM's own of the schema.
    flags : int
        The number of flags that the RDD which calls the function is made with.
    """

    function: Any
    schema: Any
    flags: int


#: Readers that were used by the schema as JSON, which it takes a session of Spark's to make.
_readers: WeakKeyDictionary[SparkSession, dict[str, _BatchFunction]] = WeakKeyDictionary()

#: Readers that are kept of a session; of more the oldest one goes.
_KEPT = 64


def _reader(session: SparkSession, schema: StructType) -> _BatchFunction:
    """Return Spark's reader of the batches of a schema, the one before where it was asked for already.

    Raises
    ------
    PlanError
        If this Spark has no such reader.
    """
    by_schema, key = _readers.setdefault(session, {}), schema.json()
    if key not in by_schema:
        if len(by_schema) == _KEPT:
            del by_schema[next(iter(by_schema))]
        by_schema[key] = _made_reader(session, key)
    return by_schema[key]


def _made_reader(session: SparkSession, schema: str) -> _BatchFunction:
    example = _example(session, schema)
    rows = example.queryExecution().logical().rdd()
    if rows.getClass().getSimpleName() != "MapPartitionsRDD":
        raise PlanError(f"Spark {session.version} has no reader of Arrow batches that toDF knows; make rows of the "
                        "records, as in recv().map(tuple).toDF()")
    field = rows.getClass().getDeclaredField("f")
    field.setAccessible(True)
    return _BatchFunction(field.get(rows), example.schema(),
                   rows.getClass().getConstructors()[0].getParameterCount() - 4)


def _example(session: SparkSession, schema: str) -> Any:
    """Return Spark's DataFrame of a batch that is never read, as an RDD however small it is."""
    jvm: Any = session._jvm
    apart = session._jsparkSession.newSession()
    apart.conf().set(_THRESHOLD, "0")
    messages = jvm.java.util.ArrayList()
    messages.add(bytearray(1))
    return jvm.org.apache.spark.sql.api.python.PythonSQLUtils.toDataFrame(
        jvm.PythonUtils.toSeq(messages).iterator(), schema, apart)


def _java_rdd(partitions: RDD[FetchedPartition], task: Callable[[Iterable[FetchedPartition]], Iterator[Any]]) -> Any:
    """Return the JVM's RDD of the messages that a task makes."""
    messages: Any = partitions.mapPartitions(task)
    messages._jrdd_deserializer = NoOpSerializer()
    return messages._jrdd.rdd()


def _empty(context: SparkContext, partitions: int) -> Any:
    """Return the JVM's RDD of an empty message for each partition."""
    assert context._jvm is not None
    messages = context._jvm.java.util.ArrayList()
    for _ in range(partitions):
        messages.add(bytearray())
    return context._jsc.parallelize(messages, partitions).rdd()


def _class(jvm: Any, name: str) -> Any:
    """Return a class of the JVM; None where it has none of this name."""
    entry = jvm
    for part in name.split("."):
        entry = getattr(entry, part)
    return None if isinstance(entry, JavaPackage) else entry
