"""Messages between clients, daemon and device process, in the order in which a connection sees them.

A client greets the daemon with a :class:`Hello`. For the roles ``driver`` and ``executor`` the daemon hands the open
connection on to the session's device process, which answers with a :class:`Welcome` and from then on takes
:data:`Request` and gives :data:`Reply`. For the role ``lease`` the daemon itself keeps the connection for as long as
the driver lives; after ``finish`` it ends the session at once; for ``admin`` it answers :data:`AdminRequest`. Payloads
(records, large results) are not in the messages: they lie in a memfd whose descriptor travels beside the message
(:mod:`gpu_worker.protocol.payload`).
"""

from __future__ import annotations

from dataclasses import field

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.grids import Iterated, World
from gpu_worker.protocol.plans import (  # noqa: F401 - plans are messages too
    DISK_TIERS,
    TIERS,
    Accumulators,
    Argument,
    ArrayArgument,
    ExecStep,
    FetchStep,
    Field,
    FieldFold,
    FoldByKeyStep,
    FoldInsideStep,
    FoldStep,
    In,
    Input,
    KeepStep,
    KeyBounds,
    KeysStep,
    Launch,
    LoadStep,
    MapFoldStep,
    Module,
    Out,
    Plan,
    Preparation,
    PutStep,
    ScalarArgument,
    Signature,
    StencilLaunch,
    Step,
    ToDeviceStep,
    ToHostStep,
    ValueArgument,
    ValuesStep,
    Variant,
)
from gpu_worker.protocol.publications import (
    Attach,
    DetachPublications,
    GetPublication,
    ListPublications,
    PublicationDetails,
    PublicationPart,
    PublicationReport,
    Publish,
    PutPublication,
    Retract,
    Unpublish,
)
from gpu_worker.protocol.version import PROTOCOL

#: Both sides must speak the same one.
VERSION = PROTOCOL

#: The bytes of one of the buffers that a device streams through.
STREAM_BYTES = 128 << 20


# -- running a plan ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """The value of an argument: its bytes here, or at ``offset`` of the payload when they are many.

    With ``vrdd`` it is the table that the worker holds under this number: the rows, by key, of its only partition.
    Bytes that come along are held under the number from then on; ``offset`` is -1 where none do.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    offset: int
    vrdd: int = 0


@dataclass(frozen=True, slots=True)
class CopyTo:
    """Address of the worker on another node that is to hold a replica of a part of ``owner``: its runtime directory, or
    its TCP address.
    """

    owner: str
    runtime_dir: str
    reach: Reach | None


@dataclass(frozen=True, slots=True)
class Save:
    """Request to copy a VRDD's content to memory that outlives the process, as the snapshot of that number.

    That is done beside what follows. Of the session's snapshots, those that are not ``needed`` are let go of then.
    ``copy`` says which other node is to have it too.
    """

    vrdd: int
    number: int
    needed: tuple[int, ...]
    copy: CopyTo | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Run a plan with the VRDDs and values of one pass.

    ``key`` is the digest of the encoded plan (:mod:`gpu_worker.protocol.plans`); ``plan`` is the encoded plan itself,
    or empty where the worker is taken to know it: one that does not answers with ``PlanUnknown``, and nothing is done.
    ``memory`` is the number of the memory that the payload is, where it may come again over the same connection: then
    the number is enough, and a worker that has it no more answers likewise.
    With a ``world``, ghost cells are exchanged among its workers, all of which have to run the plan at the same time.
    Before anything else the VRDDs in ``released`` are let go of. To ``profile`` a plan each step is waited for, so that
    the reply tells where its time went. ``save`` asks for a snapshot of what is held after it. From ``results`` on
    the payload is for what the plan folds; below 0 none of it is. Where the blocks that it starts from came in
    ``pieces`` before it, the payload has their keys and the values alone, and the plan has come with them.
    """

    number: int
    epoch: int
    seconds: float
    key: bytes
    plan: bytes
    vrdds: tuple[int, ...]
    values: tuple[ArgumentValue, ...]
    world: World | None = None
    released: tuple[int, ...] = ()
    profile: bool = False
    save: Save | None = None
    results: int = -1
    pieces: bool = False
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the blocks of the one partition that a plan starts from, to be copied to their device.

    The blocks lie one behind the other as in a payload, and the pieces come in order, ``offset`` being that of the
    first byte among them; the first one brings the plan and the payload. The bytes lie at ``place`` of it. A piece has
    no answer, unless it is refused: once it is copied, the :data:`~gpu_worker.protocol.payload.MARK_BYTES` at ``mark``
    of the payload are zero. The blocks have no name before the plan comes by the same connection, as a :class:`Run`,
    and go with the connection if it does not. ``vrdd`` is the first of those that the plan keeps, or 0.
    """

    number: int
    epoch: int
    key: bytes
    plan: bytes
    offset: int
    nbytes: int
    place: int
    mark: int
    vrdd: int = 0


