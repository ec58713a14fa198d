"""Workers of a session, as the driver reaches them: by socket, over TCP, or through a Spark task."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from gpu_worker.client.connection import connect
from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Ran, Reach, Request
from gpu_worker.protocol.payload import Data
from gpu_worker.protocol.transport_kinds import AUTO, TransportKind, choose, wants_address
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import VisparkError, WorkerError
from vispark.plan.lower.executable import Executable, Invocation
from vispark.plan.operation import functions_of
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.runtime.driver.awaited_plans import AwaitedPlans
from vispark.runtime.driver.channel import LOST, RunTask, Sent, TokenPlace, WorkerChannel
from vispark.runtime.driver.connections import POLL_MS, WorkerConnections
from vispark.runtime.driver.pipeline import PendingRequest
from vispark.runtime.driver.relay import DeferredMessages, RelayedChannel
from vispark.runtime.executor.client import contents
from vispark.runtime.identity import Credentials, WorkerAddress
from vispark.runtime.profiling import profiler
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.frontend import index_faults

log = logging.getLogger(__name__)

_Given = TypeVar("_Given")


class Worker:
    """Worker of a session, with the driver's connections to it.

    Attributes
    ----------
    home : WorkerAddress
        Where it is.
    epoch : int
        Which of the session's device processes there answered last; content from before is gone.
    refused : str
        Why it is not, although it should be.
    shared_limit : int
        The bytes of shared memory that thread blocks of its devices can have.
    plans : int
        How many plans it was sent.
    fetched_bytes : int
        How many bytes of results came back from it.
    executor : str
        Spark's name of the executor that brought it its last partition.
    connections : WorkerConnections
        The connections to it, with its address for other nodes.
    """

    def __init__(self, credentials: Credentials, home: WorkerAddress,
                 heard: Callable[[WorkerAddress, PendingRequest], None],
                 awaited: AwaitedPlans, run: RunTask):
        self.home = home
        self.epoch = 0
        self.shared_limit = SHARED_LIMIT
        self.plans = 0
        self.fetched_bytes = 0
        self.executor = ""
        self.refused = ""
        self._credentials = credentials
        self._here = home.here
        self._lock = threading.Lock()
        self._trying = threading.Lock()
        self._door: Reach | None = None
        self._has_asked = False
        heard_here = partial(heard, home)
        kind = choose(credentials.options.transport, is_here=self._here, has_address=False)
        self.connections = WorkerConnections(credentials, home, kind, self.learn, heard_here, awaited)
        self._relay = RelayedChannel(credentials, home, self.learn, heard_here, run)

    def _choose(self) -> None:
        self.connections.kind = choose(self._credentials.options.transport, is_here=self._here,
                                       has_address=self.reach is not None and not self.refused)

    @property
    def kind(self) -> TransportKind:
        """The transport of plans from here to the worker."""
        return self.connections.kind

    @property
    def reach(self) -> Reach | None:
        """Where the worker is reached over TCP, if it is."""
        return self.connections.reach

    @property
    def gone(self) -> bool:
        """Whether the worker was reached over TCP and no longer is: its partitions count as lost until a task comes
        from its node.
        """
        return self.connections.gone

    @property
    def deferred(self) -> DeferredMessages:
        """The messages for the worker that wait for a Spark task, while plans are relayed to it; empty otherwise."""
        return self._relay.deferred

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
        transport = choose(self._credentials.options.transport, is_here=self._here, has_address=True)
        return f"not {transport.label}: {self.refused}" if self.refused else ""

    def learn(self, epoch: int, shared_limit: int = 0) -> None:
        """Record the worker's epoch, and the shared memory of its thread blocks, if that is given."""
        with self._lock:
            before, self.epoch = self.epoch, max(self.epoch, epoch)
        self.shared_limit = shared_limit or self.shared_limit
        if before < epoch and before not in (0, self.connections.dropped):
            log.warning("the process of the worker in %s was lost, and what it held is made again; daemon.log there "
                        "says how it ended", self.home.runtime_dir)

    def set_reach(self, reach: Reach | None) -> None:
        """Record the worker's TCP address, if it has one, and try the address once.

        Raises
        ------
        WorkerError
            If plans are to go over TCP and cannot; one of :data:`LOST` where they could before.
        """
        transport = self._credentials.options.transport
        if not wants_address(transport, is_here=self._here):
            return
        with self._trying:
            if reach is None:
                if transport == AUTO and self.reach is None and not self.refused:
                    self._refuse("its daemon opened no port; daemon.log there says why")
                return
            if reach == self.reach and not self.gone:
                return
            again, self.refused = self.gone, ""
            self.connections.reach, self.connections.gone = reach, False
            self._choose()
            try:
                self.connections.try_address(again=again)
            except WorkerError as error:
                if transport != AUTO:
                    raise
                self.connections.gone = False
                self._refuse(error.message)

    def _refuse(self, reason: str) -> None:
        self.refused = reason
        self._choose()
        log.warning("plans go through Spark tasks to the worker in %s of machine %s: %s", self.home.runtime_dir,
                    self.home.machine, reason)

    # -- plans --------------------------------------------------------------------------------------------------------

    @property
    def _channel(self) -> WorkerChannel:
        return self.connections if self.kind.is_direct else self._relay

    def send(self, invocation: Invocation, token: TokenPlace, released: tuple[int, ...] = ()) -> Sent:
        """Send a plan, by a task where ``token`` lies if the worker cannot be reached from here. Raises as the way's
        ``send``.
        """
        self.plans += 1
        return self._channel.send(invocation, token, released)

    def receive(self, sent: Sent) -> tuple[int, Ran, Data]:
        """Return the answer to a plan, as the ``receive`` of the way that it went."""
        epoch, reply, data = sent.channel.receive(sent)
        self.fetched_bytes += data.size
        return epoch, reply, data

    def follows(self, sent: Sent) -> bool:
        """Return whether a plan that the calling thread sends now runs after the sent one, which did not fail."""
        pending = sent.pending
        return pending is not None and pending.error is None and (
            pending.done or (self.direct and self.connections.follows(sent)))

    # -- small requests -----------------------------------------------------------------------------------------------

    def held(self, number: int) -> tuple[int, dict[int, PartitionSchema]]:
        """Return the worker's epoch and the schemas of a VRDD that it holds; empty for a relayed worker, which cannot
        be asked.
        """
        return self._channel.held(number) or (self.epoch, {})

    def retain(self, number: int, partitions: list[int], *, only: bool = True) -> None:
        """Release all other partitions of a VRDD in the worker, which with ``only`` then accepts no others.

        Where it is relayed to, with the next plan; it may take others after that, for it hears too late of those that
        are coming.
        """
        self._channel.retain(number, tuple(partitions), only=only)

    def release(self, numbers: tuple[int, ...]) -> None:
        """Release VRDDs in the worker, after the plans in flight; a relayed worker is told with the next plan."""
        self._channel.release(numbers)

    def uses(self, number: int) -> bool:
        """Return whether a plan in flight that a plan of the calling thread may overtake starts from a VRDD."""
        return self.connections.uses(number, of_others=self.direct)

    def abandon(self, world: bytes) -> None:
        """Notify plans that wait in an MPI world, or for it, that it lost a worker; a relayed worker cannot be
        notified.
        """
        self._channel.abandon(world)

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

    def check_world_nodes(self, workers: tuple[str, ...], token: TokenPlace) -> None:
        """Check that the worker's daemon knows the daemons of all workers of an MPI world.

        Raises
        ------
        OptionError
            If it does not.
        """
        def request(asking: int) -> Request:
            return messages.CheckWorldNodes(asking, workers)

        self.ask(request, token)

    def open_world(self, key: bytes, exchange: str, token: TokenPlace) -> tuple[int, bytes]:
        """Open the worker's end of a world for an exchange; return the worker's epoch and the address of the end."""
        epoch, reply = self.ask(lambda asking: messages.OpenWorld(asking, key, exchange), token)
        return epoch, reply.address

    def ask(self, request: Callable[[int], Request], token: TokenPlace) -> tuple[int, Any]:
        """Send the small request that ``request`` makes of its number; return the worker's epoch and the reply. What
        goes wrong there is raised here.
        """
        return self._channel.ask(request, token)

    def restore(self, snapshot: int, target: DatasetId, token: TokenPlace,
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

        epoch, reply = self.ask(request, token)
        return epoch, contents(reply)

    def close(self) -> None:
        """Close all connections; the worker frees the session's content."""
        self.connections.close()


def as_answered(sent: Sequence[Sent]) -> Iterator[int]:
    """Yield the numbers of plans as they are answered, so that an error of one is seen before others are waited for."""
    if len(sent) == 1:
        yield 0
        return
    waiting = {number: each for number, each in enumerate(sent) if each.pending is not None or each.started is not None}
    while len(waiting) > 1:
        ready = _readable(waiting.values())
        for number, request in list(waiting.items()):
            if _is_answered(request, ready):
                del waiting[number]
                yield number
    yield from waiting
    yield from [number for number, each in enumerate(sent) if each.pending is None and each.started is None]


def _readable(waiting: Collection[Sent]) -> set[int]:
    """Wait a little for answers to plans; return the descriptors that can be read, and -1 for those that are closed."""
    poll, started = select.poll(), [each.started for each in waiting if each.started is not None]
    if len(started) == len(waiting):
        wait(started, return_when=FIRST_COMPLETED)
        return {-1}
    for request in waiting:
        if request.pipeline is not None and request.pipeline.client.fileno() >= 0:
            poll.register(request.pipeline.client.fileno(), select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(POLL_MS)} | {-1}


def _is_answered(sent: Sent, readable: set[int]) -> bool:
    """Return whether receiving a plan's answer takes no wait, or none for another worker."""
    if sent.started is not None:
        return sent.started.done()
    assert sent.pipeline is not None and sent.pending is not None
    client = sent.pipeline.client
    return sent.pending.done or client.fileno() in readable or client.has_more


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


class Workers:
    """Registry of the workers that a session knows."""

    def __init__(self, credentials: Credentials, heard: Callable[[WorkerAddress, PendingRequest], None], run: RunTask):
        self._credentials = credentials
        self._heard = heard
        self._run = run
        self.awaited = AwaitedPlans(credentials.options.deadline)
        self._known: dict[WorkerAddress, Worker] = {}
        self._lock = threading.Lock()

    def at(self, home: WorkerAddress) -> Worker:
        """Return the worker at an address."""
        worker = self._known.get(home)
        if worker is None:
            with self._lock:
                worker = self._known.setdefault(home, Worker(self._credentials, home, self._heard, self.awaited,
                                                             self._run))
        return worker

    def known(self) -> list[Worker]:
        """Return all known workers."""
        with self._lock:
            return list(self._known.values())

    @property
    def relays(self) -> bool:
        """Whether one of them is reached by relay only."""
        return not all(worker.direct for worker in self.known())

    @property
    def shared_limit(self) -> int:
        """The least shared memory that thread blocks can have on any of them, in bytes."""
        return min([worker.shared_limit for worker in self.known()], default=SHARED_LIMIT)

    def is_alive(self, home: WorkerAddress, epoch: int) -> bool:
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


def collect_error(errors: list[VisparkError], action: Callable[..., _Given], *arguments: Any) -> _Given | None:
    """Return the action's result; if it fails, append the error to ``errors`` and return None."""
    try:
        return action(*arguments)
    except VisparkError as error:
        errors.append(error)
        return None


def raise_gravest(errors: list[VisparkError], chain: LogicalPlan) -> None:
    """Raise one of the errors of a chain's plans, if there are any; a loss only if there is no other error.

    The list is emptied, so that the error's traceback keeps no other error, and no data of these on the devices.
    """
    if errors:
        gravest = min(errors, key=lambda error: isinstance(error, LOST))
        errors.clear()
        index_faults.add_user_lines(gravest, functions_of(chain))
        try:
            raise gravest
        finally:
            del gravest
