"""Recorded functions that the translator reads: mapped over elements, or folded inside records.

Their steps are made for runs of them at once, by :mod:`vispark.plan.lower.fusion`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpu_worker.protocol.messages import FoldInsideStep
from vispark.errors import Place, PlanError
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.fold import FoldSpec
from vispark.plan.fold.inside import fold_inside
from vispark.plan.loop_call import reaches_out
from vispark.plan.map_call import MapSpec, after_map, given, resolve_maps
from vispark.plan.operation import GridPlanBuilder, OperatorOutput, PlanBuilder, PlanNode, RecordedOperation
from vispark.plan.slots import ArgumentRef


@dataclass(frozen=True)
class Map(RecordedOperation):
    """Operation that applies a translated Python function to every element."""

    spec: MapSpec

    keeps_grid = True
    has_launch = True

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the call in plans: all but the arguments' values."""
        return Map, self.spec.label, self.spec.shape_key()

    def __str__(self) -> str:
        return self.spec.label

    @property
    def call(self) -> MapSpec:
        return self.spec

    def value(self, origin: ArgumentRef) -> ArrayValue:
        return self.spec.value(origin)

    def needs_neighbours(self, backwards: Iterable[RecordedOperation]) -> bool:
        return reaches_out(self.spec)

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        return not folded

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        before = state.signature if state.layout.wanted and state.signature else state.blocks(self.spec.label)
        layout, before = given(self.spec, state.layout, before)
        mapped = resolve_maps([(position, self.spec)], layout, before, shared_limit=plan.shared_limit)
        signature, layout = after_map(mapped, layout, before)
        return OperatorOutput(layout, signature, state.count, mapped)

    def output_on_grid(self, state: OperatorOutput, position: int, plan: GridPlanBuilder) -> OperatorOutput:
        if self.spec.of:
            raise PlanError(f"of={self.spec.of!r} says nothing here: the records are a grid's blocks, and functions "
                            "are of their cells. values() gives the blocks as plain arrays",
                            Place(operation=self.spec.label))
        return plan.mapped_cells(self.spec, state, position)

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        plan.stencil(self.spec, position)


@dataclass(frozen=True)
class FoldInside(RecordedOperation):
    """Operation that folds each record along its leading axis."""

    spec: FoldSpec

    def __str__(self) -> str:
        return f"vreduce {self.spec.label}"

    @property
    def row_fold(self) -> FoldSpec:
        return self.spec

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        return not folded

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        if state.layout.ragged:
            raise PlanError("vreduce() folds along the leading axis, and rows of several lengths are reduced by a "
                            "function: vmap(lambda p: p.sum())", Place(operation=str(self)))
        signature, layout = fold_inside(self.spec, state.layout, state.blocks(str(self)), str(self))
        return OperatorOutput(replace(layout, folded=layout.kind == "blocks"), signature, state.count)

    def output_on_grid(self, state: OperatorOutput, position: int, plan: GridPlanBuilder) -> OperatorOutput:
        signature, layout = fold_inside(self.spec, state.layout.as_blocks(), state.blocks(str(self)), str(self))
        return replace(state, layout=layout, signature=signature)

    def lower(self, plan: PlanBuilder, position: int) -> None:
        label = str(self)
        plan.on_device(FoldInsideStep(label, self.spec.fields(), plan.only_kind(label)), label)
