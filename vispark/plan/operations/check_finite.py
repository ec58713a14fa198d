"""Recorded check that numbers are finite."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_worker.protocol.plans import CheckFiniteStep
from vispark.plan.operation import OperatorOutput, PlanBuilder, RecordedOperation


@dataclass(frozen=True)
class CheckFinite(RecordedOperation):
    """Operation that ends with an error where a number is NaN or infinite, and leaves the records as they are."""

    place = ""
    passes_on = True
    halos = None
    keeps_grid = True

    def __str__(self) -> str:
        return "check_finite"

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        state.blocks(str(self))
        return state

    def lower(self, plan: PlanBuilder, position: int) -> None:
        plan.on_device(CheckFiniteStep(str(self)), str(self))
