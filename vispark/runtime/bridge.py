"""Spark tasks' side of the runtime: packs a partition into shared memory, sends it with the plan, and unpacks the
results.

The tasks here are shipped to the executors with the session's credentials. Each talks to the worker of its own node,
over a connection that the Python worker keeps for later tasks. A worker that is lost under a plan is found or started
again and the plan repeated: content is bound to its name once, so a repetition changes nothing.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeVar

from pyspark import TaskContext

from gpu_worker.client.connection import Client, connect, failpoint, machine
from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import VERSION, Hello, Ran, Reach, Run
from gpu_worker.protocol.payload import Data, Payload, results
from gpu_worker.protocol.wire import close_all, error_of
from vispark.errors import (
    CompileError,
    Fenced,
    NotFinite,
    OptionError,
    OutOfMemory,
    PartitionMissing,
    PlanError,
    RecordError,
    VisparkError,
    WorkerError,
    WorkerLost,
)
from vispark.lower.executable import Invocation
from vispark.lower.grid import lowering
from vispark.lower.stages import FETCH, KEEP, RequestedOutput
from vispark.options import Options
from vispark.plan import ops
from vispark.plan.operation import functions_of
from vispark.plan.ops import CompressedLineage, DatasetId, LogicalPlan
from vispark.profiling.profiler import TaskSeconds
from vispark.records import Keyring, Packed, RecordLayout, pack
from vispark.records.partition_schema import PartitionSchema
from vispark.runtime.executor.assigned_gpus import AssignedGpus, executor_process
from vispark.runtime.executor.chunked_upload import PIECES_FROM, Pieces, room
from vispark.translate.codegen.scalar.interface import ROOM
from vispark.translate.frontend import index_faults

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Credentials:
    """Credentials of a process that acts for a Spark application; shipped with its tasks and nowhere else.

    ``driver`` is the host of the driver, and ``machine`` what it sees as its machine. ``gpus`` are those of Spark's
    executors, which the driver brings up to date before each load.
    """

    session: str
    secret: bytes
    application: str
    options: Options
    driver: str = ""
    machine: str = ""
    gpus: AssignedGpus = field(default_factory=AssignedGpus)

    @cached_property
    def keyring(self) -> Keyring:
        return Keyring(self.secret)

    def hello(self, role: str, anchor: int = 0, reach: str = "") -> Hello:
        """Return the greeting of a process for the worker of its node, or of another, in a role."""
        mine = self.gpus.mine() if role == "executor" else ()
        options = replace(self.options.for_worker(), scheduled=self.gpus.is_scheduled or bool(mine))
        return Hello(VERSION, role, self.session, self.keyring.auth, self.application, anchor, options, reach, mine)

    def reached_at(self) -> str:
        """Return the address of this node at which the driver is to reach the worker over TCP; empty if it reaches the
        worker otherwise.
        """
        transport = self.options.transport
        if transport == "tcp" or (transport == "auto" and self.machine != machine()):
            return _address_towards(self.driver)
        return ""

    def __repr__(self) -> str:
        return f"Credentials({self.session})"


@dataclass(frozen=True)
class WorkerAddress:
    """Address of a worker: its runtime directory, and the name of its machine; a container counts as a machine."""

    runtime_dir: str
    machine: str

    @property
    def here(self) -> bool:
        """Whether the worker's socket can be opened from this process."""
        return self.machine == machine() and Path(self.runtime_dir, "daemon.sock").parent.is_dir()


@dataclass(frozen=True)
class PartitionHandle:
    """Handle that stands for a partition in Spark: its worker, and the schemas of its content by VRDD number.

    ``seconds`` says what its task spent them on, where that is asked for, ``reach`` where the worker is reached over
    TCP, where it is, ``stage`` which stage of Spark's the task was of, and ``room`` how much shared memory the worker's
    thread blocks can have.
    """

    partition: int
    home: WorkerAddress
    epoch: int
    contents: dict[int, PartitionSchema]
    seconds: dict[str, float] | None = None
    reach: Reach | None = None
    stage: int = 0
    room: int = ROOM


