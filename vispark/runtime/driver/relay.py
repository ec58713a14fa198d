"""Channel to a worker that the driver cannot reach: Spark tasks that carry plans, requests and what waited for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from gpu_worker.protocol.messages import Abandon, Ran, Request
from gpu_worker.protocol.payload import Data, results
from gpu_worker.protocol.system import refused
from vispark._utils.callers import called_from, user_call
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import PartitionMissing, VisparkError, WorldLost
from vispark.plan.lower.executable import Invocation
from vispark.runtime.driver.channel import CarriedReply, Learn, RunTask, Sent, TokenPlace
from vispark.runtime.driver.pipeline import PendingRequest
from vispark.runtime.driver.spark_errors import CALL_FAILED
from vispark.runtime.executor.relay_tasks import Ask, Deferred, Relay
from vispark.runtime.identity import Credentials, WorkerAddress

_Given = TypeVar("_Given")

_NO_TASK = "no task came to the node that holds the partition"


class DeferredMessages:
    """Thread-safe queue of what a relayed worker is to be told by the next Spark task that runs on its node."""

    def __init__(self) -> None:
        self._released: list[int] = []
        #: By number, the partitions of a VRDD that the worker is to hold.
        self._retained: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Return whether a release waits for a task."""
        with self._lock:
            return bool(self._released)

    def release(self, numbers: tuple[int, ...]) -> None:
        """Add VRDDs that the worker is to release."""
        with self._lock:
            self._released.extend(numbers)
            for number in numbers:
                self._retained.pop(number, None)

    def retain(self, number: int, partitions: tuple[int, ...]) -> None:
        """Add a VRDD of which the worker is to hold some partitions and no others."""
        with self._lock:
            self._retained[number] = partitions

    def take(self) -> Deferred:
        """Remove and return all messages, for a task to deliver."""
        with self._lock:
            released, self._released = tuple(self._released), []
            retained, self._retained = self._retained, {}
        return Deferred(released, retained)

    def put_back(self, deferred: Deferred) -> None:
        """Put back messages that no task delivered, for the next task."""
        with self._lock:
            self._released.extend(deferred.released)
            self._retained = deferred.retained | self._retained


class RelayedChannel:
    """Channel by Spark tasks: each plan and each request is a job, and what cannot wait for one goes with the next.

    Parameters
    ----------
    credentials : Credentials
        Of the session.
    home : WorkerAddress
        Of the worker.
    learn : callable
        Told the worker's epoch.
    heard : callable
        Told of each answer to a plan.
    run : callable
        Runs a task where a token lies.

    Attributes
    ----------
    deferred : DeferredMessages
        The messages for the worker that wait for a task.
    """

    def __init__(self, credentials: Credentials, home: WorkerAddress, learn: Learn,
                 heard: Callable[[PendingRequest], None], run: RunTask):
        self.deferred = DeferredMessages()
        self._credentials = credentials
        self._home = home
        self._learn = learn
        self._heard = heard
        self._run = run

    def send(self, invocation: Invocation, token: TokenPlace, released: tuple[int, ...]) -> Sent:
        self.deferred.release(released)
        task = Relay(self._credentials, self._home, invocation, self.deferred.take())
        carry = partial(self._relay, task, token, user_call())
        if invocation.world is None:
            return Sent(self, None, None, carry)
        # The tasks of all workers of a world must run at the same time.
        started = _started(carry)
        started.add_done_callback(partial(self._end_if_failed, invocation, invocation.world.key, token))
        return Sent(self, None, None, started.result, started)

    def _end_if_failed(self, invocation: Invocation, world: bytes, token: TokenPlace,
                       carried: Future[CarriedReply]) -> None:
        """End the world of a plan that failed here, as other workers may wait for this one: it runs in the thread that
        carried the plan, once that is known to have failed.

        The worker itself leaves the world, by a task of its own, with which it ends for all of them; those to which
        plans are relayed are not told, as the tasks that could do so may wait for the slots that they have.
        """
        error = _failure(carried)
        if error is None:
            return
        self._heard(PendingRequest(0, invocation, error=error, done=True))
        if not error.is_alike:
            with suppress(VisparkError, *CALL_FAILED):
                self._run(Ask(self._credentials, self._home, partial(_abandoned, world)), token)

    def _relay(self, task: Relay, token: TokenPlace, call: str) -> CarriedReply:
        """Run the task that carries a plan and the deferred messages to the worker, for a call of the user's."""
        answer: CarriedReply = None
        try:
            with called_from(call):
                answer = self._run(task, token)
        finally:
            if answer is None:
                self.deferred.put_back(task.deferred)
        return answer

    def receive(self, sent: Sent) -> tuple[int, Ran, Data]:
        assert sent.relayed is not None
        epoch, reply, carried = self._carried(sent.relayed())
        data = results(carried, ())
        self._heard(PendingRequest(reply.number, None, answer=(reply, data), done=True))
        return epoch, reply, data

    def ask(self, request: Callable[[int], Request], token: TokenPlace) -> tuple[int, Any]:
        return self._carried(self._run(Ask(self._credentials, self._home, request), token))[:2]

    def _carried(self, answer: CarriedReply) -> tuple[int, Any, bytes]:
        """Return the answer that a task carried; raise the error that it carried, or PartitionMissing if no task
        reached the node.
        """
        if answer is None:
            raise PartitionMissing(_NO_TASK)
        epoch, reply, data = answer
        self._learn(epoch, 0)
        if isinstance(reply, VisparkError):
            raise reply
        return epoch, reply, data

    def held(self, number: int) -> tuple[int, dict[int, PartitionSchema]] | None:
        return None

    def retain(self, number: int, partitions: tuple[int, ...], *, only: bool) -> None:
        """Release all other partitions with the next plan; the worker may take others after that, for it hears too late
        of those that are coming.
        """
        self.deferred.retain(number, partitions)

    def release(self, numbers: tuple[int, ...]) -> None:
        self.deferred.release(numbers)

    def abandon(self, world: bytes) -> None:
        """Do nothing: no task would come in time. The world ends as the worker that failed leaves it."""


def _abandoned(world: bytes, number: int) -> Request:
    """Return the request by which a worker leaves a world."""
    return Abandon(number, world)


def _failure(carried: Future[CarriedReply]) -> VisparkError | None:
    """Return the error of a plan that a task was to carry; None if it was answered."""
    error = carried.exception()
    if error is not None:
        return error if isinstance(error, VisparkError) else WorldLost(f"no task carried a plan of a world: {error}")
    answer = carried.result()
    if answer is None:
        return PartitionMissing(_NO_TASK)
    return answer[1] if isinstance(answer[1], VisparkError) else None


def _started(action: Callable[[], _Given]) -> Future[_Given]:
    """Start an action in a thread of its own."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="vispark relay")
    try:
        future = pool.submit(action)
    except RuntimeError as error:
        raise refused(error, "a thread that relays a plan") from error
    pool.shutdown(wait=False)
    return future
