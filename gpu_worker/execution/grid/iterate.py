"""Loops of exchanges and stencils that do not leave the worker.

A step's operations depend only on which buffers hold what. A loop writes each field in turn into two buffers of its
own, so after a step or two it comes back to where it was, and the operations of an earlier step are done again as they
are: they are worked out, and their tables uploaded, a few times in a loop and not once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, Source, TapeEntry
from gpu_worker.device.memory.grid.patches import Cells, Domain
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.grid.context import GridContext, Operation
from gpu_worker.execution.grid.continued import Continued
from gpu_worker.execution.grid.exchange import Exchange, exchange
from gpu_worker.execution.grid.loop_graph import (
    LoopGraph,
    LoopRoute,
    LoopState,
    Pass,
    PendingTest,
    Segment,
    SegmentShape,
    questions,
)
from gpu_worker.execution.grid.reductions import Reading
from gpu_worker.execution.grid.stencils import launches
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import Halo, Iterated, IterateStep
from gpu_worker.protocol.messages import Field, StencilLaunch


@dataclass(frozen=True)
class StencilSource:
    """Stencil of the plan, with the source that it is compiled from."""

    launch: StencilLaunch
    source: Source


@dataclass
class Stepper:
    """Computation of a domain's fields, phase by phase, in memory of its own.

    Parameters
    ----------
    domain : Domain
    content : dict of str to Cells
        The fields to start from, whose memory is only read but for its ghost cells.
    context : GridContext
    world : JoinedWorld, optional
        The other nodes.
    """

    domain: Domain
    content: dict[str, Cells]
    context: GridContext
    world: JoinedWorld | None = None
    #: The cells that are our own, of each field.
    owned: dict[str, list[Cells]] = field(default_factory=dict)
    tags: dict[Buffer, tuple[Any, ...]] = field(default_factory=dict)

    #: Whether something was filled that sides give, as it was not there yet.
    has_filled: bool = False
    #: How fields continue, by the halos of a phase, which stay the plan's.
    _sides: dict[tuple[Any, ...], list[Continued]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for cells in self.content.values():
            for buffer in cells.buffers:
                # Should the plan fail, nobody knows what the ghosts hold.
                if buffer.ghosts is not None:
                    self.tags[buffer], buffer.ghosts = buffer.ghosts, None

    def exchange(self, halos: Sequence[Halo]) -> list[Operation]:
        """Fill ghost cells."""
        result = self._exchanged(halos)
        dependencies = [each.on(self.context.stream(each.device)) for each in result.came]
        return [*result.filled, *result.first, *result.beside, *result.after, *dependencies, *result.settled]

    def phase(self, halos: Sequence[Halo], kernel: StencilSource, protected: Sequence[Cells] = ()
              ) -> tuple[list[Operation], list[Operation]]:
        """Fill ghost cells and compute a stencil, whose results replace the content.

        Of the operations, the first ones are done before the others, and need not be done again.
        """
        exchanged = self._exchanged(halos)
        results = {described.name: self._target(described, protected) for described in kernel.launch.outputs}
        operations = launches(kernel.launch, kernel.source, self.domain, self.content, results, exchanged, self.context)
        self.content = self.content | results if kernel.launch.merge else results
        return exchanged.filled, operations

    def _exchanged(self, halos: Sequence[Halo]) -> Exchange:
        exchanged = exchange(self.domain, self.content, self._continued(halos), self.context, self.tags, self.world)
        self.has_filled |= bool(exchanged.filled)
        return exchanged

    def _continued(self, halos: Sequence[Halo]) -> list[Continued]:
        missing = [halo.field for halo in halos if halo.field not in self.content]
        if missing:
            raise PlanError(f"ghost cells of fields {missing[:8]} are asked for, and the fields are "
                            f"{list(self.content)[:8]}")
        key = id(halos), *(self.content[halo.field].dtype for halo in halos)
        if key not in self._sides:
            self._sides[key] = [Continued.of(halo, self.domain, self.content[halo.field],
                                             self.context) for halo in halos]
        return self._sides[key]

    def _target(self, described: Field, protected: Sequence[Cells]) -> Cells:
        """Return memory for a field's new values: buffers of this stepper whose content is not needed any more, or new
        ones.
        """
        dtype, needed = np.dtype(described.dtype), [*self.content.values(), *protected]
        for cells in self.owned.setdefault(described.name, []):
            if cells.dtype == dtype and not any(cells is other for other in needed):
                return cells
        buffers = tuple(self.context.allocate(patch.layout.elements * dtype.itemsize, patch.device)
                        for patch in self.domain.patches)
        for buffer in buffers:
            # Memory that held this field before, in an earlier plan, has ghost cells that were filled then.
            if buffer.ghosts is not None:
                self.tags[buffer], buffer.ghosts = buffer.ghosts, None
        self.owned[described.name].append(Cells(dtype, buffers))
        return self.owned[described.name][-1]

    def finish(self) -> dict[str, Cells]:
        """Return the content, which the caller holds; the rest of the stepper's memory is released."""
        for buffer, tag in self.tags.items():
            buffer.ghosts = tag
        for cells in self.content.values():
            cells.share()
        for owned in self.owned.values():
            for cells in owned:
                for buffer in cells.buffers:
                    self.context.recycle(buffer)
        self.owned.clear()
        self.context.close()
        return self.content


