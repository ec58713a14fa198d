"""Steps that say what becomes of a value: it is kept, or returned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gpu_worker.execution.plan_checks import check_over, require
from gpu_worker.execution.run_context import BlockForm, RunContext
from gpu_worker.execution.step_handlers import StepHandler, handles
from gpu_worker.execution.steps.transfers import copied_out
from gpu_worker.memory.partition import Partition
from gpu_worker.memory.registry import Registry
from gpu_worker.memory.tiers import TIERS, fits_on, placing
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import FetchStep, KeepStep, Plan


@handles(KeepStep)
class KeepHandler(StepHandler[KeepStep]):
    """Handler of a step that makes its value resident, once complete."""

    keeps = True

    @property
    def vrdds(self) -> tuple[int, ...]:
        return (self.step.slot,)

    @property
    def leaves_host_memory(self) -> bool:
        return self.step.place != "device"

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY if self.step.place == "device" else BlockForm.CONTIGUOUS

    def dataset(self, names: Registry, vrdds: Sequence[int]) -> str:
        return f"{vrdds[self.step.slot]} {self.step.name}".strip()

    def verify(self, plan: Plan) -> None:
        require(self.step.place in ("host", "device", TIERS),
                f"a value is kept on host, device or {TIERS}, not {self.step.place[:40]!r}")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        kept = self._placed if self.step.place == TIERS else partial(self._kept, place=self.step.place)
        return context.each(self, values, partial(kept, context))

    def _placed(self, context: RunContext, value: Partition) -> Partition:
        """Keep a value on its device while that has room for it, else in host memory."""
        if value.positions:
            raise PlanError("the blocks of a grid need their neighbours in each step, and are kept on devices alone: "
                            "cache(\"GPU\"), with more or larger devices where they do not fit")
        missing = sum(array.nbytes for array in value.arrays if array.buffer is None)
        with placing:
            if fits_on(value.device, sum(array.nbytes for array in value.arrays), missing):
                return self._kept(context, context.to_device(value), "device")
        if any(array.host is None for array in value.arrays):
            value, = copied_out(context, [value])
        return self._kept(context, value, "host")

    def _kept(self, context: RunContext, value: Partition, place: str) -> Partition:
        missing = "buffer" if place == "device" else "host"
        if any(getattr(array, missing) is None for array in value.arrays):
            raise PlanError(f"the value to keep is not in {place} memory")
        layout, count = value.layout, -1
        if value.variants:
            variant = context.plan.variants[value.variants[0]]
            layout, count = variant.layouts[self.number], variant.counts[self.number]
        context.retained |= place == "host"
        context.pending.append((self.step, value.kept_at(place, layout, value.count if count < 0 else count)))
        return value


@handles(FetchStep)
class FetchHandler(StepHandler[FetchStep]):
    """Handler of a step that returns its value in the reply's payload."""

    fetches = True
    timed_as = "copy_out"

    def verify(self, plan: Plan) -> None:
        if self.step.limit >= 0:
            check_over(self.step.over, done="fetched")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, values, partial(self._fetched, context))

    def _fetched(self, context: RunContext, value: Partition) -> Partition:
        context.fetched.append(context.use(_first(self.step, value.share())))
        return value


def _first(step: FetchStep, value: Partition) -> Partition:
    """Return the first records of a partition, if the request is limited to these and they have no keys."""
    if step.limit < 0 or value.keys is not None:
        return value
    if step.over == "rows":
        return value.with_blocks([tuple(array.first(step.limit) for array in block) for block in value.blocks])
    for block in value.blocks[step.limit:]:
        for array in block:
            array.close()
    return value.with_blocks(value.blocks[:step.limit])
