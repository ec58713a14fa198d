"""Plans: a worker's steps on partitions, and the layout of the partitions' data.

A plan is what does not change from one pass of a loop to the next. What does change, the numbers of VRDDs and the
values of arguments, stands in the request, and the plan refers to it by position, its *slot*. So a plan is sent once,
and is known by its digest from then on.
"""

from __future__ import annotations

import hashlib

from gpu_worker.protocol.codec import encode
from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.grids import ExchangeStep, GridShape, IterateStep, StencilStep, WindowStep

DIGEST_BYTES = 16

#: How many plans a worker keeps, those that were used last.
KEPT_PLANS = 256

#: Places where a result is kept on devices while they have room, and else in host memory, or in host memory and files.
TIERS, DISK_TIERS = "tiers", "tiers+disk"


# -- what data looks like ---------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Field:
    """One array of a block; ``name`` is empty for the only array of a record without named fields."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a block: its fields, in order."""

    fields: tuple[Field, ...]


# -- a plan -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class PutStep:
    """Start from the records in the request's payload, in the worker's host memory."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """Start from what the worker holds under the VRDD's number in a slot of the request."""

    slot: int


@dataclass(frozen=True, slots=True)
class ToDeviceStep:
    """Step that copies partitions to the device, unless a copy is there."""


@dataclass(frozen=True, slots=True)
class ToHostStep:
    """Step that copies partitions to the worker's host memory, unless a copy is there."""


@dataclass(frozen=True, slots=True)
class ExecStep:
    """Step that launches on every block the kernel of its variant. ``label`` is its name in errors."""

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
class FoldStep:
    """Fold all records of the worker's partitions into one.

    ``over`` says what a record is: "rows" of the partition's only block, or "blocks".
    """

    fields: tuple[FieldFold, ...]
    over: str


@dataclass(frozen=True, slots=True)
class FoldByKeyStep:
    """Step that folds the rows of the worker's partitions by key: an integer below ``groups`` in field ``key``."""

    key: str
    groups: int
    fields: tuple[FieldFold, ...]


@dataclass(frozen=True, slots=True)
class FoldInsideStep:
    """Fold inside each record, along its leading axis; ``over`` is as in :class:`FoldStep`, ``label`` as in
    :class:`ExecStep`.
    """

    label: str
    fields: tuple[FieldFold, ...]
    over: str


@dataclass(frozen=True, slots=True)
class MapFoldStep:
    """Step that launches on every block a kernel which folds its results; the variant's launch lists the partials.

    ``how`` is "inside": each block becomes its folded record; "all": as :class:`FoldStep`; "key": as
    :class:`FoldByKeyStep`, for keys below ``groups`` that the kernel calls ``key``. The kernel stands among those of
    :class:`ExecStep`.
    """

    label: str
    fields: tuple[FieldFold, ...]
    how: str
    key: str = ""
    groups: int = 0


@dataclass(frozen=True, slots=True)
class KeysStep:
    """Keep the keys alone."""


@dataclass(frozen=True, slots=True)
class ValuesStep:
    """Forget the keys."""


@dataclass(frozen=True, slots=True)
class KeepStep:
    """Make the value resident under the VRDD's number in a slot, once complete.

    ``place`` is "host", "device", :data:`TIERS` or :data:`DISK_TIERS`.
    """

    slot: int
    name: str
    place: str


@dataclass(frozen=True, slots=True)
class FetchStep:
    """Step that returns the value in the reply's payload: its first ``limit`` records, or all if that is below 0.

    ``over`` says what a record is: "rows" of the partition's only block, or "blocks". Pairs are returned whole.
    """

    limit: int
    over: str


@dataclass(frozen=True, slots=True)
class CheckFiniteStep:
    """Step that ends the plan with the error ``NotFinite`` where a number is NaN or infinite. ``label`` is as in
    :class:`ExecStep`.
    """

    label: str


@dataclass(frozen=True, slots=True)
class OpenKeysStep:
    """Step that makes a field ``0`` of ``dtype`` of pairs' keys, which came as numbers of this dtype. Fields of values
    get the names ``1``, or ``1.`` and their name. ``layout`` describes what comes out. With ``by_block`` each block is
    a record, and gets its key.
    """

    label: str
    dtype: str
    layout: bytes
    by_block: bool = False