class Loop:
    """Loop of phases, which records its states and segments as it reaches them.

    Parameters
    ----------
    step : IterateStep
    kernels : mapping of int to StencilSource
        The stencils of the plan, by their index.
    stepper : Stepper
        Holds the fields.
    wait : callable
        Waits for all devices, with the marks that tell which kernel is late.
    """

    def __init__(self, step: IterateStep, kernels: Mapping[int, StencilSource], stepper: Stepper,
                 wait: Callable[[], None]):
        self._step = step
        self._kernels = kernels
        self._stepper = stepper
        self._wait = wait
        #: Its way, once it has run.
        self.path: LoopRoute | None = None
        self._graph = LoopGraph(step, stepper.domain)
        self._states: dict[tuple[Any, ...], LoopState] = {}
        self._asked: dict[tuple[Any, ...], tuple[list[TapeEntry], PendingTest | None]] = {}
        self._written = tuple(dict.fromkeys(described.name for phase in step.phases
                                            for described in kernels[phase.launch].launch.outputs))
        sides = {(halo.field, halo.sides) for phase in (*step.phases, *step.together) for halo in phase.halos}
        #: Whether what the sides give a field stays the same, so that it is filled once.
        self._is_steady = len(sides) == len({name for name, _ in sides})

    def run(self) -> Iterated:
        """Run the steps.

        Raises
        ------
        NotFinite
            If a cell that was asked about is NaN or infinite.
        """
        step, stepper, start = self._step, self._stepper, self._state()
        before = step.done if step.counted < 0 else int(stepper.context.arguments.number(step.counted))
        ended, state = self._graph.run(start, self._begin, self._wait, stepper.world, before)
        stepper.content, stepper.tags = dict(state.content), dict(state.tags)
        self.path = LoopRoute(self._graph, start, state, self._is_steady)
        assert ended is not None
        return ended

    def _state(self) -> LoopState:
        """Return the present state of the stepper."""
        stepper = self._stepper
        key = tuple((name, *map(id, cells.buffers)) for name, cells in stepper.content.items()), \
            frozenset() if self._is_steady else frozenset((id(buffer), tag) for buffer, tag in stepper.tags.items())
        if key not in self._states:
            self._states[key] = LoopState(dict(stepper.content), self._tags(stepper.tags))
        return self._states[key]

    def _tags(self, tags: dict[Buffer, tuple[Any, ...]]) -> dict[Buffer, tuple[Any, ...]]:
        """Return the ghost-cell tags of a loop state; shared by all states when tags are only added."""
        return tags if self._is_steady else dict(tags)

    def _begin(self, state: LoopState, shape: SegmentShape) -> Segment:
        """Run a segment, replayed or for the first time."""
        segment = state.segments.get(shape)
        if segment is None:
            state.segments[shape] = segment = self._run_first(state, shape)
        else:
            self._enqueue_again(segment.entries)
        return segment

    def _enqueue_again(self, entries: Sequence[TapeEntry]) -> None:
        self._stepper.context.enqueue_again(entries)
        self._note(entries)

    def _note(self, entries: Sequence[TapeEntry]) -> None:
        """Add entries to the plan's recording, if the loop has a fixed course."""
        if self._step.until < 0 and not self._step.check:
            self._stepper.context.note(entries)

    def _run_first(self, start: LoopState, shape: SegmentShape) -> Segment:
        """Run a segment for the first time, and record it."""
        entries, state, before = [], start, start           # type: tuple[list[TapeEntry], LoopState, LoopState]
        for place, together in enumerate(shape.advances, start=1):
            before = state
            is_kept = shape.is_compared and place == len(shape.advances)
            passed = state.passes.get((together, is_kept))
            if passed is None:
                state.passes[together, is_kept] = passed = self._passed(state, together, is_kept)
            else:
                self._enqueue_again(passed.entries)
            entries += passed.entries
            state = passed.after
        key = (before if shape.is_compared else None), state, shape.is_checked
        if key in self._asked:
            self._enqueue_again(self._asked[key][0])
        else:
            self._asked[key] = self._read(*key)
        return Segment(entries + self._asked[key][0], self._asked[key][1], state)

    def _passed(self, state: LoopState, together: bool, kept: bool) -> Pass:
        """Run the phases for the first time from a state, whose fields stay as they are if they are to be kept."""
        stepper = self._stepper
        stepper.content, stepper.tags = dict(state.content), self._tags(state.tags)
        operations: list[Operation] = []
        for phase in self._step.together if together else self._step.phases:
            filled, computed = stepper.phase(phase.halos, self._kernels[phase.launch],
                                             list(state.content.values()) if kept else ())
            if self._is_steady:
                self._recorded(filled)
                filled = []
            operations += [*filled, *computed]
        return Pass(self._recorded(operations), self._state())

    def _read(self, before: LoopState | None, after: LoopState,
              checked: bool) -> tuple[list[TapeEntry], PendingTest | None]:
        """Run a state's test for the first time, if there is one."""
        stepper = self._stepper
        reductions, names, least = questions(None if before is None else before.content, after.content, self._written,
                                             checked)
        if not reductions:
            return [], None
        reading = Reading(reductions, stepper.domain, stepper.context)
        return self._recorded(reading.operations), PendingTest(reading, names, least)

    def _recorded(self, operations: Sequence[Operation]) -> list[TapeEntry]:
        """Run operations, and return their recorded entries."""
        with self._stepper.context.noting() as entries:
            for operation in operations:
                operation()
        self._note(entries)
        return entries