@cache
def _address_towards(host: str) -> str:
    """Return this node's address for packets to a host; empty if there is no route."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(address)       # which sends nothing
            return sock.getsockname()[0]
    except OSError as error:
        log.warning("no address of this node leads to the driver's host %s: %s", host, error)
        return ""


_clients: dict[tuple[int, str, str, tuple[str, ...]], Client] = {}


def local_client(credentials: Credentials, runtime_dir: str | None = None) -> Client:
    """Return this process's connection to a worker, of its own node unless a directory is given; starts the worker if
    none runs.

    Raises
    ------
    WorkerUnavailable
        If there is none and none can be started.
    """
    # Where only a task knows its GPUs, another one's connection does not stand for them.
    key = os.getpid(), credentials.session, runtime_dir or "", credentials.gpus.mine()
    if key not in _clients:
        _settle()
        hello = credentials.hello("executor", executor_process(), credentials.reached_at())
        _clients[key] = connect(hello, runtime_dir=runtime_dir, timeout=credentials.options.startTimeout)
    return _clients[key]


@cache
def _settle() -> None:
    """Exclude the modules imported so far from later garbage collections: PySpark runs a full one after each task.

    Garbage in cycles goes first, as it would stay otherwise. `docs/guide/performance.md` tells users of it.
    """
    if TaskContext.get():
        gc.collect()
        gc.freeze()


def forget(client: Client) -> None:
    """Close a connection and drop it from the process's cache."""
    for key, known in list(_clients.items()):
        if known is client:
            del _clients[key]
    client.close()


def blame(client: Client, shipment: Invocation, number: int) -> None:
    """Raise the error of a kernel of the request ``number`` that ended the worker's process, if one did.

    Where the worker could not tell which of several requests it was, one with such a kernel on such a partition.
    """
    try:
        failure = client.autopsy().failure
    except WorkerError:
        return      # the daemon is gone too, and with it what it knew
    labels, ours = shipment.prepared.labels, {None, *shipment.partitions}
    if failure is None or failure.number not in (0, number):
        return
    if failure.number or (failure.partition in ours and any(label in failure.operation for label in labels)):
        raise error_of(failure)


def run(credentials: Credentials, shipment: Invocation, packed: Packed | None = None,
        runtime_dir: str | None = None) -> tuple[Client, Ran, Data]:
    """Run a plan in the worker of this node, again if the worker is lost.

    Not again where other nodes run it too: the process that comes next is in no world with them.

    Returns
    -------
    client, reply, data
        The connection that answered, its answer, and what was fetched.

    Raises
    ------
    PartitionMissing
        If the plan starts from content that the worker does not hold.
    VisparkError
        If the plan fails.
    """
    def ask(client: Client, pieces: Packed | None = None) -> tuple[Client, Ran, Data]:
        offset = pieces.key_bytes if pieces else packed.nbytes if packed else 0
        request, size = shipment.request(client.next_number(), client.epoch, credentials.options.deadline,
                                         known=False, offset=offset, pieces=pieces is not None)
        if pieces:
            payload: Payload | None = _sent_in_pieces(client, shipment, pieces, request, offset, size)
            request = replace(request, plan=b"")        # the first piece brought it
        else:
            payload = _payload(client, shipment, packed, offset, size)
        try:
            failpoint("packed")
            client.send(request, [payload.descriptor] if payload else [])
            failpoint("sent")
            try:
                reply, descriptors = client.receive(request.number)
            except (WorkerLost, Fenced):
                forget(client)
                # Not where it could not be sent: it has done nothing yet.
                blame(client, shipment, request.number)
                raise
            except VisparkError:
                if pieces:
                    forget(client)      # if a piece was refused, so are those behind it, which says it again
                raise
            if payload and not reply.retained:
                client.recycle(payload)
                payload = None
        finally:
            if payload:
                payload.close()
        failpoint("before-unpack")
        return client, reply, results(reply.data, descriptors)

    again = shipment.world is None
    if packed is not None and shipment.prepared.to_device and packed.block_bytes >= PIECES_FROM:
        # Without room a worker gives up what it can and begins anew, which takes a partition that is there as a whole.
        with suppress(OutOfMemory):
            return answered(credentials, runtime_dir, partial(ask, pieces=packed), again=again)
    return answered(credentials, runtime_dir, ask, again=again)


def answered(credentials: Credentials, runtime_dir: str | None, ask: Callable[[Client], _Answer], *,
              again: bool = True) -> _Answer:
    """Call ``ask(client)``; if the worker is lost, reconnect and call it again, unless ``again`` is false."""
    attempt = 0
    while True:
        client = local_client(credentials, runtime_dir)
        try:
            return ask(client)
        except (WorkerLost, Fenced) as error:
            # Every task tells of it; the driver says so once.
            log.info("worker lost: %s", error)
            forget(client)
            attempt += 1
            if not again or attempt > credentials.options.attempts:
                raise


