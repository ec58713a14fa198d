"""Channel to a worker over connections, by whatever transport the table of kinds has for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from gpu_worker.client.connection import Client, Lease, connect, finish, open_lease
from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Ran, Reach, Release, Request, Retain
from gpu_worker.protocol.payload import Data, Payload
from gpu_worker.protocol.transport_kinds import TransportKind
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Fenced, WorkerError, WorkerLost, WorkerUnavailable, WorldLost
from vispark.plan.lower.executable import Invocation
from vispark.runtime.driver.awaited_plans import AwaitedPlans
from vispark.runtime.driver.channel import Learn, Sent, TokenPlace
from vispark.runtime.driver.pipeline import PendingRequest, RequestPipeline
from vispark.runtime.executor.client import blame, contents
from vispark.runtime.identity import Credentials, WorkerAddress

#: Another thread may take the answer that is waited for.
POLL_MS = 50

#: For how long, in seconds, a daemon that was reached over TCP before and is not any more may be on its way back.
_RESTART_SECONDS = 2.0


class WorkerConnections:
    """Connections to a worker, on which plans run ahead: one for each thread with plans in flight, and idle ones.

    Parameters
    ----------
    credentials : Credentials
        Of the session.
    home : WorkerAddress
        Of the worker.
    kind : TransportKind
        The transport to connect by.
    learn : callable
        Told the epoch and the shared memory of the process that a connection leads to.
    heard : callable
        Told of each answer to a plan.
    awaited : AwaitedPlans
        The plans that the session waits for.

    Attributes
    ----------
    reach : Reach or None
        Where the worker is reached over TCP, if it is.
    gone : bool
        Whether it was reached over TCP and is not any more.
    dropped : int
        The epoch of the last connection that broke, of which whoever used it tells.
    """

    def __init__(self, credentials: Credentials, home: WorkerAddress, kind: TransportKind, learn: Learn,
                 heard: Callable[[PendingRequest], None], awaited: AwaitedPlans):
        self.kind = kind
        self.reach: Reach | None = None
        self.gone = False
        self.dropped = 0
        self._credentials = credentials
        self._home = home
        self._learn = learn
        self._heard = heard
        self._awaited = awaited
        self._idle: list[RequestPipeline] = []
        #: Pipelines with plans on their way, by the thread that sends them.
        self._busy: dict[threading.Thread, RequestPipeline] = {}
        self._lease: Lease | None = None
        self._lock = threading.Lock()

    def try_address(self, *, again: bool) -> None:
        """Open a connection to the address that has just become known; one that was lost may be on its way back.

        Raises
        ------
        WorkerError
            If there is no worker.
        """
        self._idle.append(self._open() if again else self._connected(self.reach))

    @property
    def idle(self) -> list[int]:
        """The descriptors of the connections that are kept for what comes next."""
        with self._lock:
            return [pipeline.client.fileno() for pipeline in self._idle]

    @property
    def spare(self) -> list[Payload]:
        """The memory that these connections keep for what comes next."""
        with self._lock:
            return [payload for pipeline in self._idle for payload in pipeline.client.spare]

    # -- plans --------------------------------------------------------------------------------------------------------

    def send(self, invocation: Invocation, token: TokenPlace, released: tuple[int, ...]) -> Sent:
        pipeline = self._own_pipeline()
        try:
            invocation.check(pipeline.client.epoch)
            return Sent(self, pipeline, pipeline.send(invocation, released))
        except (WorkerLost, WorldLost):
            self._drop(pipeline)
            raise
        finally:
            self._settle(pipeline)

    def receive(self, sent: Sent) -> tuple[int, Ran, Data]:
        pipeline, pending = sent.pipeline, sent.pending
        assert pipeline is not None and pending is not None
        try:
            reply, data = pipeline.wait(pending)
        finally:
            self._settle(pipeline)
            if pipeline.client.fileno() < 0:
                self._drop(pipeline)
        return pipeline.client.epoch, reply, data

    def follows(self, sent: Sent) -> bool:
        """Return whether a plan that the calling thread sends now goes behind a sent one on its connection."""
        return self._busy.get(threading.current_thread()) is sent.pipeline

    def uses(self, number: int, *, of_others: bool) -> bool:
        """Return whether a plan in flight starts from a VRDD; with ``of_others`` one of another thread."""
        caller = threading.current_thread()
        with self._lock:
            pipelines = [pipeline for thread, pipeline in self._busy.items() if not of_others or thread != caller]
        return any(pipeline.uses(number) for pipeline in pipelines)

    # -- small requests -----------------------------------------------------------------------------------------------

    def ask(self, request: Callable[[int], Request], token: TokenPlace) -> tuple[int, Any]:
        return self._ask(lambda client: request(client.next_number()))

    def held(self, number: int) -> tuple[int, dict[int, PartitionSchema]] | None:
        epoch, reply = self._ask(lambda client: messages.Describe(client.next_number(), number, ()))
        return epoch, contents(reply)

    def retain(self, number: int, partitions: tuple[int, ...], *, only: bool) -> None:
        with suppress(WorkerError):
            self._ask(lambda client: Retain(client.next_number(), number, partitions, only))

    def release(self, numbers: tuple[int, ...]) -> None:
        self._settle_orphans()
        with self._lock:
            busy = list(self._busy.values())
        for pipeline in busy:
            used = tuple([number for number in numbers if pipeline.uses(number)])
            with suppress(WorkerError):
                if used:
                    pipeline.release(used)
                    numbers = tuple([number for number in numbers if number not in used])
        with suppress(WorkerError):
            if numbers:
                self._ask(lambda client: Release(client.next_number(), numbers))

    def abandon(self, world: bytes) -> None:
        # Over a connection of its own: others may be those that wait.
        with suppress(WorkerError), closing(self._open()) as pipeline:
            pipeline.client.request(messages.Abandon(pipeline.client.next_number(), world))

    def _ask(self, request: Callable[[Client], Request]) -> tuple[int, Any]:
        """Return the answer to a small request and the worker's epoch, asking the next process if one is lost.

        A connection that waited may lead to a process that is gone, while tasks have brought data to the next one.
        """
        attempts = self._credentials.options.attempts
        while True:
            try:
                with self._borrowed() as pipeline:
                    return pipeline.client.epoch, pipeline.ask(request)
            except WorkerLost:
                attempts -= 1
                if attempts < 0 or self.gone:
                    raise

    # -- connections --------------------------------------------------------------------------------------------------

    def _own_pipeline(self) -> RequestPipeline:
        """Return the calling thread's pipeline, or an unused one."""
        thread = threading.current_thread()
        pipeline = self._known_pipeline(thread)
        if pipeline is None:
            self._settle_orphans()
            pipeline = self._known_pipeline(thread)
        if pipeline is None:
            pipeline = self._open()
            with self._lock:
                self._busy[thread] = pipeline
        return pipeline

    def _known_pipeline(self, thread: threading.Thread) -> RequestPipeline | None:
        with self._lock:
            pipeline = self._busy.get(thread) or (self._idle.pop() if self._idle else None)
            if pipeline is not None:
                self._busy[thread] = pipeline
            return pipeline

    def _settle_orphans(self) -> None:
        """Take what was answered to threads that ended with plans on their way: nobody else does."""
        with self._lock:
            orphans = [pipeline for thread, pipeline in self._busy.items() if not thread.is_alive()]
        for pipeline in orphans:
            pipeline.take_arrived()
            self._settle(pipeline)

    def _settle(self, pipeline: RequestPipeline) -> None:
        """Make a pipeline available to other threads once nothing is in flight on it."""
        if not pipeline.idle:
            return
        with self._lock:
            for thread, busy in list(self._busy.items()):
                if busy is pipeline:
                    del self._busy[thread]
                    if pipeline.client.fileno() >= 0:
                        self._idle.append(pipeline)

    def _open(self) -> RequestPipeline:
        if not self.kind.needs_address:
            return self._connected(None)
        if self.reach is None:
            raise WorkerUnavailable(f"the worker in {self._home.runtime_dir} is not reached over TCP, and daemon.log "
                                    "there says why; leave spark.vispark.transport to 'auto', and it is relayed to")
        # Who was waited for in vain is not waited for again, until a task tells of it.
        until = time.monotonic() + (0.0 if self.gone else _RESTART_SECONDS)
        while True:
            try:
                return self._connected(self.reach)
            except WorkerUnavailable as error:
                if time.monotonic() > until:
                    # Spark finds another node, or a task starts another daemon on this one.
                    self.gone = True
                    raise WorkerLost(error.message, detail=error.detail) from error
                time.sleep(POLL_MS / 1000)

    def _connected(self, reach: Reach | None) -> RequestPipeline:
        options, directory = self._credentials.options, self._home.runtime_dir
        client = connect(self._credentials.hello("driver"), runtime_dir=directory, reach=reach,
                         timeout=options.startTimeout, transport=self._connector)
        with self._lock:
            if self._lease is None:
                self._lease = open_lease(self._credentials.hello("lease"), runtime_dir=directory, reach=reach,
                                         transport=self._connector)
        self._learn(client.epoch, client.shared_limit)
        return RequestPipeline(client, options.deadline, blame, self._heard, self._awaited)

    @property
    def _connector(self) -> str:
        """The transport to connect by; "" for that of the address, to connections where plans go by tasks."""
        return self.kind.name if self.kind.is_direct else ""

    def _drop(self, pipeline: RequestPipeline) -> None:
        """Close a broken connection, and all idle ones: they lead to the same process."""
        pipeline.close()
        with self._lock:
            self.dropped = pipeline.client.epoch
            idle, self._idle = self._idle, []
            for thread, busy in list(self._busy.items()):
                if busy is pipeline:
                    del self._busy[thread]
        for unused in idle:
            unused.close()

    @contextmanager
    def _borrowed(self) -> Iterator[RequestPipeline]:
        """Yield a connection for one request; it is closed if the request fails."""
        with self._lock:
            pipeline = self._idle.pop() if self._idle else None
        pipeline = pipeline or self._open()
        try:
            yield pipeline
        except (WorkerLost, Fenced):
            self._drop(pipeline)
            raise
        finally:
            with self._lock:
                if pipeline.client.fileno() >= 0:
                    self._idle.append(pipeline)

    def close(self) -> None:
        """Close all connections; the worker frees the session's content."""
        with self._lock:
            pipelines, self._idle = [*self._idle, *self._busy.values()], []
            self._busy.clear()
            lease, self._lease = self._lease, None
        for pipeline in pipelines:
            pipeline.close()
        if lease:
            lease.close()
            reach = self.reach if self.kind.needs_address else None
            with suppress(WorkerError):
                finish(self._credentials.hello("finish"), runtime_dir=self._home.runtime_dir, reach=reach,
                       transport=self._connector)
