"""What nobody refers to any more, and how the workers hear of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import suppress

from pyspark import SparkContext

from vispark.spark import SPARK_JOB_FAILED
from vispark.workers import Workers

log = logging.getLogger(__name__)

#: For how long, in seconds, what was released waits for a plan to take it along.
_PATIENCE = 0.005

#: As long does what a worker is to be told through a Spark task, if no plan comes.
_ERRAND_PATIENCE = 0.1


class Released:
    """The numbers of VRDDs that nobody refers to any more; finalizers put them here, anywhere, and do nothing else."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque()
        self._some = threading.Event()
        self._closed = threading.Event()

    def put(self, number: int) -> None:
        self._numbers.append(number)
        self._some.set()

    def take(self) -> tuple[int, ...]:
        """All of them, for the workers to forget."""
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._numbers.popleft())
        return tuple(found)

    def wait(self) -> bool:
        """Wait until some have been there for a while; False once no more are to come."""
        self._some.wait()
        self._some.clear()
        if not self._closed.is_set():
            time.sleep(_PATIENCE)
        return not self._closed.is_set()

    def wait_closed(self) -> bool:
        """Give a plan time to take some along; whether no more are to come."""
        return self._closed.wait(_ERRAND_PATIENCE)

    def wake(self) -> None:
        """End a :meth:`wait`."""
        self._some.set()

    def close(self) -> None:
        self._closed.set()
        self._some.set()


def run_errands(context: SparkContext, workers: Workers, released: Released, *, twins: bool) -> None:
    """Tell the workers that are relayed to what they may forget, if no plan has taken it along.

    Parameters
    ----------
    context : SparkContext
        Runs the tasks.
    workers : Workers
        All that are known.
    released : Released
        Says when it is too late for it.
    twins : bool
        Whether there may be copies that twins of tasks have made.
    """
    if not any(worker.transport == "relay" for worker in workers.known()) or released.wait_closed():
        return
    for worker in workers.known():
        task = worker.errand(twins)
        if task is None:
            continue
        came = False
        try:
            # Any task on its node will do.
            slots = 2 * context.defaultParallelism
            tasks = context.parallelize(range(slots), slots).mapPartitionsWithIndex(task)
            came = any(answer is not None for answer in tasks.collect())
        except (*SPARK_JOB_FAILED, ReferenceError, AttributeError) as error:
            # The context may be stopping.
            log.debug("a worker was not told what it may forget: %s", error)
        if not came:
            worker.failed(task)
