"""Steps that launch the kernels of a plan's variants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_worker.device.memory.partition import Partition
from gpu_worker.execution.grid.steps import Blocks
from gpu_worker.execution.launches.fold_launches import FoldLaunches
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, StepHandler, every_row, handles
from gpu_worker.execution.plan_checks import check_folds, check_groups, require
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Accumulators, ExecStep, Field, Launch, MapFoldStep, Plan


@handles(ExecStep)
class ExecHandler(StepHandler[ExecStep]):
    """Handler of a kernel on every block."""

    has_launches = True
    on_device = True
    by_blocks = True

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.PADDED

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        assert launch is not None
        outputs = {each.name: each for each in launch.outputs}
        if launch.merge:
            outputs = {each.name: outputs.pop(each.name, each) for each in fields} | outputs
        return tuple(outputs.values())

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        outputs = launch.outputs if launch is not None and launch.tile and not launch.whole else ()
        return every_row([*fields, *outputs]) if outputs else ()

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        launches = context.launches
        values = context.each(self, values, partial(_to_launch, context))
        if all(launches.is_raw(self.step, value) for value in values if value.blocks):
            return context.each(self, values, partial(self._raw, context))
        return _replaced(context, self.step, values,
                         context.run_together(self, values, partial(launches.table, self.step)))

    def _raw(self, context: RunContext, value: Partition) -> Partition:
        after = _keyed(context, self.step, value.with_blocks(context.launches.raw(self.step, value)))
        after = context.after(value, after, own=True)
        return after if context.grid is None else context.with_arrays([after], context.grid.unpadded([after]))[0]


@handles(MapFoldStep)
class MapFoldHandler(StepHandler[MapFoldStep]):
    """Handler of a kernel on every block that folds its results."""

    has_launches = True
    on_device = True
    by_blocks = True

    @property
    def folds_all(self) -> bool:
        return self.step.how != "inside"

    @property
    def in_any_order(self) -> bool:
        return self.folds_all

    def verify(self, plan: Plan) -> None:
        check_folds(self.step.fields)
        require(self.step.how in ("inside", "all", "key"),
                f"a kernel folds inside, all or by key, not {self.step.how[:40]!r}")
        if self.step.how == "key":
            check_groups(self.step.groups)

    def verify_launch(self, launch: Launch) -> None:
        there = {(each.field, each.guard) for each in launch.partials}
        required = [(described.name, "") for described in launch.outputs]
        required += [(self.step.key, guard) for guard in ("", "least", "greatest")] if self.step.how == "key" else []
        for field, guard in required:
            require((field, guard) in there, f"a kernel that folds leaves no partials for {field!r} {guard}".rstrip())
        sizes = {described.name: math.prod(described.shape) for described in launch.outputs}
        for accumulators in launch.partials:
            self._verify_partial(accumulators, sizes)

    def _verify_partial(self, left: Accumulators, sizes: dict[str, int]) -> None:
        own = left.field in sizes or (self.step.how == "key" and left.field == self.step.key)
        require(own, f"a kernel leaves partials of {left.field!r}, which is no field of its result")
        if left.field in sizes and not left.guard:
            parts = max(sizes[left.field], 1)
            require(left.width in (parts, 2 * parts),
                    f"the partials of {left.field!r} are {left.width} and its elements {parts}")

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        assert launch is not None
        return launch.outputs if self.step.how == "inside" else fields

    @property
    def joins_pieces(self) -> bool:     # type: ignore[override]
        return self.step.how == "inside"

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        if launch is None or launch.whole or not every_row(fields):
            return ()
        return works().tolist()

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        launches = FoldLaunches(context.launches)
        values = context.each(self, values, partial(_to_launch, context))
        if self.step.how == "inside" and values and values[0].is_of_rows:
            (value,) = values       # a wave by itself
            record = context.run_together(self, values, lambda _: launches.fold_piece(self.step, value))
            return [_keyed(context, self.step, each) for each in context.joined(value, record)]
        if self.step.how == "inside":
            return _replaced(context, self.step, values,
                             context.run_together(self, values, partial(launches.fold_inside, self.step)))
        context.results.partials.extend(context.run_together(self, values, partial(launches.fold, self.step)))
        return values


def _to_launch(context: RunContext, value: Partition) -> Partition:
    if len(value.variants) != len(value.blocks):
        raise PlanError(f"the plan takes the partition to have {len(value.variants)} blocks, and it has "
                        f"{len(value.blocks)}")
    return context.to_device(value)


def _replaced(context: RunContext, step: ExecStep | MapFoldStep, values: Sequence[Partition],
              blocks: Blocks) -> list[Partition]:
    """Return the partitions with the blocks of a launch over all of them."""
    results = []
    for value in values:
        after = value.with_blocks([blocks[value.index, place] for place in range(len(value.blocks))])
        results.append(context.after(value, _keyed(context, step, after), own=False))
    return results


def _keyed(context: RunContext, step: ExecStep | MapFoldStep, value: Partition) -> Partition:
    """Return a result with its keys, unless a step replaces them."""
    if context.launch_table.is_keyless(step, value.variants):
        value.keys = None
    return value
