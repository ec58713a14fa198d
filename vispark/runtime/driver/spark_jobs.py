"""Spark jobs of a session: repeated after a crash of a Python worker, cancelled by an interrupt, with the user's line.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import RDD, SparkContext

from vispark._utils.callers import call_site, user_call
from vispark.plan.ops import LogicalPlan
from vispark.runtime.driver.interrupts import interruptibly
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.retry import check_open
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED, reraise, worker_crashed
from vispark.runtime.identity import Credentials
from vispark.runtime.profiling import watch

log = logging.getLogger(__name__)


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

    def records(self, rdd: RDD[Any], partitions: Sequence[int]) -> list[Any]:
        """Return the records of some partitions by one job."""
        return self.run(lambda: self.once(rdd, partitions))

    def once(self, rdd: RDD[Any], partitions: Sequence[int], report: Callable[[], None] | None = None) -> list[Any]:
        """Return the records of some partitions by one job that is not repeated; ``report`` is called now and then
        while it runs.

        An interrupt of the main thread cancels the job.
        """
        return interruptibly(self._context, lambda: self._context.runJob(rdd, list, list(partitions)), report)

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