# -- requests to a device process and their replies -------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Describe:
    """Ask what the worker holds of a VRDD; all partitions, when none are named."""

    number: int
    vrdd: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Request to release whole VRDDs, and snapshots of these numbers."""

    number: int
    vrdds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Retain:
    """Request to release every partition of one VRDD but these; with ``only``, others are refused later."""

    number: int
    vrdd: int
    partitions: tuple[int, ...]
    only: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """Ask for sessions' VRDDs and memory."""

    number: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Hold what the snapshot ``source`` has as a VRDD of a number of its own; answered by `DescribedVrdd`.

    Where an ``owner`` is named it is the copy of that worker's part, which this one holds.
    """

    number: int
    source: int
    vrdd: int
    name: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class HoldCopy:
    """Request to hold a replica of the ``owner``'s part of a snapshot, whose data comes with the message, and to forget
    earlier ones except the ``needed``.
    """

    number: int
    snapshot: int
    owner: str
    needed: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Notice that a worker of an MPI world is lost, for all requests that wait for that world, or in it."""

    number: int
    world: bytes


@dataclass(frozen=True, slots=True)
class CheckWorldNodes:
    """Request to check that this node's daemon knows the daemons of all ``workers`` of an MPI world, which it is to
    start.
    """

    number: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenWorld:
    """Request to open this process's end of a world for a kind of ``exchange``
    (:mod:`~gpu_worker.protocol.exchange_kinds`) that needs addresses; answered by :class:`WorldOpened`.
    """

    number: int
    world: bytes
    exchange: str


Request = Run | Describe | Release | Retain | Report | Restore | HoldCopy | Abandon | CheckWorldNodes | Chunk \
    | Publish | Attach | Retract | OpenWorld


@dataclass(frozen=True, slots=True)
class Output:
    """Location of a partition's result in the reply's data or payload, laid out as for :class:`Input`."""

    partition: int
    keys: int
    offset: int


@dataclass(frozen=True, slots=True)
class FoldedField:
    """A folded field in the reply's data or payload: one record's, or one for each key.

    ``magnitude`` bounds every intermediate result of an integer fold; ``ordered`` is false when the data holds NaN.
    """

    field: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    magnitude: float
    ordered: bool


