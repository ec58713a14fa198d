"""Launches of a plan's kernels: block by block for raw kernels, else once for all blocks of a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, CompiledKernel, Device, Late, LaunchValue, Source, Stream
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.execution.launches import tiling as works
from gpu_worker.execution.launches.launch_table import LaunchTable
from gpu_worker.execution.launches.wave_deals import Runs, WaveDeals, largest_work, most_works, rows_of
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.scheduling.progress import Progress
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import LaunchError, PlanError
from gpu_worker.protocol.messages import (
    Argument,
    ArrayArgument,
    ExecStep,
    In,
    Launch,
    MapFoldStep,
    Module,
    Out,
    ScalarArgument,
    ValueArgument,
)
from gpu_worker.protocol.payload import field_bytes
from gpu_worker.system.failpoints import failpoint

#: The bytes of an output's initial content that are brought from the host.
_FILLED = 1 << 16


@dataclass(frozen=True)
class Entry:
    """Block that a table launch reads, with the arrays of its results."""

    value: Partition
    place: int
    inputs: Mapping[str, HeldArray]
    results: Mapping[str, HeldArray]
    launch: Launch

    def array(self, argument: In | Out) -> HeldArray:
        """Return the array that an argument stands for."""
        arrays = self.inputs if isinstance(argument, In) else self.results
        if argument.field not in arrays:
            raise LaunchError(f"the block has no field {argument.field!r}; it has {', '.join(map(repr, arrays))}")
        return arrays[argument.field]

    @property
    def rows(self) -> int:
        """The block's leading extent; 1 if the launch takes the block as a whole."""
        return rows_of(self.launch, {name: array.field for name, array in self.inputs.items()})


