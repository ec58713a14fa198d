"""Grid steps of a plan, on its partitions.

Blocks come as contiguous arrays and are copied into patches at the first grid step; from then on a block is a window of
a patch. What other steps do with a block, they do with a contiguous copy of its cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source
from gpu_worker.device.memory.grid.boxes import Box, Triple
from gpu_worker.device.memory.grid.layout import BlockWindow, Copy, PackedLayout, PatchLayout, packed
from gpu_worker.device.memory.grid.patches import Cells, Domain, lattice_of, lifted, position
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.exchange.base import JoinedWorld, RecordedExchange
from gpu_worker.execution.grid.context import GridContext, Operation
from gpu_worker.execution.grid.iterate import Loop, StencilSource, Stepper
from gpu_worker.execution.grid.loop_graph import LoopRoute
from gpu_worker.execution.grid.reductions import Reading, Reduction
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.scheduling.progress import Progress
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import (
    ExchangeStep,
    GridShape,
    Halo,
    Iterated,
    IterateStep,
    Phase,
    StencilStep,
    WindowStep,
)
from gpu_worker.protocol.messages import Field, StencilLaunch

#: Blocks by the partition's number and the place among its blocks.
Blocks = dict[tuple[int, int], Block]


class GridSteps:
    """Executor of a plan's grid steps: assembly of patches, exchanges, stencils and loops.

    Parameters
    ----------
    grids : Grids
        What the session keeps of grids.
    grid : GridShape
        The grid.
    stencils : sequence of StencilLaunch
        The plan's stencils.
    source : callable
        The source of one of the plan's modules.
    context : GridContext
        Streams and memory.
    progress : Progress
        Where launches are noted.
    world : JoinedWorld, optional
        The other nodes that run the plan.
    """

    def __init__(self, grids: Grids, grid: GridShape, stencils: Sequence[StencilLaunch],
                 source: Callable[[int], Source], context: GridContext, progress: Progress,
                 world: JoinedWorld | None = None):
        self._grids = grids
        self._grid = grid
        self._lattice = lattice_of(grid)
        self._stencils = stencils
        self._source = source
        self._context = context
        self._progress = progress
        self._world = world
        self._domain: Domain | None = None
        self._owners: dict[int, Device] = {}
        #: An exchange that waits to be done together with the stencil after it.
        self._waiting: tuple[Halo, ...] = ()
        self.iterated: list[Iterated] = []
        #: Whether steps outside of loops filled what sides give, which need not be done when they come again.
        self.has_filled = False
        #: The way that the last loop has gone.
        self.path: LoopRoute | None = None
        #: Whether the blocks stay in host memory, and steps go over planes of them.
        self.is_by_planes = False

    def close(self) -> None:
        """Release memory that was kept for later steps."""
        self._context.close()

    def recorded_exchange(self) -> RecordedExchange | None:
        """Return the record of the plan's exchanges with other nodes; None if there were none."""
        return None if self._world is None or self._domain is None else self._world.exchange(self._domain.described())

    # -- blocks and patches -------------------------------------------------------------------------------------------

    def assembled(self, values: Sequence[Partition]) -> Blocks:
        """Return the blocks as windows of patches, copying those that are none yet.

        Raises
        ------
        PlanError
            If the blocks are not those of the grid, or differ in their fields.
        """
        domain = self._domain_of(values)
        arrays = self._arrays(values)
        content = {}
        for name, dtype in fields_of(values).items():
            arrays_of = {number: arrays[number, name] for number in self._owners}
            content[name] = self._cells(domain, dtype, arrays_of)
        return self._windows(values, content)

    def are_windows(self, values: Sequence[Partition]) -> bool:
        """Return whether all blocks are already windows of the patches that they belong to."""
        domain = self._domain_of(values)
        buffers: dict[tuple[int, str], Buffer] = {}
        for value in values:
            for number, block in zip(value.positions, value.blocks, strict=True):
                place = domain.places[number][0]
                for array in block:
                    held = array.window is not None and array.window.layout is domain.patches[place].layout
                    if not held or buffers.setdefault((place, array.field.name), array.on_device) is not array.buffer:
                        return False
        return True

    def _domain_of(self, values: Sequence[Partition]) -> Domain:
        owners: dict[int, Device] = {}
        for value in values:
            if len(value.positions) != len(value.blocks):
                raise PlanError(f"partition {value.index} has {len(value.blocks)} blocks and {len(value.positions)} "
                                "places in the grid")
            owners.update((number, value.device) for number in value.positions)
        if len(owners) != sum(len(value.blocks) for value in values):
            raise PlanError("two blocks are at the same place in the grid")
        if self._domain is None or owners != self._owners:
            self._owners, self._domain = owners, self._grids.domain(self._grid, owners, self._world)
        return self._domain

    def _arrays(self, values: Sequence[Partition]) -> dict[tuple[int, str], HeldArray]:
        """Return the arrays of each block, by its number and the field."""
        arrays = {}
        for value in values:
            for number, block in zip(value.positions, value.blocks, strict=True):
                shape = self._shape(self._lattice.block(position(self._lattice, number)))
                for array in block:
                    if array.field.shape != shape:
                        raise PlanError(f"block {number} of the grid has shape {shape}, and not {array.field.shape}")
                    arrays[number, array.field.name] = array
        return arrays

    def _shape(self, box: Box) -> tuple[int, ...]:
        return box.shape[3 - len(self._grid.shape):]

    def _cells(self, domain: Domain, dtype: np.dtype, arrays: Mapping[int, HeldArray]) -> Cells:
        """Return a field of all patches, without a copy if its blocks are windows of them, or in new memory."""
        buffers = []
        for place, patch in enumerate(domain.patches):
            held = {number: array for number, array in arrays.items() if domain.places[number][0] == place}
            first = next(iter(held.values()))
            if all(array.window is not None and array.window.layout == patch.layout and array.buffer is first.buffer
                   for array in held.values()):
                buffers.append(first.on_device.share())
                continue
            buffer = self._context.allocate(patch.layout.elements * dtype.itemsize, patch.device)
            buffer.ghosts = None
            self._context.copy(patch.device, [
                copy_between(_place(array, domain.places[number][1]), (buffer.address, patch.layout),
                             domain.places[number][1], dtype.itemsize) for number, array in held.items()])
            buffers.append(buffer)
        return Cells(dtype, tuple(buffers))

    def _windows(self, values: Sequence[Partition], content: Mapping[str, Cells]) -> Blocks:
        """Return the blocks of each partition as windows of patches; the caller gives up the content."""
        domain, blocks = self._domain, {}
        assert domain is not None
        for value in values:
            for at, number in enumerate(value.positions):
                place, box = domain.places[number]
                window = BlockWindow(domain.patches[place].layout, box)
                blocks[value.index, at] = tuple(
                    HeldArray(Field(name, cells.dtype.str, self._shape(box)), buffer=cells.buffers[place].share(),
                              window=window) for name, cells in content.items())
        for cells in content.values():
            cells.close()
        return blocks

    def _stepper(self, values: Sequence[Partition]) -> Stepper:
        """Return a stepper of the values, which are windows of patches."""
        domain, arrays = self._domain_of(values), self._arrays(values)
        content = {}
        for name, dtype in fields_of(values).items():
            firsts = [arrays[number, name] for number in
                      (next(number for number, (at, _) in domain.places.items() if at == place)
                       for place in range(len(domain.patches)))]
            content[name] = Cells(dtype, tuple(array.on_device for array in firsts))
        return Stepper(domain, content, self._context, self._world)

    # -- contiguous copies --------------------------------------------------------------------------------------------

    def flattened(self, values: Sequence[Partition]) -> dict[int, HeldArray]:
        """Return contiguous copies of the arrays that are windows, by the identity of these."""
        everything = Box((0, 0, 0), self._lattice.shape)
        return self._cut(values, lambda box: (box.shared(everything), (1, 1, 1)))

    def window(self, step: WindowStep, values: Sequence[Partition]) -> dict[int, HeldArray]:
        """Return copies of the cells within a window, by the identity of the arrays."""
        starts, stops, steps = (lifted(numbers, missing) for numbers, missing in (
            (step.starts, 0), (step.stops, 1), (step.steps, 1)))
        if any(each < 1 for each in steps):
            raise PlanError(f"the steps of a window are 1 or more, and not {step.steps}")

        def chosen(box: Box) -> tuple[Box, Triple]:
            low = tuple(start + max(0, -(-(at - start) // every)) * every
                        for at, start, every in zip(box.low, starts, steps, strict=True))
            return Box(low, tuple(map(max, low, map(min, box.high, stops)))), steps

        return self._cut(values, chosen, everything=True)

    def padded(self, values: Sequence[Partition]) -> dict[int, HeldArray]:
        """Return copies of blocks with their ghost cells around them, as raw kernels take them."""
        copies: dict[Device, list[Copy]] = defaultdict(list)
        padded = {}
        for value, _, array in _each(values):
            if array.window is None:
                raise PlanError("blocks have ghost cells after an exchange, and there was none")
            layout = PackedLayout(array.window.box, self._lattice_ghosts)
            around = layout.box.grown(layout.ghosts, layout.ghosts)
            described = Field(array.field.name, array.field.dtype, self._shape(around))
            size = np.dtype(described.dtype).itemsize
            buffer = self._context.allocate(layout.elements * size, value.device)
            copies[value.device].append(
                copy_between(_place(array, array.window.box), (buffer.address, layout), around, size))
            padded[id(array)] = HeldArray(described, buffer=buffer)
        self._copy(copies)
        return padded

    @property
    def _lattice_ghosts(self) -> Triple:
        return lifted(self._grid.halo, 0)

    def unpadded(self, values: Sequence[Partition]) -> dict[int, HeldArray]:
        """Return windows on results that a kernel wrote with ghost cells around them, by the identity of the arrays."""
        cells = {}
        for _, number, array in _each(values):
            box = self._lattice.block(position(self._lattice, number))
            layout = PackedLayout(box, self._lattice_ghosts)
            if array.field.shape == self._shape(box.grown(layout.ghosts, layout.ghosts)) and any(layout.ghosts):
                described = Field(array.field.name, array.field.dtype, self._shape(box))
                cells[id(array)] = HeldArray(described, buffer=array.on_device.share(), window=BlockWindow(layout, box))
        return cells

    def _cut(self, values: Sequence[Partition], chosen: Callable[[Box], tuple[Box, Triple]],
             everything: bool = False) -> dict[int, HeldArray]:
        copies: dict[Device, list[Copy]] = defaultdict(list)
        cut = {}
        for value, number, array in _each(values):
            if array.window is None and not everything:
                continue
            box, steps = chosen(self._lattice.block(position(self._lattice, number)))
            shape = tuple(-(-(high - low) // step) for low, high, step in zip(box.low, box.high, steps, strict=True))
            described = Field(array.field.name, array.field.dtype, shape[3 - len(self._grid.shape):])
            size = np.dtype(described.dtype).itemsize
            buffer = self._context.allocate(int(np.prod(shape)) * size, value.device)
            cut[id(array)] = HeldArray(described, buffer=buffer)
            if buffer.nbytes:
                address, layout = _place(array, self._lattice.block(position(self._lattice, number)))
                strides = tuple(stride * step for stride, step in zip(layout.strides, steps, strict=True))
                copies[value.device].append(Copy(address + layout.element(box.low) * size, buffer.address, strides,
                                                 packed(shape), shape, size))
        self._copy(copies)
        return cut

    def _copy(self, copies: Mapping[Device, Sequence[Copy]]) -> None:
        for device, of_device in copies.items():
            self._context.copy(device, of_device)

    # -- steps --------------------------------------------------------------------------------------------------------

    def exchange(self, step: ExchangeStep) -> None:
        """Record an exchange, to run with the next step."""
        self._waiting = step.halos

    def flush_exchange(self, values: Sequence[Partition]) -> None:
        """Run a deferred exchange, if there is one, since the next step is no stencil."""
        if self._waiting:
            halos, self._waiting = self._waiting, ()
            stepper = self._stepper(values)
            self._do("exchange", values, stepper.exchange(halos))
            self.has_filled |= stepper.has_filled
            for cells in stepper.finish().values():
                cells.close()

    def stencil(self, step: StencilStep, values: Sequence[Partition]) -> Blocks:
        """Compute a stencil and return the resulting blocks."""
        halos, self._waiting = self._waiting, ()
        stepper = self._stepper(values)
        filled, computed = stepper.phase(halos, self._kernel(step.launch))
        self._do(step.label, values, [*filled, *computed])
        self.has_filled |= stepper.has_filled
        return self._windows(values, stepper.finish())

    def iterate(self, step: IterateStep, values: Sequence[Partition]) -> Blocks:
        """Run a loop and return the resulting blocks."""
        stepper = self._stepper(values)
        kernels = {phase.launch: self._kernel(phase.launch) for phase in (*step.phases, *step.together)}
        with self._noted(step.label, values):
            loop = Loop(step, kernels, stepper, lambda: self._wait(step.label, values))
            self.iterated.append(loop.run())
            self.path = loop.path
        self._mark(step.label, values)
        return self._windows(values, stepper.finish())

    def stepped(self, phase: Phase, values: Sequence[Partition], domain: Domain,
                content: Mapping[str, Cells]) -> dict[str, Cells]:
        """Compute one stencil on patches of a domain, and return their fields; the caller holds these, and the content.
        """
        stepper = Stepper(domain, dict(content), self._context)
        filled, computed = stepper.phase(phase.halos, self._kernel(phase.launch))
        self._do(phase.label, values, [*filled, *computed])
        return stepper.finish()

    def looped(self, step: IterateStep, values: Sequence[Partition], domain: Domain,
               content: Mapping[str, Cells]) -> dict[str, Cells]:
        """Run a loop on patches of a domain, as :meth:`stepped` computes a stencil."""
        stepper = Stepper(domain, dict(content), self._context)
        kernels = {phase.launch: self._kernel(phase.launch) for phase in step.phases}
        with self._noted(step.label, values):
            Loop(step, kernels, stepper, lambda: self._wait(step.label, values)).run()
        self._mark(step.label, values)
        return stepper.finish()

    def asked(self, label: str, values: Sequence[Partition], questions: Sequence[Reduction], domain: Domain,
              only: Box) -> Reading:
        """Run reductions of some cells of a domain, and return the reading of their results."""
        reading = Reading(questions, domain, self._context, only)
        self._do(label, values, reading.operations)
        return reading

    @property
    def context(self) -> GridContext:
        """Streams and memory."""
        return self._context

    def outputs(self, index: int) -> Sequence[Field]:
        """Return the fields that one of the plan's stencils computes."""
        return self._kernel(index).launch.outputs

    def _kernel(self, index: int) -> StencilSource:
        if not 0 <= index < len(self._stencils):
            raise PlanError(f"the plan names stencil {index}, and has {len(self._stencils)}")
        return StencilSource(self._stencils[index], self._source(self._stencils[index].module))

    def _do(self, label: str, values: Sequence[Partition], operations: Iterable[Operation]) -> None:
        with self._noted(label, values):
            for operation in operations:
                operation()
        self._mark(label, values)

    def _noted(self, label: str, values: Sequence[Partition]) -> ExitStack:
        stack = ExitStack()
        partitions = [value.index for value in values]
        stack.enter_context(self._progress.launching(label, partitions, values[0].device))
        return stack

    def _mark(self, label: str, values: Sequence[Partition]) -> None:
        partitions = [value.index for value in values]
        for device in {value.device: None for value in values}:
            self._progress.mark(label, partitions, device, self._context.stream(device))

    def _wait(self, label: str, values: Sequence[Partition]) -> None:
        """Wait for the devices in the middle of a step."""
        before = len(self._progress.marks)
        self._mark(label, values)
        for device in {value.device: None for value in values}:
            device.synchronize(stream=self._context.stream(device))
        del self._progress.marks[before:]


def _each(values: Iterable[Partition]) -> Iterable[tuple[Partition, int, HeldArray]]:
    for value in values:
        # Where the keys alone are left, there are no blocks.
        for number, block in zip(value.positions, value.blocks, strict=True) if value.blocks else ():
            for array in block:
                yield value, number, array


def fields_of(values: Sequence[Partition]) -> dict[str, np.dtype]:
    """Return the fields that all blocks have, and their dtypes."""
    kinds = {tuple((array.field.name, array.field.dtype) for array in block)
             for value in values for block in value.blocks}
    if len(kinds) != 1:
        raise PlanError(f"the blocks of a grid have the same fields and dtypes; these have {len(kinds)} kinds of them")
    return {name: np.dtype(dtype) for name, dtype in kinds.pop()}


def _place(array: HeldArray, box: Box) -> tuple[int, PatchLayout]:
    """Return the device address and the layout of an array's cells."""
    layout = array.window.layout if array.window is not None else PackedLayout(box, (0, 0, 0))
    return array.on_device.address, layout


def copy_between(source: tuple[int, PatchLayout], target: tuple[int, PatchLayout], box: Box, size: int) -> Copy:
    """Return the copy of a box of cells from one address and layout to another."""
    return Copy(source[0] + source[1].element(box.low) * size, target[0] + target[1].element(box.low) * size,
                source[1].strides, target[1].strides, box.shape, size)
