"""Executor of a plan on the partitions of one request, step by step.

Everything a plan asks of a device is enqueued on the device's stream, and work on single partitions on lanes beside it,
so that their copies and kernels overlap; the streams are waited for once, and only then are results bound to their
names and the reply's payload passed on. Buffers that nobody can name any more are recycled within their stream, so a
chain of kernels works in two buffers. When anything fails, all that the plan allocated is given back and nothing that
was held before changes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from gpu_worker.execution import folds
from gpu_worker.execution.chunked_input import ChunkedInput, device_of
from gpu_worker.execution.fold_results import again, folded
from gpu_worker.execution.folds import PartitionFold
from gpu_worker.execution.grid.context import GridContext
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.grid.steps import Blocks, GridSteps
from gpu_worker.execution.launches import Launches
from gpu_worker.execution.plan_cache import DecodedPlan, label
from gpu_worker.execution.progress import Progress
from gpu_worker.execution.replay import Answer, Recording, parted
from gpu_worker.execution.replay_branches import LoopReplay
from gpu_worker.execution.scratch import Arguments, Scratch
from gpu_worker.execution.streams import Streams
from gpu_worker.execution.timing import Stopwatch
from gpu_worker.memory.partition import Block, HeldArray, Partition
from gpu_worker.memory.registry import Registry
from gpu_worker.mpi.world import JoinedWorld
from gpu_worker.protocol.errors import KernelFault, PlanError, ProtocolError, VisparkError
from gpu_worker.protocol.grids import ExchangeStep, IterateStep, StencilStep, WindowStep
from gpu_worker.protocol.messages import (
    ExecStep,
    FetchStep,
    FoldByKeyStep,
    Folded,
    FoldInsideStep,
    FoldStep,
    Input,
    KeepStep,
    KeysStep,
    LoadStep,
    MapFoldStep,
    Output,
    PutStep,
    Ran,
    Run,
    Signature,
    Step,
    ToDeviceStep,
    ToHostStep,
    ValuesStep,
)
from gpu_worker.protocol.payload import INLINE_BYTES, Data, Payload, aligned, block_bytes, field_bytes, field_offsets
from gpu_worker.system.crash_record import BlackBox
from gpu_worker.system.failpoints import failpoint

_Item = TypeVar("_Item", Input, Partition)


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
    box : BlackBox
        Where a kernel is noted while it runs.
    grids : Grids
        What the session keeps of grids.
    recording : Recording or None
        Where to note what is done, so that it can be done again.
    world : JoinedWorld or None
        The other nodes that run the plan.
    intake : ChunkedInput or None
        The blocks that it starts from, where they came in pieces.
    """

    def __init__(self, request: Run, plan: DecodedPlan, payload: Payload | None, names: Registry, streams: Streams,
                 box: BlackBox, grids: Grids, recording: Recording | None = None, world: JoinedWorld | None = None,
                 intake: ChunkedInput | None = None):
        self.request = request
        self.recording = recording
        self.plan = plan
        self.payload = payload
        self.intake = intake
        self.names = names
        self.streams = streams
        self.started = time.monotonic()
        self.stopwatch = Stopwatch(self.started, streams, with_others=world is not None)
        self.progress = Progress(box, self._vrdd_name(), self.started + request.seconds)
        self.scratch = Scratch(streams, recording)
        self.arguments = Arguments(request.values, payload, self.progress, recording)
        self.launches = Launches(plan, self.arguments, self.scratch, streams, self.progress)
        self.grid = None if plan.plan.grid is None else GridSteps(
            grids, plan.plan.grid, plan.plan.stencils, self.launches.source,
            GridContext(streams, self.scratch, self.arguments), self.progress, world)
        self.pending: list[tuple[KeepStep, Partition]] = []
        self.fetched: list[Partition] = []
        self.partials: list[PartitionFold] = []
        #: Every value that the plan uses, by identity.
        self.used: dict[int, Partition] = {}
        self.retained = False
        #: What is loaded, its version, and its blocks as patches that are to be held in its place.
        self.loaded: list[Partition] = []
        self.version = names.version(request.vrdds[plan.source]) if 0 <= plan.source < len(request.vrdds) else 0
        self.patches: dict[int, list[Block]] = {}

    # -- the whole plan -----------------------------------------------------------------------------------------------

    def run(self) -> tuple[Ran, Payload | None]:
        """Run the plan; return the reply, and the payload with the fetched data unless the reply contains the data.

        Raises
        ------
        VisparkError
            With the partition, operation and device concerned. Nothing has been bound to a name then.
        """
        with ExitStack() as undo:
            undo.callback(self._undo)
            try:
                self._run()
                outputs, folded, data = self._reply()
                if self.request.profile:
                    self.stopwatch.lap(None)
                failpoint("computed")
            except KernelFault as fault:
                undo.pop_all()      # the process ends
                raise fault.at(**asdict(self.progress.suspects())) from fault.__cause__
            undo.pop_all()
        if self.recording is None:
            for keep, partition in self.pending:
                self.names.bind(self._vrdd(keep.slot), keep.name, partition)
        else:
            self._record(self.recording, outputs, data)
        if self.patches and self.names.replace(self._vrdd(self.plan.source), self.version, self.patches):
            self.patches.clear()
        failpoint("bound")
        self.pending.clear()
        self._give_back()
        times = self.stopwatch.times(profiled=self.request.profile,
                                     copied_before=self.intake.seconds if self.intake else 0.0)
        payload, inline, placed = parted(data, self.request, self.payload)
        iterated = tuple(self.grid.iterated) if self.grid else ()
        return Ran(self.request.number, outputs, folded, self.retained, times, inline, iterated,
                   placed=placed), payload

    def _record(self, recording: Recording, outputs: tuple[Output, ...], data: Data | None) -> None:
        """Keep the pass in the recording, and bind the kept results that the recording holds."""
        fold = self.plan.fold
        if self.grid is not None:
            recording.iterated, recording.has_filled = tuple(self.grid.iterated), self.grid.has_filled
            recording.joint = self.grid.joint()
        if isinstance(recording, LoopReplay):
            recording.path = self.grid.path
        if self.pending:
            kept: dict[tuple[int, str], list[Partition]] = defaultdict(list)
            for keep, partition in self.pending:
                kept[keep.slot, keep.name].append(partition)
            recording.keep(kept, self.scratch.numbered(), self.plan.recordings.alike)
            for slot, vessel in recording.vessels.items():
                self.names.bind_all(self._vrdd(slot), vessel)

        answer: Answer = (lambda: (outputs, None, data)) if fold is None else again(fold, self.partials)
        recording.complete(self.streams, [*self.scratch.allocated, *self.arguments.buffers],
                           self.progress.everything(), answer)

    def _run(self) -> None:
        first, *steps = self.plan.plan.steps or (KeysStep(),)
        values = self._each(first, self.plan.plan.inputs, self._start)
        for step in steps:
            values = self._step(step, values)
            if self.request.profile:
                self.streams.synchronize()
                self.stopwatch.lap(step)

    def _undo(self) -> None:
        """Free the allocations of a failed plan."""
        self.streams.settle()
        self._give_back()
        self.scratch.discard()
        if self.recording is not None:
            self.recording.fail()

    def _give_back(self) -> None:
        for _, partition in self.pending:
            partition.close()
        for partition in self.used.values():
            partition.close()
        self.used.clear()
        for array in [array for blocks in self.patches.values() for block in blocks for array in block]:
            array.close()
        self.patches.clear()
        for partial in self.partials:
            partial.close()
        if self.grid is not None:
            self.grid.close()
        self.arguments.close()
        self.scratch.close()

    def _each(self, step: Step, items: Sequence[_Item],
              function: Callable[[Any, _Item], Partition]) -> list[Partition]:
        """Apply a step's function to partitions one by one; errors are located at the partition."""
        found = []
        for item in items:
            try:
                found.append(function(step, item))
            except VisparkError as error:
                index, device = (item.partition, "") if isinstance(item, Input) else (item.index, item.device.name)
                raise self._located(error, step, partition=index, device=device) from error.__cause__
        return found

    def _located(self, error: VisparkError, step: Step, **known: Any) -> VisparkError:
        if isinstance(error, KernelFault):
            error = error.at(**asdict(self.progress.suspects()))
        return error.at(vrdd=self.progress.vrdd, operation=label(step), **known)

    def _together(self, step: Step, values: Sequence[Partition], function: Callable) -> Any:
        """Apply a step's function to some partitions together; errors are located at the step and its devices."""
        try:
            return function(step, values)
        except VisparkError as error:
            devices = " or ".join(sorted({value.device.name for value in values}))
            among = values[0].index if len(values) == 1 else None
            raise self._located(error, step, partition=among, device=devices) from error.__cause__

    def _vrdd(self, slot: int) -> int:
        if not 0 <= slot < len(self.request.vrdds):
            raise PlanError(f"the plan names VRDD {slot} of the request, which brings {len(self.request.vrdds)}")
        return self.request.vrdds[slot]

    def _vrdd_name(self) -> str:
        for step in self.plan.plan.steps:
            if isinstance(step, LoadStep):
                return self.names.called(self._vrdd(step.slot))
            if isinstance(step, KeepStep):
                return f"{self._vrdd(step.slot)} {step.name}".strip()
        return ""

    # -- steps --------------------------------------------------------------------------------------------------------

    def _start(self, step: Step, part: Input) -> Partition:
        if isinstance(step, PutStep):
            return self._use(self._put(part))
        if isinstance(step, LoadStep):
            partition = self._use(self.names.lookup(self._vrdd(step.slot), part.partition))
            partition.variants, partition.positions = part.blocks, part.positions
            if self.recording is not None and self.grid is not None:
                self.recording.reads(partition)
            self.loaded.append(partition)
            return partition
        raise PlanError(f"a plan starts with Put or Load, not with {type(step).__name__.removesuffix('Step')}")

    def _step(self, step: Step, values: list[Partition]) -> list[Partition]:
        """Run a step on the values of the step before, and return its values."""
        if self.grid is not None:
            values = self._on_grid(self.grid, step, values)
        match step:
            case ToDeviceStep():
                return self._each(step, values, self._to_device)
            case ToHostStep():
                return self._together(step, values, self._to_host)
            case ExecStep():
                return self._exec(step, self._each(step, values, self._to_launch))
            case ExchangeStep() | StencilStep() | IterateStep() | WindowStep() if self.grid is not None:
                return self._grid_step(self.grid, step, values)
            case KeysStep():
                return self._each(step, values, self._keys)
            case ValuesStep():
                return self._each(step, values, self._values)
            case KeepStep():
                return self._each(step, values, self._keep)
            case FoldInsideStep():
                return self._each(step, self._each(step, values, self._to_device), self._fold_inside)
            case MapFoldStep():
                return self._map_fold(step, self._each(step, values, self._to_launch))
            case FoldStep() | FoldByKeyStep():
                return self._each(step, self._each(step, values, self._to_device), self._fold)
            case FetchStep():
                return self._each(step, values, self._fetch)
        raise PlanError(f"{type(step).__name__.removesuffix('Step')} can only start a plan")

    # -- blocks of a grid ---------------------------------------------------------------------------------------------

    def _on_grid(self, grid: GridSteps, step: Step, values: list[Partition]) -> list[Partition]:
        """Return the values in the layout that a step takes: windows of patches, with ghost cells around them, or
        contiguous.
        """
        match step:
            case ToDeviceStep() | KeysStep() | ValuesStep() | WindowStep() | KeepStep(place="device"):
                return values
            case ExchangeStep() | StencilStep() | IterateStep() | ExecStep():
                values = self._each(step, values, self._to_device)
                if not grid.are_windows(values):
                    values = self._with_patches(grid, step, values)
                if not isinstance(step, ExecStep):
                    return values
        self._together(step, values, lambda _, given: grid.settle(given))
        cut = grid.padded if isinstance(step, ExecStep) else grid.flattened
        return self._with_arrays(values, self._together(step, values, lambda _, given: cut(given)))

    def _with_patches(self, grid: GridSteps, step: Step, values: list[Partition]) -> list[Partition]:
        """Copy the values to patches, and return windows of these; reuse earlier copies that are held."""
        as_loaded = [id(value) for value in values] == [id(value) for value in self.loaded]
        values = self._with_blocks(values, self._together(step, values, lambda _, given: grid.assembled(given)))
        if as_loaded and self.recording is None and self.request.world is None and self.names.keeps_patches(
                self._vrdd(self.plan.source), len(values)):
            self.patches = {value.index: [tuple([array.only("device") for array in block]) for block in value.blocks]
                            for value in values}
        return values

    def _grid_step(self, grid: GridSteps, step: Step, values: list[Partition]) -> list[Partition]:
        match step:
            case ExchangeStep():
                grid.exchange(step)
                return values
            case StencilStep():
                return self._with_blocks(values, self._together(step, values, grid.stencil))
            case IterateStep():
                return self._with_blocks(values, self._together(step, values, grid.iterate))
        values = self._each(step, values, self._to_device)
        return self._with_arrays(values, self._together(step, values, grid.window))

    def _with_blocks(self, values: Sequence[Partition], blocks: Blocks) -> list[Partition]:
        return [self._after(value, value.with_blocks([blocks[value.index, place]
                                                      for place in range(len(value.blocks))]), own=False)
                for value in values]

    def _with_arrays(self, values: Sequence[Partition], arrays: Mapping[int, HeldArray]) -> list[Partition]:
        return [self._after(value, value.replacing(arrays), own=False) for value in values] if arrays else list(values)

    def _use(self, value: Partition) -> Partition:
        self.used[id(value)] = value
        return value

    def _after(self, before: Partition, after: Partition, *, own: bool) -> Partition:
        """Replace a value by its successor; buffers of the old one alone serve later work of the stream.

        ``own`` says that the work was on the partition's own lane.
        """
        if after is not before:
            device = before.device
            stream = self.streams.lane(device, before.index) if own else self.streams.main(device)
            self._use(after)
            del self.used[id(before)]
            before.close(lambda buffer: self.scratch.recycle(buffer, stream))
        return after

    def _keys(self, step: KeysStep, value: Partition) -> Partition:
        # Of records that are no pairs the host takes the first items.
        return value if value.keys is None else self._after(value, value.with_blocks(()), own=True)

    def _values(self, step: ValuesStep, value: Partition) -> Partition:
        value.keys = None
        return value

    def _keep(self, step: KeepStep, value: Partition) -> Partition:
        missing = "buffer" if step.place == "device" else "host"
        if any(getattr(array, missing) is None for array in value.arrays):
            raise PlanError(f"the value to keep is not in {step.place} memory")
        layout, count = value.layout, -1
        if value.variants:
            variant = self.plan.plan.variants[value.variants[0]]
            position = self.plan.positions[id(step)]
            layout, count = variant.layouts[position], variant.counts[position]
        self.retained |= step.place == "host"
        self.pending.append((step, value.kept_at(step.place, layout, value.count if count < 0 else count)))
        return value

    def _fetch(self, step: FetchStep, value: Partition) -> Partition:
        self.fetched.append(self._use(_first(step, value.share())))
        return value

    # -- where the data is --------------------------------------------------------------------------------------------

    def _put(self, part: Input) -> Partition:
        keys = self._given(part.offset, part.keys) if part.keys else None
        signatures = [self.plan.plan.variants[variant].signature for variant in part.blocks]
        if self.intake is None:
            blocks = list(self._in_payload(signatures, part.offset + aligned(part.keys)))
        else:
            buffers = iter([self.scratch.adopt(buffer) for buffer in self.intake.release()])
            blocks = [tuple([HeldArray(described, buffer=next(buffers)) for described in signature.fields])
                      for signature in signatures]
        return Partition(part.partition, part.count, keys, part.layout, blocks,
                         device_of(self.plan.plan, part, self.streams), part.blocks, part.positions)

    def _in_payload(self, signatures: Sequence[Signature], start: int) -> Iterator[Block]:
        """Yield the blocks in the payload, from ``start`` on."""
        for signature in signatures:
            yield tuple([HeldArray(described, host=self._given(offset, field_bytes(described)))
                         for described, offset in field_offsets(signature, start)])
            start += block_bytes(signature)

    def _given(self, offset: int, nbytes: int) -> np.ndarray:
        """Return bytes of the payload; records without a byte come without one."""
        if not nbytes:
            return np.empty(0, np.uint8)
        if self.payload is None:
            raise ProtocolError("a plan that starts with Put came without a payload")
        return self.payload.view(offset, nbytes)

    def _to_device(self, step: Step, value: Partition) -> Partition:
        failpoint("copying-in")
        missing = [array for array in value.arrays if array.buffer is None]
        if not missing:
            return value
        stream, copies = self.streams.lane(value.device, value.index), {}
        for array in missing:
            buffer = self.scratch.allocate(array.nbytes, value.device, stream)
            value.device.copy_in(buffer, array.host, stream=stream)
            copies[id(array)] = HeldArray(array.field, host=array.host, buffer=buffer)
        return self._after(value, value.replacing(copies), own=True)

    def _to_launch(self, step: ExecStep | MapFoldStep, value: Partition) -> Partition:
        if len(value.variants) != len(value.blocks):
            raise PlanError(f"the plan takes the partition to have {len(value.variants)} blocks, and it has "
                            f"{len(value.blocks)}")
        return self._to_device(step, value)

    def _to_host(self, step: ToHostStep, values: Sequence[Partition]) -> list[Partition]:
        found, devices = [], {value.device for value in values}
        with self.progress.waiting():
            for value in values:
                arrays = [array for array in value.arrays if array.host is None]
                stream, offset, copies = self.streams.main(value.device), 0, {}
                memory = Payload.create(sum(aligned(array.nbytes) for array in arrays))
                for array in arrays:
                    target = memory.view(offset, array.nbytes)
                    value.device.copy_out(target, array.buffer, stream=stream)
                    copies[id(array)] = HeldArray(array.field, host=target, buffer=array.buffer.share())
                    offset += aligned(array.nbytes)
                memory.close()
                found.append(self._after(value, value.replacing(copies), own=False))
            for device in devices:
                device.synchronize(stream=self.streams.main(device))
        return found

    # -- kernels ------------------------------------------------------------------------------------------------------

    def _exec(self, step: ExecStep, values: list[Partition]) -> list[Partition]:
        if all(self.launches.is_raw(step, value) for value in values if value.blocks):
            return self._each(step, values, self._raw)
        return self._replaced(step, values, self._together(step, values, self.launches.table))

    def _raw(self, step: ExecStep, value: Partition) -> Partition:
        after = value.with_blocks(self.launches.raw(step, value))
        if any(self.plan.launch(step, variant).keyless for variant in value.variants):
            after.keys = None
        after = self._after(value, after, own=True)
        return after if self.grid is None else self._with_arrays([after], self.grid.unpadded([after]))[0]

    def _map_fold(self, step: MapFoldStep, values: list[Partition]) -> list[Partition]:
        if step.how == "inside":
            return self._replaced(step, values, self._together(step, values, self.launches.fold_inside))
        self.partials.extend(self._together(step, values, self.launches.fold))
        return values

    def _replaced(self, step: ExecStep | MapFoldStep, values: Sequence[Partition], blocks: dict) -> list[Partition]:
        """Return the partitions with the blocks of a launch over all of them."""
        found = []
        for value in values:
            after = value.with_blocks([blocks[value.index, place] for place in range(len(value.blocks))])
            if any(self.plan.launch(step, variant).keyless for variant in value.variants):
                after.keys = None
            found.append(self._after(value, after, own=False))
        return found

    def _fold(self, step: FoldStep | FoldByKeyStep, value: Partition) -> Partition:
        stream = self.streams.main(value.device)
        with self.progress.launching(label(step), (value.index,), value.device):
            partial = folds.enqueue(step, value, stream, self.scratch)
        if partial is not None:
            self.partials.append(partial)
        return value

    def _fold_inside(self, step: FoldInsideStep, value: Partition) -> Partition:
        stream, results = self.streams.main(value.device), []
        with self.progress.launching(step.label, (value.index,), value.device):
            for block in value.blocks:
                folded, done = folds.fold_inside(step, block, value.device, stream, self.scratch)
                results.append(folded)
                for buffer in done:
                    self.scratch.recycle(buffer, stream)
        self.progress.mark(step.label, (value.index,), value.device, stream)
        return self._after(value, value.with_blocks(results), own=False)

    # -- the reply ----------------------------------------------------------------------------------------------------

    def _reply(self) -> tuple[tuple[Output, ...], Folded | None, Data | None]:
        """Copy out fetched records or the fold's result, and wait for all work."""
        if self.plan.fold is not None:
            with self.progress.waiting():
                if not self._pass_out():
                    for partial in self.partials:
                        partial.copy_out()
                self.streams.synchronize()
            return (), *folded(self.plan.fold, self.partials)
        data = self._room(sum(_payload_bytes(partition) for partition in self.fetched)) if self.fetched else None
        outputs, offset = [], 0
        with self.streams.pinned(data), self.progress.waiting():
            for partition in self.fetched:
                outputs.append(self._copy_out(partition, data, offset))
                offset += _payload_bytes(partition)
            self.streams.synchronize()
        failpoint("fetched")
        return tuple(outputs), None, data

    def _pass_out(self) -> bool:
        """Copy out a large result, directly to the payload in further passes; return whether this was done."""
        passages = self.recording.passages if self.recording is not None else None
        if passages is None or not folds.is_as_it_lies(self.partials):
            return False
        partial, = self.partials
        (host, buffer), = partial.folder.results
        if host.nbytes <= INLINE_BYTES:
            return False
        passages.take(buffer, host, folds.looked_at(partial), partial.folder.stream)
        return True

    def _room(self, nbytes: int) -> Data:
        """Return host memory for fetched results."""
        if self.recording is None or nbytes > INLINE_BYTES:
            if self.recording is not None:
                self.recording.refused = True       # each reply takes a memfd of its own with it
            return _room(nbytes)
        return Data(self.recording.host(nbytes, self.fetched[0].device))

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
                partition.device.copy_out(target, array.buffer, stream=stream)
            offset += aligned(array.nbytes)
        return output


def _room(nbytes: int) -> Data:
    """Return memory for results; small ones go into the reply itself."""
    return Data(np.zeros(nbytes, np.uint8)) if nbytes <= INLINE_BYTES else Payload.create(nbytes)


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


def _payload_bytes(partition: Partition) -> int:
    keys = 0 if partition.keys is None else aligned(partition.keys.nbytes)
    return keys + sum(aligned(array.nbytes) for array in partition.arrays)
