"""Loops on several devices that work as late as they may: no cell is computed before its ghosts are there."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import flow, heat, overlap
from benchmarks.overlap import Solver
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.memory.grid.boxes import device_of_blocks
from gpu_worker.device.memory.grid.patches import Cells, Domain, lattice_of, number_of
from gpu_worker.execution.grid.context import GridContext
from gpu_worker.execution.grid.iterate import Loop, Stepper
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from tests.unit.late import LateDevice

pytestmark = pytest.mark.slow

#: Both are long enough for devices to have several parts each: four planes and 128 rows are the most of one.
SOLVERS = [heat.solver(heat.Cube((51, 10, 12), (6, 2, 1), 5)), flow.solver(flow.Plane((1600, 24), (6, 1), 3))]


class Narrow(LateDevice):
    """One that works on five thread blocks at once, so that rounds of them are not even."""

    def side_by_side(self, kernel, threads: int, shared: int) -> int:
        return 5


def run(solver: Solver, count: int) -> dict[str, np.ndarray]:
    """Run a loop on some devices, and return the fields behind it."""
    devices = [Narrow(f"host:{number}", cache=KernelCache()) for number in range(count)]
    lowered, shape = overlap.lowered(solver), solver.grid.description.grid_shape
    lattice, streams = lattice_of(shape), Streams(StreamPool(devices), 1)
    scratch, arguments = Scratch(streams), Arguments(lowered.values, None)
    context = GridContext(streams, scratch, arguments)
    domain = Domain.of(shape, {number_of(lattice, at): devices[owner]
                               for at, owner in device_of_blocks(lattice, count).items()})
    rng, content = np.random.default_rng(5), {}
    for name, _ in solver.grid.fields or (("", ""),):
        full, buffers = rng.random(lattice.shape, np.float32), []
        for patch in domain.patches:
            buffer = context.allocate(4 * patch.layout.elements, patch.device)
            memory = np.full(patch.layout.elements, np.nan, np.float32)
            patch.layout.view(memory)[:] = full[tuple(map(slice, patch.layout.box.low, patch.layout.box.high))]
            patch.device.copy_in(buffer, memory.view(np.uint8), stream=context.stream(patch.device))
            patch.device.synchronize(stream=context.stream(patch.device))
            buffers.append(buffer)
        content[name] = Cells(np.dtype(np.float32), tuple(buffers))
    stepper = Stepper(domain, content, context)
    Loop(lowered.step, lowered.kernels, stepper, lambda: None).run()
    result = {name: np.empty(lattice.shape, np.float32) for name in content}
    for name, cells in stepper.content.items():
        for patch, buffer in zip(domain.patches, cells.buffers, strict=True):
            memory = np.empty(patch.layout.elements, np.float32)
            patch.device.copy_out(memory.view(np.uint8), buffer, stream=context.stream(patch.device))
            patch.device.synchronize(stream=context.stream(patch.device))
            result[name][tuple(map(slice, patch.layout.box.low, patch.layout.box.high))] = patch.layout.view(memory)
    return result


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_three_devices_give_the_bits_of_one(solver: Solver):
    one, three = run(solver, 1), run(solver, 3)
    for name, cells in one.items():
        assert np.isfinite(cells).all()
        np.testing.assert_array_equal(cells, three[name])
