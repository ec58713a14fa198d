"""Steps that fold the records of partitions, or inside each record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from gpu_worker.execution import folds
from gpu_worker.execution.plan_checks import check_folds, check_groups, check_over
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.step_handlers import StepHandler, handles
from gpu_worker.memory.partition import Block, Partition
from gpu_worker.protocol.messages import Field, FoldByKeyStep, FoldInsideStep, FoldStep, Launch, Plan

_WholeMessage = TypeVar("_WholeMessage", bound=FoldStep | FoldByKeyStep)


class _WholeFold(StepHandler[_WholeMessage]):
    """Handler of a fold of all records."""

    on_device = True

    @property
    def folds_all(self) -> bool:
        return True

    def enqueue(self, blocks: Sequence[Block], partition: folds.PartitionFold) -> None:
        """Enqueue the fold of a partition's blocks."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        return " and ".join(dict.fromkeys(f"fold {each.operator}" for each in self.step.fields))

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, context.each(self, values, context.to_device), partial(self._folded, context))

    def _folded(self, context: RunContext, value: Partition) -> Partition:
        stream = context.streams.main(value.device)
        with context.progress.launching(self.label, (value.index,), value.device):
            part = folds.enqueue(self.enqueue, value, stream, context.scratch)
        if part is not None:
            context.results.partials.append(part)
        return value


@handles(FoldStep)
class FoldHandler(_WholeFold[FoldStep]):
    """Handler of a fold of all records into one."""

    def verify(self, plan: Plan) -> None:
        check_over(self.step.over, done="folded")
        check_folds(self.step.fields)

    def enqueue(self, blocks: Sequence[Block], partition: folds.PartitionFold) -> None:
        folds.all_records(self.step, blocks, partition)


@handles(FoldByKeyStep)
class FoldByKeyHandler(_WholeFold[FoldByKeyStep]):
    """Handler of a fold of the records of each key."""

    def verify(self, plan: Plan) -> None:
        check_folds(self.step.fields)
        check_groups(self.step.groups)

    def enqueue(self, blocks: Sequence[Block], partition: folds.PartitionFold) -> None:
        folds.by_key(self.step, blocks, partition)


@handles(FoldInsideStep)
class FoldInsideHandler(StepHandler[FoldInsideStep]):
    """Handler of a fold inside each record."""

    on_device = True

    def verify(self, plan: Plan) -> None:
        check_over(self.step.over, done="folded")
        check_folds(self.step.fields)

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        axis = 1 if self.step.over == "rows" else 0
        return [replace(each, shape=each.shape[:axis] + each.shape[axis + 1:]) for each in fields]

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, context.each(self, values, context.to_device), partial(self._folded, context))

    def _folded(self, context: RunContext, value: Partition) -> Partition:
        stream, results = context.streams.main(value.device), []
        with context.progress.launching(self.label, (value.index,), value.device):
            for block in value.blocks:
                record, done = folds.fold_inside(self.step, block, value.device, stream, context.scratch)
                results.append(record)
                for buffer in done:
                    context.scratch.recycle(buffer, stream)
        context.progress.mark(self.label, (value.index,), value.device, stream)
        return context.after(value, value.with_blocks(results), own=False)