@dataclass(frozen=True, slots=True)
class Folded:
    """Result of a :class:`FoldStep` or :class:`FoldByKeyStep`. Without records it has no fields and ``count`` is 0.

    ``counts`` is the offset of the number of records for each key (int64), or -1.
    """

    count: int
    fields: tuple[FoldedField, ...]
    counts: int


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds spent in the worker: in all, and compiling.

    Of a plan that is profiled also those for which the device that worked longest copied in, was in kernels, exchanged
    ghost cells and copied out, and those of the worker's own doing.
    """

    total: float
    compile: float
    copy_in: float = 0.0
    kernels: float = 0.0
    exchange: float = 0.0
    copy_out: float = 0.0
    scheduling: float = 0.0


@dataclass(frozen=True, slots=True)
class Saved:
    """Snapshot that is complete on this node: its bytes, the seconds that it took, and whether another node has a
    replica; or one that ``failed``, with the reason.
    """

    snapshot: int
    nbytes: int
    seconds: float
    copied: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """A plan's result. ``retained`` says that the worker goes on using the request's payload.

    ``saved`` are the newest snapshots that are complete on this node, or failed there.

    What it fetched or folded is in ``data`` where that is small. Else it is in the reply's payload, or, where
    ``placed`` is not 0, so many bytes of it where the request's payload had a place for results. ``iterated`` has one
    for each :class:`~gpu_worker.protocol.grids.IterateStep`. ``bounds`` are those of ranges of keys that it drew, by
    the items of a key.
    """

    number: int
    outputs: tuple[Output, ...]
    folded: Folded | None
    retained: bool
    times: Times
    data: bytes
    iterated: tuple[Iterated, ...] = ()
    saved: tuple[Saved, ...] = ()
    placed: int = 0
    bounds: tuple[KeyBounds, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """A partition the worker holds; ``blocks`` index the reply's signatures, ``positions`` are as in :class:`Input`.

    ``place`` is a device's name, "host" or "disk", or several of them with "+" between.
    """

    partition: int
    count: int
    keys: int
    layout: bytes
    blocks: tuple[int, ...]
    positions: tuple[int, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class DescribedVrdd:
    """Description of the content that is held of one VRDD."""

    number: int
    signatures: tuple[Signature, ...]
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class AttachedVrdd:
    """Description of a publication that a worker has attached, and of the part of it on its node."""

    number: int
    details: PublicationDetails
    content: DescribedVrdd


@dataclass(frozen=True, slots=True)
class Done:
    """It is done."""

    number: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way to the other side; ``kind`` names its class in :mod:`gpu_worker.protocol.errors`."""

    number: int
    kind: str
    message: str
    vrdd: str
    partition: int | None
    operation: str
    device: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeldVrdd:
    """Line of ``status`` about the content that a session holds under one VRDD's number."""

    vrdd: int
    name: str
    partitions: int
    dtype: str
    nbytes: int
    device: str


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device in use by the session, and in all; the seconds in which at least one plan had work for it."""

    device: str
    used: int
    total: int
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Reported:
    """Report of a session's content on this node; ``sent`` counts bytes that its MPI world sent to other nodes,
    ``repeated`` the plans that were replayed from recordings. ``plans`` were begun, ``failed`` of them ended with an
    error, ``lowered`` were sent in full; ``snapshots`` are complete; ``received`` and ``returned`` are bytes
    of payloads. ``kernels`` were launched on devices, ``loaded`` were compiled for them or taken from the cache on
    disk, in ``compiling`` seconds; ``working`` are seconds that plans took, each for itself, ``busy`` those in which
    at least one was under way; ``crowded`` plans failed as memory was out. Counters only rise, from 0 when the
    session's process begins. ``exchange`` says what cells go by to other nodes, "" where there are none.
    """

    number: int
    vrdds: tuple[HeldVrdd, ...]
    memory: tuple[DeviceMemory, ...]
    host_bytes: int
    requests: int
    sent: int = 0
    repeated: int = 0
    plans: int = 0
    failed: int = 0
    lowered: int = 0
    snapshots: int = 0
    received: int = 0
    returned: int = 0
    kernels: int = 0
    loaded: int = 0
    compiling: float = 0.0
    working: float = 0.0
    crowded: int = 0
    busy: float = 0.0
    exchange: str = ""


@dataclass(frozen=True, slots=True)
class WorldOpened:
    """Reply with the address at which the others of a world reach this process."""

    number: int
    address: bytes


Reply = Ran | DescribedVrdd | Done | Reported | Failure | AttachedVrdd | WorldOpened


# -- greeting ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session's device process, fixed by the session's first greeting.

    ``scheduled`` says that the session opens the devices that Spark assigned to its executors, and no others.
    ``stream`` is the bytes of a wave of partitions that devices have no room for, ``host_memory`` the most that these
    may take in host memory, 0 for half of the node's, and ``spill_dir`` the directory of the files for the others.
    ``unassigned`` are the devices of a node to whose executors Spark assigned none; empty: there are none.
    """

    device: str
    memory: int
    lease: float
    cache_dir: str
    log_level: str
    shared_limit: int = 0
    bounds: bool = False
    scheduled: bool = False
    stream: int = STREAM_BYTES
    host_memory: int = 0
    spill_dir: str = ""
    unassigned: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """TCP address of a session's device processes on a node, and the only certificate to trust there."""

    host: str
    port: int
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first message. ``client_pid`` is a process whose life renews the lease when no driver is connected.

    ``reach`` is this node's address towards a driver on another one, which is to be able to connect there; or empty.
    ``gpus`` are the addresses of the devices that Spark assigned to the executor, where the session is ``scheduled``.
    In all versions the version and the role come first.
    """

    version: int
    role: str
    session: str
    secret: bytes = field(repr=False)
    application: str
    client_pid: int
    options: SessionOptions
    reach: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """A device process's first message to a client. ``epoch`` counts the session's processes on this node, and
    ``shared_limit`` is the least shared memory that a thread block of its devices can have, in bytes.
    """

    version: int
    worker: str
    epoch: int
    pid: int
    devices: tuple[str, ...]
    shared_limit: int
    reach: Reach | None = None


#: The place of Failure stays, in all versions, as does its form.
Greeting = Welcome | Failure


@dataclass(frozen=True, slots=True)
class Challenge:
    """Challenge of a device process, its first message over TLS, which the client answers by a proof."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that a side has the session's secret (:mod:`gpu_worker.protocol.tcp_auth`), and the client's challenge."""

    nonce: bytes
    proof: bytes


