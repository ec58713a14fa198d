"""Logical plans: chains of recorded operations from an RDD's records to a VRDD.

Operations are frozen and equal by content. A chain is built one operation per call by :mod:`vispark.api.vrdd`, verified
here, and lowered to protocol steps by :mod:`vispark.lower`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from gpu_worker.protocol.fast_init import filled
from vispark.errors import PlanError
from vispark.fold import FoldSpec
from vispark.plan.exec_call import ExecSpec
from vispark.plan.loop_call import LoopSpec, reaches_out
from vispark.plan.map_call import MapSpec


class RecordedOperation:
    """An operation as it was recorded: frozen, equal by content."""

    @property
    def key(self) -> Hashable:
        """Cache key of the operation in plans: all but the values of arguments, which come with each pass."""
        return type(self).__name__


@dataclass(frozen=True)
class Send(RecordedOperation):
    """Operation that sends records to the worker's host memory."""

    def __str__(self) -> str:
        return "send"


@dataclass(frozen=True)
class ToDevice(RecordedOperation):
    """Operation that copies blocks from the worker's host memory to the device."""

    def __str__(self) -> str:
        return "htod"


@dataclass(frozen=True)
class ToHost(RecordedOperation):
    """Operation that copies blocks from the device to the worker's host memory."""

    def __str__(self) -> str:
        return "dtoh"


@dataclass(frozen=True)
class Exec(RecordedOperation):
    """Operation that launches a kernel on every block."""

    spec: ExecSpec

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the call in plans: all but the arguments' values."""
        return Exec, self.spec.shape_key()

    def __str__(self) -> str:
        return self.spec.label


@dataclass(frozen=True)
class Map(RecordedOperation):
    """Operation that applies a translated Python function to every element."""

    spec: MapSpec

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the call in plans: all but the arguments' values."""
        return Map, self.spec.label, self.spec.shape_key()

    def __str__(self) -> str:
        return self.spec.label


@dataclass(frozen=True)
class FoldInside(RecordedOperation):
    """Operation that folds each record along its leading axis."""

    spec: FoldSpec

    @property
    def key(self) -> Hashable:
        """Cache key of the fold in plans."""
        return FoldInside, self.spec

    def __str__(self) -> str:
        return f"vreduce {self.spec.label}"


@dataclass(frozen=True)
class Keys(RecordedOperation):
    """Operation that takes the keys of pairs."""

    def __str__(self) -> str:
        return "keys"


@dataclass(frozen=True)
class Values(RecordedOperation):
    """Operation that takes the values of pairs."""

    def __str__(self) -> str:
        return "values"


@dataclass(frozen=True)
class HaloAppend(RecordedOperation):
    """Operation that surrounds the blocks of a grid with their neighbours' cells."""

    def __str__(self) -> str:
        return "halo_append"


@dataclass(frozen=True)
class Iterate(RecordedOperation):
    """Operation that repeats steps of exchanges and stencils on a grid."""

    spec: LoopSpec

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the loop in plans: all but the arguments' values."""
        return Iterate, self.spec.label, self.spec.shape_key()

    def __str__(self) -> str:
        return f"{self.spec.label} ({self.spec.steps} steps)"


@dataclass(frozen=True)
class Window(RecordedOperation):
    """Operation that takes the cells of a grid's blocks in a window: from, up to (without), and the stride along each
    axis.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """Cache key of the window in plans."""
        return self

    def __str__(self) -> str:
        ranges = zip(self.starts, self.stops, self.steps, strict=True)
        return f"window [{', '.join(f'{start}:{stop}:{step}' for start, stop, step in ranges)}]"


Op = Send | ToDevice | ToHost | Exec | Map | FoldInside | Keys | Values | HaloAppend | Iterate | Window


@dataclass(frozen=True)
class DatasetId:
    """Identity of a cached result: the number under which workers hold it, and its name."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


@filled
@dataclass(frozen=True)
class PlanNode:
    """Node of a chain: an operation, its cached result if there is one, and the snapshot that was begun of it."""

    op: Op
    cached: DatasetId | None = None
    saved: DatasetId | None = field(default=None, compare=False)

    @property
    def place(self) -> str:
        """The place of a cached result: "host" or "device"."""
        return "host" if isinstance(self.op, Send | ToHost) else "device"


LogicalPlan = tuple[PlanNode, ...]


