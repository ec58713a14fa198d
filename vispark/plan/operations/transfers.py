"""Recorded transfers: from the RDD to a worker's host memory, and between that and the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_worker.protocol.messages import ToHostStep
from vispark.data.records import RecordLayout
from vispark.plan.operation import GridPlanBuilder, PlanBuilder, PlanNode, RecordedOperation


@dataclass(frozen=True)
class Send(RecordedOperation):
    """Operation that sends records to the worker's host memory."""

    place = "host"
    begins = True

    def __str__(self) -> str:
        return "send"


@dataclass(frozen=True)
class _Transfer(RecordedOperation):
    """Operation that copies blocks as they are."""

    passes_on = True
    halos = None
    keeps_grid = True

    def empty_layout(self, layout: RecordLayout) -> RecordLayout:
        return layout


@dataclass(frozen=True)
class ToDevice(_Transfer):
    """Operation that copies blocks from the worker's host memory to the device."""

    def __str__(self) -> str:
        return "htod"

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        return True

    def lower(self, plan: PlanBuilder, position: int) -> None:
        plan.on_device()


@dataclass(frozen=True)
class ToHost(_Transfer):
    """Operation that copies blocks from the device to the worker's host memory."""

    place = "host"

    def __str__(self) -> str:
        return "dtoh"

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        # What follows brings it back to the device.
        if nodes[position].cached is not None or position + 1 >= len(nodes):
            return False
        behind = nodes[position + 1].op
        return behind.call is not None or behind.row_fold is not None

    def lower(self, plan: PlanBuilder, position: int) -> None:
        if plan.nodes[position].cached or not plan.is_last(position):
            plan.append(ToHostStep())

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        # Host memory has the blocks without their ghost cells.
        plan.without_grid(position)
        plan.forget_halos()
