"""The messages between clients, daemon and device process, in the order in which a connection sees them.

A client greets the daemon with a :class:`Hello`. For the roles ``driver`` and ``executor`` the daemon hands the open
connection on to the session's device process, which answers with a :class:`Welcome` and from then on takes
:data:`Request` and gives :data:`Reply`. For the role ``lease`` the daemon itself keeps the connection for as long as
the driver lives; after ``finish`` it ends the session at once; for ``admin`` it answers :data:`AdminRequest`. Payloads
(records, results) are not in the messages: they lie in a memfd whose descriptor travels beside the message
(:mod:`gpu_worker.protocol.payload`).
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_worker.protocol.grids import Exchange, GridShape, Iterate, Iterated, Stencil, Window

#: Both sides must speak the same one.
VERSION = 1


# -- what data looks like ---------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Field:
    """One array of a block; ``name`` is empty for the only array of a record without named fields."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a block looks like: its fields, in order."""

    fields: tuple[Field, ...]


# -- a plan -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Put:
    """Start from the records in the request's payload, in the worker's host memory."""


@dataclass(frozen=True, slots=True)
class Load:
    """Start from what the worker holds under a VRDD's number."""

    vrdd: int


@dataclass(frozen=True, slots=True)
class ToDevice:
    """Copy to the device, where a copy is not there yet."""


@dataclass(frozen=True, slots=True)
class ToHost:
    """Copy to the worker's host memory, where a copy is not there yet."""


@dataclass(frozen=True, slots=True)
class Exec:
    """Launch a kernel on every block: the one that its variant says. ``label`` is what errors call it."""

    label: str


@dataclass(frozen=True, slots=True)
class FieldFold:
    """With which associative operator a field of records is folded; without a name, every field that is not named.

    ``guard`` asks for what the client must know to trust the result: "overflow" for Python ints, "nan" for ``min`` and
    ``max``, or "". ``result`` is the dtype to fold in and to give, or "" for the field's own.
    """

    field: str
    operator: str
    guard: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold all records of the worker's partitions into one.

    ``over`` says what a record is: "rows" of the partition's only block, or "blocks".
    """

    fields: tuple[FieldFold, ...]
    over: str


@dataclass(frozen=True, slots=True)
class FoldByKey:
    """Fold those rows of the worker's partitions that have one key: an integer below ``groups`` in field ``key``."""

    key: str
    groups: int
    fields: tuple[FieldFold, ...]


@dataclass(frozen=True, slots=True)
class FoldInside:
    """Fold inside each record, along its leading axis; ``over`` is as in :class:`Fold`, ``label`` as in :class:`Exec`.
    """

    label: str
    fields: tuple[FieldFold, ...]
    over: str


@dataclass(frozen=True, slots=True)
class Keys:
    """Keep the keys alone."""


@dataclass(frozen=True, slots=True)
class Values:
    """Forget the keys."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Make the value resident under a VRDD's number, once complete; ``place`` is "host" or "device"."""

    vrdd: int
    name: str
    place: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Return the value in the reply's payload: its first ``limit`` records, or all where that is below 0.

    ``over`` says what a record is: "rows" of the partition's only block, or "blocks". Pairs are returned whole.
    """

    limit: int
    over: str


Step = (Put | Load | ToDevice | ToHost | Exec | Fold | Keys | Values | Keep | Fetch | FoldByKey | FoldInside
        | Exchange | Stencil | Iterate | Window)


@dataclass(frozen=True, slots=True)
class Module:
    """A kernel source with its macros; ``file`` is what the compiler's messages call it."""

    source: str
    file: str
    options: tuple[str, ...]
    constants: tuple[int, ...]
    constant_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """An array argument: its bytes here, or at ``offset`` of the payload when they are many."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class In:
    """The address of a field of the input block."""

    field: str


@dataclass(frozen=True, slots=True)
class Out:
    """The address of a field of the output block."""

    field: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument by value, little-endian bytes of its dtype."""

    dtype: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Array:
    """The address of a constant of the request."""

    index: int


Argument = In | Out | Scalar | Array


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, and what it is launched with on blocks of one signature.

    ``outputs`` are the fields it writes; with ``merge`` the input's other fields stay beside them. ``module`` is an
    index among the request's. Without an :class:`Out` among its arguments the kernel works in place on a copy of its
    input. ``grid`` is empty where the output has no elements: then there is nothing to launch. A ``keyless`` result has
    keys of its own, which replace the input's.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[Argument, ...]
    outputs: tuple[Field, ...]
    merge: bool = False
    module: int = 0
    kernel: str = ""
    keyless: bool = False


@dataclass(frozen=True, slots=True)
class StencilLaunch:
    """A kernel that computes the cells of a region anew, and what it is launched with.

    It takes the addresses of the fields ``inputs``, of those ``outputs`` (of the shape of a cell), a region, and
    ``arguments``. It reads up to ``below`` and ``above`` cells further along each axis of the grid. ``block`` are its
    threads, ``tile`` the cells that a block of them computes, both along (x, y, z). ``merge`` is as in :class:`Launch`.
    """

    module: int
    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[Field, ...]
    arguments: tuple[Argument, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]
    block: tuple[int, ...]
    tile: tuple[int, ...]
    shared: int
    merge: bool