#: A whole chain, in short: nodes, and how many times they come, from the send on.
CompressedLineage = tuple[tuple[LogicalPlan, int], ...]


class LineageWalker(Protocol):
    """Interface of a walk through a lineage, from a result back: returns the chain up to the result."""

    def __call__(self, is_enough: Callable[[PlanNode], bool] | None = None, /) -> LogicalPlan:
        """Return the plan from the send on, or from the last node for which ``is_enough`` holds and, before that node,
        as far back as ``is_enough`` says where the result lies. Nodes are asked about from the last one back, and none
        before that one.
        """


#: Operations that leave the place of what they are given to those before them.
MOVING = Keys, Values, ToDevice, ToHost
#: Those that take an item of pairs.
NARROWING = Keys, Values

#: The last links of a lineage, which are looked through for what can be joined.
_SHORTENED = 8
#: The most operations of what is looked for again behind itself when a chain is described.
_LONGEST_STEP = 32


@dataclass(frozen=True)
class Lineage:
    """Operations without their results: the lineage that remains of a chain whose end is materialised.

    What a loop does again and again is there once, with how many ``times`` it was done, and so are the parts of one
    loop. ``saved`` is the snapshot of what the first operation gives when it is done first.
    """

    ops: tuple[Op, ...]
    before: Lineage | None = None
    times: int = 1
    saved: DatasetId | None = None
    #: Whether an operation, or one before these, takes neighbours' cells.
    reaches: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        found = any(map(reaches, self.ops)) or (self.before is not None and self.before.reaches)
        object.__setattr__(self, "reaches", found)

    def then(self, ops: tuple[Op, ...], saved: DatasetId | None = None,
             is_there: Callable[[DatasetId], bool] = lambda saved: True) -> Lineage:
        """Return the lineage with further operations; ``is_there`` says which snapshots are still of use."""
        if saved is None:
            joined = self._joined(ops, 1)
            if joined is not None:
                return joined
        return Lineage(ops, self._short(is_there), 1, saved)

    def _joined(self, ops: tuple[Op, ...], times: int) -> Lineage | None:
        """Return this link with the same operations once more, or with more steps of its loop; None for other
        operations.
        """
        if ops == self.ops:
            return replace(self, times=self.times + times)
        match self.ops, ops:
            case (Iterate(spec),), (Iterate(more),) if self.times == times == 1 and self.saved is None:
                if more == spec.part(more.steps, spec.done + spec.steps):
                    return replace(self, ops=(Iterate(spec.part(spec.steps + more.steps, spec.done)),))
        return None

    def _short(self, is_there: Callable[[DatasetId], bool]) -> Lineage:
        """Return an equal lineage in which links are joined that were separated by snapshots that are gone."""
        links: list[Lineage] = []
        link = self
        while link.before is not None and len(links) < _SHORTENED:
            links.append(link)
            link = link.before
        for each in reversed(links):
            saved = each.saved if each.saved is not None and is_there(each.saved) else None
            base = link if link.saved is None or is_there(link.saved) else replace(link, saved=None)
            link = (base._joined(each.ops, each.times) if saved is None else None) \
                or replace(each, before=base, saved=saved)
        return link

    def nodes(self) -> Iterator[PlanNode]:
        """Yield all operations with their snapshots, newest first."""
        link: Lineage | None = self
        while link is not None:
            for _ in range(link.times - 1):
                yield from [PlanNode(op) for op in reversed(link.ops)]
            yield from [PlanNode(op) for op in reversed(link.ops[1:])]
            yield PlanNode(link.ops[0], saved=link.saved)
            link = link.before

    def past(self) -> CompressedLineage:
        """Return the compressed lineage."""
        found = []
        link: Lineage | None = self
        while link is not None:
            found.append((tuple([PlanNode(op) for op in link.ops]), link.times))
            link = link.before
        return tuple(reversed(found))

    def backwards(self) -> Iterator[Op]:
        """Return an iterator over all operations, newest first."""
        return (node.op for node in self.nodes())


def reaches(op: Op) -> bool:
    """Return whether an operation reads neighbours' cells, or exchanges them."""
    return isinstance(op, HaloAppend) or needs_neighbours((PlanNode(op),), 0)