def _payload(client: Client, shipment: Invocation, packed: Packed | None, offset: int, size: int) -> Payload | None:
    """Return a payload with the records, and with ``size`` bytes of values from ``offset`` on."""
    if not offset + size and not (packed and packed.signatures):     # blocks may be of no bytes
        return None
    retained = shipment.prepared.retains
    payload = Payload.create(offset + size) if retained else client.payload(offset + size)
    if packed:
        packed.write(payload, 0)
    shipment.values.write(payload, offset)
    return payload


def _sent_in_pieces(client: Client, shipment: Invocation, packed: Packed, request: Run, offset: int,
                    size: int) -> Payload:
    """Send the blocks to the worker ahead of the plan, in pieces; return the payload with keys and values."""
    start, whole = room(offset + size)
    with ExitStack() as undo:
        # Then the worker forgets what has come.
        undo.callback(forget, client)
        payload = client.payload(whole)
        undo.callback(payload.close)
        if not payload.used:
            payload.populate()
        packed.write_keys(payload, 0)
        shipment.values.write(payload, offset)
        pieces = Pieces(client, request, payload, start)
        packed.write_blocks(pieces, 0)
        pieces.finish(packed.block_bytes)
        undo.pop_all()
    return payload


def _packed(credentials: Credentials, chain: LogicalPlan, partition: int, records: Iterable) -> Packed:
    try:
        return pack(records, seal=credentials.keyring.seal)
    except RecordError as error:
        raise error.at(vrdd=ops.name_of(chain), partition=partition, operation="send") from error.__cause__


def content_of(packed: Packed) -> PartitionSchema:
    """Return the schema of a packed partition."""
    return PartitionSchema(packed.count, len(packed.keys), packed.layout, tuple(packed.signatures), packed.positions)


def _lowered(client: Client, chain: LogicalPlan, start: DatasetId | None, goal: RequestedOutput, partition: int,
             content: PartitionSchema,
             devices: Sequence[str] = ()) -> Invocation:
    """Return the plan for one partition, with kernels for a client's worker."""
    work = lowering(chain, start, goal, [content], client.room)
    work.add(partition, content)
    return work.ship(devices)


#: What no other attempt mends, and what leaves the worker as it was. A fault of a kernel ends the job at once, before
#: another of its tasks finds that the worker is gone.
_FINAL = RecordError, PlanError, CompileError, NotFinite, OutOfMemory, OptionError


@dataclass(frozen=True)
class RefusedTask:
    """Result of a task that no retry would make succeed: the error and its trace.

    Spark has nothing to repeat and nothing to write to its log then.
    """

    error: VisparkError
    trace: str


@dataclass(frozen=True)
class HandingBack:
    """Function of a partition that hands errors back as its last result, for :func:`checked` to raise in the driver."""

    function: Callable[[int, Iterable], Iterable]

    def __call__(self, partition: int, records: Iterable) -> Iterator:
        try:
            yield from self.function(partition, records)
        except _FINAL as error:
            yield RefusedTask(error, traceback.format_exc())


def checked(results: list, chain: LogicalPlan | None = None) -> list:
    """Return the results of tasks, for ``chain`` where that is known; raise the error that a task handed back, if one
    did.
    """
    for each in results:
        if type(each) is RefusedTask:
            each.error.full_trace = each.trace
            index_faults.tell(each.error, None if chain is None else functions_of(chain))
            raise each.error
    return results


@dataclass(frozen=True)
class LoadTask:
    """Task that loads a partition into the worker of its node and keeps the chain's cached results."""

    credentials: Credentials
    chain: LogicalPlan
    profile: bool = False

    def __call__(self, partition: int, records: Iterable) -> Iterator[PartitionHandle]:
        spent = TaskSeconds()
        packed = _packed(self.credentials, self.chain, partition, records)
        spent.lap("parse")
        shipment = _lowered(local_client(self.credentials), self.chain, None, KEEP, partition, content_of(packed),
                            self.credentials.gpus.mine())
        spent.lap("python")
        client, reply, _ = run(self.credentials, replace(shipment, profile=self.profile), packed)
        spent.answered(reply.times)
        kept = {number: contents[partition]
                for number, contents in zip(shipment.vrdds, shipment.prepared.kept, strict=True)}
        yield PartitionHandle(partition, WorkerAddress(client.runtime_dir, machine()), client.epoch, kept,
                              dict(spent.seconds) if self.profile else None, client.reach, TaskContext.get().stageId(),
                              client.room)


def _not_alone(partition: int, what: str = "") -> PartitionMissing:
    return PartitionMissing(f"partition {partition}{what} is not held any more, and needs neighbours to be computed: "
                            "use the VRDD's own actions, or take its recv() anew")


