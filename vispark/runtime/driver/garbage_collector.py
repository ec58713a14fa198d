"""Background garbage collection: tells workers that no plan reaches which datasets to free, by message or Spark task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from pyspark import RDD, SparkContext

from gpu_worker.protocol.system import start_thread
from vispark._utils.callers import call_site
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED, attempts_of
from vispark.runtime.driver.worker import Worker, Workers
from vispark.runtime.executor.relay_tasks import CollectTask
from vispark.runtime.identity import Credentials, WorkerAddress

log = logging.getLogger(__name__)

#: For how long, in seconds, what a worker is to be told through a Spark task waits for a plan to take it along, and how
#: often tasks that may leave copies are looked at.
_PATIENCE = 0.1

#: How many seconds later it is tried again where no task came to a worker's node, twice as many each time, and how
#: often: all slots there may be taken, by tasks that were killed too, and the node may be gone.
_AGAIN = 0.5
_TRIES = 7

#: Where each task is a job: how many there are for each worker, as Spark may take any node, and how many at once.
_PER_WORKER = 8
_AT_ONCE = 16


class GarbageCollector:
    """Background thread that tells workers which VRDDs to free, and which partitions count.

    Where a task ran twice (Spark runs twins, and repeats what failed) the driver takes one of the copies and knows
    nothing of the node that holds the other. Once no task of the stage runs any more, tasks on all nodes look for it.

    Parameters
    ----------
    context : SparkContext
        Runs the tasks.
    credentials : Credentials
    workers : Workers
        All that are known.
    released : Released
        What nobody refers to any more.
    residencies : mapping of int to Residency
        What is held, by number.
    """

    def __init__(self, context: SparkContext, credentials: Credentials, workers: Workers, released: Released,
                 residencies: Mapping[int, Residency]):
        self._context = context
        self._credentials = credentials
        self._workers = workers
        self._released = released
        self._residencies = residencies
        #: The VRDDs of which tasks may have left copies, by their stage.
        self._speculative_copies: dict[int, tuple[int, ...]] = {}
        self._speculates = context.getConf().get("spark.speculation", "false").lower() == "true"
        #: How many Spark jobs were run.
        self.jobs = 0
        self._busy = False
        self._tries = 0
        self._thread = start_thread(self._collect_until_closed, name="vispark collector")

    def loaded(self, stages: Iterable[int], numbers: Iterable[int]) -> None:
        """Record the VRDDs that the tasks of some stages loaded; tasks that ran twice may have left stray copies."""
        for stage in stages:
            attempts = attempts_of(self._context, stage)
            if attempts is not None and attempts.started > attempts.tasks:
                self._speculative_copies[stage], self._tries = tuple(numbers), _TRIES
                self._released.wake()

    @property
    def idle(self) -> bool:
        """Whether all workers have been told which VRDDs to free."""
        return not (self._released or self._busy or self._speculative_copies
                    or any(each.deferred for each in self._workers.known()))

    def join(self) -> None:
        """Wait for the thread, after the queue is closed."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _collect_until_closed(self) -> None:
        pause: float | None = None
        while self._released.wait(pause):
            self._busy = True
            try:
                self._send_released()
                self._run()
                pause = self._pause()
            except Exception as error:
                self._tries = max(self._tries - 1, 0)
                pause = _AGAIN * 2 ** (_TRIES - self._tries)
                if self._is_over(error):
                    log.debug("workers were not told what they may forget: %s", error)
                else:
                    log.warning("workers were not told what they may forget; it is tried again in %g s", pause,
                                exc_info=error)
            finally:
                self._busy = False

    def _send_released(self) -> None:
        numbers = self._released.take()
        if numbers:
            self._tries = _TRIES
            with ExitStack() as undo:
                undo.callback(self._released.put, *numbers)
                self._workers.release(numbers)
                undo.pop_all()

    def _is_over(self, error: Exception) -> bool:
        """Return whether a job failed because its context is stopping, or has stopped, or Spark cancelled it."""
        return isinstance(error, SPARK_JOB_FAILED) or self._context._jsc is None or self._released.is_closed

    def _pause(self) -> float | None:
        """Return the seconds to the next work, if nothing happens before."""
        if self._speculative_copies and self._tries == _TRIES:
            return _PATIENCE
        waits = self._speculative_copies or (self._tries and any(worker.deferred for worker in self._workers.known()))
        return _AGAIN * 2 ** (_TRIES - self._tries) if waits else None

    def _run(self) -> None:
        relayed = [worker for worker in self._workers.known() if not worker.direct]
        with ExitStack() as stack:
            before = dict(self._speculative_copies)
            keep = self._places_to_keep(stack)
            if not keep and (not any(worker.deferred for worker in relayed) or self._released.closes(_PATIENCE)):
                return
            waiting = [worker for worker in relayed if worker.deferred]
            if keep or waiting:
                reached = self._run_tasks(waiting, keep)
                if keep and self._tries and not reached >= {worker.home for worker in self._workers.known()}:
                    self._speculative_copies.update(before)

    def _places_to_keep(self, stack: ExitStack) -> dict[int, dict[WorkerAddress, tuple[int, ...]]]:
        """Return the places of partitions, by VRDD number and worker, for VRDDs of which ended stages may have left
        stray copies.

        Nothing is loaded of them before the ``stack`` is closed.
        """
        keep: dict[int, dict[WorkerAddress, tuple[int, ...]]] = {}
        for stage, numbers in list(self._speculative_copies.items()):
            attempts = attempts_of(self._context, stage)
            if attempts is not None and attempts.active:
                continue
            residencies = [residency for residency in map(self._residencies.get, numbers) if residency is not None]
            with ExitStack() as locks:
                if not all(_locked(residency, locks) for residency in residencies):
                    continue
                stack.push(locks.pop_all())
            del self._speculative_copies[stage]
            keep.update({number: {} for number in numbers})
            keep.update({residency.cached.number: residency.by_home() for residency in residencies})
        return keep

    def _run_tasks(self, waiting: list[Worker],
                   keep: dict[int, dict[WorkerAddress, tuple[int, ...]]]) -> set[WorkerAddress]:
        """Run the Spark tasks that tell workers; return the workers that the tasks reached."""
        self._tries = max(self._tries - 1, 0)
        deferred = {worker: worker.deferred.take() for worker in waiting}
        task = CollectTask(self._credentials, {worker.home: each for worker, each in deferred.items()}, keep)
        reached: set[WorkerAddress] = set()
        try:
            # Any task on a node will do.
            alone = self._speculates and self._tries < _TRIES - 1
            count = _PER_WORKER * len(self._workers.known()) if alone else 2 * self._context.defaultParallelism
            tasks = self._context.parallelize(range(count), count).mapPartitionsWithIndex(task)
            if alone:
                reached.update(self._one_by_one(tasks, count))
            else:
                self.jobs += 1
                with call_site(self._context, "vispark: workers free what was released"):
                    reached.update(tasks.collect())
        finally:
            for worker, numbers in deferred.items():
                if worker.home not in reached:
                    worker.deferred.put_back(numbers)
        return reached

    def _one_by_one(self, tasks: RDD[WorkerAddress], count: int) -> list[WorkerAddress]:
        """Run a Spark job for each partition and return the results: Spark does not speculate on a stage with a single
        task.

        Where a Python worker takes long to start, a task's twin on another node would end before it, and the worker be
        killed, and started anew for the next task.
        """
        self.jobs += count
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="vispark collector") as pool:
            jobs = pool.map(lambda partition: self._context.runJob(tasks, list, [partition]), range(count))
            return [home for homes in jobs for home in homes]


def _locked(residency: Residency, stack: ExitStack) -> bool:
    """Lock the residency until the ``stack`` is closed; return False if a thread is loading it."""
    if not residency.lock.acquire(blocking=False):
        return False
    stack.callback(residency.lock.release)
    return True
