"""Steps that fold the records of partitions, or inside each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from gpu_worker.device.base import Device
from gpu_worker.device.memory.partition import Partition
from gpu_worker.execution.folds import key_totals, record_folds
from gpu_worker.execution.folds.folder import Folder, chunk_inside, chunk_of
from gpu_worker.execution.folds.piece_folds import PieceFolder
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, StepHandler, every_row, handles
from gpu_worker.execution.plan_checks import check_folds, check_groups, check_over
from gpu_worker.protocol.messages import Field, FoldByKeyStep, FoldInsideStep, FoldStep, Launch, Plan

_WholeMessage = TypeVar("_WholeMessage", bound=FoldStep | FoldByKeyStep)


class _WholeFold(StepHandler[_WholeMessage]):
    """Handler of a fold of all records."""

    on_device = True

    @property
    def folds_all(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return " and ".join(dict.fromkeys(f"fold {each.operator}" for each in self.step.fields))


@handles(FoldStep)
class FoldHandler(_WholeFold[FoldStep]):
    """Handler of a fold of all records into one."""

    def verify(self, plan: Plan) -> None:
        check_over(self.step.over, done="folded")
        check_folds(self.step.fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, context.each(self, values, context.to_device), partial(self._folded, context))

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        rows = every_row(fields) if self.step.over == "rows" else ()
        return range(0, len(rows), chunk_of(fields)) if rows else ()

    def _folded(self, context: RunContext, value: Partition) -> Partition:
        folder = _folder(context, self.step, value)
        with context.progress.launching(self.label, (value.index,), value.device):
            part = record_folds.enqueue(partial(record_folds.all_records, self.step), value, folder)
        if part is not None and (value.piece is None or value.piece.is_last):
            context.results.partials.append(part)
        return value

@handles(FoldByKeyStep)
class FoldByKeyHandler(_WholeFold[FoldByKeyStep]):
    """Handler of a fold of the records of each key."""

    def verify(self, plan: Plan) -> None:
        check_folds(self.step.fields)
        check_groups(self.step.groups)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        by_device: dict[Device, list[Partition]] = {}
        for value in values:
            by_device.setdefault(value.device, []).append(value)
        alone = len(by_device) == 1 and context.launches.deals is None
        for device, those in by_device.items():
            context.run_together(self, those, partial(self._folded, context, device, alone))
        return values

    def _folded(self, context: RunContext, device: Device, alone: bool, values: Sequence[Partition]) -> None:
        stream = context.streams.main(device)
        with context.progress.launching(self.label, [value.index for value in values], device):
            part = key_totals.enqueue(self.step, values, stream, context.scratch, alone)
        if part is not None:
            context.results.partials.append(part)


@handles(FoldInsideStep)
class FoldInsideHandler(StepHandler[FoldInsideStep]):
    """Handler of a fold inside each record."""

    on_device = True
    by_blocks = True

    def verify(self, plan: Plan) -> None:
        check_over(self.step.over, done="folded")
        check_folds(self.step.fields)

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        axis = 1 if self.step.over == "rows" else 0
        return [replace(each, shape=each.shape[:axis] + each.shape[axis + 1:]) for each in fields]

    @property
    def joins_pieces(self) -> bool:     # type: ignore[override]
        return self.step.over != "rows"

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        rows = every_row(fields)
        if self.step.over == "rows":    # a row by itself, and a long one, is folded by parts
            return range(0, len(rows) - 1, 2)
        chunk = chunk_inside(len(rows))
        # Where neighbours in memory are folded, threads share them.
        return range(0, len(rows), chunk) if chunk else rows if all(len(each.shape) > 1 for each in fields) else ()

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return list(chain.from_iterable(context.each(self, values, partial(self._folded, context))))

    def _folded(self, context: RunContext, value: Partition) -> list[Partition]:
        piece = value.piece if self.joins_pieces and value.is_of_rows else None
        stream, results = context.streams.main(value.device), []
        folder = Folder(value.device, stream, context.scratch) if piece is None else _folder(context, self.step, value)
        with context.progress.launching(self.label, (value.index,), value.device):
            for block in value.blocks:
                results.append(record_folds.fold_inside(self.step, block, folder))
                if piece is None or piece.is_last:
                    for buffer in folder.buffers:
                        context.scratch.recycle(buffer, stream)
                    folder.buffers.clear()
        context.progress.mark(self.label, (value.index,), value.device, stream)
        if piece is None:
            return [context.after(value, value.with_blocks(results), own=False)]
        if not piece.is_last:
            for array in results[0]:        # which the last piece writes
                array.close(lambda buffer: context.scratch.recycle(buffer, stream))
        return context.joined(value, results[0] if piece.is_last else None)


def _folder(context: RunContext, step: FoldStep | FoldInsideStep, value: Partition) -> Folder:
    """Return the launches of the folds of a partition, or of the next piece of one."""
    stream, deals = context.streams.main(value.device), context.launches.deals
    if value.piece is None or not value.piece.of_rows or deals is None:
        return Folder(value.device, stream, context.scratch)
    key = id(step), value.index
    folder = deals.piece_folders.get(key) or PieceFolder(value.device, stream, context.scratch)
    deals.piece_folders[key] = folder
    folder.begin(value.piece)
    return folder
