"""Recorded calls of CUDA kernels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from gpu_worker.protocol.messages import ExecStep, Launch, Signature
from vispark.data.records.layout import PLACES, RAGGED, RecordLayout
from vispark.errors import LaunchError, Place
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.exec_call import ExecSpec
from vispark.plan.exec_launch import compiler_checks, resolve
from vispark.plan.operation import GridPlanBuilder, OperatorOutput, PlanBuilder, RecordedOperation, has_halos
from vispark.plan.slots import ArgumentRef, SlotTable


@dataclass(frozen=True)
class Exec(RecordedOperation):
    """Operation that launches a kernel on every block."""

    spec: ExecSpec

    has_launch = True

    @cached_property
    def key(self) -> Hashable:
        """Cache key of the call in plans: all but the arguments' values."""
        return Exec, self.spec.shape_key()

    def __str__(self) -> str:
        return self.spec.label

    def value(self, origin: ArgumentRef) -> ArrayValue:
        return self.spec.value(origin.number)

    def needs_neighbours(self, backwards: Iterable[RecordedOperation]) -> bool:
        return has_halos(backwards)

    def output(self, state: OperatorOutput, position: int, plan: PlanBuilder) -> OperatorOutput:
        spec, before = self.spec, state.blocks(self.spec.label)
        launch, signature, merge = resolve(spec, before, SlotTable())
        layout = state.layout.after(launch.outputs, merge=merge, as_input=spec.out is None)
        count = state.count
        if layout.kind == "elements":
            count = _stack_height(spec, _by_record(state.layout, before), _by_record(layout, signature), layout.keyed)
        return OperatorOutput(layout, signature, count)

    def output_on_grid(self, state: OperatorOutput, position: int, plan: GridPlanBuilder) -> OperatorOutput:
        spec, before = self.spec, state.blocks(self.spec.label)
        plan.check_halos(position, spec.label)
        padded = plan.padded(before)
        _, after, merge = resolve(spec, padded, SlotTable(), position)
        inner, outer = before.fields[0].shape, padded.fields[0].shape
        written = [each for each in after.fields if each not in padded.fields or not merge]
        for output in written:
            if output.shape not in (inner, outer):
                raise LaunchError(f"out= gives {output.name or 'the result'} the shape {output.shape}; of a grid's "
                                  f"block it is {outer} with the halo, or {inner} without", Place(operation=spec.label),
                                  f"  called at {spec.where}")
        fields = tuple(replace(each, shape=inner) for each in after.fields)
        layout = state.layout.after(tuple(replace(each, shape=inner) for each in written), merge=merge,
                                    as_input=spec.out is None)
        return replace(state, layout=layout, signature=Signature(fields))

    def lower(self, plan: PlanBuilder, position: int) -> None:
        plan.on_device(ExecStep(self.spec.label), self.spec.label)
        for launches, states in zip(plan.launches, plan.states, strict=True):
            launches.append(self._launch(states[position].blocks(self.spec.label), position, plan))

    def lower_on_grid(self, plan: GridPlanBuilder, position: int) -> None:
        plan.exchange_everything(position)
        plan.append(ExecStep(self.spec.label), self.spec.label)
        for launches, states in zip(plan.launches, plan.states, strict=True):
            before = plan.padded(states[position].blocks(self.spec.label))
            launches.append(self._launch(before, position, plan))

    def _launch(self, before: Signature, position: int, plan: PlanBuilder) -> Launch:
        launch, _, merge = resolve(self.spec, before, plan.slots, position)
        module = plan.modules.add(self.spec.kernel.kernels, compiler_checks(self.spec, before))
        return replace(launch, merge=merge, module=module, kernel=self.spec.kernel.name)


def _by_record(layout: RecordLayout, signature: Signature) -> Signature:
    """Return the fields that have the records along their first axis: of rows of several lengths where they lie."""
    ragged = [part.name for part in layout.parts if part.form in RAGGED]
    items = {name + part for name in ragged for part in ("", PLACES)}
    return Signature(tuple([each for each in signature.fields if each.name not in items]))


def _stack_height(spec: ExecSpec, before: Signature, after: Signature, keyed: bool) -> int:
    """Return the records in a stack of elements: the leading extent, which all its fields share."""
    heights = {described.shape[:1] for described in after.fields}
    if len(heights) > 1 or () in heights:
        shapes = ", ".join(f"{described.name or 'out'} {described.shape}" for described in after.fields)
        raise LaunchError(f"the records of a partition are one stack, and all its fields need the same leading extent; "
                          f"out= gives {shapes}", Place(operation=spec.label), f"  called at {spec.where}")
    height = heights.pop()[0]
    was = before.fields[0].shape[0]
    if keyed and height != was:
        raise LaunchError(f"out= makes {height} records of {was} pairs, and their keys would be lost: call .values() "
                          "first, or keep the leading extent", Place(operation=spec.label),
                          f"  called at {spec.where}")
    return height
