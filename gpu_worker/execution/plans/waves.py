"""Execution of a plan in waves: over partitions of which not all fit on their devices at once.

The partitions keep their order, in which folds join what they leave. A wave is a run of them that is as large as
``budget`` allows: what has to be copied in, and what the plan's kernels write. While the kernels of one wave run, the
next one's partitions are copied in beside them. What a wave fetched is copied out before the next one begins. A
partition that is larger than a wave comes in pieces, each a wave of its own (:mod:`gpu_worker.execution.plans.pieces`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any

from gpu_worker.device.base import Device
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.spill_files import spilled
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.launches.fold_launches import FoldLaunches
from gpu_worker.execution.launches.wave_deals import WaveDeals
from gpu_worker.execution.memory.tier_copies import copied_below
from gpu_worker.execution.passes.grid_planes import GridByPlanes
from gpu_worker.execution.passes.node_planes import NodePlanes
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import StepHandler
from gpu_worker.execution.plans.pieces import PartitionPieces
from gpu_worker.execution.plans.plan_cache import DecodedPlan
from gpu_worker.protocol.grids import GridShape
from gpu_worker.protocol.messages import ExecStep, Field, MapFoldStep
from gpu_worker.protocol.payload import field_bytes
from gpu_worker.system.failpoints import failpoint

#: The part of a wave by which it may be larger before a partition is cut.
_SLACK = 32
#: The share of a device's free memory that planes of a grid may take; the other one is for a plan that found no room.
_PLANES, _FEWER_PLANES = 3 / 4, 2 / 5

#: One part in so many of a device's free memory is what a step may take for all of a partition at once; beyond that it
#: takes ranges of its keys, if it can.
_IN_TURNS = 2

#: Steps of a plan.
Steps = Sequence[StepHandler[Any]]
#: Passes values through some of the steps.
Work = Callable[[Steps, list[Partition]], list[Partition]]


def may_stream(plan: DecodedPlan) -> bool:
    """Return whether a plan can run in waves: on a grid, whose blocks need their neighbours, by planes, and behind
    these with each block by itself.
    """
    if plan.plan.grid is None:
        return True
    _, blocks = _split_steps(plan.steps[1:])
    return all(step.by_blocks and step.blocks in (BlockForm.ANY, BlockForm.CONTIGUOUS) for step in blocks)


def _split_steps(steps: Steps) -> tuple[Steps, Steps]:
    """Return the steps on a grid that run by planes, and those from the first one on that does not."""
    place = next((place for place, step in enumerate(steps) if not step.by_planes), len(steps))
    return steps[:place], steps[place:]


@dataclass(frozen=True)
class WaveSize:
    """Size of a plan's waves.

    Attributes
    ----------
    budget : int
        The bytes that a wave's partitions copy in and write; one partition that cannot be cut may be more.
    piece : int
        The bytes that a piece of a partition which is larger copies in and writes.
    ahead : bool
        Whether to copy a wave in while the one before it runs, which takes room for both.
    """

    budget: int
    piece: int
    ahead: bool = True


def run_in_waves(plan: DecodedPlan, context: RunContext, size: WaveSize, start: Callable[[], list[Partition]],
                 work: Work) -> None:
    """Run a plan in waves; all partitions that ``start`` gives, from the first step on, pass the others.

    Where a step makes new partitions of the rows of all, those before it run in each of its passes, and those behind it
    on what it made.

    Raises
    ------
    VisparkError
        As the steps do; OutOfMemory if a single wave does not fit.
    """
    steps: Steps = plan.steps[1:]
    values = start()
    if plan.plan.grid is not None:
        planes, steps = _split_steps(steps)
        values = _run_by_planes(plan.plan.grid, context, size, planes, values)
        if steps:
            Waves(plan, steps, context, size).run([context.use(value) for value in values], work)
        return
    for place, step in enumerate(steps):
        exchange = step.in_passes(context, values)
        if exchange is not None:
            before: Steps = steps[:place + 1]
            for one_pass in exchange.passes():
                Waves(plan, before, context, size).run(values or start(), partial(_run_before_last, work, one_pass))
                before = [step for step in before if not step.keeps]    # what the first pass kept
            steps = steps[place + 1:]
            values = _in_ranges(plan, context, size, work, steps, exchange.made())
            break
    Waves(plan, steps, context, size).run(values, work)


def _in_ranges(plan: DecodedPlan, context: RunContext, size: WaveSize, work: Work, steps: Steps,
               values: list[Partition]) -> list[Partition]:
    """Return new partitions, and in place of those that the first of the steps behind has no room for ranges of their
    keys, if all of these steps take them so.
    """
    if not steps or not all(step.by_ranges for step in steps):
        return values
    results = []
    for value in values:
        memory = value.device.memory()
        step = steps[0].ranging(value, (memory.total - memory.used) // (_IN_TURNS if size.ahead else 2 * _IN_TURNS))
        exchange = None if step is None else step.in_passes(context, [value])
        if step is None or exchange is None:
            results.append(value)
            continue
        for one_pass in exchange.passes():
            Waves(plan, [step], context, size).run([context.use(value.share())],
                                                   partial(_run_before_last, work, one_pass))
        failpoint("wave-ranges")
        results += exchange.made()
        del context.values.used[id(value)]
        value.close()
    return results


def _run_by_planes(grid: GridShape, context: RunContext, size: WaveSize, steps: Steps,
                   values: list[Partition]) -> list[Partition]:
    """Run steps on a grid by planes, and return the partitions, in host memory."""
    nodes = None
    if context.world is not None:
        numbers = [number for value in values for number in value.positions]
        nodes = NodePlanes(context, context.world, Grids.by_planes(grid, numbers, values[0].device, context.world))
        values = _in_host_memory(context, values)
    context.grid_steps.is_by_planes = True
    memories = [device.memory() for device in {value.device for value in values}]
    free = min(memory.total - memory.used for memory in memories)
    budget = int(free * (_PLANES if size.ahead else _FEWER_PLANES))
    planes = GridByPlanes(context, context.grid_steps, grid, budget, nodes)
    for step in steps:
        assert step.by_planes is not None
        values = step.by_planes(context, planes, values)
    context.grid_steps.is_by_planes = False
    return values


def _in_host_memory(context: RunContext, values: list[Partition]) -> list[Partition]:
    """Return the partitions with their blocks below devices, where those are too whose node has room for them."""
    values = context.with_arrays(values, context.grid_steps.flattened(values))
    return [value if all(array.host is not None for array in value.arrays) else context.use(value.with_blocks(
        copied_below(context.names.tiers, value, context.place_below, context.streams.main(value.device)).blocks))
        for value in values]


def _run_before_last(work: Work, then: Callable[[list[Partition]], None], steps: Steps,
                     values: list[Partition]) -> list[Partition]:
    """Pass values through all steps but the last, in whose place ``then`` takes them."""
    inputs = work(steps[:-1], values)
    if inputs:        # of pieces that are folded there is nothing before the last one
        then(inputs)
    return []


class Waves:
    """Waves of partitions that pass steps of a plan.

    Parameters
    ----------
    plan : DecodedPlan
        The plan.
    steps : sequence of StepHandler
        The steps.
    context : RunContext
        The pass.
    size : WaveSize
        How large the waves are.
    """

    def __init__(self, plan: DecodedPlan, steps: Steps, context: RunContext, size: WaveSize):
        self._plan, self._steps, self._context, self._size = plan, steps, context, size
        self._streams = context.streams
        self._done = len(context.results.fetched)
        self._pieces = PartitionPieces(plan, steps, context)

    def run(self, values: list[Partition], work: Work) -> None:
        """Pass all values through the steps, wave by wave; the list is emptied, so that none outlasts its wave.

        Raises
        ------
        VisparkError
            As the steps do; OutOfMemory if a single wave does not fit.
        """
        launches = self._context.launches
        launches.deals = WaveDeals(self._context.launch_table, values, self._fields_before)
        try:
            self._run(values, work)
        finally:
            launches.deals = None       # whose cycle of references would keep the partitions

    def _run(self, values: list[Partition], work: Work) -> None:
        context = self._context
        waves = deque(self._divided(values))
        values.clear()
        ahead = self._copied_to_devices(waves.popleft()) if waves else []
        while ahead:
            following = waves.popleft() if waves else []
            for device in {value.device for value in ahead}:
                device.wait(self._streams.copy_stream(device), stream=self._streams.main(device))
            # Before the work, so that the link is not idle while the work is enqueued.
            brought = self._copied_to_devices(following) if self._size.ahead else following
            _announce([waves[0]] if waves else [])
            others = {id(value) for value in context.values.used.values()} - {id(value) for value in ahead}
            work(self._steps, ahead)
            self._end(others | {id(value) for value in brought})
            ahead = brought if self._size.ahead else self._copied_to_devices(following)
        context.results.partials.extend(FoldLaunches(context.launches).finish())
        self._pieces.join(context)

    # -- what is in a wave --------------------------------------------------------------------------------------------

    def _divided(self, values: Sequence[Partition]) -> list[list[Partition]]:
        """Return the waves: what is on devices comes first where the order does not matter, as there is much work to do
        while the first of the others are copied in, and kernels with little to do leave most of a device idle.
        """
        waves: list[list[Partition]] = []
        budget = 0
        if any(step.folds_all for step in self._steps) and all(
                step.in_any_order or step.only_moves for step in self._steps):
            waves = self._resident(values)
            values = [value for value in values if missing_bytes(value)]
        for value in values:
            nbytes = missing_bytes(value) + sum(self._written(variant) for variant in value.variants)
            # Results of a few bytes are no reason to cut a partition.
            is_larger = nbytes > self._size.budget + self._size.budget // _SLACK
            pieces = self._pieces.of(value, nbytes, self._size.piece) if is_larger else []
            if pieces or value.piece is not None:
                waves += [[self._context.use(piece)] for piece in pieces or [value]]
                budget = -1
            elif waves and nbytes <= budget:
                waves[-1].append(value)
                budget -= nbytes
            else:
                waves.append([value])
                budget = self._size.budget - nbytes
        return waves

    def _resident(self, values: Sequence[Partition]) -> list[list[Partition]]:
        """Return the waves of what is on devices: one, or in the smallest size one for each run of neighbours, as what
        several runs leave takes memory a second time.
        """
        runs = [list(run) for is_there, run in groupby(values, lambda value: not missing_bytes(value)) if is_there]
        return [list(chain.from_iterable(runs))] if runs and self._size.ahead else runs

    def _written(self, variant: int) -> int:
        """Return the bytes that a plan's kernels write of a block of a variant."""
        return sum(field_bytes(described) for launch in self._plan.plan.variants[variant].launches
                   for described in launch.outputs)

    def _fields_before(self, step: ExecStep | MapFoldStep, variant: int) -> Sequence[Field]:
        """Return the fields that a step finds in a block of a variant."""
        fields: Sequence[Field] = self._plan.plan.variants[variant].signature.fields
        for handler in self._plan.steps:
            if handler.step is step:
                break
            launch = self._context.launch_table.launch(handler.step, variant) if handler.has_launches else None
            fields = handler.fields_after(fields, launch)
        return fields

    # -- its copies ---------------------------------------------------------------------------------------------------

    def _copied_to_devices(self, values: Sequence[Partition]) -> list[Partition]:
        """Return values with all their arrays on their devices once those copies are done that begin here, beside the
        work of the wave before.
        """
        context, brought = self._context, []
        for value in values:
            missing = [array for array in value.arrays if array.buffer is None]
            if missing and not value.is_of_one_key and any(step.on_device for step in self._steps):
                failpoint("copying-in")
                value = self._copied(value, missing)
            brought.append(context.use(value))
        return brought

    def _copied(self, value: Partition, missing: Sequence[HeldArray]) -> Partition:
        context, device, copies = self._context, value.device, {}
        stream = self._streams.copy_stream(device)
        for array in missing:
            assert array.host is not None
            buffer = context.scratch.adopt(device.allocate(array.nbytes, stream=stream))
            device.copy_in(buffer, array.host, stream=stream)
            copies[id(array)] = HeldArray(array.field, host=array.host, buffer=buffer)
        after = value.replacing(copies)
        del context.values.used[id(value)]
        value.close()
        return after

    # -- its end ------------------------------------------------------------------------------------------------------

    def _end(self, others: set[int]) -> None:
        """Copy out what a wave fetched and folded, wait for it, and free what it worked in; keep ``others``."""
        context = self._context
        fetched, copies = context.results.fetched[self._done:], []
        for value in fetched:
            copies.append(context.use(context.copied_out(value)))
        partials = [each for each in context.results.partials if not each.is_out]
        for partial_fold in partials:
            partial_fold.copy_out()
        for device in self._streams.devices:
            device.synchronize(stream=self._streams.main(device))
        for partial_fold in partials:
            partial_fold.close()
        context.results.fetched[self._done:] = copies
        self._done = len(context.results.fetched)
        kept_ids = {id(value) for value in copies} | others
        for key, value in list(context.values.used.items()):
            if key not in kept_ids:
                del context.values.used[key]
                value.close()
        context.scratch.close()
        failpoint("wave-done")


def _announce(waves: Sequence[Sequence[Partition]]) -> None:
    """Have the system read ahead what waves will copy in from files."""
    contents = {spilled(array.host) for wave in waves for value in wave for array in value.arrays}
    for content in contents:
        if content is not None:
            content.announce()


def missing_bytes(value: Partition) -> int:
    """Return the bytes of a partition that are not on its device."""
    return sum(array.nbytes for array in value.arrays if array.buffer is None)


def least_free(values: Sequence[Partition]) -> tuple[int, int]:
    """Return the bytes that are missing on the device which they fit worst, and the bytes that are free there."""
    missing: dict[Device, int] = {}
    for value in values:
        missing[value.device] = missing.get(value.device, 0) + missing_bytes(value)
    memories = [(nbytes, device.memory()) for device, nbytes in missing.items()]
    return min([(nbytes, memory.total - memory.used) for nbytes, memory in memories],
               key=lambda each: each[1] - each[0], default=(0, 0))
