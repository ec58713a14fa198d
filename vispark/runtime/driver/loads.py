"""Loading of partitions into workers by Spark jobs, whose tasks hand back tokens that say where each partition lies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pyspark import RDD, SparkContext, StorageLevel

from vispark.errors import VisparkError
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.runtime.driver.executor_gpus import refresh
from vispark.runtime.driver.garbage_collector import GarbageCollector
from vispark.runtime.driver.progress import showing
from vispark.runtime.driver.residency import Residencies, Residency
from vispark.runtime.driver.spark_errors import tasks_done
from vispark.runtime.driver.spark_jobs import SparkJobs
from vispark.runtime.driver.worker import Workers
from vispark.runtime.executor.task_input import reading_whole
from vispark.runtime.executor.tasks import ErrorReturning, LoadTask, checked
from vispark.runtime.identity import Credentials, PartitionHandle
from vispark.runtime.profiling import profiler as profiling
from vispark.runtime.task_errors import attempts_of_a_task

log = logging.getLogger(__name__)


class Loads:
    """Loader of a session's partitions.

    Parameters
    ----------
    context : SparkContext
        Runs the tasks.
    credentials : Credentials
        Of the session.
    jobs : SparkJobs
        Runs the jobs.
    workers : Workers
        All that are known; those that tasks name become known.
    residencies : Residencies
        They are told where their partitions are.
    collector : GarbageCollector
        Told of the stages whose tasks may have left copies.
    """

    def __init__(self, context: SparkContext, credentials: Credentials, jobs: SparkJobs, workers: Workers,
                 residencies: Residencies, collector: GarbageCollector):
        self._context = context
        self._credentials = credentials
        self._jobs = jobs
        self._workers = workers
        self._residencies = residencies
        self.collector = collector

    def load(self, loader: RDD[Any], chain: LogicalPlan, partitions: Sequence[int]) -> None:
        """Load partitions of an RDD, and compute a chain's cached nodes of them, by a Spark job."""
        profile = profiling.current()
        refresh(self._credentials.gpus, self._context, loader)
        task = LoadTask(self._credentials, chain, profile is not None)
        load = ErrorReturning(task, attempts_of_a_task(self._context))
        tokens = reading_whole(loader.mapPartitionsWithIndex(load, preservesPartitioning=True))
        targets = self._residencies.of(chain)
        last = targets[-1]
        lost = sum(partition in last.contents for partition in partitions)
        if lost:
            log.warning("VRDD %s: %d partition%s lost, and loaded again by a Spark job", last.cached, lost,
                        " was" if lost == 1 else "s were")
        untold = [residency for residency in targets if residency.tokens is None or not residency.contents]
        if untold:
            tokens.setName(f"vispark tokens of {last.cached.name}").persist(StorageLevel.MEMORY_ONLY)
        for residency in untold:
            residency.tokens = tokens
        self._release_copies(targets, partitions)
        done: list[Any] = []
        try:
            with self._workers.awaited.during(f"a Spark job that loads VRDD {last.cached}"):
                done = self._jobs.run(lambda: self._run(tokens, partitions, last.cached), chain)
            handles = checked(done, chain)
        except VisparkError:
            if untold:
                tokens.unpersist()
            self._give_back(targets, [each for each in done if isinstance(each, PartitionHandle)])
            raise
        for token in handles:
            self.place(token)
        self._release_copies(targets)
        self.collector.loaded({token.stage for token in handles}, handles[0].contents if handles else ())
        if profile is not None:
            for token in handles:
                profile.add_task_seconds(token.stage, token.partition, token.seconds or {})

    def place(self, token: PartitionHandle) -> None:
        """Record where a partition is, as its token says."""
        worker = self._workers.at(token.home)
        worker.executor = token.executor
        worker.learn(token.epoch, token.shared_limit)
        worker.set_reach(token.reach)
        for number, content in token.contents.items():
            residency = self._residencies.get(number)
            if residency:
                residency.bind(token.home, token.epoch, {token.partition: content})

    def _give_back(self, targets: Sequence[Residency], loaded: Sequence[PartitionHandle]) -> None:
        """Let workers release what tasks of a load that failed have left, so that it is in nobody's way."""
        for token in loaded:
            worker = self._workers.at(token.home)
            worker.learn(token.epoch, token.shared_limit)
            worker.set_reach(token.reach)
        for residency in targets:
            for worker in self._workers.known():
                here = [partition for partition, (home, _) in list(residency.places.items()) if home == worker.home]
                worker.retain(residency.cached.number, sorted(here), only=False)

    def _release_copies(self, targets: Sequence[Residency], coming: Sequence[int] = ()) -> None:
        """Have workers release copies of partitions, except those that are known to be there or on their way."""
        for residency in targets:
            # Workers were told nothing yet of what has never been anywhere.
            for worker in self._workers.known() if residency.contents else ():
                here = [partition for partition, (home, _) in list(residency.places.items()) if home == worker.home]
                worker.retain(residency.cached.number, sorted({*here, *coming}))

    def _run(self, tokens: RDD[Any], partitions: Sequence[int], loaded: DatasetId) -> list[Any]:
        """Run the Spark job of a load, and show how far it is."""
        with showing(f"load VRDD {loaded}", len(partitions), "partitions") as progress:
            return self._jobs.once(tokens, partitions,
                                   (lambda: progress.update(tasks_done(self._context, tokens))) if progress.is_shown
                                   else None)