AdmissionMessage = Challenge | Proof | Failure


# -- administration, answered by the daemon ---------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Status:
    """Request for the daemon's sessions and their content."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the daemon and its sessions."""


@dataclass(frozen=True, slots=True)
class GetExitStatus:
    """Ask how a session's process of an epoch ended."""

    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StartPrted:
    """Start prted, which starts the ranks of an MPI world, on the node of a worker; ``onward``: by its daemon, and
    ``asks``: only see whether that is known.
    """

    worker: str
    arguments: tuple[str, ...]
    onward: bool = True
    asks: bool = False


@dataclass(frozen=True, slots=True)
class PutSnapshot:
    """Request to store a session's snapshot, whose descriptor comes with the message, and to drop earlier ones except
    the ``needed``.

    What describes it lies at ``offset`` of it. It is another node's part, if it has an ``owner``.
    """

    session: str
    secret: bytes = field(repr=False)
    snapshot: int
    needed: tuple[int, ...]
    offset: int
    nbytes: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class GetSnapshot:
    """Request for a session's snapshot: this node's part of it, or the replica of the ``owner``'s."""

    session: str
    secret: bytes = field(repr=False)
    snapshot: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Discard:
    """Request to discard some of a session's snapshots, with all replicas."""

    session: str
    secret: bytes = field(repr=False)
    snapshots: tuple[int, ...]


#: The places of Status and Stop stay, in all versions.
AdminRequest = Status | Stop | GetExitStatus | StartPrted | PutSnapshot | GetSnapshot | Discard \
    | PutPublication | GetPublication | DetachPublications | ListPublications | Unpublish


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """Status of a session in the daemon; ``report`` is missing while its process is busy or gone, ``pid`` is 0 while it
    is gone. ``faults`` of its processes were ended by a kernel, ``ended`` ended at all, as far as this daemon knows.
    """

    session: str
    application: str
    pid: int
    epoch: int
    clients: int
    lease: str
    report: Reported | None
    ended: int = 0
    faults: int = 0


@dataclass(frozen=True, slots=True)
class StatusReport:
    """A daemon and its sessions; ``uptime`` in seconds."""

    version: int
    worker: str
    pid: int
    uptime: float
    sessions: tuple[SessionStatus, ...]


@dataclass(frozen=True, slots=True)
class Death:
    """Death of a process, or none yet if ``alive``; ``failure`` names the kernel that caused it, if one did."""

    alive: bool
    signal: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Leased:
    """The lease is held for as long as the connection is."""

    worker: str


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Reply with a snapshot, whose descriptor comes with the message, as it was put there."""

    offset: int
    nbytes: int


#: The places of Done and Failure stay, in all versions.
AdminReply = StatusReport | Death | Done | Leased | Failure | SnapshotPart \
    | PublicationPart | PublicationReport