@dataclass(frozen=True, slots=True)
class PartitionByKeyStep:
    """Step that makes ``parts`` new partitions of the rows of all, by the field ``key``; those of one stay in order.

    Where there is no such field, keys are tuples, whose items are the fields that are named after it: ``key.0``,
    ``key.1``. The same holds for the other steps by a key.

    ``how`` is "hash" (Python's hash of the key, modulo ``parts``), "ascending" or "descending" (ranges of keys, by
    bounds from a sample). ``layout`` is the client's description of what comes out, ``empty`` that of a partition
    without rows. ``label`` is as in :class:`ExecStep`.
    """

    label: str
    key: str
    parts: int
    how: str
    layout: bytes
    empty: bytes


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Bounds of the ranges of a :class:`PartitionByKeyStep`, ascending: of one item of a key, numbers of ``dtype``."""

    dtype: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SortByKeyStep:
    """Step that puts the rows of each partition in the order of the field ``key``, stably, and leaves the first
    ``limit`` of them, all if that is below 0. ``layout`` describes what comes out; empty: the rows as they came in.
    """

    label: str
    key: str
    descending: bool
    layout: bytes = b""
    limit: int = -1


@dataclass(frozen=True, slots=True)
class FoldRunsStep:
    """Step that makes one row of each run of rows with equal ``keys``; which fields these are, all if none is named.

    The fields of ``fields`` are folded, keys are those of a run's first row, and what is neither is left out.
    ``counts`` is the name of a field with the number of rows (int64), or "". ``layout`` describes what comes out.
    """

    label: str
    keys: tuple[str, ...]
    fields: tuple[FieldFold, ...]
    counts: str
    layout: bytes


@dataclass(frozen=True, slots=True)
class GroupRowsStep:
    """Step that makes one record of each run of rows with equal ``key``: of every other field ``f`` the field ``f#``
    with where its items begin and how many there are, and ``f`` as it is. ``layout`` describes what comes out.
    """

    label: str
    key: str
    layout: bytes


@dataclass(frozen=True, slots=True)
class JoinByKeyStep:
    """Step that joins each partition with that of another VRDD, under the number in a slot, that has the same index.

    The rows of both are sorted by the field ``key``, of one dtype. What comes out has a row for each pair of rows with
    one key, with the left one's fields and then the right one's: ``left`` and ``right`` are those that stay, and
    ``names`` what they are called then, the left ones first. ``layout`` describes it, ``empty`` a partition without
    rows.
    """

    label: str
    slot: int
    key: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    names: tuple[str, ...]
    layout: bytes
    empty: bytes


@dataclass(frozen=True, slots=True)
class SelectRowsStep:
    """Step that leaves of each partition the rows whose field ``key`` is above 0, in their order. ``layout`` describes
    what comes out, ``empty`` a partition without rows.
    """

    label: str
    key: str
    layout: bytes
    empty: bytes


@dataclass(frozen=True, slots=True)
class SampleRowsStep:
    """Step that leaves of each partition the rows that PySpark's sampler draws, in their order.

    A generator of ``seed`` and the partition's index draws a number for each row: a row stays if it is from ``lower``
    to below ``upper``, or, where ``replaces``, as often as a Poisson number of mean ``upper`` says. ``layout``
    describes what comes out, ``empty`` a partition without rows.
    """

    label: str
    seed: int
    lower: float
    upper: float
    replaces: bool
    layout: bytes
    empty: bytes


@dataclass(frozen=True, slots=True)
class NumberRowsStep:
    """Step that puts a field ``number`` beside the others, which are called ``names`` then, in their order.

    Row i of partition k has the number ``starts[k] + i * stride``, of 64 bits. ``layout`` describes what comes out.
    """

    label: str
    starts: tuple[int, ...]
    stride: int
    names: tuple[str, ...]
    number: str
    layout: bytes


@dataclass(frozen=True, slots=True)
class KeepKeyedStep:
    """Step that makes the partitions of a :class:`PartitionByKeyStep` resident on their devices, once complete, under
    the VRDD's number in a slot.
    """

    slot: int
    name: str


@dataclass(frozen=True, slots=True)
class KeepTableStep:
    """Step that makes the result of the fold before it resident, under the VRDD's number in a slot, in place of a reply
    with it: one partition with a row for each key that occurs, in ascending order.

    Its fields are ``0``, the keys as ``dtype``, and the folded ones; of a fold without keys it is one row with the key
    0, and a field ``f`` of records becomes ``1.f``. ``layout`` describes the rows, ``empty`` a partition without rows.
    """

    slot: int
    name: str
    dtype: str
    layout: bytes
    empty: bytes


Step = (PutStep | LoadStep | ToDeviceStep | ToHostStep | ExecStep | FoldStep | KeysStep | ValuesStep | KeepStep
        | FetchStep | FoldByKeyStep | FoldInsideStep | MapFoldStep
        | ExchangeStep | StencilStep | IterateStep | WindowStep | CheckFiniteStep
        | PartitionByKeyStep | SortByKeyStep | FoldRunsStep | KeepKeyedStep
        | JoinByKeyStep | OpenKeysStep | SelectRowsStep | SampleRowsStep | NumberRowsStep | KeepTableStep
        | GroupRowsStep)


#: The name, in a compiler's messages, of the assertions that a client may put behind a kernel's source.
CHECKS_FILE = "vispark arguments"


@dataclass(frozen=True, slots=True)
class Module:
    """Kernel source with its macros; ``file`` is its name in the compiler's messages.

    ``constants`` are the slots of the values that its ``__constant__`` symbols hold.
    """

    source: str
    file: str
    options: tuple[str, ...]
    constants: tuple[int, ...]
    constant_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class In:
    """The address of a field of the input block."""

    field: str


@dataclass(frozen=True, slots=True)
class Out:
    """The address of a field of the output block."""

    field: str


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A scalar argument that belongs to the plan, such as an extent; little-endian bytes of its dtype."""

    dtype: str
    value: bytes


