"""Runs a plan on the partitions of one request.

Everything a plan asks of a device is enqueued on the partition's stream, so that copies and kernels of different
partitions overlap; the streams are waited for once, and only then are results bound to their names and the reply's
payload passed on. Buffers that nobody can name any more are recycled within their stream, so a chain of kernels works
in two buffers. When anything fails, all that the plan allocated is given back and nothing that was held before changes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field

import numpy as np

from gpu_worker import folds
from gpu_worker.blackbox import BlackBox
from gpu_worker.device.base import Buffer, Device, Kernel, Source, Stream
from gpu_worker.failpoints import failpoint
from gpu_worker.folds import Partial
from gpu_worker.names import Names
from gpu_worker.protocol.errors import KernelFault, LaunchError, Place, PlanError, ProtocolError, VisparkError
from gpu_worker.protocol.messages import (
    Argument,
    Exec,
    Fetch,
    Field,
    Fold,
    FoldByKey,
    Folded,
    FoldedField,
    FoldInside,
    In,
    Input,
    Keep,
    Kept,
    Keys,
    Launch,
    Load,
    Module,
    Out,
    Output,
    Put,
    Ran,
    Run,
    Scalar,
    Step,
    Times,
    ToDevice,
    ToHost,
    Values,
)
from gpu_worker.protocol.messages import Array as ArrayArgument
from gpu_worker.protocol.payload import Payload, aligned, field_bytes, field_offsets
from gpu_worker.store import Array, Block, Partition
from gpu_worker.streams import Streams


@dataclass
class Execution:
    """One plan on its way through the worker.

    Parameters
    ----------
    request : Run
        The plan.
    payload : Payload or None
        The records, keys and large array arguments that came with it.
    names : Names
        The session's names.
    streams : Streams
        Streams and devices to work on.
    box : BlackBox
        Where a kernel is noted while it runs.
    """

    request: Run
    payload: Payload | None
    names: Names
    streams: Streams
    box: BlackBox
    allocated: list[Buffer] = field(default_factory=list)
    constants: dict[tuple[int, Stream], Buffer] = field(default_factory=dict)
    pending: list[tuple[Keep, Partition]] = field(default_factory=list)
    #: Values whose use ends with the plan.
    fetched: list[Partition] = field(default_factory=list)
    partials: list[Partial] = field(default_factory=list)
    #: Behind each Exec of a partition: the stream, the mark there, the partition, the label and the device.
    marks: list[tuple[Stream, int, int, str, str]] = field(default_factory=list)
    retained: bool = False
    compiling: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + self.request.seconds
        self.spare: dict[Stream, dict[int, list[Buffer]]] = defaultdict(lambda: defaultdict(list))
        self.sources = tuple(self._source(module) for module in self.request.modules)
        self.positions = _positions(self.request.steps)
        self.fold = next((step for step in self.request.steps if isinstance(step, Fold | FoldByKey)), None)

    # -- the whole plan -----------------------------------------------------------------------------------------------

    def run(self) -> tuple[Ran, Payload | None]:
        """Run the plan; the reply, and the payload with what it fetched.

        Raises
        ------
        VisparkError
            With the partition, operation and device concerned. Nothing has been bound to a name then.
        """
        try:
            for part in self.request.inputs:
                self._partition(part)
            outputs, folded, reply = self._reply()
            failpoint("computed")
        except KernelFault as fault:
            raise fault.at(**asdict(self._suspects())) from fault.__cause__
        except VisparkError:
            self.streams.settle()
            self._give_back()
            for buffer in self.allocated:
                buffer.discard()
            raise
        kept = tuple(self._bind(keep, partition) for keep, partition in self.pending)
        failpoint("bound")
        self.pending.clear()
        self._give_back()
        total = time.monotonic() - self.started
        return Ran(self.request.number, outputs, folded, kept, self.retained, Times(total, self.compiling)), reply

    def _bind(self, keep: Keep, partition: Partition) -> Kept:
        described = Kept(keep.vrdd, partition.index, partition.nbytes, partition.place)
        self.names.bind(keep.vrdd, keep.name, partition)
        return described

    def _give_back(self) -> None:
        for _, partition in self.pending:
            partition.close()
        for partition in self.fetched:
            partition.close()
        for partial in self.partials:
            partial.close()
        for buffer in self.constants.values():
            buffer.close()
        for by_size in self.spare.values():
            for buffers in by_size.values():
                for buffer in buffers:
                    buffer.close()

    # -- one partition ------------------------------------------------------------------------------------------------

    def _partition(self, part: Input) -> None:
        value: Partition | None = None
        for step in self.request.steps:
            try:
                after = self._start(step, part) if value is None else self._step(step, value)
            except VisparkError as error:
                if value is not None:
                    self.fetched.append(value)
                if isinstance(error, KernelFault):
                    error = error.at(**asdict(self._suspects()))
                raise error.at(vrdd=self._vrdd_name(), partition=part.partition, operation=_label(step),
                               device=value.device.name if value else "") from error.__cause__
            if value is not None:
                self._close(value)
            value = after
        if value is not None:
            self._close(value)

    def _start(self, step: Step, part: Input) -> Partition:
        if isinstance(step, Put):
            return self._put(part, self.streams.place(part.partition, self.request.devices))
        if isinstance(step, Load):
            partition = self.names.lookup(step.vrdd, part.partition)
            partition.variants = part.blocks
            return partition
        raise PlanError(f"a plan starts with Put or Load, not with {type(step).__name__}")

    def _step(self, step: Step, value: Partition) -> Partition:
        """The value after a step, as a new holder of its arrays."""
        match step:
            case ToDevice():
                return self._to_device(value)
            case ToHost():
                return self._to_host(value)
            case Exec():
                return self._exec(step, value)
            case Keys() if value.keys is not None:
                return value.with_blocks(())
            case Keys():
                return value.share()        # records that are no pairs; the host takes their first items
            case Values():
                return _without_keys(value)
            case Keep():
                self._keep(step, value)
            case FoldInside():
                return self._fold_inside(step, value)
            case Fold() | FoldByKey():
                self._fold(step, value)
            case Fetch():
                self.fetched.append(_first(step, value.share()))
            case _:
                raise PlanError(f"{type(step).__name__} can only start a plan")
        return value.share()

    def _waiting(self) -> AbstractContextManager[None]:
        """Where this thread may wait for kernels: one that still runs at the deadline is named then.

        A copy to or from memory that is not pinned waits for all work before it, as synchronizing does.
        """
        if not self.marks:
            return nullcontext()
        return self.box.running(Place(self._vrdd_name()), self.deadline, self._suspects)

    def _suspects(self) -> Place:
        """Where the kernels are that have not completed: after a fault, it was one of them."""
        waiting: dict[Stream, tuple[int, str, str]] = {}
        for stream, number, partition, label, device in self.marks:
            if number > stream.passed:
                waiting.setdefault(stream, (partition, label, device))
        partitions, operations, devices = (sorted(set(each)) for each in zip(*waiting.values(), strict=True)) \
            if waiting else ([], [], [])
        among = f" in one of the partitions {', '.join(map(str, partitions))}" if len(partitions) > 1 else ""
        return Place(self._vrdd_name(), partitions[0] if len(partitions) == 1 else None,
                     " or ".join(operations) + among, " or ".join(devices))

    def _vrdd_name(self) -> str:
        for step in self.request.steps:
            if isinstance(step, Load):
                return self.names.called(step.vrdd)
            if isinstance(step, Keep):
                return f"{step.vrdd} {step.name}".strip()
        return ""

    # -- where the data is --------------------------------------------------------------------------------------------

    def _put(self, part: Input, device: Device) -> Partition:
        keys = self._given(part.offset, part.keys) if part.keys else None
        start = part.offset + aligned(part.keys)
        blocks = []
        for variant in part.blocks:
            signature = self.request.variants[variant].signature
            arrays = []
            for described, offset in field_offsets(signature, start):
                arrays.append(Array(described, host=self._given(offset, field_bytes(described))))
                start = offset + aligned(field_bytes(described))
            blocks.append(tuple(arrays))
        return Partition(part.partition, part.count, keys, part.layout, blocks, device, part.blocks)

    def _given(self, offset: int, nbytes: int) -> np.ndarray:
        """Bytes of the payload; records without a byte come without one."""
        if not nbytes:
            return np.empty(0, np.uint8)
        if self.payload is None:
            raise ProtocolError("a plan that starts with Put came without a payload")
        return self.payload.view(offset, nbytes)

    def _to_device(self, value: Partition) -> Partition:
        failpoint("copying-in")
        stream = self.streams.of(value.device, value.index)
        copies = {}
        for array in value.arrays:
            if array.buffer is None:
                buffer = self._allocate(array.nbytes, value.device, stream)
                value.device.copy_in(buffer, array.host, stream=stream)
                copies[id(array)] = Array(array.field, host=array.host, buffer=buffer)
        return value.replacing(copies)

    def _to_host(self, value: Partition) -> Partition:
        arrays = [array for array in value.arrays if array.host is None]
        stream = self.streams.of(value.device, value.index)
        memory = Payload.create(sum(aligned(array.nbytes) for array in arrays))
        offset, copies = 0, {}
        with self._waiting():
            for array in arrays:
                target = memory.view(offset, array.nbytes)
                value.device.copy_out(target, array.buffer, stream=stream)
                copies[id(array)] = Array(array.field, host=target, buffer=array.buffer.share())
                offset += aligned(array.nbytes)
            value.device.synchronize(stream=stream)
        memory.close()
        return value.replacing(copies)

    def _keep(self, step: Keep, value: Partition) -> None:
        missing = "buffer" if step.place == "device" else "host"
        if any(getattr(array, missing) is None for array in value.arrays):
            raise PlanError(f"the value to keep is not in {step.place} memory")
        layout, count = value.layout, -1
        if value.variants:
            variant = self.request.variants[value.variants[0]]
            layout, count = variant.layouts[self.positions[id(step)]], variant.counts[self.positions[id(step)]]
        self.retained |= step.place == "host"
        self.pending.append((step, value.kept_at(step.place, layout, value.count if count < 0 else count)))

    def _allocate(self, nbytes: int, device: Device, stream: Stream) -> Buffer:
        spare = self.spare[stream][nbytes]
        if spare:
            return spare.pop()
        buffer = device.allocate(nbytes, stream=stream)
        self.allocated.append(buffer)
        return buffer

    def _close(self, value: Partition) -> None:
        """End the plan's use of a value; a buffer that only it used serves a later kernel of the same stream."""
        stream = self.streams.of(value.device, value.index)
        value.close(lambda buffer: self.spare[stream][buffer.nbytes].append(buffer) if buffer.last else buffer.close())

    # -- kernels ------------------------------------------------------------------------------------------------------

    def _source(self, module: Module) -> Source:
        constants = tuple((name, self._constant(index).tobytes()) for name, index in zip(
            module.constant_names, module.constants, strict=True))
        return Source(module.source, module.file, module.options, constants)

    def _exec(self, step: Exec, value: Partition) -> Partition:
        value = self._to_device(value)
        try:
            position = self.positions[id(step)]
            launches = [self.request.variants[variant].launches[position] for variant in value.variants]
            kernels = [self._compile(launch, value.device) for launch in launches]
            failpoint("launching")
            place = Place(self._vrdd_name(), value.index, step.label, value.device.name)
            with self.box.running(place, self.deadline):
                blocks = [self._launch(step, block, launch, kernel, value)
                          for block, launch, kernel in zip(value.blocks, launches, kernels, strict=True)]
            stream = self.streams.of(value.device, value.index)
            self.marks.append((stream, value.device.mark(stream=stream), value.index, step.label, value.device.name))
            after = value.with_blocks(blocks)
            if any(launch.keyless for launch in launches):
                after.keys = None
            return after
        finally:
            self._close(value)

    def _compile(self, launch: Launch, device: Device) -> Kernel:
        before = time.monotonic()
        kernel = device.compile(self.sources[launch.module], launch.kernel)
        self.compiling += time.monotonic() - before
        return kernel

    def _launch(self, step: Exec, block: Block, launch: Launch, kernel: Kernel, value: Partition) -> Block:
        device, stream = value.device, self.streams.of(value.device, value.index)
        inputs = {array.field.name: array for array in block}
        results = {described.name: Array(described, buffer=self._allocate(field_bytes(described), device, stream))
                   for described in launch.outputs}
        in_place = not any(isinstance(argument, Out) for argument in launch.arguments)
        if in_place:
            for name, array in results.items():
                device.copy_across(array.buffer, inputs[name].buffer, stream=stream)
        arguments = [self._argument(argument, inputs | results if in_place else inputs, results, value)
                     for argument in launch.arguments]
        if launch.grid:
            device.launch(kernel, launch.grid, launch.block, arguments, shared=launch.shared, stream=stream)
        if launch.merge:
            results = {name: results.pop(name) if name in results else array.share()
                       for name, array in inputs.items()} | results
        return tuple(results.values())

    def _argument(self, argument: Argument, inputs: Mapping[str, Array], results: Mapping[str, Array],
                  value: Partition) -> Buffer | np.generic:
        if isinstance(argument, Scalar):
            return np.frombuffer(argument.value, np.dtype(argument.dtype))[0]
        if isinstance(argument, ArrayArgument):
            return self._constant_buffer(argument.index, value)
        arrays = inputs if isinstance(argument, In) else results
        if argument.field not in arrays:
            raise LaunchError(f"the block has no field {argument.field!r}; it has {', '.join(map(repr, arrays))}")
        return arrays[argument.field].buffer

    def _constant(self, index: int) -> np.ndarray:
        constant = self.request.constants[index]
        nbytes = field_bytes(Field("", constant.dtype, constant.shape))
        if constant.data or not nbytes:
            return np.frombuffer(constant.data, np.uint8)
        if self.payload is None:
            raise ProtocolError("an array argument is in a payload that did not come")
        return self.payload.view(constant.offset, nbytes)

    def _constant_buffer(self, index: int, value: Partition) -> Buffer:
        """An array argument on the value's device: a copy for each stream, so that none waits for another."""
        stream = self.streams.of(value.device, value.index)
        if (index, stream) not in self.constants:
            data = self._constant(index)
            buffer = value.device.allocate(data.nbytes, stream=stream)
            self.constants[index, stream] = buffer
            with self._waiting():
                value.device.copy_in(buffer, data, stream=stream)
        return self.constants[index, stream]

    def _fold(self, step: Fold | FoldByKey, value: Partition) -> None:
        value = self._to_device(value)
        try:
            place = Place(self._vrdd_name(), value.index, _label(step), value.device.name)
            with self.box.running(place, self.deadline):
                stream = self.streams.of(value.device, value.index)
                partial = folds.enqueue(step, value, stream, lambda size: self._allocate(size, value.device, stream))
        finally:
            self._close(value)
        if partial is not None:
            self.partials.append(partial)

    def _fold_inside(self, step: FoldInside, value: Partition) -> Partition:
        value = self._to_device(value)
        stream = self.streams.of(value.device, value.index)
        try:
            place = Place(self._vrdd_name(), value.index, step.label, value.device.name)
            results = []
            with self.box.running(place, self.deadline):
                for block in value.blocks:
                    folded, done = folds.fold_inside(step, block, value.device, stream,
                                                     lambda size: self._allocate(size, value.device, stream))
                    results.append(folded)
                    for buffer in done:
                        self.spare[stream][buffer.nbytes].append(buffer)
            self.marks.append((stream, value.device.mark(stream=stream), value.index, step.label, value.device.name))
            return value.with_blocks(results)
        finally:
            self._close(value)

    # -- the reply ----------------------------------------------------------------------------------------------------

    def _reply(self) -> tuple[tuple[Output, ...], Folded | None, Payload | None]:
        """Copy out what was fetched or folded, and wait for all work."""
        if self.fold is not None:
            with self._waiting():
                for partial in self.partials:
                    partial.copy_out()
                self.streams.synchronize()
            return (), *self._folded()
        size = sum(_payload_bytes(partition) for partition in self.fetched)
        payload = Payload.create(size) if self.fetched else None
        outputs, offset = [], 0
        with self.streams.pinned(payload), self._waiting():
            for partition in self.fetched:
                outputs.append(self._copy_out(partition, payload, offset))
                offset += _payload_bytes(partition)
            self.streams.synchronize()
        failpoint("fetched")
        return tuple(outputs), None, payload

    def _folded(self) -> tuple[Folded, Payload | None]:
        result = folds.join(self.fold, self.partials)
        if result is None:
            return Folded(0, (), -1), None
        arrays = [each.values for each in result.fields]
        arrays += [] if result.counts is None else [result.counts]
        payload, offsets = Payload.create(sum(aligned(array.nbytes) for array in arrays)), [0]
        for array in arrays:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            payload.view(offsets[-1], data.nbytes)[:] = data
            offsets.append(offsets[-1] + aligned(data.nbytes))
        fields = tuple(FoldedField(each.field.name, each.field.dtype, each.field.shape, offset, each.magnitude,
                                   each.ordered) for each, offset in zip(result.fields, offsets, strict=False))
        return Folded(result.count, fields, -1 if result.counts is None else offsets[len(fields)]), payload

    def _copy_out(self, partition: Partition, payload: Payload, offset: int) -> Output:
        output = Output(partition.index, 0 if partition.keys is None else partition.keys.nbytes, offset)
        if partition.keys is not None:
            payload.view(offset, output.keys)[:] = partition.keys
            offset += aligned(output.keys)
        stream = self.streams.of(partition.device, partition.index)
        for array in partition.arrays:
            target = payload.view(offset, array.nbytes)
            if array.host is not None:
                target[:] = array.host
            else:
                partition.device.copy_out(target, array.buffer, stream=stream)
            offset += aligned(array.nbytes)
        return output


def _positions(steps: Sequence[Step]) -> dict[int, int]:
    """Each Exec's and each Keep's place among its like, by the step's identity."""
    return {id(step): position for kind in (Exec, Keep)
            for position, step in enumerate(step for step in steps if isinstance(step, kind))}


def _label(step: Step) -> str:
    match step:
        case Exec(label) | FoldInside(label):
            return label
        case Fold(fields) | FoldByKey(_, _, fields):
            return " and ".join(dict.fromkeys(f"fold {each.operator}" for each in fields))
    return type(step).__name__.lower()


def _without_keys(value: Partition) -> Partition:
    without = value.share()
    without.keys = None
    return without


def _first(step: Fetch, value: Partition) -> Partition:
    """The first records of a partition, where no more are wanted and they have no keys."""
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
