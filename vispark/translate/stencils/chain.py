"""Chains of stencils: which version of a field each of them reads and makes, how far behind the first row, and where.

A chain goes along the slowest axis of a grid of two axes, a row a turn. In a turn each stencil computes the row that
all it reads is there for: its ``delay`` is how many rows that is behind the newest row read from memory. Each value
that a field has on the way is a *version* of it: those that come from memory, and one for each stencil that writes the
field. Of a version as many rows are kept as those who read it need.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vispark.translate.stencils.frame import Cell, FieldRead, Offset, Write

#: How a field continues at the sides below and above y and x: "periodic", "mirrored", or a number in C++.
Sides = tuple[str, str, str, str]

#: The axis of (z, y, x) that a chain goes along, and that of its rows.
Y, X = 1, 2

#: The C++ types that threads can give each other, with 16 bytes for a thread.
SHUFFLED = ("float", "double", "int", "unsigned", "long long", "unsigned long long")
_MOST_TURNS = 12
#: The types of what a cell is given that its text defines.
_DEFINED = re.compile(r"\b(half_t|complex_t)\b")


@dataclass(eq=False)
class Version:
    """Version of a field between two stencils of a chain.

    Attributes
    ----------
    field, name, c, itemsize
        The field, the version's name in the source, its C++ type and the bytes of a cell.
    stage : int
        The stencil that makes it; -1 where it comes from memory.
    delay : int
        How many rows its newest row is behind the turn's.
    reads : list of (int, tuple of Offset)
        The stencils that read it, and where.
    needed : list of (int, int)
        How many cells below and above those that are wanted must be right, along y and x.
    depth : int
        The rows that are kept.
    stored : bool
        Whether it is what the field holds in the end.
    """

    field: str
    name: str
    c: str
    itemsize: int
    stage: int
    delay: int = 0
    reads: list[tuple[int, tuple[Offset, ...]]] = dataclasses.field(default_factory=list)
    needed: list[tuple[int, int]] = dataclasses.field(default_factory=lambda: [(0, 0), (0, 0)])
    depth: int = 0
    stored: bool = False

    def grow(self, needed: Sequence[tuple[int, int]]) -> None:
        """Make sure of more cells."""
        self.needed = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(self.needed, needed, strict=True)]

    @property
    def continued(self) -> bool:
        """Whether cells beyond the grid are read."""
        return any(any(offset) for _, offsets in self.reads for offset in offsets)


@dataclass(frozen=True)
class ChainStage:
    """Stencil of a chain: its function, the versions that it reads and writes, and its delay."""

    cell: Cell
    reads: tuple[tuple[FieldRead, Version], ...]
    writes: tuple[tuple[Write, Version], ...]
    delay: int


@dataclass(frozen=True)
class Chain:
    """Chain of stencils that run in one pass over memory.

    Attributes
    ----------
    stages : tuple of ChainStage
    versions : tuple of Version
        All of them; those that come from memory first.
    ahead : int
        How many rows are on their way from memory.
    turns : int
        The rows after which all are kept where they were.
    """

    stages: tuple[ChainStage, ...]
    versions: tuple[Version, ...]
    ahead: int
    turns: int

    @property
    def given(self) -> list[Version]:
        """The versions that come from memory."""
        return [each for each in self.versions if each.stage < 0]

    @property
    def stored(self) -> list[Version]:
        """The versions that are left, in the order in which they are made."""
        return [each for each in self.versions if each.stored]

    @property
    def side(self) -> int:
        """The most cells beyond a strip of cells that its computation starts from."""
        return max(max(each.needed[1]) for each in self.versions)

    @property
    def kept(self) -> int:
        """The cells that a thread with one lane keeps."""
        return sum(each.depth for each in self.versions)


def linked(cells: Sequence[Cell], ahead: int) -> Chain:
    """Return the chain of some cells' functions, one after the other; each has names of its own already."""
    versions: list[Version] = []
    current: dict[str, Version] = {}
    stages = []

    def version(name: str, c: str, itemsize: int, stage: int) -> Version:
        count = sum(each.field == name for each in versions)
        versions.append(Version(name, f"{re.sub(r'[^A-Za-z0-9_]', '_', name) or 'cells'}_v{count}", c, itemsize, stage))
        return versions[-1]

    for number, cell in enumerate(cells):
        reads = []
        for read in cell.reads:
            if read.field not in current:
                current[read.field] = version(read.field, read.c, read.itemsize, -1)
            current[read.field].reads.append((number, read.offsets))
            reads.append((read, current[read.field]))
        delay = max(each.delay + read.reach(Y)[1] for read, each in reads)
        writes = []
        for write in cell.writes:
            current[write.field] = written = version(write.field, write.c, write.itemsize, number)
            written.delay = delay
            writes.append((write, written))
        stages.append(ChainStage(cell, tuple(reads), tuple(writes), delay))
    for written in current.values():
        written.stored = written.stage >= 0
    versions.sort(key=lambda each: each.stage >= 0)
    _spread(stages, versions)
    return Chain(tuple(stages), tuple(versions), ahead, _turns(stages, versions, ahead))


