"""Steps on the blocks of a grid: exchanges of ghost cells, stencils, loops of them, and windows."""

from __future__ import annotations

import math
from functools import partial
from typing import TypeVar

from gpu_worker.device.memory.partition import Partition
from gpu_worker.execution.passes.grid_planes import GridByPlanes
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import ByPlanes, StepHandler, StepMessage, handles
from gpu_worker.execution.plan_checks import check_halos, check_stencil, require
from gpu_worker.protocol.grids import ExchangeStep, GridShape, IterateStep, StencilStep, WindowStep
from gpu_worker.protocol.messages import Plan


class _GridHandler(StepHandler[StepMessage]):
    """Handler of a step of a grid."""

    def verify(self, plan: Plan) -> None:
        require(plan.grid is not None, f"{self.name} is of a grid, and the plan has none")
        assert plan.grid is not None
        self.verify_on(plan.grid, plan)

    def verify_on(self, grid: GridShape, plan: Plan) -> None:
        """Verify the step on the plan's grid. Raises PlanError if it cannot be run."""


_FillingMessage = TypeVar("_FillingMessage", bound=ExchangeStep | StencilStep | IterateStep)


class _FillingHandler(_GridHandler[_FillingMessage]):
    """Handler of a step that fills ghost cells."""

    fills_ghosts = True

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.WINDOWS


@handles(ExchangeStep)
class ExchangeHandler(_FillingHandler[ExchangeStep]):
    """Handler of an exchange of ghost cells."""

    timed_as = "exchange"

    def verify_on(self, grid: GridShape, plan: Plan) -> None:
        check_halos(grid, self.step.halos)

    @property
    def by_planes(self) -> ByPlanes | None:
        return self._by_planes

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        context.grid_steps.exchange(self.step)
        return values

    def _by_planes(self, context: RunContext, planes: GridByPlanes, values: list[Partition]) -> list[Partition]:
        planes.exchange(self.step)
        return values


@handles(StencilStep)
class StencilHandler(_FillingHandler[StencilStep]):
    """Handler of a step that computes every cell anew."""

    def verify_on(self, grid: GridShape, plan: Plan) -> None:
        check_stencil(plan, self.step.launch)

    @property
    def by_planes(self) -> ByPlanes | None:
        return self._by_planes

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.with_blocks(values, context.run_together(self, values,
                                                                partial(context.grid_steps.stencil, self.step)))

    def _by_planes(self, context: RunContext, planes: GridByPlanes, values: list[Partition]) -> list[Partition]:
        return context.run_together(self, values, partial(planes.stencil, self.step))


@handles(IterateStep)
class IterateHandler(_FillingHandler[IterateStep]):
    """Handler of a loop of exchanges and stencils."""

    is_loop = True

    @property
    def branches(self) -> bool:
        return self.step.until >= 0 or self.step.check > 0

    def verify_on(self, grid: GridShape, plan: Plan) -> None:
        step = self.step
        require(bool(step.phases), "a loop has a phase or more")
        require(min(step.steps, step.done, step.check, step.every - 1, step.stride - 1) >= 0,
                "a loop's steps, and how often it looks, are no numbers below 0")
        require(not math.isnan(step.until), "a loop goes on until a change that is a number")
        require(step.stride == 1 or bool(step.together), "a loop of several steps at once says how")
        for phase in (*step.phases, *step.together):
            check_stencil(plan, phase.launch)
            check_halos(grid, phase.halos)

    @property
    def by_planes(self) -> ByPlanes | None:
        return self._by_planes

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.with_blocks(values, context.run_together(self, values,
                                                                partial(context.grid_steps.iterate, self.step)))

    def _by_planes(self, context: RunContext, planes: GridByPlanes, values: list[Partition]) -> list[Partition]:
        return context.run_together(self, values, partial(planes.iterate, self.step))


@handles(WindowStep)
class WindowHandler(_GridHandler[WindowStep]):
    """Handler of a step that takes the cells of a window."""

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def verify_on(self, grid: GridShape, plan: Plan) -> None:
        step, axes = self.step, len(grid.shape)
        require(len(step.starts) == len(step.stops) == len(step.steps) == axes,
                f"a window has starts, stops and steps for {axes} axes")
        require(all(each >= 1 for each in step.steps), "a window's steps are 1 or more")
        require(all(0 <= start <= stop <= extent for start, stop, extent in
                    zip(step.starts, step.stops, grid.shape, strict=True)), "a window lies in its grid")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.with_arrays(values, context.run_together(self, values,
                                                                partial(context.grid_steps.window, self.step)))
