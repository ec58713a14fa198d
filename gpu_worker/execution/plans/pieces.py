"""Pieces of partitions that are larger than a wave: where they are cut, and how their results become one again.

A partition of several blocks is cut between them. One of rows is cut where each of the steps leaves the same bits when
it takes the pieces one after the other: a map anywhere, a fold between the works, or chunks of rows, whose results it
joins in their order. Their size depends on the rows alone, and not on how much memory there is.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.tiers import PLACES
from gpu_worker.execution.memory.tier_copies import Fill, joined
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, StepHandler
from gpu_worker.execution.plans.plan_cache import DecodedPlan
from gpu_worker.execution.steps.results import first_records
from gpu_worker.protocol.messages import ExecStep, Field, KeepStep, MapFoldStep
from gpu_worker.protocol.payload import Payload

_Step = TypeVar("_Step")


class PartitionPieces:
    """Pieces of one pass's partitions.

    Parameters
    ----------
    plan : DecodedPlan
        The plan.
    steps : sequence of StepHandler
        Those of its steps that the pieces pass.
    context : RunContext
        The pass.
    """

    def __init__(self, plan: DecodedPlan, steps: Sequence[StepHandler[Any]], context: RunContext):
        self._plan, self._steps, self._context = plan, steps, context

    def of(self, value: Partition, nbytes: int, budget: int) -> list[Partition]:
        """Return the pieces of a partition of which a pass copies in and writes ``nbytes`` bytes: as few as are of
        ``budget`` bytes each, as far as it can be cut so; none if it cannot be cut.
        """
        fetches = sum(step.fetches for step in self._steps)
        if not value.blocks or fetches > 1 or any(array.host is None for array in value.arrays) \
                or not any(step.on_device for step in self._steps):
            return []
        is_rows = len(value.blocks) == 1
        whole = value.blocks[0][0].field.shape[0] if is_rows and value.blocks[0][0].field.shape else len(value.blocks)
        cuts = self._row_cuts(value) if is_rows else \
            range(whole) if all(step.by_blocks for step in self._steps) else ()
        if len(cuts) < 2:
            return []
        bounds = _bounds(cuts, whole, max(1, budget * whole // max(nbytes, 1)))
        return [value.cut(first, behind) for first, behind in pairwise(bounds)
                if self._is_wanted(value, first)]

    def _is_wanted(self, value: Partition, first: int) -> bool:
        """Return whether a plan looks at the rows from one on, and not at those before alone."""
        if any(step.joins_pieces for step in self._steps):
            return True
        limit = self._steps[-1].limit if value.keys is None else -1
        return limit < 0 or first < max(limit, 1) or self._plan.keeps or self._plan.folds_all

    def _row_cuts(self, value: Partition) -> Cuts:
        """Return the rows before which all steps of the plan may cut a partition's only block."""
        variant = value.variants[0] if value.variants else None
        if variant is None and any(handler.has_launches for handler in self._steps):
            return ()
        cuts: Cuts = range(value.blocks[0][0].field.shape[0] if value.blocks[0][0].field.shape else 0)
        # What an exchange made is of no variant.
        fields: Sequence[Field] = [array.field for array in value.blocks[0]] if variant is None else \
            self._plan.plan.variants[variant].signature.fields
        for handler in self._steps:
            launch = None if variant is None or not handler.has_launches else \
                self._context.launch_table.launch(handler.step, variant)
            cuts = _common(cuts, handler.cuts(fields, launch, partial(self._works, handler, value)))
            if handler.joins_pieces:        # those behind it take what it leaves as a whole
                break
            fields = handler.fields_after(fields, launch)
        return cuts

    def _works(self, handler: StepHandler[ExecStep | MapFoldStep], value: Partition) -> np.ndarray:
        deals = self._context.launches.deals
        assert deals is not None
        return deals.works(handler.step, value.device, (value.index, 0), value.variants[0])

    # -- their results ------------------------------------------------------------------------------------------------

    def join(self, context: RunContext) -> None:
        """Put what was fetched and kept of pieces together, in host memory or a file.

        Raises
        ------
        OutOfMemory, SpillError
            If there is no room.
        """
        results = context.results
        fetch = next((step.step for step in self._steps if step.fetches), None)
        fetched = _runs([(fetch, value) for value in results.fetched])
        results.fetched = []
        for step, values in fetched:
            if values[0].piece is None:
                results.fetched.append(values[0])
                continue
            for value in values:
                del context.values.used[id(value)]
            assert step is not None
            whole = joined(values, _anywhere)
            results.fetched.append(context.use(first_records(step, whole)))
        pending = _runs(results.pending)
        results.pending = []
        for keep, values in pending:
            whole = values[0] if values[0].piece is None else joined(values, partial(self._kept, keep))
            results.pending.append((keep, whole))

    def _kept(self, keep: KeepStep, nbytes: int, fill: Fill) -> np.ndarray:
        """Return memory for what a plan keeps of a partition."""
        if keep.place in PLACES:
            return self._context.names.tiers.keep(nbytes, fill, place=keep.place)
        with Payload.create(nbytes) as memory:
            fill(memory.array)
            return memory.array


def _anywhere(nbytes: int, fill: Fill) -> np.ndarray:
    memory = np.empty(nbytes, np.uint8)
    fill(memory)
    return memory


def _runs(values: Sequence[tuple[_Step, Partition]]) -> list[tuple[_Step, list[Partition]]]:
    """Return the partitions of each step and number, in the order in which the first of each came."""
    runs: dict[tuple[_Step, int], tuple[_Step, list[Partition]]] = {}
    for step, value in values:
        runs.setdefault((step, value.index), (step, []))[1].append(value)
    return list(runs.values())


def _bounds(cuts: Cuts, whole: int, most: int) -> list[int]:
    """Return the first rows of pieces of up to ``most`` rows, each as large as cuts allow, and the row behind them."""
    bounds = [0]
    while bounds[-1] < whole:
        place = bisect.bisect_right(cuts, bounds[-1] + most) - 1
        place = max(place, bisect.bisect_right(cuts, bounds[-1]))
        bounds.append(cuts[place] if bounds[-1] + most < whole and place < len(cuts) else whole)
    return bounds


def _common(left: Cuts, right: Cuts) -> Cuts:
    """Return the cuts that both have."""
    if isinstance(left, range) and isinstance(right, range):
        if not (left and right):
            return ()
        return range(0, min(left.stop, right.stop), math.lcm(left.step, right.step))
    few, many = (right, left) if isinstance(left, range) else (left, right)
    cuts = many if isinstance(many, range) else set(many)
    return [each for each in few if each in cuts]