@dataclass(frozen=True)
class Receive:
    """Task that gives a partition's records to Spark.

    It starts from the nearest result that is held: where ``places`` say (as the driver knew them, with what is there),
    or in the worker of its node. Where there is none, it starts from the records, and keeps what the chain says on the
    way unless that is held elsewhere.

    Attributes
    ----------
    chain : LogicalPlan
        From a result on that was held, if one was.
    past : CompressedLineage
        All of it, for the case that this is lost.
    is_columnar : bool
        Whether it gives a :class:`FetchedPartition`, with the arrays as they came, in place of the records.
    """

    credentials: Credentials
    chain: LogicalPlan
    places: dict[int, dict[int, tuple[WorkerAddress, PartitionSchema]]]
    past: CompressedLineage
    is_columnar: bool = False

    def __call__(self, partition: int, records: Iterable) -> Iterator:
        for chain in self._chains():
            for cached in [node.cached for node in reversed(chain) if node.cached]:
                if ops.together(chain, cached):
                    raise _not_alone(partition, f" of {cached}")
                with suppress(PartitionMissing):
                    return self._from(chain, cached, partition,
                                      *self.places.get(cached.number, {}).get(partition, (None, None)))
        return self._from_records(chain, partition, records)

    def _chains(self) -> Iterator[LogicalPlan]:
        """Yield the chain, and then, for the case that its start is lost, the chain from the send on."""
        yield self.chain
        if ops.is_cut(self.chain):
            yield tuple([node for nodes, times in self.past for _ in range(times) for node in nodes])

    def from_token(self, partition: int, tokens: Iterable[PartitionHandle]) -> Iterator:
        """Receive the content at the place that a token names.

        Raises
        ------
        PartitionMissing
            If it is not there any more.
        """
        token, = tokens
        last = next(node.cached for node in reversed(self.chain) if node.cached)
        return self._from(self.chain, last, partition, token.home, token.contents.get(last.number))

    def _from(self, chain: LogicalPlan, start: DatasetId, partition: int, home: WorkerAddress | None,
              content: PartitionSchema | None = None) -> Iterator:
        """Receive content from a worker; its schema is requested from the worker if it is unknown."""
        runtime_dir = home.runtime_dir if home and home.here else None
        if content is None:
            content = answered(self.credentials, runtime_dir,
                                lambda client: held(client, start.number, [partition]).get(partition))
        if content is None:
            raise PartitionMissing(f"partition {partition} of VRDD {start.number} is not held here")
        client = local_client(self.credentials, runtime_dir)
        shipment = _lowered(client, chain, start, FETCH, partition, content)
        return self._records(shipment, run(self.credentials, shipment, runtime_dir=runtime_dir))

    def _from_records(self, chain: LogicalPlan, partition: int, records: Iterable) -> Iterator:
        packed = _packed(self.credentials, chain, partition, records)
        grid = packed.layout.grid
        if grid is not None and len(packed.positions) < grid.blocks and ops.together(chain, None):
            raise _not_alone(partition)
        chain = tuple([ops.PlanNode(node.op, None if self._elsewhere(node.cached, partition) else node.cached)
                       for node in chain])
        shipment = _lowered(local_client(self.credentials), chain, None, FETCH, partition, content_of(packed),
                            self.credentials.gpus.mine())
        return self._records(shipment, run(self.credentials, shipment, packed))

    def _elsewhere(self, cached: DatasetId | None, partition: int) -> bool:
        return cached is not None and partition in self.places.get(cached.number, {})

    def _records(self, shipment: Invocation, answer: tuple[Client, Ran, Data]) -> Iterator:
        _, reply, data = answer
        if self.is_columnar:
            return iter([shipment.prepared.columns(reply.outputs[0], data, self.credentials.keyring)])
        return shipment.prepared.records(reply.outputs[0], data, self.credentials.keyring)


def held(client: Client, number: int, partitions: Iterable[int] = ()) -> dict[int, PartitionSchema]:
    """Ask a worker for the content that it holds of a VRDD; return the schemas by partition."""
    reply, descriptors = client.request(messages.Describe(client.next_number(), number, tuple(partitions)))
    close_all(descriptors)
    return contents(reply)


def contents(reply: messages.DescribedVrdd) -> dict[int, PartitionSchema]:
    """Return the content of the partitions that a worker described."""
    return {each.partition: PartitionSchema(each.count, each.keys, _layout(each.layout),
                                            tuple([reply.signatures[block] for block in each.blocks]), each.positions)
            for each in reply.held}


#: Partitions share a few layouts.
_layout = lru_cache(maxsize=1024)(RecordLayout.decode)
