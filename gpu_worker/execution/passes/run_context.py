"""Context of one pass of a plan: what its steps work with, and what they have made so far.

Everything that steps ask of a device is enqueued on its streams, and buffers that nobody can name any more serve later
work of their stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.folds.partial_folds import PartitionFold
from gpu_worker.execution.grid.steps import Blocks, GridSteps
from gpu_worker.execution.launches.kernel_launches import Launches
from gpu_worker.execution.launches.launch_table import LaunchTable
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.replay.recording import Recording
from gpu_worker.execution.scheduling.progress import Progress
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import KernelFault, PlanError, VisparkError
from gpu_worker.protocol.messages import Input, KeepStep, Plan, Run
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.plans import DISK_TIERS, TIERS, KeyBounds
from gpu_worker.system.failpoints import failpoint

_Item = TypeVar("_Item", Input, Partition)
_Result = TypeVar("_Result")


class BlockForm(Enum):
    """Form in which a step takes the blocks of a grid."""

    #: Whatever the step before left.
    ANY = 1
    #: Windows of patches, with ghost cells around them.
    WINDOWS = 2
    #: Copies with the ghost cells around them.
    PADDED = 3
    #: Contiguous, without ghost cells.
    CONTIGUOUS = 4


class LabelledStep(Protocol):
    """Interface of a step that errors are located at."""

    @property
    def label(self) -> str: ...


class BroughtBlocks(Protocol):
    """Interface of the blocks of a plan that came in pieces ahead of it."""

    seconds: float

    def release(self) -> list[Buffer]: ...


@dataclass
class PassResults:
    """Results that the steps of one pass have made so far.

    Attributes
    ----------
    pending, fetched, partials : list
        What is to be kept, returned, and joined to a fold's result.
    retained : bool
        Whether the worker goes on using the request's payload.
    patches : dict of int to list of Block
        The loaded blocks as patches that are to be held in their place, by partition.
    bounds : tuple of KeyBounds
        Those of ranges of keys that were drawn.
    """

    pending: list[tuple[KeepStep, Partition]] = field(default_factory=list)
    fetched: list[Partition] = field(default_factory=list)
    partials: list[PartitionFold] = field(default_factory=list)
    retained: bool = False
    patches: dict[int, list[Block]] = field(default_factory=dict)
    bounds: tuple[KeyBounds, ...] = ()

    def close(self) -> None:
        """Give back what was not bound to a name."""
        for _, partition in self.pending:
            partition.close()
        for array in [array for blocks in self.patches.values() for block in blocks for array in block]:
            array.close()
        self.patches.clear()
        for partial in self.partials:
            partial.close()


@dataclass
class PassValues:
    """Partitions that one pass works on.

    Attributes
    ----------
    used : dict of int to Partition
        Every value that the plan uses, by identity.
    loaded : list of Partition
        What the plan starts from, if that is held.
    drawn : dict of int to ndarray
        The places of the rows that were drawn of a partition which comes in pieces, by its number.
    """

    used: dict[int, Partition] = field(default_factory=dict)
    loaded: list[Partition] = field(default_factory=list)
    drawn: dict[int, np.ndarray] = field(default_factory=dict)


class RunContext:
    """Context of one pass of a plan.

    Parameters
    ----------
    request : Run
        The pass.
    plan : Plan
        Its plan.
    launch_table : LaunchTable
        The plan's launches.
    source : int
        The slot of the VRDD that the plan starts from; -1 where it brings records.
    names : Registry
        The session's names.
    streams : Streams
        Streams and devices to work on.
    progress : Progress
        Where launches are noted.
    payload : Payload or None
        The records, keys and large array arguments that came with the request.
    recording : Recording or None
        Where to note what is done, so that it can be done again.
    chunked : BroughtBlocks or None
        The blocks that the plan starts from, where they came in pieces.
    world : JoinedWorld or None
        The other nodes that run the plan.

    Attributes
    ----------
    grid : GridSteps or None
        Runs steps on a grid; None for a plan without one.
    results : PassResults
        What the steps have made.
    values : PassValues
        The partitions that they work on.
    """

    def __init__(self, request: Run, plan: Plan, launch_table: LaunchTable, source: int, names: Registry,
                 streams: Streams, progress: Progress, payload: Payload | None, recording: Recording | None = None,
                 chunked: BroughtBlocks | None = None, world: JoinedWorld | None = None):
        self.request, self.plan, self.source = request, plan, source
        self.names, self.streams, self.progress = names, streams, progress
        self.payload, self.recording, self.chunked, self.world = payload, recording, chunked, world
        self.scratch = Scratch(streams, recording)
        self.arguments = Arguments(request.values, payload, recording, names, streams)
        self.launches = Launches(launch_table, plan.modules, self.arguments, self.scratch, streams, progress)
        self.grid: GridSteps | None = None
        self.results = PassResults()
        self.values = PassValues()

    @property
    def launch_table(self) -> LaunchTable:
        """The plan's launches, by step and variant."""
        return self.launches.launch_table

    def vrdd(self, slot: int) -> int:
        """Return the number of the VRDD in a slot of the request. Raises PlanError if the request brings none there."""
        if not 0 <= slot < len(self.request.vrdds):
            raise PlanError(f"the plan names VRDD {slot} of the request, which brings {len(self.request.vrdds)}")
        return self.request.vrdds[slot]

    @property
    def grid_steps(self) -> GridSteps:
        """The executor of steps on the plan's grid; PlanError for a plan without a grid."""
        if self.grid is None:
            raise PlanError("the plan has a step on a grid, and no grid")
        return self.grid

    @property
    def is_by_planes(self) -> bool:
        """Whether steps go over planes of a grid, whose blocks stay in host memory."""
        return self.grid is not None and self.grid.is_by_planes

    @property
    def is_in_waves(self) -> bool:
        """Whether the pass takes some partitions, or pieces of them, after the others."""
        return self.launches.deals is not None

    @property
    def place_below(self) -> str:
        """The placement of what devices have no room for, when the plan does not say it: that of what it starts from.
        """
        held = self.names.held(self.vrdd(self.source))
        return DISK_TIERS if any(each.tier == DISK_TIERS for each in held) else TIERS

    # -- over the partitions ------------------------------------------------------------------------------------------

    def each(self, step: LabelledStep, items: Sequence[_Item],
             function: Callable[[_Item], _Result]) -> list[_Result]:
        """Apply a step's function to partitions one by one; errors are located at the partition."""
        results = []
        for item in items:
            try:
                results.append(function(item))
            except VisparkError as error:
                index, device = (item.partition, "") if isinstance(item, Input) else (item.index, item.device.name)
                raise self._located(error, step, partition=index, device=device) from error.__cause__
        return results

    def run_together(self, step: LabelledStep, values: Sequence[Partition],
                     function: Callable[[Sequence[Partition]], _Result]) -> _Result:
        """Apply a step's function to some partitions together; errors are located at the step and its devices."""
        try:
            return function(values)
        except VisparkError as error:
            devices = " or ".join(sorted({value.device.name for value in values}))
            among = values[0].index if len(values) == 1 else None
            raise self._located(error, step, partition=among, device=devices) from error.__cause__

    def _located(self, error: VisparkError, step: LabelledStep, **known: Any) -> VisparkError:
        if isinstance(error, KernelFault):
            error = error.at(**asdict(self.progress.pending_place()))
        return error.at(vrdd=self.progress.vrdd, operation=step.label, **known)

    # -- values and their successors ----------------------------------------------------------------------------------

    def use(self, value: Partition) -> Partition:
        """Return a value, which is closed when the plan is done."""
        self.values.used[id(value)] = value
        return value

    def kept(self, value: Partition) -> Partition:
        """Return a value that the last step of a plan leaves, on its device alone, to be held on to: itself, which is
        not closed with the plan then, where it is nowhere else.
        """
        if value.keys is None and all(array.host is None for array in value.arrays):
            return self.values.used.pop(id(value))
        return value.kept_at("device", value.layout, value.count)

    def after(self, before: Partition, after: Partition, *, own: bool) -> Partition:
        """Replace a value by its successor; buffers of the old one alone serve later work of the stream.

        ``own`` says that the work was on the partition's own lane.
        """
        if after is not before:
            device = before.device
            stream = self.streams.partition_stream(device, before.index) if own else self.streams.main(device)
            self.use(after)
            del self.values.used[id(before)]
            before.close(lambda buffer: self.scratch.recycle(buffer, stream))
        return after

    def joined(self, value: Partition, record: Block | None) -> list[Partition]:
        """Return the partition that has the record to which its pieces were folded, of which a value is the last; none
        if there is no record yet.
        """
        if record is None:
            return []
        after = value.with_blocks([record])
        after.piece = None
        return [self.after(value, after, own=False)]

    def with_blocks(self, values: Sequence[Partition], blocks: Blocks) -> list[Partition]:
        """Return the values with other blocks, given by the numbers of partition and block."""
        return [self.after(value, value.with_blocks([blocks[value.index, place]
                                                     for place in range(len(value.blocks))]), own=False)
                for value in values]

    def with_arrays(self, values: Sequence[Partition], arrays: Mapping[int, HeldArray]) -> list[Partition]:
        """Return the values with some arrays, given by their identity, replaced."""
        return [self.after(value, value.replacing(arrays), own=False) for value in values] if arrays else list(values)

    # -- where the data is, and in which form -------------------------------------------------------------------------

    def to_device(self, value: Partition) -> Partition:
        """Return a value with all its arrays on its device; a piece whose rows have one key as it is, below it."""
        failpoint("copying-in")
        missing = [] if value.is_of_one_key else [array for array in value.arrays if array.buffer is None]
        if not missing:
            return value
        stream, copies = self.streams.partition_stream(value.device, value.index), {}
        for array in missing:
            assert array.host is not None
            buffer = self.scratch.allocate(array.nbytes, value.device, stream)
            value.device.copy_in(buffer, array.host, stream=stream)
            copies[id(array)] = HeldArray(array.field, host=array.host, buffer=buffer)
        return self.after(value, value.replacing(copies), own=True)

    def copied_out(self, value: Partition) -> Partition:
        """Return a value with all its arrays in host memory alone, once its device's own stream is waited for."""
        stream, copies = self.streams.main(value.device), {}
        for array in value.arrays:
            host = array.host
            if host is None:
                host = np.empty(array.nbytes, np.uint8)
                value.device.copy_out(host, array.on_device, stream=stream)
            copies[id(array)] = HeldArray(array.field, host=host)
        return value.replacing(copies)

    def arranged(self, step: LabelledStep, form: BlockForm, values: list[Partition]) -> list[Partition]:
        """Return the values with a grid's blocks in the form that a step takes; as they are where there is no grid."""
        grid = self.grid
        if grid is None or form is BlockForm.ANY:
            return values
        if form is not BlockForm.CONTIGUOUS:
            values = self.each(step, values, self.to_device)
            if not grid.are_windows(values):
                values = self._with_patches(grid, step, values)
            if form is BlockForm.WINDOWS:
                return values
        self.run_together(step, values, grid.flush_exchange)
        cut = grid.padded if form is BlockForm.PADDED else grid.flattened
        return self.with_arrays(values, self.run_together(step, values, cut))

    def _with_patches(self, grid: GridSteps, step: LabelledStep, values: list[Partition]) -> list[Partition]:
        """Copy the values to patches, and return windows of these; reuse earlier copies that are held."""
        as_loaded = [id(value) for value in values] == [id(value) for value in self.values.loaded]
        values = self.with_blocks(values, self.run_together(step, values, grid.assembled))
        if as_loaded and self.recording is None and self.request.world is None and self.names.keeps_patches(
                self.vrdd(self.source), len(values)):
            self.results.patches = {
                value.index: [tuple([array.only("device") for array in block]) for block in value.blocks]
                for value in values}
        return values

    def close(self) -> None:
        """Give back what the pass holds and did not bind to a name."""
        self.results.close()
        for partition in self.values.used.values():
            partition.close()
        self.values.used.clear()
        if self.grid is not None:
            self.grid.close()
        self.arguments.close()
        self.scratch.close()