@dataclass
class Launches:
    """Launcher of one plan's kernels.

    Parameters
    ----------
    launch_table : LaunchTable
        The plan's launches.
    modules : sequence of Module
        The plan's sources.
    arguments : Arguments
        What the slots of the request hold.
    scratch : Scratch
        Memory for results.
    streams : Streams
        Where work goes.
    progress : Progress
        Where it is noted.
    deals : WaveDeals or None
        The deals over all partitions, where the plan runs in waves.
    """

    launch_table: LaunchTable
    modules: Sequence[Module]
    arguments: Arguments
    scratch: Scratch
    streams: Streams
    progress: Progress
    deals: WaveDeals | None = None
    _sources: dict[int, Source] = field(default_factory=dict)

    # -- raw kernels --------------------------------------------------------------------------------------------------

    def is_raw(self, step: ExecStep, value: Partition) -> bool:
        """Return whether a step launches a kernel of its own on each block of a partition."""
        return all(not self.launch_table.launch(step, variant).tile for variant in value.variants)

    def raw(self, step: ExecStep, value: Partition) -> list[Block]:
        """Launch a kernel on each block of a partition; return the resulting blocks."""
        launches = [self.launch_table.launch(step, variant) for variant in value.variants]
        kernels = [self._compile(launch, value.device) for launch in launches]
        failpoint("launching")
        stream = self.streams.partition_stream(value.device, value.index)
        with self.progress.launching(step.label, (value.index,), value.device):
            results = [self._raw(value, block, launch, kernel, stream)
                       for block, launch, kernel in zip(value.blocks, launches, kernels, strict=True)]
        self.progress.mark(step.label, (value.index,), value.device, stream)
        return [_after(*each) for each in results]

    def _raw(self, value: Partition, block: Block, launch: Launch, kernel: CompiledKernel,
             stream: Stream) -> tuple[Launch, Mapping[str, HeldArray], Mapping[str, HeldArray]]:
        device = value.device
        inputs = {array.field.name: array for array in block}
        results = self._results(launch, device, stream)
        in_place = not any(isinstance(argument, Out) for argument in launch.arguments)
        if in_place:
            for name, array in results.items():
                if name not in inputs or inputs[name].nbytes != array.nbytes:
                    raise PlanError(f"a kernel without an output works in place on {name!r}, and the block has no such "
                                    "field of that size")
                device.copy_across(array.on_device, inputs[name].on_device, stream=stream)
        for array, number in zip(results.values(), launch.initial, strict=False):
            self._fill(array.on_device, number, device, stream)
        entry = Entry(value, 0, inputs | results if in_place else inputs, results, launch)
        if launch.grid:
            arguments = [entry.array(argument).on_device if isinstance(argument, In | Out)
                         else self._argument(argument, device, stream) for argument in launch.arguments]
            device.launch(kernel, launch.grid, launch.block, arguments, shared=launch.shared, stream=stream)
        return launch, inputs, results

    def _fill(self, buffer: Buffer, number: bytes, device: Device, stream: Stream) -> None:
        """Fill a buffer with one number: upload a few copies of it, and double them by copies within the buffer."""
        if not number or not buffer.nbytes:
            return
        there = min(buffer.nbytes, _FILLED // len(number) * len(number))
        some = self.scratch.upload(np.frombuffer(number * (there // len(number)), np.uint8), device, stream)
        device.copy_across(buffer, some, stream=stream)
        self.scratch.forget(some, stream)
        while there < buffer.nbytes:
            more = min(there, buffer.nbytes - there)
            device.copy_across(buffer.part(there, more), buffer.part(0, more), stream=stream)
            there += more

    # -- table launches -----------------------------------------------------------------------------------------------

    def table(self, step: ExecStep, values: Sequence[Partition]) -> dict[tuple[int, int], Block]:
        """Launch a kernel on all blocks of some partitions; return the resulting blocks, by the numbers of partition
        and block.
        """
        after = {}
        for device, entries in self.groups(step, values):
            self.launch(step, device, entries)
            for entry in entries:
                after[entry.value.index, entry.place] = _after(entry.launch, entry.inputs, entry.results)
        return after

    def groups(self, step: ExecStep | MapFoldStep, values: Iterable[Partition],
                results: bool = True) -> list[tuple[Device, list[Entry]]]:
        """Return the blocks that share a launch."""
        groups: dict[tuple[Any, ...], list[Entry]] = {}
        for value in values:
            stream = self.streams.main(value.device)
            for place, (block, variant) in enumerate(zip(value.blocks, value.variants, strict=True)):
                launch = _of_piece(self.launch_table.launch(step, variant), value, block)
                if not launch.tile:
                    raise PlanError("a step launches on some blocks by themselves and on others together")
                written = self._results(launch, value.device, stream) if results else {}
                entry = Entry(value, place, {array.field.name: array for array in block}, written, launch)
                groups.setdefault((value.device, self.launch_table.group(step, variant)), []).append(entry)
        return [(device, entries) for (device, _), entries in groups.items()]

    def launch(self, step: ExecStep | MapFoldStep, device: Device, entries: Sequence[Entry],
                make_partials: Callable[[Runs, int], Sequence[Buffer]] = lambda runs, total: (),
                most: int | None = None) -> np.ndarray:
        """Launch a group's kernel, with partials for its works, given where they are among those of all waves, and how
        many those are; return the works. These are about as many as a launch of the kernel has, or ``most``.
        """
        label = step.label
        launch, stream = entries[0].launch, self.streams.main(device)
        kernel = self._compile(launch, device)
        failpoint("launching")
        blocks = launch.cluster if device.clusters else 1
        dealt, runs, total = self._group_works(step, device, entries, most)
        ports = [argument for argument in launch.arguments if isinstance(argument, In | Out)]
        addresses = [entry.array(port).on_device.address for entry in entries for port in ports]
        partials = make_partials(runs, total)
        if len(dealt):
            table = self.scratch.upload(np.concatenate([dealt.reshape(-1), np.array(addresses, np.int64)]), device,
                                        stream)
            common = [self._argument(argument, device, stream) for argument in launch.arguments
                      if not isinstance(argument, In | Out)]
            partitions = [entry.value.index for entry in entries]
            with self.progress.launching(label, partitions, device):
                prepared = self._prepare(launch, common, device, stream)
                workspaces = self._workspaces(launch, len(dealt) * blocks, device, stream)
                arguments = [np.uint64(table.address), np.uint64(table.address + dealt.nbytes), *partials, *prepared,
                             *common, *workspaces]
                device.launch(kernel, (len(dealt) * blocks,), launch.block, arguments, shared=launch.shared,
                              stream=stream)
            self.progress.mark(label, partitions, device, stream)
            self.scratch.forget(table, stream)
            for buffer in (*prepared, *workspaces):
                self.scratch.recycle(buffer, stream)
        return dealt

    def _group_works(self, step: ExecStep | MapFoldStep, device: Device, entries: Sequence[Entry],
                     most: int | None) -> tuple[np.ndarray, Runs, int]:
        """Return a group's works, where they are among those of all waves, and how many those are."""
        launch, piece = entries[0].launch, entries[0].value.piece
        # Without a fold, the works of some rows are nobody's concern.
        if self.deals is None or (piece is not None and piece.of_rows and not launch.partials):
            dealt = works_of(launch, device, entries) if most is None else \
                works.tile_rows([entry.rows for entry in entries], launch.tile, most)
            return dealt, [(0, len(dealt))], len(dealt)
        before = 0 if piece is None or piece.of_rows else piece.first
        return self.deals.deal(step, device, launch, [(entry.value.index, before + entry.place) for entry in entries],
                               variant_of(entries[0]), piece)

    def _workspaces(self, launch: Launch, count: int, device: Device, stream: Stream) -> list[Buffer]:
        """Return the memory that the threads of some thread blocks have for arrays of their own, if they have any; on
        the host one thread does a block's work.
        """
        if not launch.workspace:
            return []
        threads = math.prod(launch.block) if device.asynchronous else 1
        return [self.scratch.allocate(count * threads * launch.workspace, device, stream)]

    def _prepare(self, launch: Launch, arguments: Sequence[LaunchValue], device: Device,
                 stream: Stream) -> list[Buffer]:
        """Run a launch's preparation kernel, if it has one, and return the buffers that the launch needs from it."""
        first = launch.preparation
        if first is None:
            return []
        buffer = self.scratch.allocate(first.nbytes, device, stream)
        device.launch(self._compile(launch, device, first.kernel), first.grid, first.block, [buffer, *arguments],
                      stream=stream)
        return [buffer]

    # -- what kernels are given ---------------------------------------------------------------------------------------

    def _compile(self, launch: Launch, device: Device, kernel_name: str = "") -> CompiledKernel:
        return device.compile(self.source(launch.module), kernel_name or launch.kernel)

    def source(self, index: int) -> Source:
        """Return the source of one of the plan's modules."""
        if index not in self._sources:
            module = self.modules[index]
            constants = tuple((name, self.arguments.fixed(slot)) for name, slot in zip(
                module.constant_names, module.constants, strict=True))
            self._sources[index] = Source(module.source, module.file, module.options, constants)
        return self._sources[index]

    def _argument(self, argument: Argument, device: Device, stream: Stream) -> LaunchValue:
        match argument:
            case ScalarArgument(dtype, value):
                return np.frombuffer(value, np.dtype(dtype))[0]
            case ValueArgument(slot):
                return Late(slot, self.arguments.number(slot))
            case ArrayArgument(slot):
                return self.arguments.buffer(slot, device, stream)
        raise PlanError(f"{type(argument).__name__} is an array of a block")

    def _results(self, launch: Launch, device: Device, stream: Stream) -> dict[str, HeldArray]:
        return {described.name: HeldArray(described,
                                          buffer=self.scratch.allocate(field_bytes(described), device, stream))
                for described in launch.outputs}


def _of_piece(launch: Launch, value: Partition, block: Block) -> Launch:
    """Return a launch with the outputs of a block's rows, where these are a piece of the partition's only block."""
    if value.piece is None or not value.piece.of_rows or launch.partials:
        return launch
    rows = block[0].field.shape[0]
    return replace(launch, outputs=tuple(replace(each, shape=(rows, *each.shape[1:])) for each in launch.outputs))


def works_of(launch: Launch, device: Device, entries: Sequence[Entry]) -> np.ndarray:
    """Return the works of a launch on the blocks of a group."""
    inputs = {name: array.field for name, array in entries[0].inputs.items()}
    return works.tile_rows([entry.rows for entry in entries], launch.tile, most_works(launch, device),
                           largest_work(launch, inputs, device))


def variant_of(entry: Entry) -> int:
    """Return the variant of an entry's block."""
    assert entry.value is not None
    return entry.value.variants[entry.place]


def _after(launch: Launch, inputs: Mapping[str, HeldArray], results: Mapping[str, HeldArray]) -> Block:
    """Return a block after a launch that left these results."""
    after = dict(results)
    if launch.merge:
        after = {name: after.pop(name) if name in after else array.share() for name, array in inputs.items()} | after
    return tuple(after.values())
