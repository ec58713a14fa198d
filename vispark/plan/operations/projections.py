"""Recorded projections of pairs to their keys or values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_worker.protocol.messages import KeysStep, Signature, Step, ValuesStep
from vispark.data.records import RecordLayout
from vispark.data.records.layout import fields_in
from vispark.plan.operation import (
    KEYS,
    VALUES,
    OperatorOutput,
    PlanBuilder,
    PlanNode,
    RecordedOperation,
    stays_on_host,
    takes_pairs_of_call,
)


@dataclass(frozen=True)
class _Projection(RecordedOperation):
    """Operation that takes an item of pairs."""

    place = ""
    passes_on = True

    def of_pairs(self, state: OperatorOutput) -> OperatorOutput:
        """Return pairs that were sent with keys, after the operation."""
        raise NotImplementedError

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        layout = state.layout
        if layout.only:
            raise stays_on_host(self)
        if layout.keyed:
            return self.of_pairs(state)
        if layout.tupled and takes_pairs_of_call(plan.nodes, position) and layout.has_item(self.item):
            signature = None if state.signature is None else Signature(fields_in(self.item, state.signature.fields))
            return OperatorOutput(layout.item(self.item), signature, state.count)
        return replace(state, layout=replace(layout, only=self.item))

    def lower(self, plan: PlanBuilder, position: int) -> None:
        if self.projection is not None:
            plan.append(self.projection)


@dataclass(frozen=True)
class Keys(_Projection):
    """Operation that takes the keys of pairs."""

    item = KEYS

    def __str__(self) -> str:
        return "keys"

    @property
    def projection(self) -> Step:
        return KeysStep()

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        return takes_pairs_of_call(nodes, position)

    def of_pairs(self, state: OperatorOutput) -> OperatorOutput:
        return OperatorOutput(replace(state.layout.as_blocks(), only="keys"), None, state.count)

    def empty_layout(self, layout: RecordLayout) -> RecordLayout:
        layout = super().empty_layout(layout)
        return replace(layout, only="keys") if layout.keyed else layout


@dataclass(frozen=True)
class Values(_Projection):
    """Operation that takes the values of pairs."""

    item = VALUES

    def __str__(self) -> str:
        return "values"

    @property
    def projection(self) -> Step:
        return ValuesStep()

    def joins(self, nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
        return True

    def of_pairs(self, state: OperatorOutput) -> OperatorOutput:
        return replace(state, layout=state.layout.values())

    def empty_layout(self, layout: RecordLayout) -> RecordLayout:
        return super().empty_layout(layout).values()