def _spread(stages: Sequence[ChainStage], versions: Sequence[Version]) -> None:
    """Propagate backwards how many cells around the wanted ones must be right, and delay the loads of what is read
    late.
    """
    for stage in reversed(stages):
        margins = [(max(made.needed[axis][0] for _, made in stage.writes),
                    max(made.needed[axis][1] for _, made in stage.writes)) for axis in (0, 1)]
        for _, version in stage.writes:
            version.grow(margins)
        for read, version in stage.reads:
            reach = [read.reach(axis) for axis in (Y, X)]
            version.grow([(low - below, high + above)
                          for (low, high), (below, above) in zip(margins, reach, strict=True)])
    for version in versions:
        if version.stage < 0:
            version.delay = min(stages[number].delay - max(offset[Y] for offset in offsets)
                                for number, offsets in version.reads)


def _turns(stages: Sequence[ChainStage], versions: Sequence[Version], ahead: int) -> int:
    """Deal each version as many rows as it needs, or a few more, so that few turns bring all back."""
    least = []
    for version in versions:
        ages = [stages[number].delay - offset[Y] - version.delay
                for number, offsets in version.reads for offset in offsets]
        # A row beyond the grid is made of the one before it.
        rows = max(ages, default=0) + 1 if version.stage < 0 or not version.continued else max(2, max(ages) + 1)
        least.append(rows + (ahead if version.stage < 0 else 0))
    options = []
    for turns in range(max(least), _MOST_TURNS + max(least)):
        depths = [next(depth for depth in range(need, turns + 1) if turns % depth == 0) for need in least]
        options.append((sum(depths) + turns, turns, depths))
    _, turns, depths = min(options)
    for version, depth in zip(versions, depths, strict=True):
        version.depth = depth
    return turns


def own_names(cells: Sequence[Cell]) -> tuple[list[Cell], str]:
    """Return the cells with parameters renamed apart, and the text of each distinct cell once, in a namespace, which
    also has the types that C++ lacks.
    """
    spaces: dict[str, str] = {}
    renamed = []
    for number, cell in enumerate(cells):
        space = spaces.setdefault(cell.text, f"cells_{len(spaces)}")
        captured = tuple((_DEFINED.sub(rf"{space}::\1", re.sub(rf"\b{name}$", f"{name}_{number}", declared)),
                          f"{name}_{number}") for declared, name in cell.given)
        renamed.append(dataclasses.replace(cell, name=f"{space}::{cell.name}", given=captured))
    return renamed, "\n".join(f"namespace {space} {{\n{text}}}" for text, space in spaces.items())


def why_not_chained(cells: Sequence[Cell], sides: Mapping[str, Sides]) -> str:
    """Return the reason why some cells' functions cannot share one pass; empty if they can."""
    reads = [read for cell in cells for read in cell.reads]
    both: list[FieldRead | Write] = [*reads, *(write for cell in cells for write in cell.writes)]
    types = {(each.field, each.c) for each in both}
    if any(cell.dims != 2 for cell in cells):
        return "the grid does not have 2 axes"
    if any(not cell.reads for cell in cells):
        return "one of them reads nothing"
    if not {c for _, c in types} <= set(SHUFFLED) or len({each.itemsize for each in both}) > 1:
        return "its fields are not of types of 4 or of 8 bytes"
    if len(types) > len({each.field for each in both}):
        return "a field changes its type on the way"
    if not all(cell.total for cell in cells):
        return "it may go on for long, or end with a fault"
    if any(re.search("^ *#", cell.text, re.M) for cell in cells):
        return "it needs what stands once in a source"
    reach = [offset for read in reads for offset in read.offsets]
    if any(abs(step) > 1 for offset in reach for step in offset):
        return "it reads further than the next cells"
    for low, high in ((0, 1), (2, 3)):
        if len({sides[name][side] == "periodic" for name, _ in types for side in (low, high)}) > 1:
            return "some of its fields are periodic along an axis, and some are not"
    return ""

