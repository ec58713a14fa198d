"""What the user recorded: a chain of operations from an RDD's records to the VRDD wanted.

Operations are frozen and equal by content. A chain is built one operation per call by :mod:`vispark.vrdd`, verified
here, and lowered to protocol steps by :mod:`vispark.lower`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vispark.errors import PlanError
from vispark.fold import FoldSpec
from vispark.launch import ExecSpec
from vispark.mapped import MapSpec


@dataclass(frozen=True)
class Send:
    """Records into the worker's host memory."""

    def __str__(self) -> str:
        return "send"


@dataclass(frozen=True)
class ToDevice:
    """From the worker's host memory to the device."""

    def __str__(self) -> str:
        return "htod"


@dataclass(frozen=True)
class ToHost:
    """From the device to the worker's host memory."""

    def __str__(self) -> str:
        return "dtoh"


@dataclass(frozen=True)
class Exec:
    """A kernel on every block."""

    spec: ExecSpec

    def __str__(self) -> str:
        return self.spec.label


@dataclass(frozen=True)
class Map:
    """A translated Python function on every element."""

    spec: MapSpec

    def __str__(self) -> str:
        return self.spec.label


@dataclass(frozen=True)
class FoldInside:
    """Each record folded along its leading axis."""

    spec: FoldSpec

    def __str__(self) -> str:
        return f"vreduce {self.spec.label}"


@dataclass(frozen=True)
class Keys:
    """The keys of pairs."""

    def __str__(self) -> str:
        return "keys"


@dataclass(frozen=True)
class Values:
    """The values of pairs."""

    def __str__(self) -> str:
        return "values"


Op = Send | ToDevice | ToHost | Exec | Map | FoldInside | Keys | Values


@dataclass(frozen=True)
class Cached:
    """A number under which workers hold a node's content, and what to call it."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


@dataclass(frozen=True)
class Node:
    """One operation of a chain, and where its result is kept if it is."""

    op: Op
    cached: Cached | None = None

    @property
    def place(self) -> str:
        """Where a kept result lies: "host" or "device"."""
        return "host" if isinstance(self.op, Send | ToHost) else "device"


Chain = tuple[Node, ...]


@dataclass(frozen=True)
class Lineage:
    """Operations without their results: what is left of a chain once its end is materialised."""

    op: Op
    before: Lineage | None = None

    def __iter__(self) -> Iterator[Op]:
        found: list[Op] = []
        link: Lineage | None = self
        while link is not None:
            found.append(link.op)
            link = link.before
        return reversed(found)


def place_of(chain: Sequence[Node]) -> str:
    """Where the result of a chain lies: "host" or "device"; keys and values stay where they were."""
    for node in reversed(chain):
        if not isinstance(node.op, Keys | Values):
            return node.place
    return "host"


def name_of(chain: Sequence[Node]) -> str:
    """What errors call a chain: its first kept result; empty where nothing is kept."""
    return next((str(node.cached) for node in chain if node.cached), "")


def verify(chain: Chain) -> Chain:
    """The chain, if it can be run.

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


def describe(chain: Chain) -> str:
    """The chain, one operation a line, the last one first."""
    lines = []
    for depth, node in enumerate(reversed(chain)):
        place = place_of(chain[:len(chain) - depth])
        kept = f"  [cached as VRDD {node.cached.number} on {place}]" if node.cached else ""
        lines.append(f"{'  ' * depth}{node.op}{kept}")
    return "\n".join(lines)
