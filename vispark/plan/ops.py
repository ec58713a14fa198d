"""Logical plans: chains of recorded operations from an RDD's records to a VRDD.

Operations are frozen and equal by content. A chain is built one operation per call by :mod:`vispark.api.vrdd`, verified
here, and lowered to protocol steps by :mod:`vispark.plan.lower`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from vispark.errors import PlanError
from vispark.plan.operation import DatasetId, LogicalPlan, PlanNode, RecordedOperation, has_halos
from vispark.plan.operations.functions import FoldInside, Map
from vispark.plan.operations.grid import Contiguous, HaloAppend, Iterate, Window
from vispark.plan.operations.kernels import Exec
from vispark.plan.operations.projections import Keys, Values
from vispark.plan.operations.transfers import Send, ToDevice, ToHost

__all__ = [
    "CompressedLineage",
    "Contiguous",
    "DatasetId",
    "Exec",
    "FoldInside",
    "HaloAppend",
    "Iterate",
    "Keys",
    "Lineage",
    "LineageWalker",
    "LogicalPlan",
    "Map",
    "PlanNode",
    "RecordedOperation",
    "Send",
    "ToDevice",
    "ToHost",
    "Values",
    "Window",
    "chain_up_to",
    "describe",
    "has_halos",
    "is_cut",
    "loops",
    "name_of",
    "needs_neighbours",
    "place_of",
    "reaches",
    "runs_together",
    "verify",
]

#: A whole chain, in short: nodes, and how many times they come, from the send on.
CompressedLineage = tuple[tuple[LogicalPlan, int], ...]


class LineageWalker(Protocol):
    """Interface of a walk through a lineage, from a result back: returns the chain up to the result."""

    def __call__(self, is_enough: Callable[[PlanNode], bool] | None = None, /) -> LogicalPlan:
        """Return the plan from the send on, or from the last node for which ``is_enough`` holds and, before that node,
        as far back as ``is_enough`` says where the result lies. Nodes are asked about from the last one back, and none
        before that one.
        """


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

    ops: tuple[RecordedOperation, ...]
    before: Lineage | None = None
    times: int = 1
    saved: DatasetId | None = None
    #: Whether an operation, or one before these, takes neighbours' cells.
    reaches: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        reaches_back = any(map(reaches, self.ops)) or (self.before is not None and self.before.reaches)
        object.__setattr__(self, "reaches", reaches_back)

    def extended(self, ops: tuple[RecordedOperation, ...], saved: DatasetId | None = None,
                 is_there: Callable[[DatasetId], bool] = lambda saved: True) -> Lineage:
        """Return the lineage with further operations; ``is_there`` says which snapshots are still of use."""
        if saved is None:
            joined = self._joined(ops, 1)
            if joined is not None:
                return joined
        return Lineage(ops, self._short(is_there), 1, saved)

    def _joined(self, ops: tuple[RecordedOperation, ...], times: int) -> Lineage | None:
        """Return this link with the same operations once more, or with more steps of its loop; None for other
        operations.
        """
        if ops == self.ops:
            return replace(self, times=self.times + times)
        if len(self.ops) == len(ops) == self.times == times == 1 and self.saved is None:
            joined = self.ops[0].joined(ops[0])
            return None if joined is None else replace(self, ops=(joined,))
        return None

    def _short(self, is_there: Callable[[DatasetId], bool]) -> Lineage:
        """Return an equal lineage in which links are joined that were separated by snapshots that are gone."""
        links: list[Lineage] = []
        link = self
        while link.before is not None and len(links) < _SHORTENED:
            links.append(link)
            link = link.before
        for later in reversed(links):
            saved = later.saved if later.saved is not None and is_there(later.saved) else None
            base = link if link.saved is None or is_there(link.saved) else replace(link, saved=None)
            link = (base._joined(later.ops, later.times) if saved is None else None) \
                or replace(later, before=base, saved=saved)
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

    def compressed(self) -> CompressedLineage:
        """Return the compressed lineage."""
        segments = []
        link: Lineage | None = self
        while link is not None:
            segments.append((tuple([PlanNode(op) for op in link.ops]), link.times))
            link = link.before
        return tuple(reversed(segments))

    def newest_first(self) -> Iterator[RecordedOperation]:
        """Return an iterator over all operations, newest first."""
        return (node.op for node in self.nodes())


def reaches(op: RecordedOperation) -> bool:
    """Return whether an operation reads neighbours' cells, or exchanges them."""
    return op.halos is True or op.needs_neighbours(())


def place_of(chain: Sequence[PlanNode]) -> str:
    """Return the place of a chain's result: "host", "device", or that which spills where devices have no room."""
    return next(((node.cached and node.cached.spills) or node.op.place for node in reversed(chain)
                 if node.op.place or (node.cached and node.cached.spills)), "host")


def needs_neighbours(chain: Sequence[PlanNode], position: int) -> bool:
    """Return whether a node's partitions can only be computed all together, as it needs the halos of a grid's blocks.
    """
    return chain[position].op.needs_neighbours(chain[before].op for before in range(position - 1, -1, -1))


def runs_together(chain: Sequence[PlanNode], start: DatasetId | None) -> bool:
    """Return whether an operation after ``start`` in a chain needs neighbours."""
    first = next((index for index, node in enumerate(chain) if start is not None and node.cached == start), 0)
    return any(needs_neighbours(chain, position) for position in range(first + 1, len(chain)))


def chain_up_to(chain: LogicalPlan, wanted: DatasetId) -> LogicalPlan:
    """Return the chain up to the node that is cached under a number."""
    return chain[:next(at for at, node in enumerate(chain) if node.cached and node.cached.number == wanted.number) + 1]


def is_cut(chain: LogicalPlan) -> bool:
    """Return whether a chain does not begin with the send."""
    return not chain[0].op.begins


def loops(chain: Sequence[PlanNode]) -> bool:
    """Return whether a chain contains a loop of unknown length after the cached result before its last node."""
    start = max((index for index, node in enumerate(chain[:-1]) if node.cached), default=0)
    return any(node.op.loop is not None for node in chain[start + 1:])


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
    if not chain or is_cut(chain):
        raise PlanError("a plan starts with send: call .send() on the RDD, or .cache(\"GPU\")")
    if any(node.op.begins for node in chain[1:]):
        raise PlanError("the records are in the worker already: send() belongs on a plain RDD")
    numbers = [node.cached.number for node in chain if node.cached]
    if len(numbers) != len(set(numbers)):
        raise PlanError("two results of one plan are kept under the same number")
    return chain


def _whole_loops(chain: Sequence[PlanNode]) -> list[PlanNode]:
    """Return the chain, with the parts of each loop joined to one operation."""
    nodes: list[PlanNode] = []
    for node in chain:
        joined = Lineage((nodes[-1].op,))._joined((node.op,), 1) if nodes and not nodes[-1].cached else None
        if joined is not None and joined.times == 1:
            nodes[-1] = PlanNode(joined.ops[0], node.cached)
        else:
            nodes.append(node)
    return nodes


def describe(chain: LogicalPlan) -> str:
    """Return the chain as text, one operation a line, newest first; repeated operations are shown once, with a count.
    """
    newest_first, place = [], "host"
    for node in _whole_loops(chain):
        place = node.op.place or place
        newest_first.append(f"{node.op}  [cached as VRDD {node.cached.number} on {place}]" if node.cached
                              else str(node.op))
    newest_first.reverse()
    lines: list[str] = []
    start = 0
    while start < len(newest_first):
        length, times = _repeated(newest_first, start)
        if times > 1:
            lines.append(f"{times} times:")
        lines += newest_first[start:start + length]
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
