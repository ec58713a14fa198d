"""Recorded passes that join neighbouring rows by a function of two records."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gpu_worker.protocol.messages import (
    Argument,
    ArrayArgument,
    ExecStep,
    In,
    Launch,
    Out,
    ScalarArgument,
    Signature,
    ValueArgument,
)
from vispark._utils.lazy import LazyModule
from vispark.data.records.layout import RecordLayout
from vispark.errors import Place, PlanError
from vispark.plan.cuda_source import ArrayValue, Kernels
from vispark.plan.map_call import MapSpec
from vispark.plan.operation import OperatorOutput, PlanBuilder, RecordedOperation
from vispark.plan.slots import ArgumentRef
from vispark.translate import ElementField
from vispark.translate.codegen.scalar.interface import KernelParameter, TracedCall

if TYPE_CHECKING:
    from vispark.translate.kernels import joined_rows
else:
    joined_rows = LazyModule("vispark.translate.kernels.joined_rows")

#: Passes that leave one row: each joins groups of as many rows as make them alike.
PASSES = 3


@dataclass(frozen=True)
class JoinRows(RecordedOperation):
    """Operation that joins groups of neighbouring rows; the last of some passes leaves one.

    Attributes
    ----------
    spec : MapSpec
        The function of two records.
    left : int
        The passes from this one on; 1 for the last.
    inside : bool
        Whether rows are those inside of each record, along its leading axis; else they are a partition's records.
    """

    spec: MapSpec
    left: int
    inside: bool = False

    has_launch = True

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the pass in plans: all but the captures' values."""
        return JoinRows, self.spec.label, self.spec.shape_key(), self.left, self.inside

    def __str__(self) -> str:
        return f"{self.spec.label} by neighbours, {PASSES + 1 - self.left} of {PASSES}"

    def value(self, origin: ArgumentRef) -> ArrayValue:
        return self.spec.value(origin)

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        layout, before = state.layout.as_blocks(), state.blocks(str(self))
        rows = _Rows.of(self, layout, before)
        self._kernel(before, rows.axis)
        after = Signature(tuple([replace(each, shape=rows.after(each.shape)) for each in before.fields]))
        if self.inside and self.left == 1:
            layout = replace(layout, parts=tuple([
                replace(part.computed(), form="array" if len(each.shape) > (layout.kind == "elements") else "number")
                for part, each in zip(layout.parts, after.fields, strict=True)]))
        count = state.count if self.inside else rows.made
        return OperatorOutput(layout, after, count)

    def lower(self, plan: PlanBuilder, position: int) -> None:
        plan.on_device(ExecStep(str(self)), str(self))
        for launches, states in zip(plan.launches, plan.states, strict=True):
            state = states[position]
            before = state.blocks(str(self))
            rows = _Rows.of(self, state.layout.as_blocks(), before)
            kernel = self._kernel(before, rows.axis)
            outputs = tuple([replace(each, shape=rows.after(each.shape)) for each in before.fields])
            numbers = [_number(each) for each in (rows.records, rows.rows, rows.group)]
            fields: list[Argument] = [port for each in before.fields for port in (In(each.name), Out(each.name))]
            threads = rows.records * rows.made
            values = [self._value(parameter, position, plan) for parameter in kernel.parameters]
            launches.append(Launch((-(-threads // joined_rows.THREADS),) if threads else (), (joined_rows.THREADS,), 0,
                                   (*fields, *numbers, *values), outputs, kernel=kernel.name,
                                   module=plan.modules.add(Kernels(kernel.source, file=_file(str(self))))))

    def _value(self, parameter: KernelParameter, position: int, plan: PlanBuilder) -> Argument:
        slot = plan.slots.slot(ArgumentRef(position, parameter.kind, parameter.number))
        return ArrayArgument(slot) if parameter.pointer else ValueArgument(slot)

    def _kernel(self, before: Signature, axis: int) -> joined_rows.JoinKernel:
        fields = tuple([ElementField(each.name, each.dtype, each.shape[axis + 1:]) for each in before.fields])
        return joined_rows.join_kernel(TracedCall(self.spec.function, self.spec.values), fields)


@dataclass(frozen=True)
class _Rows:
    """Rows of a block: ``records`` times ``rows`` of them, along ``axis``, of which a pass leaves ``made`` each."""

    records: int
    rows: int
    group: int
    axis: int
    drops: bool

    @classmethod
    def of(cls, op: JoinRows, layout: RecordLayout, before: Signature) -> _Rows:
        """Return the rows of a block.

        Raises
        ------
        PlanError
            If its records are numbers, or empty, or the fields differ in their rows.
        """
        axis = 1 if op.inside and layout.kind == "elements" else 0
        extents = {each.shape[axis:axis + 1] for each in before.fields}
        place = Place(operation=op.spec.label)
        if len(extents) > 1 or () in extents:
            raise PlanError(f"{op.spec.label} joins rows along the leading axis of a record, which must be the same "
                            f"for all fields, not {', '.join(str(each.shape[axis:]) for each in before.fields)}", place)
        (rows,), = extents
        if not rows:
            raise PlanError(f"a record of shape {before.fields[0].shape[axis:]} has nothing to fold: {op.spec.label} "
                            "has no value for it", place)
        records = before.fields[0].shape[0] if axis else 1
        return cls(records, rows, _group(rows, op.left), axis, op.inside and op.left == 1)

    @property
    def made(self) -> int:
        """The rows that are left."""
        return -(-self.rows // self.group)

    def after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a field after the pass."""
        return (*shape[:self.axis], *(() if self.drops else (self.made,)), *shape[self.axis + 1:])


def _group(rows: int, left: int) -> int:
    """Return the number of rows that a thread joins, so that it is as many in each pass from here on."""
    group = max(1, int(np.ceil(rows ** (1 / left) - 1e-9)))
    return rows if left == 1 else group


def _number(value: int) -> ScalarArgument:
    return ScalarArgument("<i8", np.int64(value).tobytes())


def _file(label: str) -> str:
    return f"{label.partition(',')[0].replace(' ', '-')}.cu"


def passes(spec: MapSpec, *, inside: bool) -> tuple[JoinRows, ...]:
    """Return the operations that leave one row, in order."""
    return tuple(JoinRows(spec, left, inside) for left in range(PASSES, 0, -1))
