"""Spark jobs of one task, by which plans and requests come to workers that the driver cannot reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark import RDD, SparkContext

from vispark.runtime.driver import publications
from vispark.runtime.driver.channel import CarriedReply, TokenPlace
from vispark.runtime.executor.relay_tasks import Ask, Relay
from vispark.runtime.identity import WorkerAddress


class RelayJobs:
    """Runner of the tasks that relay, one for a session.

    Parameters
    ----------
    context : SparkContext
        Of the session.
    job : callable
        Returns the records of some partitions of an RDD by a Spark job.
    executor : callable
        Returns Spark's name of the executor that brought a worker its last partition.

    Attributes
    ----------
    count : int
        How many tasks were asked for.
    """

    def __init__(self, context: SparkContext, job: Callable[[RDD[Any], Sequence[int]], list[Any]],
                 executor: Callable[[WorkerAddress], str]):
        self.count = 0
        self._context = context
        self._job = job
        self._executor = executor

    def run(self, task: Relay | Ask, at: TokenPlace) -> CarriedReply:
        """Run a task where a token lies or, where the partition was loaded on another node since, on an executor of the
        node of the task's worker.
        """
        self.count += 1
        tokens = at.holder.tokens
        assert tokens is not None
        answer: CarriedReply = self._job(tokens.mapPartitionsWithIndex(task), [at.partition])[0]
        there = None if answer else publications.at_executor(self._context, self._executor(task.home))
        return self._job(there.mapPartitionsWithIndex(task), [0])[0] if there else answer
