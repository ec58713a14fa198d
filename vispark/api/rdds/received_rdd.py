"""RDD that ``recv`` returns: an ordinary RDD over a VRDD's records.

As a parent of shuffles, unions and the like it is computed from the RDD that was sent, and takes what workers hold
instead wherever it finds it: what Spark recomputes after a loss is then always right. That has a price: Spark feeds the
sent RDD's records to a task that does not want them, and skips them (:mod:`vispark.runtime.executor.task_input`). So
where an action on it, or on what was mapped from it, ends in a :meth:`ReceivedRDD.collect`, the data is made sure of
first, and tasks are fed a token instead.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark import RDD

from vispark._utils.boundary import brief_errors
from vispark.api.rdds.derived_rdd import adopted, derives
from vispark.errors import PartitionMissing, WorkerUnavailable
from vispark.runtime.driver.interrupts import interruptibly
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.spark_errors import PipelinedRDD
from vispark.runtime.executor.task_input import SkippableSerializer, SkippingFunction
from vispark.runtime.executor.tasks import ErrorReturning, checked
from vispark.runtime.task_errors import attempts_of_a_task

log = logging.getLogger(__name__)


class TokenSource(Protocol):
    """Interface of a VRDD for the RDDs over its records."""

    def tokens(self) -> tuple[RDD[Any], Callable[[int, Iterable[Any]], Iterable[Any]]] | None:
        """Return an RDD of tokens, and the function that takes a partition's records by a token; None if nothing is
        cached.
        """

    def forget_places(self) -> None:
        """Ask the workers again for the places of the data."""


@dataclass(frozen=True)
class _Pipeline:
    """Composition of functions of a partition."""

    first: Callable[[int, Iterable[Any]], Iterable[Any]]
    second: Callable[[int, Iterable[Any]], Iterable[Any]]

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterable[Any]:
        return self.second(partition, self.first(partition, records))


@derives
@brief_errors
class ReceivedRDD(PipelinedRDD):
    """RDD over a VRDD's records, or over the results of a Python function of them.

    It refers to the VRDD, whose data stays for as long as this RDD can run.
    """

    def __init__(self, before: Any, function: Callable[..., Any], preserves_partitioning: bool, source: TokenSource):
        super().__init__(before, function, preserves_partitioning)
        self._source = source
        self._saved_locally = False
        mapped = isinstance(before, ReceivedRDD) and before._source is source and before._is_pipelinable()
        self._functions = (*before._functions, function) if mapped else (function,)
        if not mapped:
            self._skip_what_is_fed(before, function)

    def _skip_what_is_fed(self, before: Any, function: Callable[..., Any]) -> None:
        """Make a task of ``function`` that skips the records which Spark feeds unless the function reads its input,
        computed by ``before``.
        """
        joined = isinstance(before, PipelinedRDD) and before._is_pipelinable()
        self.func = SkippingFunction(before.func if joined else None, function)
        reads = before._prev_jrdd_deserializer if joined else before._jrdd_deserializer
        self._prev_jrdd_deserializer = reads if isinstance(reads, SkippableSerializer) else SkippableSerializer(reads)

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> PipelinedRDD:
        if not self._is_pipelinable():      # what Spark keeps of this one is to be used
            return adopted(PipelinedRDD(self, f, preservesPartitioning))
        return ReceivedRDD(self, f, preservesPartitioning, self._source)

    def localCheckpoint(self) -> None:
        """Mark this RDD, so that the next action on it saves its records in the executors' storage.

        See Also
        --------
        pyspark.RDD.localCheckpoint

        Examples
        --------
        >>> doubled = sc.parallelize([1, 2]).cache("GPU").map(lambda x: 2 * x)
        >>> doubled.localCheckpoint()
        >>> doubled.collect(), doubled.isCheckpointed()
        ([2, 4], True)
        """
        super().localCheckpoint()
        self._saved_locally = True

    def take(self, num: int) -> list[Any]:
        """Return the first records; computed by as few partitions as have them."""
        records: list[Any] = Session.of(self.ctx).jobs.run(functools.partial(super().take, num))
        return records

    def collect(self) -> list[Any]:
        """Return the records, from the workers' data unless Spark has stored this RDD itself."""
        # PySpark's is_checkpointed says nothing of localCheckpoint, which saves the records of this RDD alone.
        if not self._is_pipelinable() or self._saved_locally:
            records: list[Any] = super().collect()
            return records
        session = Session.of(self.ctx)
        for _ in range(2):
            current = self._source.tokens()
            if current is None:
                break
            tokens, take = current       # What was held when this RDD was made may be held anew.
            fed = PipelinedRDD(tokens, ErrorReturning(functools.reduce(_Pipeline, self._functions[1:], take),
                                                   attempts_of_a_task(self.ctx)))
            try:
                return checked(session.jobs.run(functools.partial(interruptibly, self.ctx, fed.collect)))
            except (PartitionMissing, WorkerUnavailable) as error:
                log.warning("lost under a Spark job, repeating it: %s", error)
                self._source.forget_places()
        if self.has_resource_profile:
            records = session.jobs.run(super().collect)
            return records
        source: Any = self
        for _ in self._functions:
            source = source.prev
        handing = ErrorReturning(functools.reduce(_Pipeline, self._functions), attempts_of_a_task(self.ctx))
        safe = PipelinedRDD(source, handing, self.preservesPartitioning)
        return checked(session.jobs.run(functools.partial(interruptibly, self.ctx, safe.collect)))
