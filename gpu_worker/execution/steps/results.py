"""Steps that say what becomes of a value: it is kept, or returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.tiers import PLACES
from gpu_worker.execution.memory.tier_copies import copied_below
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import ByPlanes, Cuts, KeepingHandler, StepHandler, every_row, handles
from gpu_worker.execution.plan_checks import check_over, require
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import FetchStep, Field, KeepStep, Launch, Plan


@handles(KeepStep)
class KeepHandler(KeepingHandler[KeepStep]):
    """Handler of a step that makes its value resident, once complete."""

    keeps = True

    @property
    def leaves_host_memory(self) -> bool:
        return self.step.place != "device"

    @property
    def by_planes(self) -> ByPlanes | None:
        return lambda context, planes, values: self.run(context, values)

    @property
    def by_blocks(self) -> bool:    # type: ignore[override]
        return self.step.place != "device"

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return () if self.step.place == "device" else every_row(fields)

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY if self.step.place == "device" else BlockForm.CONTIGUOUS

    def verify(self, plan: Plan) -> None:
        require(self.step.place in ("host", "device", *PLACES),
                f"a value is kept on host, device, {' or '.join(PLACES)}, not {self.step.place[:40]!r}")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        keep = partial(self._kept, place="host") if context.is_by_planes else \
            self._placed if self.step.place in PLACES else partial(self._kept, place=self.step.place)
        return context.each(self, values, partial(keep, context))

    def _placed(self, context: RunContext, value: Partition) -> Partition:
        """Keep a value on its device while that has room for it, else in host memory or a file; blocks of a grid, which
        steps read from patches or by planes, always there.
        """
        if value.positions:
            below = copied_below(context.names.tiers, value, self.step.place, context.streams.main(value.device))
            return self._pending(context, value, below)
        return self._pending(context, *placed(context, self.step.place, value))

    def _kept(self, context: RunContext, value: Partition, place: str) -> Partition:
        missing = "buffer" if place == "device" else "host"
        if any(getattr(array, missing) is None for array in value.arrays):
            raise PlanError(f"the value to keep is not in {place} memory")
        context.results.retained |= place == "host"
        return self._pending(context, value, value.kept_at(place, value.layout, value.count))

    def _pending(self, context: RunContext, value: Partition, kept: Partition) -> Partition:
        """Set aside what is to be bound, as the plan says of a value's kind; return the value."""
        if value.variants:
            variant = context.plan.variants[value.variants[0]]
            kept.layout = variant.layouts[self.number]
            kept.count = value.count if variant.counts[self.number] < 0 else variant.counts[self.number]
        if self.step.place in PLACES:
            kept.tier = "" if value.positions else self.step.place
        context.results.pending.append((self.step, kept))
        return value


def placed(context: RunContext, place: str, value: Partition, *, is_below: bool = False) -> tuple[Partition, Partition]:
    """Return a value, and a copy of it where a tier is to hold it: on its device while that has room, else below.

    A piece of a value is in host memory, until it is put with the others. ``is_below`` says that the value's host
    memory is the tier's already, and no other partition's.

    Raises
    ------
    OutOfMemory, SpillError
        If there is no room below either.
    """
    if value.piece is not None:
        return value, context.copied_out(value)
    tiers = context.names.tiers
    with tiers.placing:
        missing = sum(array.nbytes for array in value.arrays if array.buffer is None)
        if tiers.fits_on(value.device, sum(array.nbytes for array in value.arrays), missing):
            value = context.to_device(value)
            return value, value.kept_at("device", value.layout, value.count)
    if is_below:
        return value, value.kept_at("host", value.layout, value.count)
    return value, copied_below(tiers, value, place, context.streams.main(value.device))


@handles(FetchStep)
class FetchHandler(StepHandler[FetchStep]):
    """Handler of a step that returns its value in the reply's payload."""

    fetches = True
    by_blocks = True
    by_ranges = True
    timed_as = "copy_out"

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    @property
    def by_planes(self) -> ByPlanes | None:
        return lambda context, planes, values: self.run(context, values)

    @property
    def limit(self) -> int:     # type: ignore[override]
        return self.step.limit

    def verify(self, plan: Plan) -> None:
        if self.step.limit >= 0:
            check_over(self.step.over, done="fetched")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, values, partial(self._fetched, context))

    def _fetched(self, context: RunContext, value: Partition) -> Partition:
        context.results.fetched.append(context.use(first_records(self.step, value.share())))
        return value


def first_records(step: FetchStep, value: Partition) -> Partition:
    """Return the first records of a partition, if the request is limited to these and they have no keys."""
    if step.limit < 0 or value.keys is not None:
        return value
    if step.over == "rows":
        return value.with_blocks([tuple(array.first(step.limit) for array in block) for block in value.blocks])
    for block in value.blocks[step.limit:]:
        for array in block:
            array.close()
    return value.with_blocks(value.blocks[:step.limit])