@dataclass(frozen=True, slots=True)
class ValueArgument:
    """The value in a slot of the request, by value."""

    slot: int


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """The address of the value in a slot of the request."""

    slot: int


Argument = In | Out | ScalarArgument | ValueArgument | ArrayArgument


@dataclass(frozen=True, slots=True)
class Accumulators:
    """An array of accumulators that each thread block of a :class:`MapFoldStep`'s kernel leaves.

    ``operator`` joins them; ``accumulator`` is their C++ type (``fold.h``), and a block leaves ``width`` of them: an
    element's own parts (two of a complex number), by element, by key. ``guard`` is "" for the field itself, or what
    was asked to be guarded ("overflow": the sizes, "nan": how many there were). Of a field that is the step's key they
    are: with "" the number of records of each key, with "least" and "greatest" the range of the keys.
    """

    field: str
    operator: str
    accumulator: str
    width: int
    guard: str = ""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Kernel of the same module that prepares a table launch's arguments, once on each device.

    It takes the address of ``nbytes`` of memory, and those arguments that are no ports; ``grid`` and ``block`` are as
    in :class:`Launch`.
    """

    kernel: str
    nbytes: int
    grid: tuple[int, ...]
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch of a kernel on blocks of one signature.

    ``outputs`` are the fields it writes; with ``merge`` the input's other fields stay beside them. ``module`` is an
    index among the plan's. A ``keyless`` result has keys of its own, which replace the input's.

    A *raw* kernel (``tile`` 0) is launched for each block. Without an :class:`Out` among its arguments it works in
    place on a copy of its input. ``grid`` is empty where the output has no elements: then there is nothing to launch.

    A *table launch* (``tile`` > 0) runs over all blocks of a device at once, one thread block for each *work*: some
    rows of one block, in multiples of ``tile``. With ``waves`` > 0 there are at most about ``waves`` thread blocks for
    each multiprocessor, with 0 as many as tiles. The kernel's parameters are ``const long long* works`` (entry, first
    row and rows of each work), ``void* const* ports`` (for each entry the addresses of its :class:`In` and :class:`Out`
    arguments, in their order), an address for each of ``partials``, and the other arguments in their order. Work i
    leaves its partial at ``[i * width]``; of a :class:`MapFoldStep`, ``outputs`` says what the folded fields look like.
    On devices with clusters, ``cluster`` neighbouring thread blocks share a work.
    With ``preparation`` there is an address between the partials and the other arguments, of what it made. With
    ``workspace`` there is one behind all arguments, of so many bytes for each thread. A ``whole`` launch takes each
    block as one row.

    ``initial`` are the bytes of the number that each output of a raw kernel is filled with first; empty where its
    content is left undefined.
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
    tile: int = 0
    waves: float = 0.0
    partials: tuple[Accumulators, ...] = ()
    preparation: Preparation | None = None
    cluster: int = 1
    initial: tuple[bytes, ...] = ()
    whole: bool = False
    workspace: int = 0


@dataclass(frozen=True, slots=True)
class StencilLaunch:
    """Launch of a kernel that computes the cells of a region anew.

    It takes the addresses of the fields ``inputs``, of those ``outputs`` (of the shape of a cell), a region, and
    ``arguments``. It reads up to ``below`` and ``above`` cells further along each axis of the grid. ``block`` are its
    threads, ``tile`` the cells that a block of them computes, both along (x, y, z). ``merge`` is as in :class:`Launch`.
    ``dealt`` is the place in ``tile`` of the axis along which thread blocks share the cells evenly, however many there
    are, so that more of them are right too; -1 where none is.
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
    dealt: int = -1


@dataclass(frozen=True, slots=True)
class Variant:
    """Lowered form of a plan for input blocks of one signature.

    ``launches`` has one for each :class:`ExecStep` and :class:`MapFoldStep`; ``layouts`` and ``counts`` give the layout
    and the number of records at each :class:`KeepStep`, where a count of -1 means as in the input.
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
class Plan:
    """Run ``steps`` on each of ``inputs``. ``devices`` are the GPU addresses Spark assigned, or none.

    Where the blocks are those of a ``grid``, a kernel of an :class:`ExecStep` gets each with its ghost cells around it,
    and what it writes of that shape has ghost cells, too, which hold nothing; all other steps see the blocks without.
    """

    steps: tuple[Step, ...]
    modules: tuple[Module, ...]
    variants: tuple[Variant, ...]
    inputs: tuple[Input, ...]
    devices: tuple[str, ...]
    grid: GridShape | None = None
    stencils: tuple[StencilLaunch, ...] = ()


def sealed(plan: Plan) -> tuple[bytes, bytes]:
    """Return a plan's digest, and the plan encoded."""
    encoded = encode(plan, Plan)
    return digest(encoded), encoded


def digest(encoded: bytes) -> bytes:
    """Return the digest of an encoded plan, which identifies it."""
    return hashlib.blake2b(encoded, digest_size=DIGEST_BYTES).digest()
