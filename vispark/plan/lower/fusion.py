"""Fusion of a run of ``vmap``, with the fold or the projection of its results, into one step of a worker's plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Field, FoldByKeyStep, FoldStep, Launch, MapFoldStep, Signature
from gpu_worker.protocol.plans import OpenKeysStep
from vispark.data.records.layout import held_as, item_of, name_in
from vispark.errors import Place, PlanError
from vispark.plan.fold import FoldSpec
from vispark.plan.fold.row_folds import along
from vispark.plan.lower.stages import FusedStage
from vispark.plan.map_call import (
    Mapped,
    MapSpec,
    NumberedCall,
    agrees,
    given,
    label_of,
    launch_of,
    not_alike,
    opens_keys,
    record_map,
    resolve_maps,
)
from vispark.plan.operation import KEYS, LogicalPlan, OperatorOutput, PlanBuilder
from vispark.plan.slots import ArgumentRef
from vispark.translate import TranslationError
from vispark.translate.ir.folding import Folding


class CannotFuse(Exception):
    """Signal that the node at a position cannot be part of the step before it."""

    def __init__(self, position: int):
        super().__init__(position)
        self.position = position


class RunBuilder(PlanBuilder, Protocol):
    """Interface of a plan that is being made, as runs of functions need it.

    Attributes
    ----------
    kinds : set of str
        What the partitions mean by a record.
    settled : set of ArgumentRef
        Numbers that shaped the kernels.
    fold : FoldStep, FoldByKeyStep, str or None
        The fold of all records at the end, or why there is none.
    """

    fold: FoldStep | FoldByKeyStep | str | None

    @property
    def kinds(self) -> set[str]: ...

    @property
    def settled(self) -> set[ArgumentRef]: ...


def is_dead(plan: PlanBuilder, stage: FusedStage) -> bool:
    """Return whether no result of a run of ``vmap`` is used."""
    return plan.nodes[stage.stop - 1].op.item == KEYS and all(
        states[stage.stop - 1].layout.keyed for states in plan.states)


def fuse(plan: RunBuilder, stage: FusedStage) -> None:
    """Append the step of a run of ``vmap``, fused with the folds or projections of its results.

    Raises
    ------
    CannotFuse
        If the run is to end before one of its nodes.
    """
    nodes = plan.nodes[stage.first:stage.stop]
    if is_dead(plan, stage):
        # The keys that the records were sent with are all that is left of them.
        plan.append(messages.KeysStep())
        return
    run = _Run(plan, stage)
    step = run.step()
    opening = run.opening()
    if opening is not None:
        plan.append(opening)
    plan.on_device(step, step.label)
    for number, launches in enumerate(plan.launches):
        launches.append(run.folding_launch(step, number) if isinstance(step, MapFoldStep) else run.launch(number))
    if not stage.fold:
        for projection in dict.fromkeys([node.op.projection for node in nodes]):
            if projection is not None:
                plan.append(projection)


class _Run:
    """Run of functions that becomes one kernel."""

    def __init__(self, plan: RunBuilder, stage: FusedStage):
        self._plan, self._stage = plan, stage
        self._nodes: LogicalPlan = plan.nodes
        self._calls: list[NumberedCall] = []
        #: The position of a fold inside the results, if it is no call itself.
        self._inside: int | None = None
        for position in range(stage.first, stage.stop):
            op = self._nodes[position].op
            if op.call is not None:
                self._calls.append((position, op.call))
            elif op.row_fold is not None and self._inside is None:
                self._inside = position
        if self._inside is not None and plan.kinds == {"elements"}:
            self._calls.append((self._inside, self._along(self._inside)))
            self._inside = None
        for states in plan.states:
            for position, call in self._calls[1:]:
                if opens_keys(call, states[position].layout):
                    raise CannotFuse(position)
            before = [_given(call, states[position]) for position, call in self._calls]
            apart = not_alike(self._calls, [(each.layout, each.signature) for each in before], self._inside)
            if apart is not None:
                raise CannotFuse(apart)

    def _before(self, variant: int) -> OperatorOutput:
        """Return the layout and fields that the first call is given of blocks of a variant."""
        return _given(self._calls[0][1], self._plan.states[variant][self._stage.first])

    def opening(self) -> OpenKeysStep | None:
        """Return the step that gives the first call the keys of pairs; None if it is of no whole pairs.

        Raises
        ------
        PlanError
            If the keys are of several types.
        """
        call = self._calls[0][1]
        layouts = [states[self._stage.first].layout for states in self._plan.states]
        keyed = [layout for layout in layouts if opens_keys(call, layout)]
        if not keyed:
            return None
        types, place = sorted({layout.key for layout in keyed}), Place(operation=call.label)
        if len(types) > 1:
            raise PlanError('of="record" gives the function the keys of pairs, of one type in all partitions, '
                            f"and here they are of {' and '.join(types)}: send all as one, such as float(key)", place)
        if len({(layout.keyed, layout.kind) for layout in layouts}) > 1:
            raise PlanError('of="record" gives the function the keys of pairs, and some partitions hold other records, '
                            "or values of more dimensions than others: send records that are alike", place)
        return OpenKeysStep(call.label, held_as(types[0]).str, self._before(0).layout.encode(),
                            keyed[0].kind == "blocks")

    def _fold_at(self, position: int) -> FoldSpec:
        fold = self._nodes[position].op.row_fold
        assert fold is not None
        return fold

    def _along(self, position: int) -> MapSpec:
        """Return the vreduce of rows at a position, as a call of the run of ``vmap`` before it."""
        fold = self._fold_at(position)
        before = [states[position] for states in self._plan.states]
        functions = {along(fold, state.signature.fields[0]) if state.signature and len(state.layout.parts) == 1
                     else None for state in before}
        function = functions.pop()
        if function is None or functions:
            raise CannotFuse(position)
        return replace(record_map(function, (), "row"), label=str(self._nodes[position].op))

    def step(self) -> messages.ExecStep | MapFoldStep:
        """Return the step of the run."""
        label, fold, end = label_of(self._calls), self._plan.fold, len(self._nodes)
        if self._inside is not None:
            return self._step_inside(self._inside)
        if not self._stage.fold:
            return messages.ExecStep(label)
        if isinstance(fold, FoldByKeyStep):
            return MapFoldStep(label, fold.fields, "key", fold.key, fold.groups)
        if not isinstance(fold, FoldStep) or fold.over != "rows":
            raise CannotFuse(end)
        return MapFoldStep(label, fold.fields, "all")

    def _step_inside(self, inside: int) -> MapFoldStep:
        label, fold = f"{label_of(self._calls)}, {self._nodes[inside].op}", self._plan.fold
        if self._plan.kinds != {"blocks"}:
            raise CannotFuse(inside)
        fields = self._fold_at(inside).fields()
        if not self._stage.fold:
            return MapFoldStep(label, fields, "inside")
        by_field = {each.field: each.operator for each in fields}
        if not isinstance(fold, FoldStep) or fold.over != "blocks" or any(
                each.result or each.guard or each.operator != by_field.get(each.field, by_field.get(""))
                for each in fold.fields) or not self._has_rows(self._stage.first):
            raise CannotFuse(len(self._nodes))
        return MapFoldStep(label, fold.fields, "all")

    def _has_rows(self, position: int) -> bool:
        """Return whether every block has a row, so that each worker has something to fold."""
        return all(described.shape[0] for states in self._plan.states
                   for described in (states[position].signature or states[position].blocks("")).fields)

    # -- launches that fold -------------------------------------------------------------------------------------------

    def folding_launch(self, step: MapFoldStep, variant: int) -> Launch:
        """Return the launch of a run that folds its results, on blocks of a variant."""
        last = self._calls[-1][0]
        before, mapped_to = self._before(variant), self._plan.states[variant][last + 1]
        assert mapped_to.signature is not None
        apart = self._inside if step.how == "inside" and self._inside is not None else len(self._nodes)
        item = self._taken_item(last, mapped_to) if step.how == "all" and self._inside is None else ""
        if item:
            return self._item_launch(item, step, before, mapped_to.signature)
        mapped = self._mapped(before, apart, Folding(step.fields, step.key, step.groups))
        outputs = folded_outputs(step, mapped_to.signature)
        keys = {step.key} if step.how == "key" else set()
        if {each.field for each in mapped.kernel.accumulated} - keys != {each.name for each in outputs}:
            raise CannotFuse(apart)
        return launch_of(mapped, self._calls, outputs, self._plan.slots, self._plan.modules)

    def _item_launch(self, item: str, step: MapFoldStep, before: OperatorOutput, pairs: Signature) -> Launch:
        """Return the launch that folds only the keys or only the values of the pairs that the last call makes."""
        names = {each.name: name_in(item, each.name) for each in pairs.fields if item_of(each.name) == item}
        hows = {each.field: each for each in step.fields}
        if "" not in hows and set(names.values()) - set(hows):
            raise CannotFuse(len(self._nodes))
        fields = tuple([replace(hows.get(source) or hows[""], field=name) for name, source in names.items()])
        mapped = self._mapped(before, len(self._nodes), Folding(fields), frozenset(names))
        items = Signature(tuple([replace(each, name=names[each.name]) for each in pairs.fields if each.name in names]))
        launch = launch_of(mapped, self._calls, folded_outputs(step, items), self._plan.slots, self._plan.modules)
        return replace(launch, partials=tuple([replace(each, field=names[each.field]) for each in launch.partials]))

    # -- launches that map --------------------------------------------------------------------------------------------

    def launch(self, variant: int) -> Launch:
        """Return the launch of a run on blocks of a variant."""
        plan, calls, last = self._plan, self._calls, self._calls[-1][0]
        states = plan.states[variant]
        before, after = self._before(variant), states[last + 1]
        assert before.signature is not None and after.signature is not None
        apart = last if self._nodes[last].op.row_fold is not None else calls[min(1, len(calls) - 1)][0]
        alone = after.mapped if len(calls) == 1 else None
        mapped = self._mapped(before, apart) if alone is None else alone
        if alone is None and not agrees(mapped, before.signature, after.signature):
            raise CannotFuse(apart)
        item = self._taken_item(last, after)
        if item:
            names = {each.name: name_in(item, each.name) for each in after.signature.fields
                     if item_of(each.name) == item}
            signature = states[last + 2].signature
            assert signature is not None
            mapped = resolve_maps(calls, before.layout, before.signature, wanted=frozenset(names),
                                  shared_limit=plan.shared_limit)
            plan.settled.update(mapped.settled)
            return launch_of(mapped, calls, signature.fields, plan.slots, plan.modules, keyless=before.layout.keyed,
                             names=names)
        plan.settled.update(mapped.settled)
        written = {each.name for each in mapped.kernel.outputs}
        outputs = [each for each in after.signature.fields if each.name in written]
        # The keys that a record was sent with end where one of the functions makes a pair.
        kernels = [states[position + 1].mapped for position, _ in calls]
        paired = any(each.paired for each in kernels if each is not None)
        return launch_of(mapped, calls, outputs, plan.slots, plan.modules, keyless=before.layout.keyed and paired)

    def _taken_item(self, last: int, after: OperatorOutput) -> str:
        """Return the item that keys() or values() takes of the pairs of the run's last function."""
        if last + 1 >= self._stage.stop or after.layout.keyed or not after.layout.tupled:
            return ""
        item = self._nodes[last + 1].op.item
        if not item or not after.layout.has_item(item):
            return ""
        if self._stage.stop > last + 2:
            raise CannotFuse(last + 2)
        return item

    def _mapped(self, before: OperatorOutput, apart: int, folding: Folding | None = None,
                wanted: frozenset[str] | None = None) -> Mapped:
        """Return one kernel for the calls; if there is none, raise CannotFuse, so that the node at ``apart`` becomes a
        step of its own.
        """
        assert before.signature is not None
        try:
            mapped = resolve_maps(self._calls, before.layout, before.signature, wanted=wanted, folding=folding,
                                  shared_limit=self._plan.shared_limit)
        except TranslationError as error:
            raise CannotFuse(apart) from error
        if any(each.width == 0 for each in mapped.kernel.accumulated):
            raise CannotFuse(apart)     # arrays of 0 elements leave nothing to join
        self._plan.settled.update(mapped.settled)
        return mapped


def _given(call: MapSpec, state: OperatorOutput) -> OperatorOutput:
    """Return the layout and fields that a call is given of blocks."""
    if state.signature is None:
        return state
    layout, signature = given(call, state.layout, state.signature)
    return replace(state, layout=layout, signature=signature)


def folded_outputs(step: MapFoldStep, signature: Signature) -> Sequence[Field]:
    """Return the fields of a fold's result, from fields with the records along their first axis."""
    result = {each.field: each.result for each in step.fields}
    outputs = []
    for field in signature.fields:
        if field.name != step.key or step.how != "key":
            dtype = np.dtype(result.get(field.name, result.get("", "")) or field.dtype).str
            groups = (step.groups,) if step.how == "key" else ()
            outputs.append(Field(field.name, dtype, (*groups, *field.shape[1:])))
    return outputs
