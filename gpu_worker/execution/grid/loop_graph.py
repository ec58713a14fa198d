"""Graph of a loop's states and the segments of steps between them, each segment up to a test of cell values.

What a segment does depends only on which buffers hold what before it, and a loop comes back to the same ones. So its
states and the segments between them are a graph, which is found out once, and from then on only gone along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, RecordedWork, TapeEntry
from gpu_worker.device.memory.grid.patches import Cells, Domain
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.grid.reductions import ALL_FINITE, Reading, Reduction
from gpu_worker.protocol.errors import NotFinite
from gpu_worker.protocol.grids import Iterated, IterateStep

#: How many steps may be under way on the devices before the worker waits for some; a segment has as many phases.
AHEAD = 64


@dataclass(frozen=True)
class SegmentShape:
    """Shape of a segment of a loop: its passes, steps, and the tests at its end.

    Attributes
    ----------
    advances : tuple of bool
        Of each time that phases are done, whether these are those of several steps at once.
    steps : int
        The steps that these are.
    is_compared : bool
        Whether the largest change in the last step is asked for.
    is_checked : bool
        Whether it is asked if all cells are finite then.
    """

    advances: tuple[bool, ...]
    steps: int
    is_compared: bool
    is_checked: bool


@dataclass(eq=False)
class LoopState:
    """State of a loop between two steps: the cells of each field, their ghost tags, and the passes and segments
    recorded from it.
    """

    content: dict[str, Cells]
    tags: dict[Buffer, tuple[Any, ...]]
    #: By whether they are those of several steps, and whether what was before stays as it is.
    passes: dict[tuple[bool, bool], Pass] = field(default_factory=dict)
    segments: dict[SegmentShape, Segment] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Pass:
    """Recorded phases of a step, or of several at once."""

    entries: list[TapeEntry]
    after: LoopState


@dataclass(eq=False)
class Segment:
    """Recorded steps up to a test, and the reading of the test's answers.

    Attributes
    ----------
    entries : list of Entry
    asked : PendingTest or None
    after : LoopState
    work : list of RecordedWork
        What does the same as the entries, for later calls.
    """

    entries: list[TapeEntry]
    asked: PendingTest | None
    after: LoopState
    work: list[RecordedWork] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class PendingTest:
    """Tests at the end of a segment of a loop, whose answers are not read yet.

    Attributes
    ----------
    reading : Reading
        Where a change is compared, that is the first question; the others are which cells are not finite.
    names : tuple of str
        The fields that these are of.
    least : float
        The least that the largest change is; below 0 where none is compared.
    """

    reading: Reading
    names: tuple[str, ...]
    least: float

    def change(self, answers: Sequence[np.ndarray]) -> float:
        """Return the largest change of a cell; NaN if a cell's change is NaN."""
        changes = [float(found[:1].view(np.float64)[0]) for found in answers]
        return float("nan") if any(change != change for change in changes) else max(self.least, *changes)

    def check(self, answers: Sequence[np.ndarray], domain: Domain, number: int) -> None:
        """Raise NotFinite if a cell is NaN or infinite after the step of this number."""
        for place, name in enumerate(self.names, start=int(self.least >= 0)):
            first = min(int(found[place]) for found in answers)
            if first != ALL_FINITE:
                cell = tuple(map(int, np.unravel_index(first, domain.lattice.shape)))
                block = domain.lattice.block_of(cell)
                raise NotFinite(f"cell {cell[3 - domain.axes:]} of {name or 'the grid'}, in block "
                                f"{block[3 - domain.axes:]}, is NaN or infinite after step {number}")