def place_of(chain: Sequence[PlanNode]) -> str:
    """Return the place of a chain's result: "host" or "device"; keys and values do not change the place."""
    for node in reversed(chain):
        if not isinstance(node.op, Keys | Values):
            return node.place
    return "host"


def has_halos(backwards: Iterable[Op]) -> bool:
    """Return whether operations, given newest first, leave a grid's blocks with fresh halos."""
    for op in backwards:
        if not isinstance(op, ToDevice | ToHost):
            return isinstance(op, HaloAppend)
    return False


def needs_neighbours(chain: Sequence[PlanNode], position: int) -> bool:
    """Return whether a node's partitions can only be computed all together, as it needs the halos of a grid's blocks.
    """
    match chain[position].op:
        case Iterate():
            return True
        case Map(spec):
            return reaches_out(spec)
        case Exec():
            return has_halos(chain[before].op for before in range(position - 1, -1, -1))
    return False


def together(chain: Sequence[PlanNode], start: DatasetId | None) -> bool:
    """Return whether an operation after ``start`` in a chain needs neighbours."""
    first = next((index for index, node in enumerate(chain) if start is not None and node.cached == start), 0)
    return any(needs_neighbours(chain, position) for position in range(first + 1, len(chain)))


def upto(chain: LogicalPlan, wanted: DatasetId) -> LogicalPlan:
    """Return the chain up to the node that is cached under a number."""
    return chain[:next(at for at, node in enumerate(chain) if node.cached and node.cached.number == wanted.number) + 1]


def is_cut(chain: LogicalPlan) -> bool:
    """Return whether a chain does not begin with the send."""
    return not isinstance(chain[0].op, Send)


def loops(chain: Sequence[PlanNode]) -> bool:
    """Return whether a chain contains a loop of unknown length after the cached result before its last node."""
    start = max((index for index, node in enumerate(chain[:-1]) if node.cached), default=0)
    return any(isinstance(node.op, Iterate) for node in chain[start + 1:])


def name_of(chain: Sequence[PlanNode]) -> str:
    """Return the name of a chain for errors: that of its first cached result; empty if nothing is cached."""
    return next((str(node.cached) for node in chain if node.cached), "")


def verify(chain: LogicalPlan) -> LogicalPlan:
    """Return the chain, if it can be run.

    Raises
    ------
    PlanError
        If it does not start with a send, or sends twice.
    """
    if not chain or not isinstance(chain[0].op, Send):
        raise PlanError("a plan starts with send: call .send() on the RDD, or .cache(\"GPU\")")
    if any(isinstance(node.op, Send) for node in chain[1:]):
        raise PlanError("the records are in the worker already: send() belongs on a plain RDD")
    numbers = [node.cached.number for node in chain if node.cached]
    if len(numbers) != len(set(numbers)):
        raise PlanError("two results of one plan are kept under the same number")
    return chain


def _whole_loops(chain: Sequence[PlanNode]) -> list[PlanNode]:
    """Return the chain, with the parts of each loop joined to one operation."""
    found: list[PlanNode] = []
    for node in chain:
        joined = Lineage((found[-1].op,))._joined((node.op,), 1) if found and not found[-1].cached else None
        if joined is not None and joined.times == 1:
            found[-1] = PlanNode(joined.ops[0], node.cached)
        else:
            found.append(node)
    return found


def describe(chain: LogicalPlan) -> str:
    """Return the chain as text, one operation a line, newest first; repeated operations are shown once, with a count.
    """
    told, place = [], "host"
    for node in _whole_loops(chain):
        place = place if isinstance(node.op, Keys | Values) else node.place
        told.append(f"{node.op}  [cached as VRDD {node.cached.number} on {place}]" if node.cached else str(node.op))
    told.reverse()
    lines: list[str] = []
    start = 0
    while start < len(told):
        length, times = _repeated(told, start)
        if times > 1:
            lines.append(f"{times} times:")
        lines += told[start:start + length]
        start += length * times
    return "\n".join(f"{'  ' * depth}{line}" for depth, line in enumerate(lines))


def _repeated(lines: Sequence[str], start: int) -> tuple[int, int]:
    """Return the length of the repeated sequence of lines that starts at ``start``, and how often it repeats; (1, 1) if
    nothing repeats.
    """
    best = 1, 1
    for length in range(1, _LONGEST_STEP + 1):
        step, times = lines[start:start + length], 1
        while lines[start + times * length:start + (times + 1) * length] == step:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best