@dataclass(frozen=True, slots=True)
class Variant:
    """What a plan means for input blocks of one signature.

    ``launches`` has one for each :class:`Exec`; ``layouts`` and ``counts`` give the layout and the number of records
    at each :class:`Keep`, where a count of -1 means as in the input.
    """

    signature: Signature
    launches: tuple[Launch, ...]
    layouts: tuple[bytes, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One partition of a plan.

    ``blocks`` gives each block's variant; ``count`` the records; ``keys`` the length of the keys' blob, which lies in
    the payload at ``offset`` with the blocks behind it. ``layout`` is the client's own description of the records,
    kept for it and never read here. ``positions`` say where in the grid each block is; none where there is no grid.
    """

    partition: int
    count: int
    keys: int
    offset: int
    layout: bytes
    blocks: tuple[int, ...]
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Run ``steps`` on each of ``inputs``. ``devices`` are the GPU addresses Spark assigned, or none.

    Where the blocks are those of a ``grid``, a kernel of an :class:`Exec` gets each with its ghost cells around it, and
    what it writes of that shape has ghost cells, too, which hold nothing; all other steps see the blocks without.
    """

    number: int
    epoch: int
    seconds: float
    steps: tuple[Step, ...]
    modules: tuple[Module, ...]
    constants: tuple[Constant, ...]
    variants: tuple[Variant, ...]
    inputs: tuple[Input, ...]
    devices: tuple[str, ...]
    grid: GridShape | None = None
    stencils: tuple[StencilLaunch, ...] = ()


# -- requests to a device process and their replies -------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Describe:
    """Ask what the worker holds of a VRDD; all partitions, when none are named."""

    number: int
    vrdd: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of whole VRDDs."""

    number: int
    vrdds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Retain:
    """Of one VRDD let go of every partition but these."""

    number: int
    vrdd: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Ask for sessions' VRDDs and memory."""

    number: int


Request = Run | Describe | Release | Retain | Report


@dataclass(frozen=True, slots=True)
class Output:
    """Where a partition's result lies in the reply's payload, laid out as for :class:`Input`."""

    partition: int
    keys: int
    offset: int


@dataclass(frozen=True, slots=True)
class FoldedField:
    """A folded field in the payload: one record's, or one for each key.

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
    """The result of a :class:`Fold` or :class:`FoldByKey`. Without records it has no fields and ``count`` is 0.

    ``counts`` is the payload's offset of the number of records for each key (int64), or -1.
    """

    count: int
    fields: tuple[FoldedField, ...]
    counts: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A partition that is resident now: ``device`` names where, "host" for the worker's host memory."""

    vrdd: int
    partition: int
    nbytes: int
    device: str


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds spent in the worker: waiting for its turn, copying in, compiling, in kernels and copying out."""

    total: float
    compile: float


@dataclass(frozen=True, slots=True)
class Ran:
    """A plan's result. ``retained`` says that the worker goes on using the request's payload.

    ``iterated`` has one for each :class:`~gpu_worker.protocol.grids.Iterate`.
    """

    number: int
    outputs: tuple[Output, ...]
    folded: Folded | None
    kept: tuple[Kept, ...]
    retained: bool
    times: Times
    iterated: tuple[Iterated, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """A partition the worker holds; ``blocks`` index the reply's signatures, ``positions`` are as in :class:`Input`."""

    partition: int
    count: int
    keys: int
    layout: bytes
    blocks: tuple[int, ...]
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """What is held of a VRDD."""

    number: int
    signatures: tuple[Signature, ...]
    held: tuple[Held, ...]


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
    """One line of ``status``: what a session holds under one VRDD's number."""

    vrdd: int
    name: str
    partitions: int
    dtype: str
    nbytes: int
    device: str


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device in use by the session, and in all."""

    device: str
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class Reported:
    """What a session holds on this node."""

    number: int
    vrdds: tuple[HeldVrdd, ...]
    memory: tuple[DeviceMemory, ...]
    host_bytes: int
    requests: int


Reply = Ran | Described | Done | Reported | Failure


# -- greeting ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a session's first greeting fixes for its device process."""

    device: str
    memory: int
    lease: float
    cache_dir: str
    log_level: str


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first message. ``anchor`` is a process whose life renews the lease when no driver is connected."""

    version: int
    role: str
    session: str
    secret: bytes
    application: str
    anchor: int
    options: SessionOptions


@dataclass(frozen=True, slots=True)
class Welcome:
    """A device process's first message to a client. ``epoch`` counts the session's processes on this node."""

    version: int
    worker: str
    epoch: int
    pid: int
    devices: tuple[str, ...]


Greeting = Welcome | Failure


# -- administration, answered by the daemon ---------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Status:
    """Ask for the daemon's sessions and what they hold."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the daemon and its sessions."""


@dataclass(frozen=True, slots=True)
class Autopsy:
    """Ask how a session's process of an epoch ended."""

    session: str
    epoch: int


AdminRequest = Status | Stop | Autopsy


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A session as the daemon sees it; ``report`` is missing while its process is busy or gone."""

    session: str
    application: str
    pid: int
    epoch: int
    clients: int
    lease: str
    report: Reported | None


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
    """How a process ended; ``failure`` names the kernel that did it, where one did. ``alive`` means it has not."""

    alive: bool
    signal: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Leased:
    """The lease is held for as long as the connection is."""

    worker: str


AdminReply = StatusReport | Death | Done | Leased | Failure
