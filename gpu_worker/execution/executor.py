"""Executor of a plan on the partitions of one request, step by step.

Everything a plan asks of a device is enqueued on the device's stream, and work on single partitions on side streams,
so that their copies and kernels overlap; the streams are waited for once, and only then are results bound to their
names and the reply's payload passed on. Buffers that nobody can name any more are recycled within their stream, so a
chain of kernels works in two buffers. When anything fails, all that the plan allocated is given back and nothing that
was held before changes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.folds import partial_folds
from gpu_worker.execution.grid.context import GridContext
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.grid.steps import GridSteps
from gpu_worker.execution.passes.fold_results import again, folded
from gpu_worker.execution.passes.run_context import BroughtBlocks, RunContext
from gpu_worker.execution.passes.step_handlers import StepHandler
from gpu_worker.execution.passes.timing import PlanTiming
from gpu_worker.execution.plans.plan_cache import DecodedPlan
from gpu_worker.execution.plans.waves import WaveSize, run_in_waves
from gpu_worker.execution.replay.recorded_pass import GridOutcome, PassResult
from gpu_worker.execution.replay.recording import Recording, place_result
from gpu_worker.execution.scheduling.progress import Progress
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import KernelFault
from gpu_worker.protocol.messages import Folded, KeysStep, Output, Ran, Run
from gpu_worker.protocol.payload import INLINE_BYTES, PLACED_FROM, Data, Payload, aligned
from gpu_worker.system.crash_record import CrashRecorder
from gpu_worker.system.failpoints import failpoint


class Execution:
    """Execution of one plan in the worker.

    Parameters
    ----------
    request : Run
        What was asked.
    plan : DecodedPlan
        The plan that it names.
    payload : Payload or None
        The records, keys and large array arguments that came with it.
    names : Registry
        The session's names.
    streams : Streams
        Streams and devices to work on.
    recorder : CrashRecorder
        Where a kernel is noted while it runs.
    grids : Grids
        What the session keeps of grids.
    recording : Recording or None
        Where to note what is done, so that it can be done again.
    world : JoinedWorld or None
        The other nodes that run the plan.
    chunked : ChunkedInput or None
        The blocks that it starts from, where they came in pieces.
    waves : WaveSize or None
        How large the waves are that it runs in; None where it runs on all partitions at once.
    """

    def __init__(self, request: Run, plan: DecodedPlan, payload: Payload | None, names: Registry, streams: Streams,
                 recorder: CrashRecorder, grids: Grids, recording: Recording | None = None,
                 world: JoinedWorld | None = None, chunked: BroughtBlocks | None = None,
                 waves: WaveSize | None = None):
        self.request = request
        self.waves = waves
        self.recording = recording
        self.plan = plan
        self.names = names
        self.streams = streams
        self.started = time.monotonic()
        self.timing = PlanTiming(self.started, streams, with_others=world is not None)
        self.progress = Progress(recorder, self._vrdd_name(), request.seconds)
        self.context = context = RunContext(request, plan.plan, plan.launches, plan.source, names, streams,
                                            self.progress, payload, recording, chunked, world)
        if plan.plan.grid is not None:
            context.grid = GridSteps(grids, plan.plan.grid, plan.plan.stencils, context.launches.source,
                                     GridContext(streams, context.scratch, context.arguments), self.progress, world)
        self.version = names.version(request.vrdds[plan.source]) if 0 <= plan.source < len(request.vrdds) else 0

    def _vrdd_name(self) -> str:
        names = (step.dataset(self.names, self.request.vrdds) for step in self.plan.steps)
        return next(filter(None, names), "")

    # -- the whole plan -----------------------------------------------------------------------------------------------

    def run(self) -> tuple[Ran, Payload | None]:
        """Run the plan; return the reply, and the payload with the fetched data unless the reply contains the data.

        Raises
        ------
        VisparkError
            With the partition, operation and device concerned. Nothing has been bound to a name then.
        """
        context = self.context
        with self.progress.watching(), ExitStack() as undo:
            undo.callback(self._undo)
            try:
                self._run()
                outputs, folded, data = self._reply()
                if self.request.profile:
                    self.timing.lap(None)
                failpoint("computed")
            except KernelFault as fault:
                undo.pop_all()      # the process ends
                raise fault.at(**asdict(self.progress.pending_place())) from fault.__cause__
            undo.pop_all()
        if self.recording is None:
            for keep, partition in context.results.pending:
                self.names.bind(context.vrdd(keep.slot), keep.name, partition)
        else:
            self._record(self.recording, outputs, data)
        patches = context.results.patches
        if patches and self.names.replace(context.vrdd(self.plan.source), self.version, patches):
            patches.clear()
        failpoint("bound")
        context.results.pending.clear()
        context.close()
        times = self.timing.times(profiled=self.request.profile,
                                     copied_before=context.chunked.seconds if context.chunked else 0.0)
        payload, inline, placed = place_result(data, self.request, context.payload)
        iterated = tuple(context.grid.iterated) if context.grid else ()
        return Ran(self.request.number, outputs, folded, context.results.retained, times, inline, iterated,
                   placed=placed, bounds=context.results.bounds), payload

    def _record(self, recording: Recording, outputs: tuple[Output, ...], data: Data | None) -> None:
        """Keep the pass in the recording, and bind the kept results that the recording holds."""
        context = self.context
        if context.grid is not None:
            recording.grid = GridOutcome(tuple(context.grid.iterated), context.grid.has_filled,
                                         context.grid.recorded_exchange(), context.grid.path)
        if context.results.pending:
            results: dict[tuple[int, str], list[Partition]] = defaultdict(list)
            for keep, partition in context.results.pending:
                results[keep.slot, keep.name].append(partition)
            recording.keep(results, context.scratch.numbered(), self.plan.recordings.in_same_buffers)
            for slot, binding in recording.bindings.items():
                self.names.bind_all(context.vrdd(slot), binding)

        answer: PassResult = again(context.results.partials) if self.plan.folds_all else (lambda: (outputs, None, data))
        recording.complete(self.streams, [*context.scratch.allocated, *context.arguments.buffers],
                           self.progress.launched_place(), answer)

    def _run(self) -> None:
        context = self.context
        first = next(iter(self.plan.steps), StepHandler(KeysStep()))
        start = partial(context.each, first, self.plan.plan.inputs, partial(first.start, context))
        if self.waves is None:
            self._pass(self.plan.steps[1:], start())
        else:
            run_in_waves(self.plan, context, self.waves, start, self._pass)

    def _pass(self, steps: Sequence[StepHandler[Any]], values: list[Partition]) -> list[Partition]:
        """Pass values through steps."""
        context = self.context
        for step in steps:
            values = step.run(context, context.arranged(step, step.blocks, values))
            if self.request.profile:
                self.streams.synchronize()
                self.timing.lap(step)
        return values

    def _undo(self) -> None:
        """Free the allocations of a failed plan."""
        self.streams.drain()
        self.context.close()
        self.context.scratch.discard()
        if self.recording is not None:
            self.recording.fail()

    # -- the reply ----------------------------------------------------------------------------------------------------

    def _reply(self) -> tuple[tuple[Output, ...], Folded | None, Data | None]:
        """Copy out fetched records or the fold's result, and wait for all work."""
        if self.plan.folds_all:
            if any(step.keep_fold(self.context) for step in self.plan.steps):
                return (), None, None
            if not self._pass_out():
                for partial_fold in self.context.results.partials:
                    if not partial_fold.is_out:
                        partial_fold.copy_out()
            self.streams.synchronize()
            return (), *folded(self.context.results.partials)
        fetched = self.context.results.fetched
        data = self._result_memory(sum(_payload_bytes(partition) for partition in fetched)) if fetched else None
        outputs, offset = [], 0
        with self.streams.pinned(data):
            for partition in fetched:
                assert data is not None
                outputs.append(self._copy_out(partition, data, offset))
                offset += _payload_bytes(partition)
            self.streams.synchronize()
        failpoint("fetched")
        return tuple(outputs), None, data

    def _pass_out(self) -> bool:
        """Copy out a large result, directly to the payload in further passes; return whether this was done."""
        copies = self.recording.copies if self.recording is not None else None
        if copies is None or not partial_folds.needs_no_join(self.context.results.partials):
            return False
        partial_fold, = self.context.results.partials
        (host, buffer), = partial_fold.folder.results
        if host.nbytes <= PLACED_FROM:
            return False
        copies.take(buffer, host, partial_folds.looked_at(partial_fold), partial_fold.folder.stream)
        return True

    def _result_memory(self, nbytes: int) -> Data:
        """Return host memory for fetched results."""
        if self.recording is None or nbytes > INLINE_BYTES:
            if self.recording is not None:
                self.recording.refused = True       # each reply takes a memfd of its own with it
            return _result_memory(nbytes)
        return Data(self.recording.host(nbytes, self.context.results.fetched[0].device))

    def _copy_out(self, partition: Partition, data: Data, offset: int) -> Output:
        output = Output(partition.index, 0 if partition.keys is None else partition.keys.nbytes, offset)
        if partition.keys is not None:
            data.view(offset, output.keys)[:] = partition.keys
            offset += aligned(output.keys)
        stream = self.streams.main(partition.device)
        for array in partition.arrays:
            target = data.view(offset, array.nbytes)
            if array.host is not None:
                target[:] = array.host
            else:
                partition.device.copy_out(target, array.on_device, stream=stream)
            offset += aligned(array.nbytes)
        return output


def _result_memory(nbytes: int) -> Data:
    """Return memory for results; small ones go into the reply itself."""
    return Data(np.zeros(nbytes, np.uint8)) if nbytes <= INLINE_BYTES else Payload.create(nbytes)


def _payload_bytes(partition: Partition) -> int:
    keys = 0 if partition.keys is None else aligned(partition.keys.nbytes)
    return keys + sum(aligned(array.nbytes) for array in partition.arrays)
