"""Lowering of a chain to a plan for many partitions.

What a chain means depends on what a block looks like, so it is worked out once for each layout and signature among the
partitions: what the result looks like behind each operation, and then, for what becomes one step, its launch. Where a
step cannot do all of what it was given (:class:`CannotFuse`), the rest becomes a step of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_worker.protocol import messages
from gpu_worker.protocol.grids import IterateStep, StencilStep
from gpu_worker.protocol.messages import Field, FoldByKeyStep, FoldStep, Input, Launch, Plan, Signature, Step, Variant
from gpu_worker.protocol.payload import field_bytes
from gpu_worker.protocol.plans import sealed
from vispark._utils.lazy import LazyModule
from vispark.errors import LaunchError, Place, PlanError
from vispark.fold.inside import fold_inside
from vispark.fold.row_folds import along
from vispark.lower import stages
from vispark.lower.executable import Executable, Invocation, value_of
from vispark.lower.stages import FusedStage, RequestedOutput
from vispark.plan import ops
from vispark.plan.exec_call import ExecSpec, compiler_checks, resolve
from vispark.plan.map_call import (
    Call,
    Mapped,
    MapSpec,
    after_map,
    agrees,
    is_pair,
    label_of,
    launch_of,
    not_alike,
    record_map,
    remark,
    resolve_maps,
)
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.plan.slots import ArgumentRef, ModuleTable, SlotTable
from vispark.records import RecordLayout
from vispark.records.layout import name_in
from vispark.records.partition_schema import PartitionSchema
from vispark.translate import TranslationError
from vispark.translate.codegen.scalar.interface import ROOM
from vispark.translate.ir.folding import Folding

if TYPE_CHECKING:
    from vispark.translate.nearest import two_pass
else:
    two_pass = LazyModule("vispark.translate.nearest.two_pass")


class CannotFuse(Exception):
    """Signal that the node at a position cannot be part of the step before it."""

    def __init__(self, position: int):
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class OperatorOutput:
    """Content of blocks of one layout and signature after an operation; ``count`` is below 0 while it equals the
    input's.
    """

    layout: RecordLayout
    signature: Signature | None
    count: int = -1

    def content(self, before: PartitionSchema, others: Sequence[OperatorOutput]) -> PartitionSchema:
        """Return a partition's schema after the operation; ``others`` are the outputs for all its blocks."""
        keyed = self.layout.keyed or self.layout.only == "keys"
        signatures = tuple([state.signature for state in others if state.signature is not None])
        return PartitionSchema(before.count if self.count < 0 else self.count, before.keys if keyed else 0, self.layout,
                               signatures, before.positions if self.layout.grid else ())