def questions(before: dict[str, Cells] | None, content: dict[str, Cells], written: Sequence[str],
              checked: bool) -> tuple[list[Reduction], tuple[str, ...], float]:
    """Return the reductions of a test at a segment's end, and the names and the least change for :class:`PendingTest`.

    Parameters
    ----------
    before : dict of str to Cells, optional
        What held the fields before the last step, where its change is asked for.
    content : dict of str to Cells
        What holds them now.
    written : sequence of str
        The fields that steps write. The change of one that is new is infinite.
    checked : bool
        Whether to ask for cells that are not finite.
    """
    reductions, least, names = [], -1.0, ()      # type: tuple[list[Reduction], float, tuple[str, ...]]
    if before is not None:
        there = [name for name in written if name in content]
        same = [name for name in there if name in before and before[name].dtype == content[name].dtype]
        reductions.append(Reduction.change([(before[name], content[name]) for name in same]))
        least = 0.0 if same == there else np.inf
    if checked:
        names = tuple(name for name, cells in content.items() if cells.dtype.kind in "fc")
        reductions += [Reduction.finite(content[name]) for name in names]
    return reductions, names, least


class LoopGraph:
    """Graph of a loop's states, and the walk through it.

    Parameters
    ----------
    step : IterateStep
    domain : Domain
        Whose cells are asked.
    """

    def __init__(self, step: IterateStep, domain: Domain):
        self._step = step
        self._domain = domain
        self._shapes: dict[int, SegmentShape] = {}
        self._most = max(1, AHEAD // max(len(step.phases), len(step.together)))

    def run(self, state: LoopState, begin: Callable[[LoopState, SegmentShape], Segment | None],
            wait: Callable[[], None],
            world: JoinedWorld | None = None, before: int = 0) -> tuple[Iterated | None, LoopState]:
        """Run the loop's steps; return its outcome and its last state. The outcome is None if ``begin`` cannot go on
        from that state.

        Parameters
        ----------
        state : LoopState
            Where it starts.
        begin : callable
            Begins a segment; None where it cannot.
        wait : callable
            Waits for what was begun.
        world : JoinedWorld, optional
            The other nodes.
        before : int
            How many steps came before these.

        Raises
        ------
        NotFinite
            If a cell that was asked about is NaN or infinite.
        """
        step, change, count, ahead = self._step, -1.0, 0, 0
        while count < step.steps:
            shape = self._shapes.get(count) or self._shape(count)
            segment = begin(state, shape)
            if segment is None:
                return None, state
            state, count, ahead = segment.after, count + shape.steps, ahead + len(shape.advances)
            if segment.asked is not None or ahead >= AHEAD:
                wait()
                ahead = 0
            if segment.asked is not None:
                answers = segment.asked.reading.answers(world)
                segment.asked.check(answers, self._domain, before + count)
                if shape.is_compared:
                    change = segment.asked.change(answers)
                    if change <= step.until:
                        return Iterated(count, change), state
        return Iterated(step.steps, change), state

    def _shape(self, count: int) -> SegmentShape:
        """Compute the shape of the segment that begins after ``count`` steps."""
        step, advances, start = self._step, [], count       # type: tuple[IterateStep, list[bool], int]
        compared = checked = False
        while count < step.steps and len(advances) < self._most and not (compared or checked):
            together = step.stride > 1 and self._steps_without_test(count) >= step.stride
            count += step.stride if together else 1
            advances.append(together)
            number = step.done + count
            compared = not together and step.until >= 0 and number % step.every == 0
            checked = step.check > 0 and (number % step.check == 0 or count == step.steps)
        self._shapes[start] = SegmentShape(tuple(advances), count - start, compared, checked)
        return self._shapes[start]

    def _steps_without_test(self, count: int) -> int:
        """Return the number of steps after step ``count`` that no test interrupts."""
        step, number = self._step, self._step.done + count
        free = step.steps - count
        if step.until >= 0:
            free = min(free, step.every - 1 - number % step.every)
        return min(free, step.check - number % step.check) if step.check > 0 else free


@dataclass(frozen=True)
class LoopRoute:
    """Route of a loop through its graph.

    ``is_steady`` says that no segment fills what the sides give: it was there, or was filled once.
    """

    graph: LoopGraph
    start: LoopState
    end: LoopState
    is_steady: bool


def reachable_segments(start: LoopState) -> list[Segment]:
    """Return all segments that are reachable from a state."""
    states: dict[LoopState, None] = {start: None}
    waiting = [start]
    while waiting:
        for segment in waiting.pop().segments.values():
            if segment.after not in states:
                states[segment.after] = None
                waiting.append(segment.after)
    return [segment for state in states for segment in state.segments.values()]
