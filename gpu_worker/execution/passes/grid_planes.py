"""Grids whose blocks do not fit their device: steps on a range of planes after the other, with the planes around it.

The blocks lie in host memory. A range of planes along the grid's first axis is copied to the device together with as
many planes on both sides as its new values depend on; stencils and loops run on these as on a patch of their own, and
the planes of the range are copied out. What they compute of the planes around it is wrong near the ends, and left. A
cell's new value is computed as in any other patch, so that the bits are those of a grid that fits.

Where other nodes have blocks, too, all do the same number of steps in a pass, and each takes ranges of planes of its
own boxes of cells; the cells around these that are other nodes' come before the pass (:mod:`.node_planes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.grid.boxes import AXES, Box, Triple, around, whole
from gpu_worker.device.memory.grid.ghosts import PERIODIC
from gpu_worker.device.memory.grid.layout import Copy, PackedLayout, PatchLayout
from gpu_worker.device.memory.grid.patches import Cells, Domain, Patch, lattice_of, lifted, position
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.spill_files import spilled, store, sync
from gpu_worker.execution.grid.loop_graph import PendingTest, questions
from gpu_worker.execution.grid.steps import GridSteps, copy_between, fields_of
from gpu_worker.execution.passes.node_planes import HeldCells, NodePlanes, packed_cells
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Halo, Iterated, IterateStep, Phase, StencilStep
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.payload import aligned, field_bytes
from gpu_worker.system.failpoints import failpoint

#: The share of the planes on the device that may be those around a range.
_AROUND = 3

_Device = TypeVar("_Device")
_Range = TypeVar("_Range")

#: Computes new fields of a domain's patches.
Advance = Callable[[Domain, Mapping[str, Cells]], dict[str, Cells]]


@dataclass(frozen=True)
class _Planes:
    """Planes of a box of cells: those that are computed, and the boxes that are on the device for it, the one with
    these first.
    """

    only: Box
    boxes: tuple[Box, ...]


def turns(devices: Sequence[_Device], ranges: Iterable[_Range]) -> Iterator[list[tuple[_Device, _Range]]]:
    """Yield as many ranges as there are devices at a time, each with its device; perhaps fewer at the end.

    Examples
    --------
    >>> list(turns(["a", "b"], range(3)))
    [[('a', 0), ('b', 1)], [('a', 2)]]
    """
    remaining = iter(ranges)
    while several := list(zip(devices, remaining, strict=False)):
        yield several


def _steps_to_test(step: IterateStep, done: int) -> int:
    """Return the number of steps after the ``done`` first ones up to the next test of cells, or to the end; the step
    whose change is asked for goes alone, as what was before it is compared.
    """
    number, count = step.done + done, step.steps - done
    if step.until >= 0:
        count = min(count, max(1, step.every - 1 - number % step.every))
    return min(count, step.check - number % step.check) if step.check > 0 else count


class _Tests:
    """Tests of the cells of all ranges after ``count`` steps of a loop, of which ``done`` are done then."""

    def __init__(self, steps: GridSteps, nodes: NodePlanes | None, step: IterateStep, count: int, done: int):
        self._steps, self._nodes, self._step = steps, nodes, step
        number = step.done + done
        self._is_compared = step.until >= 0 and number % step.every == 0
        self._is_checked = step.check > 0 and (number % step.check == 0 or done == step.steps)
        assert count == 1 or not self._is_compared
        self._written = tuple(dict.fromkeys(each.name for phase in step.phases for each in steps.outputs(phase.launch)))
        self._domain: Domain | None = None
        self._pending: list[PendingTest] = []
        self._test: PendingTest | None = None
        self._answers: list[np.ndarray] = []

    def ask(self, domain: Domain, before: Mapping[str, Cells], after: Mapping[str, Cells], only: Box,
            values: Sequence[Partition]) -> None:
        """Ask the cells of a range, without waiting for an answer."""
        reductions, names, least = questions(dict(before) if self._is_compared else None, dict(after), self._written,
                                             self._is_checked)
        if reductions:
            self._domain = domain
            answers = self._steps.asked(self._step.label, values, reductions, domain, only)
            self._test = PendingTest(answers, names, least)
            self._pending.append(self._test)

    def answered(self) -> None:
        """Take the answers of the ranges that were asked, which are there."""
        self._answers += [each.copy() for test in self._pending for each in test.reading.answers(None)]
        self._pending.clear()

    def outcome(self, number: int, change: float) -> float:
        """Return the largest change of a cell, if it was asked for; else that of before.

        Raises
        ------
        NotFinite
            If a cell is NaN or infinite after the step of this number.
        """
        if self._test is None or self._domain is None:
            return change
        answers = self._answers if self._nodes is None else self._nodes.answers(self._answers)
        self._test.check(answers, self._domain, number)
        return self._test.change(answers) if self._is_compared else change


class GridByPlanes:
    """Steps of a plan on a grid whose blocks lie in host memory.

    Parameters
    ----------
    context : RunContext
        The pass.
    steps : GridSteps
        What runs steps on patches.
    grid : GridShape
        The grid.
    budget : int
        The bytes of a device's memory that a range of planes may take, with all that is computed of it.
    nodes : NodePlanes, optional
        The other nodes that have blocks of the grid.
    """

    def __init__(self, context: RunContext, steps: GridSteps, grid: GridShape, budget: int,
                 nodes: NodePlanes | None = None):
        self._context, self._steps, self._budget, self._nodes = context, steps, budget, nodes
        self._lattice, self._axis = lattice_of(grid), 3 - len(grid.shape)
        self._boxes = (whole(self._lattice.shape),) if nodes is None else nodes.boxes
        self._most, self._axes = lifted(grid.ghosts or grid.halo, 0), len(grid.shape)
        self._halos: tuple[Halo, ...] = ()

    def exchange(self, step: ExchangeStep) -> None:
        """Record an exchange, for the stencil behind it."""
        self._halos = step.halos

    def stencil(self, step: StencilStep, values: Sequence[Partition]) -> list[Partition]:
        """Compute a stencil, and return the partitions with the resulting blocks, in host memory.

        Raises
        ------
        OutOfMemory
            If the device has no room for the planes that one depends on, or host memory none for what comes out.
        SpillError
            If what comes out goes to a disk that fails.
        """
        halos, self._halos = self._halos, ()
        phase = Phase(step.label, halos, step.launch)
        return self._passed(partial(self._steps.stepped, phase, values), [phase], 1, values)

    def iterate(self, step: IterateStep, values: Sequence[Partition]) -> list[Partition]:
        """Run a loop, as :meth:`stencil` computes a stencil.

        Raises
        ------
        NotFinite
            If a cell that is asked about is NaN or infinite.
        """
        # Several steps at once take more ghost cells, for which there is less room here.
        plain = replace(step, together=(), stride=1, until=-1.0, check=0)
        before = step.done if step.counted < 0 else int(self._steps.context.arguments.number(step.counted))
        done, change = 0, -1.0
        while done < step.steps and not 0 <= change <= step.until:
            count = self._steps_at_once(step, values, _steps_to_test(step, done))
            tests = _Tests(self._steps, self._nodes, step, count, done + count)
            some = replace(plain, steps=count, done=step.done + done)
            values = self._passed(partial(self._steps.looped, some, values), step.phases, count, values, tests)
            done += count
            change = tests.outcome(before + done, change)
        self._steps.iterated.append(Iterated(done, change))
        return list(values)

    def _steps_at_once(self, step: IterateStep, values: Sequence[Partition], most: int) -> int:
        """Return the number of steps that all nodes do on planes while these are on their devices."""
        reach = self._reach(step.phases, 1)
        count = min([most, *[self._steps_of(step.phases, values, box, reach) for box in self._boxes]]) \
            if any(reach) else most
        while count > 1 and any(self._planes_at_once(step.phases, count, box, values)
                                <= 2 * count * reach[self._axis] for box in self._boxes):
            count //= 2
        return count if self._nodes is None else self._nodes.least(count)

    def _steps_of(self, phases: Sequence[Phase], values: Sequence[Partition], box: Box, reaches: Triple) -> int:
        """Return the number of steps that leave two thirds whole of the planes of a box that are on the device, one of
        which depends on as many cells as ``reaches`` says.
        """
        planes, shape = self._planes_at_once(phases, 1, box, values), self._lattice.shape
        counts = []
        for axis, (extent, reach) in enumerate(zip(box.shape, reaches, strict=True)):
            is_whole = extent == shape[axis]
            if reach and (axis == self._axis or not is_whole):
                extent = extent if axis != self._axis else planes if is_whole else min(planes, extent)
                counts.append(extent // (2 * _AROUND * reach))
        return max(1, min(counts, default=1))

    def _reach(self, phases: Sequence[Phase], steps: int) -> Triple:
        """Return on how many cells along each axis, on either side, the values after some steps depend."""
        widths = [[lifted(tuple(map(max, halo.below, halo.above)), 0) for halo in phase.halos] for phase in phases]
        return tuple(steps * sum(max([0, *[each[axis] for each in several]]) for several in widths) for axis in AXES)

    def _periodic(self, phases: Sequence[Phase]) -> tuple[bool, ...]:
        """Return for each axis whether a field is periodic along it."""
        sides = [halo.sides[::2] for phase in phases for halo in phase.halos]
        return (False,) * self._axis + tuple(any(each[axis].rule == PERIODIC for each in sides)
                                             for axis in range(self._axes))

    def _ghosts(self, phases: Sequence[Phase]) -> Triple:
        """Return the ghost cells of the patches: those that are read, or, where sides have values, as many as these."""
        halos = [halo for phase in phases for halo in phase.halos]
        if any(side.values >= 0 for halo in halos for side in halo.sides):
            return self._most
        widths = [lifted(each, 0) for halo in halos for each in (halo.below, halo.above)]
        return tuple(map(max, *widths)) if widths else (0, 0, 0)

    # -- one pass -----------------------------------------------------------------------------------------------------

    def _planes_at_once(self, phases: Sequence[Phase], steps: int, box: Box, values: Sequence[Partition]) -> int:
        """Return the number of planes of a box that the device has room for, with the cells beside them that some steps
        depend on: of each field that comes in, what comes in and the memory that it is copied from, of each that is
        computed two of these and the memory that it is copied to.
        """
        axis, ghosts, widths = self._axis, self._ghosts(phases), list(self._reach(phases, steps))
        widths[axis] = 0
        column = around(box.along(axis, 0, self._lattice.shape[axis]), tuple(widths), self._lattice.shape,
                        self._periodic(phases))
        layouts = [PatchLayout(each, ghosts) for each in column]
        beyond = 2 * ghosts[axis]
        cells = sum(layout.elements for layout in layouts) / (self._lattice.shape[axis] + beyond)
        read = sum(dtype.itemsize for dtype in fields_of(values).values())
        written = {each.name: np.dtype(each.dtype).itemsize for phase in phases
                   for each in self._steps.outputs(phase.launch)}
        return int(self._budget / (cells * (2 * read + 3 * sum(written.values())))) - beyond

    def _ranges(self, phases: Sequence[Phase], steps: int, values: Sequence[Partition]) -> Iterator[_Planes]:
        """Yield the planes of this node's boxes in ranges.

        Raises
        ------
        OutOfMemory
            If there is no room for one.
        """
        axis, widths, periodic = self._axis, self._reach(phases, steps), self._periodic(phases)
        for box in self._boxes:
            planes = self._planes_at_once(phases, steps, box, values)
            thickness = planes - 2 * widths[axis]
            if thickness < 1:
                raise OutOfMemory(f"{max(planes, 0)} planes of the grid fit {values[0].device.name} together with what "
                                  f"is computed of them, and one depends on {widths[axis]} on either side")
            for low in range(box.low[axis], box.high[axis], thickness):
                only = box.along(axis, low, min(low + thickness, box.high[axis]))
                yield _Planes(only, tuple(around(only, widths, self._lattice.shape, periodic)))

    def _passed(self, advance: Advance, phases: Sequence[Phase], steps: int, values: Sequence[Partition],
                tests: _Tests | None = None) -> list[Partition]:
        """Return the partitions after some steps, of all planes, at the end of which cells are asked."""
        devices, ghosts = list(dict.fromkeys(value.device for value in values)), self._ghosts(phases)
        ranges = list(self._ranges(phases, steps, values))
        held = list(self._held(values))
        if self._nodes is not None:
            held += self._nodes.exchanged(held, fields_of(values), self._reach(phases, steps), self._periodic(phases))
        results: list[Partition] = []
        for several in turns(devices, ranges):
            leaving = []        # what devices copy out, beside each other
            for device, planes in several:
                patches = tuple(Patch(Box((0, 0, 0), (0, 0, 0)), PatchLayout(box, ghosts), device)
                                for box in planes.boxes)
                domain = Domain(self._lattice, ghosts, patches, axes=self._axes, is_part=True)
                content = {name: self._copied_to_device(domain, name, dtype, held)
                           for name, dtype in fields_of(values).items()}
                after = advance(domain, content)
                results = results or self._reserved(after, values)
                if tests is not None:
                    tests.ask(domain, content, after, planes.only, values)
                leaving.append((device, self._copied_out(domain, after, planes, results)))
                for cells in (*content.values(), *after.values()):
                    for buffer in cells.buffers:
                        self._steps.context.recycle(buffer)
            for device, passing in leaving:
                device.synchronize(stream=self._steps.context.stream(device))
                for target, received in passing:
                    store(target, received)
            if tests is not None:
                tests.answered()
            self._steps.context.close()
            self._context.scratch.close()       # the next ranges may be of another size
            failpoint("wave-done")
        sync(array.host for value in results for array in value.arrays)
        return results

    def _copied_to_device(self, domain: Domain, name: str, dtype: np.dtype, held: Sequence[HeldCells]) -> Cells:
        """Copy the cells of a field to the device."""
        context, buffers = self._steps.context, []
        for patch in domain.patches:
            layout, device = patch.layout, patch.device
            buffer = context.allocate(layout.elements * dtype.itemsize, device)
            buffer.ghosts = None
            copies, staged = [*self._emptied(buffer, layout, dtype)], []
            for box, array in held:
                shared = box.shared(layout.box)
                if array.field.name == name and shared.size:
                    cells = self._cells(box, array, shared)
                    staged.append(context.allocate(cells.nbytes, device))
                    device.copy_in(staged[-1], cells, stream=context.stream(device))
                    copies.append(copy_between((staged[-1].address, PackedLayout(shared, (0, 0, 0))),
                                               (buffer.address, layout), shared, dtype.itemsize))
            context.copy(device, copies)
            for upload in staged:
                context.recycle(upload)
            buffers.append(buffer)
        return Cells(dtype, tuple(buffers))

    def _cells(self, box: Box, array: HeldArray, shared: Box) -> np.ndarray:
        """Return some cells (uint8) of an array in host memory, without a copy if they are whole planes of it."""
        axis = self._axis
        rows = array.rows(shared.low[axis] - box.low[axis], shared.high[axis] - box.low[axis])
        within = box.along(axis, shared.low[axis], shared.high[axis])
        assert rows.host is not None
        return rows.host if within == shared else packed_cells([(within, rows)], shared, np.dtype(array.field.dtype))

    def _emptied(self, buffer: Buffer, layout: PatchLayout, dtype: np.dtype) -> Iterator[Copy]:
        """Yield copies of zeros to the ghost cells at both ends of axes that a patch may have a part of, which may stay
        what they are.
        """
        outer = layout.box.grown(layout.ghosts, layout.ghosts)
        zeros = self._steps.context.pattern(buffer.device, bytes(dtype.itemsize))
        for axis in AXES:
            if axis != self._axis and layout.box.shape[axis] == self._lattice.shape[axis]:
                continue
            for low, high in ((outer.low[axis], layout.box.low[axis]), (layout.box.high[axis], outer.high[axis])):
                box = outer.along(axis, low, high)
                if box.size:
                    yield Copy(zeros.address, buffer.address + layout.element(box.low) * dtype.itemsize, (0, 0, 0),
                               layout.strides, box.shape, dtype.itemsize)

    def _held(self, values: Sequence[Partition]) -> Iterator[HeldCells]:
        """Yield the arrays of partitions' blocks, with their cells."""
        for value in values:
            for number, block in zip(value.positions, value.blocks, strict=True):
                for array in block:
                    yield self._lattice.block(position(self._lattice, number)), array

    # -- what comes out -----------------------------------------------------------------------------------------------

    def _reserved(self, after: Mapping[str, Cells], values: Sequence[Partition]) -> list[Partition]:
        """Return the partitions with memory below the device, into which the results of all planes are copied."""
        reserved, tiers, place = [], self._context.names.tiers, self._context.place_below
        for value in values:
            blocks = []
            for number in value.positions:
                shape = self._lattice.block(position(self._lattice, number)).shape[self._axis:]
                fields = [Field(name, cells.dtype.str, shape) for name, cells in after.items()]
                memory = tiers.reserve(sum(aligned(field_bytes(field)) for field in fields), place=place)
                ends = np.cumsum([aligned(field_bytes(field)) for field in fields]).tolist()
                starts = [0, *ends[:-1]]
                blocks.append(tuple([HeldArray(field, host=memory[start:start + field_bytes(field)])
                                     for field, start in zip(fields, starts, strict=True)]))
            reserved.append(value.with_blocks(blocks))
        return reserved

    def _copied_out(self, domain: Domain, after: Mapping[str, Cells], planes: _Planes,
                    results: Sequence[Partition]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Copy a range's planes out to the blocks, without waiting for it; return where to store what, behind that."""
        context, patch = self._steps.context, domain.patches[0]
        device, copies, staged = patch.device, list[Copy](), list[tuple[Buffer, HeldArray]]()
        for name, cells in after.items():
            size = cells.dtype.itemsize
            for box, array in self._held(results):
                shared = box.shared(planes.only)
                if array.field.name == name and shared.size:
                    rows = array.rows(shared.low[self._axis] - box.low[self._axis],
                                      shared.high[self._axis] - box.low[self._axis])
                    buffer = context.allocate(rows.nbytes, device)
                    staged.append((buffer, rows))
                    copies.append(copy_between((cells.buffers[0].address, patch.layout),
                                               (buffer.address, PackedLayout(shared, (0, 0, 0))), shared, size))
        context.copy(device, copies)
        passing = list[tuple[np.ndarray, np.ndarray]]()
        for buffer, rows in staged:
            assert rows.host is not None
            target = rows.host
            if spilled(target) is not None:
                target = np.empty(rows.nbytes, np.uint8)
                passing.append((rows.host, target))
            device.copy_out(target, buffer, stream=context.stream(device))
            context.recycle(buffer)
        return passing