class Lowering:
    """Lowering of a chain to a plan.

    Parameters
    ----------
    chain : LogicalPlan
        From its send.
    start : DatasetId or None
        What workers hold, or None to start from records in a payload.
    goal : RequestedOutput
        What is wanted.
    room : int
        The bytes of shared memory that thread blocks can have wherever it runs.
    """

    def __init__(self, chain: LogicalPlan, start: DatasetId | None, goal: RequestedOutput, room: int = ROOM):
        self.chain, self.start, self.goal, self.room = chain, start, goal, room
        self.nodes = stages.after_start(chain, start)
        self.slots = SlotTable()
        self.modules = ModuleTable(self.slots)
        self._given: dict[int, tuple[PartitionSchema, int, tuple[int, ...]]] = {}
        self._variants: dict[tuple[RecordLayout, Signature], int] = {}
        #: By variant: what its blocks are at the start and behind each node.
        self._states: list[list[OperatorOutput]] = []
        self._maps: list[dict[int, Mapped]] = []
        #: What the partitions mean by a record, and mean by it to the end.
        self._kinds: set[str] = set()
        self._settled: set[ArgumentRef] = set()
        self.stages: tuple[FusedStage, ...] = ()
        self.steps: list[Step] = []
        self.launches: list[list[Launch]] = []
        self.fold: FoldStep | FoldByKeyStep | str | None = None

    # -- what comes in ------------------------------------------------------------------------------------------------

    def add(self, partition: int, content: PartitionSchema, offset: int = 0) -> None:
        """Add a partition; its records are at ``offset`` of the payload.

        Raises
        ------
        PlanError
            If what the chain does does not fit its blocks.
        """
        try:
            blocks = tuple([self._variant(content.layout, signature) for signature in content.signatures])
        except PlanError as error:
            raise error.at(vrdd=self._vrdd(), partition=partition) from error.__cause__
        self._given[partition] = content, offset, blocks
        if blocks:
            self._kinds.add(content.layout.kind)

    def _vrdd(self) -> str:
        return str(self.start) if self.start else ops.name_of(self.chain)

    def _variant(self, layout: RecordLayout, signature: Signature) -> int:
        key = layout, signature
        if key not in self._variants:
            maps: dict[int, Mapped] = {}
            states = [OperatorOutput(layout, signature)]
            for position, node in enumerate(self.nodes):
                states.append(self._after(states[-1], node, position, maps))
            self._states.append(states)
            self._maps.append(maps)
            self._variants[key] = len(self._states) - 1
        return self._variants[key]

    def _after(self, state: OperatorOutput, node: ops.PlanNode, position: int,
               maps: dict[int, Mapped]) -> OperatorOutput:
        match node.op:
            case ops.Exec(spec):
                return _after_exec(state, spec)
            case ops.Map(spec):
                before = _blocks(state, spec.label)
                mapped = maps[position] = resolve_maps([(position, spec)], state.layout, before, room=self.room)
                signature, layout = after_map(mapped, state.layout, before)
                return OperatorOutput(layout, signature, state.count)
            case ops.FoldInside(spec):
                signature, layout = fold_inside(spec, state.layout, _blocks(state, str(node.op)), str(node.op))
                return OperatorOutput(layout, signature, state.count)
            case ops.Keys() | ops.Values():
                return self._narrowed(state, node.op, position)
            case ops.HaloAppend() | ops.Iterate() | ops.Window():
                raise PlanError("this needs the blocks of a Grid, under their keys, as Grid.scatter gives them",
                                Place(operation=str(node.op)))
        return state

    def _narrowed(self, state: OperatorOutput, op: ops.Keys | ops.Values, position: int) -> OperatorOutput:
        layout = state.layout
        if layout.only:
            raise _stays_on_host(op)
        if layout.keyed:
            if isinstance(op, ops.Values):
                return replace(state, layout=layout.values())
            return OperatorOutput(replace(layout.as_blocks(), only="keys"), None, state.count)
        item = _item(op)
        if layout.tupled and stages.narrows(self.nodes, position) and layout.has_item(item):
            signature = None if state.signature is None else _of_item(state.signature, item)
            return OperatorOutput(layout.item(item), signature, state.count)
        return replace(state, layout=replace(layout, only=item))

    # -- the plan -----------------------------------------------------------------------------------------------------

    def results(self) -> dict[int, PartitionSchema]:
        """Return the schema of the result, by partition."""
        return {partition: self._content(partition, len(self.nodes)) for partition in self._given}

    def _content(self, partition: int, behind: int) -> PartitionSchema:
        """Return the schema of a partition after the first ``behind`` nodes."""
        content, _, blocks = self._given[partition]
        if not blocks:
            return _through_nothing(self.nodes[:behind], content)
        states = [self._states[block][behind] for block in blocks]
        return states[0].content(content, states)

    def finish(self) -> str:
        """Compute the steps and their launches; return why the requested fold cannot run in the workers, if it cannot.

        Raises
        ------
        PlanError
            If the partitions do not mean the same by a record, where that counts.
        """
        if self.goal.fold is not None:
            contents = [content for content in self.results().values() if content.count]
            self.fold = self.goal.fold.lower(contents) if contents else "there are no records"
            if isinstance(self.fold, str):
                return self.fold
        apart: set[int] = set()
        while True:
            try:
                self._steps(apart)
                return ""
            except CannotFuse as error:
                assert error.position not in apart
                apart.add(error.position)

    def _steps(self, apart: set[int]) -> None:
        self.slots = SlotTable()
        self.modules = ModuleTable(self.slots)
        self._settled = set()
        self.steps = [messages.PutStep() if self.start is None else messages.LoadStep(0)]
        self.launches = [[] for _ in self._states]
        if self.start is None and self.chain[0].cached:
            self._keep(self.chain[:1])
        self.stages = stages.stages(self.nodes, self.fold is not None, apart)
        for stage in self.stages:
            self._stage(stage)
            if self.nodes[stage.stop - 1].cached:
                self._keep(self.chain[:len(self.chain) - len(self.nodes) + stage.stop])
        if isinstance(self.fold, FoldStep | FoldByKeyStep) and not (self.stages and self.stages[-1].fold):
            self.steps.append(self.fold)
        elif self.fold is None and self.goal.fetch:
            self.steps.append(messages.FetchStep(self._limit(), self._over() if self._limit() >= 0 else ""))

    def _keep(self, chain: LogicalPlan) -> None:
        """Append the step that keeps the chain's result under the number in the next slot."""
        slot = sum(isinstance(step, messages.LoadStep | messages.KeepStep) for step in self.steps)
        self.steps.append(messages.KeepStep(slot, chain[-1].cached.name, ops.place_of(chain)))

    def _limit(self) -> int:
        """Return the number of records to fetch: all, if partitions differ in what a record is."""
        return self.goal.limit if len(self._kinds) == 1 else -1

    def _over(self) -> str:
        return "rows" if self._kinds == {"elements"} else "blocks"

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Return the variants, each with its number of blocks."""
        found = Counter(block for _, _, blocks in self._given.values() for block in blocks)
        return iter(found.items())

    def traffic(self, variant: int) -> list[tuple[int, int]]:
        """Return the bytes that each launch reads and writes of a block of a variant."""
        found = []
        before = self._states[variant][0].signature
        launches = iter(self.launches[variant])
        for stage in self.stages:
            after = self._states[variant][stage.stop].signature
            if isinstance(self.nodes[stage.first].op, ops.Map | ops.Exec) and not self._is_dead(stage):
                launch = next(launches)
                fields = {each.name: each for each in before.fields} if before else {}
                read = {argument.field for argument in launch.arguments if isinstance(argument, messages.In)}
                found.append((sum(field_bytes(fields[name]) for name in read if name in fields),
                              sum(map(field_bytes, launch.outputs))))
            before = after
        return found

    def remarks(self) -> Iterator[str]:
        """Yield, for each call that finds nearest centres, why it is not computed by matrix work."""
        modules = self.modules.modules()
        for states, launches in zip(self._states, self.launches, strict=True):
            for node, state in zip(self.nodes, states, strict=False):
                if isinstance(node.op, ops.Map) and state.signature is not None and state.layout.grid is None \
                        and not any(two_pass.is_matrix_work(modules[launch.module].source) for launch in launches):
                    reason = remark(node.op.spec, state.layout, state.signature, self.room)
                    if reason:
                        yield f"{node.op} finds nearest centres row by row: {reason}"

    def folded_bytes(self, fold: FoldByKeyStep) -> int:
        """Return the bytes of a worker's fold by key: the folded fields, and the number of records of each key."""
        step = messages.MapFoldStep("", fold.fields, "key", fold.key, fold.groups)
        signature = next(states[-1].signature for states in self._states)
        return 8 * fold.groups + sum(map(field_bytes, _folded_outputs(step, signature)))

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the VRDDs in the plan's slots."""
        kept = [node.cached.number for node in self._kept_nodes()]
        return tuple(kept) if self.start is None else (self.start.number, *kept)

    def _kept_nodes(self) -> Iterator[ops.PlanNode]:
        first = self.chain[:1] if self.start is None else ()
        return (node for node in (*first, *self.nodes) if node.cached)

    def prepare(self, partitions: Sequence[int] | None = None, devices: Sequence[str] = ()) -> Executable:
        """Return the plan for some of the partitions; for all if none are named."""
        named = tuple(self._given) if partitions is None else tuple(partitions)
        key, encoded = sealed(self._plan(named, devices))
        labels = [step.label for step in self.steps
                  if isinstance(step, messages.ExecStep | messages.MapFoldStep | messages.FoldInsideStep | StencilStep
                                | IterateStep)]
        kept = tuple({partition: self._content(partition, behind) for partition in named} for behind in self._kept())
        settled = tuple((origin, value_of(self.nodes, origin)) for origin in self._settled)
        retains = any(isinstance(step, messages.KeepStep) and step.place == "host" for step in self.steps)
        to_device = not retains and list(map(type, self.steps[:2])) == [messages.PutStep, messages.ToDeviceStep]
        return Executable(key, encoded, self.slots.origins(), settled, tuple(labels),
                          {partition: self._content(partition, len(self.nodes)) for partition in named}, kept,
                          self._limit(), retains, to_device)

    def _plan(self, partitions: Sequence[int], devices: Sequence[str]) -> Plan:
        return Plan(tuple(self.steps), tuple(self.modules.modules()), self._protocol_variants(),
                    tuple(self._inputs(partitions)), tuple(devices))

    def ship(self, devices: Sequence[str] = ()) -> Invocation:
        """Return the plan for all partitions, with the values in the chain."""
        self.finish()
        prepared = self.prepare(devices=devices)
        return Invocation(prepared, self.numbers(), prepared.values(self.nodes))

    def _kept(self) -> list[int]:
        """Behind how many nodes something is kept."""
        first = [0] if self.start is None and self.chain[0].cached else []
        return first + [position + 1 for position, node in enumerate(self.nodes) if node.cached]

    def _protocol_variants(self) -> tuple[Variant, ...]:
        found = []
        for (_, signature), number in self._variants.items():
            kept = [self._states[number][behind] for behind in self._kept()]
            found.append(Variant(signature, tuple(self.launches[number]),
                                 tuple([state.layout.encode() for state in kept]),
                                 tuple([state.count for state in kept])))
        return tuple(found)

    def _inputs(self, partitions: Sequence[int]) -> Iterator[Input]:
        for partition in partitions:
            content, offset, blocks = self._given[partition]
            yield Input(partition, content.count, content.keys, offset, content.layout.encode(), blocks,
                        content.positions)

    # -- one step -----------------------------------------------------------------------------------------------------

    def _stage(self, stage: FusedStage) -> None:
        node = self.nodes[stage.first]
        match node.op:
            case ops.ToDevice():
                self._to_device()
            case ops.ToHost():
                last = stage.stop == len(self.nodes) and self.goal.fetch and self.fold is None
                if node.cached or not last:
                    self.steps.append(messages.ToHostStep())
            case ops.Exec(spec):
                self._to_device(messages.ExecStep(spec.label))
                for number, states in enumerate(self._states):
                    self.launches[number].append(self._exec(spec, states[stage.first], stage.first))
            case ops.FoldInside(spec):
                self._to_device(messages.FoldInsideStep(str(node.op), spec.fields(), self._only_kind(str(node.op))))
            case ops.Keys() | ops.Values():
                self.steps.append(messages.KeysStep() if isinstance(node.op, ops.Keys) else messages.ValuesStep())
            case ops.Map():
                self._fused(stage)
            case _:
                raise AssertionError(f"no step for {node.op}")

    def _to_device(self, *steps: Step) -> None:
        """Append steps that run on the device, behind a copy to the device unless the last step is one."""
        self.steps += steps if isinstance(self.steps[-1], messages.ToDeviceStep) else (messages.ToDeviceStep(), *steps)

    def _only_kind(self, label: str) -> str:
        if len(self._kinds) > 1:
            raise PlanError("some partitions hold numbers or rows, others blocks of 2 or more dimensions, and "
                            f"{label} needs one kind of records", Place(operation=label))
        return self._over()

    def _exec(self, spec: ExecSpec, before: OperatorOutput, position: int) -> Launch:
        launch, _, merge = resolve(spec, before.signature, self.slots, position)
        module = self.modules.add(spec.kernel.kernels, compiler_checks(spec, before.signature))
        return replace(launch, merge=merge, module=module, kernel=spec.kernel.name)

    def _fused(self, stage: FusedStage) -> None:
        """Append the step of a run of ``vmap``, fused with the folds or projections of its results."""
        nodes = self.nodes[stage.first:stage.stop]
        calls: list[Call] = [(stage.first + number, node.op.spec) for number, node in enumerate(nodes)
                             if isinstance(node.op, ops.Map)]
        if self._is_dead(stage):
            # The keys that the records were sent with are all that is left of them.
            self.steps.append(messages.KeysStep())
            return
        inside = next((stage.first + number for number, node in enumerate(nodes)
                       if isinstance(node.op, ops.FoldInside)), None)
        if inside is not None and self._kinds == {"elements"}:
            calls.append((inside, self._along(inside)))
            inside = None
        for states in self._states:
            apart = not_alike(calls, [(states[position].layout, states[position].signature) for position, _ in calls],
                              inside)
            if apart is not None:
                raise CannotFuse(apart)
        step: Step = messages.ExecStep(label_of(calls))
        if stage.fold or inside is not None:
            step = self._folding_step(calls, inside, stage)
        self._to_device(step)
        for number in range(len(self._states)):
            launch = self._folding_launch(calls, inside, step, stage, number) if isinstance(step,
                                                                                            messages.MapFoldStep) \
                else self._fused_launch(calls, stage, number)
            self.launches[number].append(launch)
        if stage.fold:
            return
        if any(isinstance(node.op, ops.Values) for node in nodes):
            self.steps.append(messages.ValuesStep())
        if isinstance(nodes[-1].op, ops.Keys):
            self.steps.append(messages.KeysStep())

    def _along(self, position: int) -> MapSpec:
        """Return the vreduce of rows at a position, as a call of the run of ``vmap`` before it."""
        op = self.nodes[position].op
        assert isinstance(op, ops.FoldInside)
        before = [states[position] for states in self._states]
        functions = {along(op.spec, state.signature.fields[0]) if state.signature and len(state.layout.parts) == 1
                     else None for state in before}
        function = functions.pop()
        if function is None or functions:
            raise CannotFuse(position)
        return replace(record_map(function, (), "row"), label=str(op))

    def _is_dead(self, stage: FusedStage) -> bool:
        """Return whether no result of a run of ``vmap`` is used."""
        return isinstance(self.nodes[stage.stop - 1].op, ops.Keys) and all(
            states[stage.stop - 1].layout.keyed for states in self._states)

    def _folding_step(self, calls: list[Call], inside: int | None, stage: FusedStage) -> messages.MapFoldStep:
        label = label_of(calls)
        if inside is not None:
            op = self.nodes[inside].op
            assert isinstance(op, ops.FoldInside)
            if self._kinds != {"blocks"}:
                raise CannotFuse(inside)
            fields = op.spec.fields()
            if not stage.fold:
                return messages.MapFoldStep(f"{label}, {op}", fields, "inside")
            by_field = {each.field: each.operator for each in fields}
            if not isinstance(self.fold, FoldStep) or self.fold.over != "blocks" or any(
                    each.result or each.guard or each.operator != by_field.get(each.field, by_field.get(""))
                    for each in self.fold.fields) or not self._has_rows(stage.first):
                raise CannotFuse(len(self.nodes))
            return messages.MapFoldStep(f"{label}, {op}", self.fold.fields, "all")
        if isinstance(self.fold, FoldByKeyStep):
            return messages.MapFoldStep(label, self.fold.fields, "key", self.fold.key, self.fold.groups)
        if not isinstance(self.fold, FoldStep) or self.fold.over != "rows":
            raise CannotFuse(len(self.nodes))
        return messages.MapFoldStep(label, self.fold.fields, "all")

    def _has_rows(self, position: int) -> bool:
        """Return whether every block has a row, so that each worker has something to fold."""
        return all(field.shape[0] for states in self._states for field in states[position].signature.fields)

    def _folding_launch(self, calls: list[Call], inside: int | None, step: messages.MapFoldStep, stage: FusedStage,
                        variant: int) -> Launch:
        before, mapped_to = self._states[variant][stage.first], self._states[variant][calls[-1][0] + 1]
        assert before.signature is not None and mapped_to.signature is not None
        apart = inside if step.how == "inside" and inside is not None else len(self.nodes)
        item = self._taken_item(stage, calls[-1][0], mapped_to) if step.how == "all" and inside is None else ""
        if item:
            return self._item_launch(calls, item, step, before, mapped_to.signature)
        mapped = self._mapped(calls, before, apart, Folding(step.fields, step.key, step.groups))
        outputs = _folded_outputs(step, mapped_to.signature)
        keys = {step.key} if step.how == "key" else set()
        if {each.field for each in mapped.kernel.accumulated} - keys != {each.name for each in outputs}:
            raise CannotFuse(apart)
        return launch_of(mapped, calls, outputs, self.slots, self.modules)

    def _item_launch(self, calls: list[Call], item: str, step: messages.MapFoldStep, before: OperatorOutput,
                     pairs: Signature) -> Launch:
        """Return the launch that folds only the keys or only the values of the pairs that the last call makes."""
        names = {each.name: name_in(item, each.name) for each in pairs.fields if each.name.split(".")[0] == item}
        hows = {each.field: each for each in step.fields}
        if "" not in hows and set(names.values()) - set(hows):
            raise CannotFuse(len(self.nodes))
        fields = tuple([replace(hows.get(taken) or hows[""], field=name) for name, taken in names.items()])
        mapped = self._mapped(calls, before, len(self.nodes), Folding(fields), frozenset(names))
        taken = Signature(tuple([replace(each, name=names[each.name]) for each in pairs.fields if each.name in names]))
        launch = launch_of(mapped, calls, _folded_outputs(step, taken), self.slots, self.modules)
        return replace(launch, partials=tuple([replace(each, field=names[each.field]) for each in launch.partials]))

    def _fused_launch(self, calls: list[Call], stage: FusedStage, variant: int) -> Launch:
        states, maps, last = self._states[variant], self._maps[variant], calls[-1][0]
        before, after = states[stage.first], states[last + 1]
        assert before.signature is not None and after.signature is not None
        folded = isinstance(self.nodes[last].op, ops.FoldInside)
        apart = last if folded else calls[min(1, len(calls) - 1)][0]
        mapped = maps[last] if len(calls) == 1 else self._mapped(calls, before, apart)
        if len(calls) > 1 and not agrees(mapped, before.signature, after.signature):
            raise CannotFuse(apart)
        item = self._taken_item(stage, last, after)
        if item:
            names = {each.name: name_in(item, each.name) for each in after.signature.fields
                     if each.name.split(".")[0] == item}
            taken = states[last + 2].signature
            assert taken is not None
            mapped = resolve_maps(calls, before.layout, before.signature, wanted=frozenset(names),
                                  room=self.room)
            self._settled |= mapped.settled
            return launch_of(mapped, calls, taken.fields, self.slots, self.modules, keyless=before.layout.keyed,
                             names=names)
        self._settled |= mapped.settled
        written = {each.name for each in mapped.kernel.outputs}
        outputs = [each for each in after.signature.fields if each.name in written]
        # The keys that a record was sent with end where one of the functions makes a pair.
        paired = any(is_pair(maps[position].kernel) for position, _ in calls if position in maps)
        return launch_of(mapped, calls, outputs, self.slots, self.modules, keyless=before.layout.keyed and paired)

    def _taken_item(self, stage: FusedStage, last: int, after: OperatorOutput) -> str:
        """Return the item that keys() or values() takes of the pairs of the stage's last function."""
        if last + 1 >= stage.stop or after.layout.keyed or not after.layout.tupled:
            return ""
        op = self.nodes[last + 1].op
        if not isinstance(op, ops.Keys | ops.Values) or not after.layout.has_item(_item(op)):
            return ""
        if stage.stop > last + 2:
            raise CannotFuse(last + 2)
        return _item(op)

    def _mapped(self, calls: list[Call], before: OperatorOutput, apart: int, folding: Folding | None = None,
                wanted: frozenset[str] | None = None) -> Mapped:
        """Return one kernel for some calls; if there is none, raise CannotFuse, so that the node at ``apart`` becomes a
        step of its own.
        """
        try:
            mapped = resolve_maps(calls, before.layout, before.signature, wanted=wanted, folding=folding,
                                  room=self.room)
        except TranslationError as error:
            raise CannotFuse(apart) from error
        self._settled |= mapped.settled
        return mapped


