"""Workers of a session, as the driver reaches them: by socket, over TCP, or through a Spark task."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gpu_worker.client.connection import Client, Lease, connect, finish, open_lease
from gpu_worker.protocol import messages
from gpu_worker.protocol.fast_init import filled
from gpu_worker.protocol.messages import Ran, Reach, Release, Request, Retain
from gpu_worker.protocol.payload import Data, results
from gpu_worker.protocol.system import refused
from gpu_worker.protocol.transport_kinds import AUTO, TransportKind, choose, wants_address
from vispark._utils.callers import called_from, user_call
from vispark.errors import (
    Fenced,
    PartitionMissing,
    VisparkError,
    WorkerError,
    WorkerLost,
    WorkerUnavailable,
    WorldLost,
)
from vispark.lower.executable import Executable, Invocation
from vispark.plan.operation import functions_of
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.profiling import profiler
from vispark.records.partition_schema import PartitionSchema
from vispark.runtime.driver.awaited_plans import AwaitedPlans
from vispark.runtime.driver.pipeline import PendingRequest, Pipeline
from vispark.runtime.executor.client import blame, contents
from vispark.runtime.executor.relay_tasks import Ask, Deferred, Relay
from vispark.runtime.identity import Credentials, WorkerAddress
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.frontend import index_faults

log = logging.getLogger(__name__)

_Given = TypeVar("_Given")

#: What a plan is repeated after: the data is rebuilt, or found elsewhere.
LOST = (WorkerLost, Fenced, PartitionMissing, WorldLost)

#: Another thread may take the answer that is waited for.
_POLL_MS = 50

#: For how long, in seconds, a daemon that was reached over TCP before and is not any more may be on its way back.
_RESTART_SECONDS = 2.0

#: What a task brings from a worker that is relayed to; None where it came to another node.
Carried = tuple[int, Any, bytes] | None
#: Runs a task where a partition's token lies, by a Spark job.
Relayed = Callable[[Relay | Ask], Carried]


@filled
@dataclass(frozen=True)
class Sent:
    """Plan in flight to a worker: in a pipeline, or in a Spark task."""

    pipeline: Pipeline | None
    pending: PendingRequest | None
    relayed: Callable[[], Carried] | None = None


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


class Worker:
    """Worker of a session, with the driver's connections to it.

    Attributes
    ----------
    home : WorkerAddress
        Where it is.
    epoch : int
        Which of the session's device processes there answered last; content from before is gone.
    reach : Reach or None
        Where it is reached over TCP, if it is.
    refused : str
        Why it is not, although it should be.
    kind : TransportKind
        The transport of plans from here to it.
    gone : bool
        Whether it was reached over TCP and is not any more: what it held counts as lost until a task comes from there.
    shared_limit : int
        The bytes of shared memory that thread blocks of its devices can have.
    plans : int
        How many plans it was sent.
    fetched_bytes : int
        How many bytes of results came back from it.
    deferred : DeferredMessages
        The messages for it that wait for a Spark task, while plans are relayed to it; empty otherwise.
    """

    def __init__(self, credentials: Credentials, home: WorkerAddress,
                 heard: Callable[[WorkerAddress, PendingRequest], None],
                 awaited: AwaitedPlans):
        self.home = home
        self._awaited = awaited
        self._heard = partial(heard, home)
        self.epoch = 0
        #: The epoch of the last connection that broke, of which whoever used it tells.
        self._dropped = 0
        self.shared_limit = SHARED_LIMIT
        self.plans = 0
        self.fetched_bytes = 0
        self._credentials = credentials
        self._idle: list[Pipeline] = []
        #: Pipelines with plans on their way, by the thread that sends them.
        self._busy: dict[threading.Thread, Pipeline] = {}
        self._lease: Lease | None = None
        self.deferred = DeferredMessages()
        self._lock = threading.Lock()
        self._trying = threading.Lock()
        self._here = home.here
        self.reach: Reach | None = None
        self._door: Reach | None = None
        self._has_asked = False
        self.refused = ""
        self.gone = False
        self.kind = self._choose()

    def _choose(self) -> TransportKind:
        return choose(self._credentials.options.transport, is_here=self._here,
                      has_address=self.reach is not None and not self.refused)

    @property
    def transport(self) -> str:
        """The name of the transport of plans from here to the worker."""
        return self.kind.name

    @property
    def direct(self) -> bool:
        """Whether plans reach the worker without a Spark task."""
        return self.kind.is_direct

    @property
    def refusal(self) -> str:
        """The reason, for people, why the worker is not reached as it should be; "" if it is."""
        wanted = choose(self._credentials.options.transport, is_here=self._here, has_address=True)
        return f"not {wanted.label}: {self.refused}" if self.refused else ""

    def learn(self, epoch: int, shared_limit: int = 0) -> None:
        """Record the worker's epoch, and the shared memory of its thread blocks, if that is given."""
        with self._lock:
            before, self.epoch = self.epoch, max(self.epoch, epoch)
        self.shared_limit = shared_limit or self.shared_limit
        if before < epoch and before not in (0, self._dropped):
            log.warning("the process of the worker in %s was lost, and what it held is made again; daemon.log there "
                        "says how it ended", self.home.runtime_dir)

    def reached(self, reach: Reach | None) -> None:
        """Record the worker's TCP address, if it has one, and try the address once.

        Raises
        ------
        WorkerError
            If plans are to go over TCP and cannot; one of :data:`LOST` where they could before.
        """
        wanted = self._credentials.options.transport
        if not wants_address(wanted, is_here=self._here):
            return
        with self._trying:
            if reach is None:
                if wanted == AUTO and self.reach is None and not self.refused:
                    self._refuse("its daemon opened no port; daemon.log there says why")
                return
            if reach == self.reach and not self.gone:
                return
            again, self.reach, self.refused, self.gone = self.gone, reach, "", False
            self.kind = self._choose()
            try:
                self._idle.append(self._open() if again else self._connected(reach))
            except WorkerError as error:
                if wanted != AUTO:
                    raise
                self.gone = False
                self._refuse(error.message)

    def _refuse(self, reason: str) -> None:
        self.refused = reason
        self.kind = self._choose()
        log.warning("plans go through Spark tasks to the worker in %s of machine %s: %s", self.home.runtime_dir,
                    self.home.machine, reason)

    # -- plans --------------------------------------------------------------------------------------------------------

    def send(self, invocation: Invocation, relay: Relayed, released: tuple[int, ...] = ()) -> Sent:
        """Send a plan; ``relay`` is used if the worker cannot be reached from here.

        Raises
        ------
        WorkerLost, WorldLost
            If the connection breaks, or leads to another process than the plan is for.
        """
        self.plans += 1
        if not self.direct:
            self.deferred.release(released)
            task = Relay(self._credentials, self.home, invocation, self.deferred.take())
            carry = partial(self._relay, task, relay, user_call())
            # The tasks of all workers of a world must run at the same time.
            return Sent(None, None, carry if invocation.world is None else _started(carry))
        pipeline = self._own_pipeline()
        try:
            invocation.check(pipeline.client.epoch)
            return Sent(pipeline, pipeline.send(invocation, released))
        except (WorkerLost, WorldLost):
            self._drop(pipeline)
            raise
        finally:
            self._settle(pipeline)

    def receive(self, sent: Sent) -> tuple[int, Ran, Data]:
        """Return the answer to a plan: the worker's epoch, its reply, and the fetched data.

        Raises
        ------
        WorkerLost, Fenced, PartitionMissing
            If the plan is to be repeated.
        VisparkError
            If it failed.
        """
        if sent.relayed:
            return self._receive_relayed(sent.relayed)
        pipeline, pending = sent.pipeline, sent.pending
        assert pipeline is not None and pending is not None
        try:
            reply, data = pipeline.wait(pending)
        finally:
            self._settle(pipeline)
            if pipeline.client.fileno() < 0:
                self._drop(pipeline)
        self.fetched_bytes += data.size
        return pipeline.client.epoch, reply, data

    def mine(self, sent: Sent) -> bool:
        """Return whether a plan that the calling thread sends now runs after the sent one, which did not fail."""
        pending = sent.pending
        return pending is not None and pending.error is None and (
            pending.done or (self.direct and self._busy.get(threading.current_thread()) is sent.pipeline))

    def _relay(self, task: Relay, relay: Relayed, call: str) -> Carried:
        """Run the task that carries a plan and the deferred messages to the worker, for a call of the user's."""
        answer: Carried = None
        try:
            with called_from(call):
                answer = relay(task)
        finally:
            if answer is None:
                self.deferred.put_back(task.deferred)
        return answer

    def _receive_relayed(self, relayed: Callable[[], Carried]) -> tuple[int, Ran, Data]:
        epoch, reply, carried = self._carried(relayed())
        self.fetched_bytes += len(carried)
        data = results(carried, ())
        self._heard(PendingRequest(reply.number, None, answer=(reply, data), done=True))
        return epoch, reply, data

    def _carried(self, answer: Carried) -> tuple[int, Any, bytes]:
        """Return the answer that a task carried; raise the error that it carried, or PartitionMissing if no task
        reached the node.
        """
        if answer is None:
            raise PartitionMissing("no task came to the node that holds the partition")
        epoch, reply, data = answer
        self.learn(epoch)
        if isinstance(reply, VisparkError):
            raise reply
        return epoch, reply, data

    # -- small requests -----------------------------------------------------------------------------------------------

    def held(self, number: int) -> tuple[int, dict[int, PartitionSchema]]:
        """Return the worker's epoch and the schemas of a VRDD that it holds; empty for a relayed worker, which cannot
        be asked.
        """
        if not self.direct:
            return self.epoch, {}
        epoch, reply = self._ask(lambda client: messages.Describe(client.next_number(), number, ()))
        return epoch, contents(reply)

    def retain(self, number: int, partitions: list[int]) -> None:
        """Release all other partitions of a VRDD in the worker, which then accepts no others.

        Where it is relayed to, with the next plan; it may take others after that, for it hears too late of those that
        are coming.
        """
        if self.direct:
            with suppress(WorkerError):
                self._ask(lambda client: Retain(client.next_number(), number, tuple(partitions)))
        else:
            self.deferred.retain(number, tuple(partitions))

    def release(self, numbers: tuple[int, ...]) -> None:
        """Release VRDDs in the worker, after the plans in flight; a relayed worker is told with the next plan."""
        if not self.direct:
            self.deferred.release(numbers)
            return
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

    def uses(self, number: int) -> bool:
        """Return whether a plan in flight that a plan of the calling thread may overtake starts from a VRDD."""
        mine = threading.current_thread()
        with self._lock:
            others = [pipeline for thread, pipeline in self._busy.items() if thread != mine or not self.direct]
        return any(pipeline.uses(number) for pipeline in others)

    def abandon(self, world: bytes) -> None:
        """Notify plans that wait in an MPI world, or for it, that it lost a worker; a relayed worker cannot be
        notified.
        """
        if self.direct:
            # Over a connection of its own: others may be those that wait.
            with suppress(WorkerError), closing(self._open()) as pipeline:
                pipeline.client.request(messages.Abandon(pipeline.client.next_number(), world))

    def door(self) -> Reach | None:
        """Return the TCP address at which other nodes' workers reach this one; None if they cannot."""
        if self.reach is None and self._here and self._credentials.options.transport == AUTO \
                and not self._has_asked:
            self._has_asked = True
            options, hello = self._credentials.options, self._credentials.hello("driver", 0, self._credentials.driver)
            with suppress(WorkerError), connect(hello, runtime_dir=self.home.runtime_dir,
                                                timeout=options.startTimeout) as client:
                self._door = client.reach
        return self.reach or self._door

    def meet(self, workers: tuple[str, ...], relay: Relayed) -> None:
        """Check that the worker's daemon knows the daemons of all workers of an MPI world.

        Raises
        ------
        OptionError
            If it does not.
        """
        def request(asking: int) -> Request:
            return messages.Meet(asking, workers)

        self.ask(request, relay)

    def open_world(self, key: bytes, exchange: str, relay: Relayed) -> tuple[int, bytes]:
        """Open the worker's end of a world for an exchange; return the worker's epoch and the address of the end."""
        epoch, reply = self.ask(lambda asking: messages.OpenWorld(asking, key, exchange), relay)
        return epoch, reply.address

    def ask(self, request: Callable[[int], Request], relay: Relayed) -> tuple[int, Any]:
        """Send the small request that ``request`` makes of its number; return the worker's epoch and the reply. What
        goes wrong there is raised here.
        """
        if self.direct:
            return self._ask(lambda client: request(client.next_number()))
        return self._carried(relay(Ask(self._credentials, self.home, request)))[:2]

    def restore(self, snapshot: int, target: DatasetId, relay: Relayed,
                owner: str = "") -> tuple[int, dict[int, PartitionSchema]]:
        """Restore a snapshot under a number: the worker's own, or the replica of a part of ``owner``.

        Gives the worker's epoch, and what it holds of that number then.

        Raises
        ------
        PartitionMissing
            If the node has the snapshot no more.
        """
        number, name = target.number, target.name

        def request(asking: int) -> Request:
            return messages.Restore(asking, snapshot, number, name, owner)

        epoch, reply = self.ask(request, relay)
        return epoch, contents(reply)

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

    def _own_pipeline(self) -> Pipeline:
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

    def _known_pipeline(self, thread: threading.Thread) -> Pipeline | None:
        with self._lock:
            found = self._busy.get(thread) or (self._idle.pop() if self._idle else None)
            if found is not None:
                self._busy[thread] = found
            return found

    def _settle_orphans(self) -> None:
        """Take what was answered to threads that ended with plans on their way: nobody else does."""
        with self._lock:
            orphans = [pipeline for thread, pipeline in self._busy.items() if not thread.is_alive()]
        for pipeline in orphans:
            pipeline.take_arrived()
            self._settle(pipeline)

    def _settle(self, pipeline: Pipeline) -> None:
        """Make a pipeline available to other threads once nothing is in flight on it."""
        if not pipeline.idle:
            return
        with self._lock:
            for thread, busy in list(self._busy.items()):
                if busy is pipeline:
                    del self._busy[thread]
                    if pipeline.client.fileno() >= 0:
                        self._idle.append(pipeline)

    def _open(self) -> Pipeline:
        if not self.kind.needs_address:
            return self._connected(None)
        if self.reach is None:
            raise WorkerUnavailable(f"the worker in {self.home.runtime_dir} is not reached over TCP, and daemon.log "
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
                time.sleep(_POLL_MS / 1000)

    def _connected(self, reach: Reach | None) -> Pipeline:
        options, directory = self._credentials.options, self.home.runtime_dir
        client = connect(self._credentials.hello("driver"), runtime_dir=directory, reach=reach,
                         timeout=options.startTimeout, transport=self._connector)
        with self._lock:
            if self._lease is None:
                self._lease = open_lease(self._credentials.hello("lease"), runtime_dir=directory, reach=reach,
                                         transport=self._connector)
        self.learn(client.epoch, client.shared_limit)
        return Pipeline(client, options.deadline, blame, self._heard, self._awaited)

    @property
    def _connector(self) -> str:
        """The transport to connect by; "" for that of the address, to connections where plans go by tasks."""
        return self.kind.name if self.kind.is_direct else ""

    def _drop(self, pipeline: Pipeline) -> None:
        """Close a broken connection, and all idle ones: they lead to the same process."""
        pipeline.close()
        with self._lock:
            self._dropped = pipeline.client.epoch
            idle, self._idle = self._idle, []
            for thread, busy in list(self._busy.items()):
                if busy is pipeline:
                    del self._busy[thread]
        for each in idle:
            each.close()

    @contextmanager
    def _borrowed(self) -> Iterator[Pipeline]:
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
                finish(self._credentials.hello("finish"), runtime_dir=self.home.runtime_dir, reach=reach,
                       transport=self._connector)


def as_answered(sent: Sequence[Sent]) -> Iterator[int]:
    """Yield the numbers of plans as they are answered, so that an error of one is seen before others are waited for."""
    if len(sent) == 1:
        yield 0
        return
    waiting = {number: each for number, each in enumerate(sent) if each.pending is not None}
    while len(waiting) > 1:
        poll = select.poll()
        for each in waiting.values():
            assert each.pipeline is not None
            if each.pipeline.client.fileno() >= 0:
                poll.register(each.pipeline.client.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(_POLL_MS)}
        for number, each in list(waiting.items()):
            assert each.pipeline is not None and each.pending is not None
            client = each.pipeline.client
            if each.pending.done or client.fileno() in (ready | {-1}) or client.has_more:
                del waiting[number]
                yield number
    yield from waiting
    yield from [number for number, each in enumerate(sent) if each.pending is None]


def await_all(under_way: Sequence[tuple[Worker, Executable, Sent]], began: float) -> None:
    """Wait for the answers of plans that were sent since ``began``, so that a profile contains them.

    What is wrong with one is told to whoever needs its answer.
    """
    for number in as_answered([sent for _, _, sent in under_way]):
        worker, prepared, sent = under_way[number]
        with suppress(VisparkError):
            _, reply, _ = worker.receive(sent)
            profiler.answered(prepared.labels, reply.times, began, worker.home.runtime_dir)
        began = time.monotonic()


def _started(action: Callable[[], _Given]) -> Callable[[], _Given]:
    """Start an action in a thread of its own, and return a function that waits for its result."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="vispark relay")
    try:
        future = pool.submit(action)
    except RuntimeError as error:
        raise refused(error, "a thread that relays a plan") from error
    pool.shutdown(wait=False)
    return future.result


class Workers:
    """Registry of the workers that a session knows."""

    def __init__(self, credentials: Credentials, heard: Callable[[WorkerAddress, PendingRequest], None]):
        self._credentials = credentials
        self._heard = heard
        self.awaited = AwaitedPlans(credentials.options.deadline)
        self._known: dict[WorkerAddress, Worker] = {}
        self._lock = threading.Lock()

    def at(self, home: WorkerAddress) -> Worker:
        """Return the worker at an address."""
        found = self._known.get(home)
        if found is None:
            with self._lock:
                found = self._known.setdefault(home, Worker(self._credentials, home, self._heard,
                                                                  self.awaited))
        return found

    def known(self) -> list[Worker]:
        """Return all known workers."""
        with self._lock:
            return list(self._known.values())

    @property
    def shared_limit(self) -> int:
        """The least shared memory that thread blocks can have on any of them, in bytes."""
        return min([worker.shared_limit for worker in self.known()], default=SHARED_LIMIT)

    def alive(self, home: WorkerAddress, epoch: int) -> bool:
        """Return whether the process that received some content is, as far as is known, still the worker's process."""
        worker = self.at(home)
        return not worker.gone and worker.epoch <= epoch

    def release(self, numbers: tuple[int, ...]) -> None:
        """Release VRDDs in all workers."""
        for worker in self.known():
            worker.release(numbers)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            workers, self._known = list(self._known.values()), {}
        for worker in workers:
            worker.close()
        self.awaited.close()


def trying(errors: list[VisparkError], action: Callable[..., _Given], *arguments: Any) -> _Given | None:
    """Return the action's result; if it fails, append the error to ``errors`` and return None."""
    try:
        return action(*arguments)
    except VisparkError as error:
        errors.append(error)
        return None


def raise_gravest(errors: list[VisparkError], chain: LogicalPlan) -> None:
    """Raise one of the errors of a chain's plans, if there are any; a loss only if there is no other error.

    No frame that it passes refers to it afterwards: its traceback would keep them, and their data on the devices.
    """
    if errors:
        gravest = min(errors, key=lambda error: isinstance(error, LOST))
        errors.clear()
        index_faults.tell(gravest, functions_of(chain))
        try:
            raise gravest
        finally:
            del gravest
