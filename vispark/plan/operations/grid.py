"""Recorded operations on the blocks of a grid."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from gpu_worker.protocol.grids import WindowStep
from vispark.data.grid.selection import CellSelection
from vispark.errors import Place, PlanError
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.loop_call import LoopSpec
from vispark.plan.operation import GridPlanBuilder, OperatorOutput, PlanBuilder, RecordedOperation
from vispark.plan.slots import ArgumentRef


@dataclass(frozen=True)
class _OfGrid(RecordedOperation):
    """Operation that no other records have."""

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        raise PlanError("this needs the blocks of a Grid, under their keys, as Grid.scatter gives them",
                        Place(operation=str(self)))

    def output_on_grid(self, state: OperatorOutput, position: int, plan: GridPlanBuilder) -> OperatorOutput:
        return state


@dataclass(frozen=True)
class HaloAppend(_OfGrid):
    """Operation that surrounds the blocks of a grid with their neighbours' cells."""

    halos = True
    keeps_grid = True

    def __str__(self) -> str:
        return "halo_append"

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        """Append nothing: what needs the halos exchanges them."""


@dataclass(frozen=True)
class Iterate(_OfGrid):
    """Operation that repeats steps of exchanges and stencils on a grid."""

    spec: LoopSpec

    keeps_grid = True

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the loop in plans: all but the arguments' values."""
        return Iterate, self.spec.label, self.spec.shape_key()

    def __str__(self) -> str:
        return f"{self.spec.label} ({self.spec.steps} steps)"

    @property
    def loop(self) -> LoopSpec:
        return self.spec

    def value(self, origin: ArgumentRef) -> ArrayValue:
        return self.spec.value(origin)

    def joined(self, more: RecordedOperation) -> RecordedOperation | None:
        spec, behind = self.spec, more.loop
        if behind is None or behind != spec.part(behind.steps, spec.done + spec.steps):
            return None
        return Iterate(spec.part(spec.steps + behind.steps, spec.done))

    def needs_neighbours(self, backwards: Iterable[RecordedOperation]) -> bool:
        return True

    def output_on_grid(self, state: OperatorOutput, position: int, plan: GridPlanBuilder) -> OperatorOutput:
        plan.check_loop(self.spec, state, position)
        return state

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        plan.iterate(self.spec, position)


@dataclass(frozen=True)
class Window(_OfGrid):
    """Operation that takes the cells of a grid's blocks in a window: from, up to (without), and the stride along each
    axis.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]

    def __str__(self) -> str:
        ranges = zip(self.starts, self.stops, self.steps, strict=True)
        return f"window [{', '.join(f'{start}:{stop}:{step}' for start, stop, step in ranges)}]"

    @property
    def selection(self) -> CellSelection:
        return CellSelection(self.starts, self.stops, self.steps)

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        plan.append(WindowStep(self.starts, self.stops, self.steps))


@dataclass(frozen=True)
class Contiguous(_OfGrid):
    """Operation that copies the blocks of a grid with ``shape`` cells out of the memory that they share with halos."""

    shape: tuple[int, ...]

    keeps_grid = True

    def __str__(self) -> str:
        return "contiguous"

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        plan.append(WindowStep((0,) * len(self.shape), self.shape, (1,) * len(self.shape)))