def _item(op: ops.Op) -> str:
    return "0" if isinstance(op, ops.Keys) else "1"


def _of_item(signature: Signature, item: str) -> Signature:
    """Return the fields of one item of a tuple, named as if the item were alone."""
    return Signature(tuple([replace(each, name=name_in(item, each.name)) for each in signature.fields
                            if each.name.split(".")[0] == item]))


def _folded_outputs(step: messages.MapFoldStep, signature: Signature) -> list[Field]:
    """Return the fields of a fold's result, from fields with the records along their first axis."""
    result = {each.field: each.result for each in step.fields}
    found = []
    for each in signature.fields:
        if each.name != step.key or step.how != "key":
            dtype = np.dtype(result.get(each.name, result.get("", "")) or each.dtype).str
            groups = (step.groups,) if step.how == "key" else ()
            found.append(Field(each.name, dtype, (*groups, *each.shape[1:])))
    return found


def _stays_on_host(op: ops.Op) -> PlanError:
    return PlanError(f"{op} works on blocks, and what keys() gave, or an item of a record, stays on the host: call "
                     ".recv() before it")


def _blocks(state: OperatorOutput, label: str) -> Signature:
    if state.layout.only or state.signature is None:
        raise PlanError("a kernel needs blocks, and here keys() or values() of records that are no pairs left none",
                        Place(operation=label))
    return state.signature


def _after_exec(state: OperatorOutput, spec: ExecSpec) -> OperatorOutput:
    before = _blocks(state, spec.label)
    launch, signature, merge = resolve(spec, before, SlotTable())
    layout = state.layout.after(launch.outputs, merge=merge, as_input=spec.out is None)
    count = state.count
    if layout.kind == "elements":
        count = _stack_height(spec, before, signature, layout.keyed)
    return OperatorOutput(layout, signature, count)


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


def _through_nothing(nodes: LogicalPlan, content: PartitionSchema) -> PartitionSchema:
    """Return the schema of an empty partition after these operators."""
    layout = content.layout
    for node in nodes:
        if layout.only and not isinstance(node.op, ops.ToDevice | ops.ToHost):
            raise _stays_on_host(node.op)
        if isinstance(node.op, ops.Keys) and layout.keyed:
            layout = replace(layout, only="keys")
        elif isinstance(node.op, ops.Values):
            layout = layout.values()
    return OperatorOutput(layout, None).content(content, ())
