"""Spark jobs of a session: repeated after a crash of a Python worker, cancelled by an interrupt, with the user's line.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from py4j.clientserver import ClientServer
from pyspark import RDD, SparkContext

from vispark._utils.callers import call_site, user_call
from vispark.plan.ops import LogicalPlan
from vispark.runtime.driver.interrupts import interruptibly
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.retry import check_open
from vispark.runtime.driver.spark_errors import CALL_FAILED, SPARK_JOB_FAILED, reraise, worker_crashed
from vispark.runtime.identity import Credentials
from vispark.runtime.profiling import watch

log = logging.getLogger(__name__)

#: How long jobs may take to end when the context is about to stop, and from one attempt to end them to the next.
_END_SECONDS, _LOOK_SECONDS = 10.0, 0.5


class SparkJobs:
    """Runner of a session's Spark jobs.

    Parameters
    ----------
    context : SparkContext
        Runs them.
    credentials : Credentials
        Of the session.
    released : Released
        Closed once the context stops.
    """

    def __init__(self, context: SparkContext, credentials: Credentials, released: Released):
        self._context = context
        self._credentials = credentials
        self._released = released
        self._tag = f"vispark-{credentials.session}"
        self._running = 0
        self._ended = threading.Condition()

    def close(self) -> None:
        """End the jobs that run, once ``released`` is closed and no other starts, before the context stops: Spark drops
        a job that comes while it does, and whoever waits for that one would wait without end.
        """
        until = time.monotonic() + _END_SECONDS
        with self._ended:
            while self._running and time.monotonic() < until:
                with suppress(*CALL_FAILED):
                    self._context.cancelJobsWithTag(self._tag)      # a job may start behind the first attempt
                self._ended.wait(_LOOK_SECONDS)

    def records(self, rdd: RDD[Any], partitions: Sequence[int]) -> list[Any]:
        """Return the records of some partitions by one job."""
        return self.run(lambda: self.once(rdd, partitions))

    def once(self, rdd: RDD[Any], partitions: Sequence[int], report: Callable[[], None] | None = None) -> list[Any]:
        """Return the records of some partitions by one job that is not repeated; ``report`` is called now and then
        while it runs.

        An interrupt of the main thread cancels the job.
        """
        with self._counted():
            return interruptibly(self._context, lambda: self._tagged(rdd, list(partitions)), report)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Have :meth:`close` wait for what is done within the block, which it does not let begin.

        Raises
        ------
        PlanError
            If the context was stopped.
        """
        with self._ended:
            check_open(self._released)
            self._running += 1
        try:
            yield
        finally:
            with self._ended:
                self._running -= 1
                self._ended.notify_all()

    def _tagged(self, rdd: RDD[Any], partitions: list[int]) -> list[Any]:
        """Run a job that :meth:`close` can cancel, where this thread has a thread of its own in the JVM."""
        if not isinstance(self._context._gateway, ClientServer):
            return self._context.runJob(rdd, list, partitions)
        self._context.addJobTag(self._tag)
        try:
            return self._context.runJob(rdd, list, partitions)
        finally:
            with suppress(*CALL_FAILED, AttributeError):    # a context that is stopped has no JVM to tell
                self._context.removeJobTag(self._tag)

    def run(self, action: Callable[[], Any], chain: LogicalPlan | None = None) -> Any:
        """Run an action that starts a job, for ``chain`` where that is known, and return its result; run it again if a
        Python worker crashed under it.

        Spark repeats failed tasks itself on a cluster, but not in local mode.

        Raises
        ------
        VisparkError
            That of a task, as itself.
        PlanError
            If the context was stopped.
        """
        for attempt in itertools.count():
            try:
                followed = watch.of(self._credentials.session)
                with call_site(self._context, user_call(), followed.link if followed else ""):
                    return action()
            except SPARK_JOB_FAILED as error:
                check_open(self._released)
                if not worker_crashed(error) or attempt >= self._credentials.options.attempts:
                    reraise(error, chain)
                log.warning("a Python worker crashed under a Spark job, repeating it")
