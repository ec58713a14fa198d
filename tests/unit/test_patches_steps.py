"""Grid steps on devices of this machine's CPU: one, and two that exchange with each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_worker.device import open_devices
from gpu_worker.device.base import Device, Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.device import HostDevice
from gpu_worker.device.memory.grid.boxes import Box, Lattice, whole
from gpu_worker.device.memory.grid.ghosts import GIVEN, MIRRORED, PERIODIC
from gpu_worker.device.memory.grid.patches import lattice_of, number_of
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.null import NullDevice
from gpu_worker.execution.grid.context import GridContext
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.grid.stencils import MOST_BLOCKS, grid_of, launched
from gpu_worker.execution.grid.steps import GridSteps
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.scheduling.progress import Progress
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.errors import NotFinite, PlanError
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Halo, IterateStep, Phase, Side, StencilStep, WindowStep
from gpu_worker.protocol.messages import ArgumentValue, ArrayArgument, Field, ScalarArgument, StencilLaunch
from gpu_worker.system.crash_record import CrashRecorder
from tests.unit.grids import AXES, CutGrid, cases, padded, triples

pytestmark = pytest.mark.slow

REGION = "struct vp_region { long long pitch, plane; int low[3], high[3]; long long origin[3], shape[3]; };\n"

#: Sums a cell with the cells up to some widths away, weighted so that no two neighbours count alike; writes the cell's
#: number beside it.
SOURCE = Source(REGION + """
extern "C" __global__ void around(const double* u, double* out, const vp_region r, const int* widths, double weight)
{
    const int x = r.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    const int y = r.low[1] + blockIdx.y, z = r.low[0] + blockIdx.z;
    if (x >= r.high[2]) return;
    double sum = 0;
    for (int dz = -widths[0]; dz <= widths[0]; dz++)
        for (int dy = -widths[1]; dy <= widths[1]; dy++)
            for (int dx = -widths[2]; dx <= widths[2]; dx++)
                sum += weight * (1 + dx + 7 * dy + 49 * dz) * u[(z + dz) * r.plane + (y + dy) * r.pitch + x + dx];
    out[z * r.plane + y * r.pitch + x] = sum;
}
""", file="around.cu")


def launch(case: CutGrid, weight: float) -> StencilLaunch:
    return StencilLaunch(0, "around", ("u",), (Field("u", "<f8", ()),),
                         (ArrayArgument(0), ScalarArgument("<f8", np.float64(weight).tobytes())), case.widths,
                         case.widths,
                         (32, 1, 1), (32, 1, 1), 0, True)


class Machine:
    """Some host devices, and one plan's working place on them."""

    def __init__(self, devices: Sequence[Device], box: CrashRecorder, case: CutGrid, values: Sequence[np.ndarray] = ()):
        self.devices, self.case = devices, case
        self._used = [device.memory().used for device in devices]
        self.streams = Streams(StreamPool(devices), 1)
        self.scratch = Scratch(self.streams)
        progress = Progress(box, "test", 1e9)
        constants = [ArgumentValue(value.dtype.str, value.shape, value.tobytes(), 0)
                     for value in (np.array(case.widths, "i4"), *values)]
        self.arguments = Arguments(constants, None)
        self.grid = GridShape(case.lattice.shape, case.lattice.splits, case.widths)
        self.steps = GridSteps(Grids(), self.grid, [launch(case, 0.01)], lambda module: SOURCE,
                               GridContext(self.streams, self.scratch, self.arguments), progress)
        self.values: list[Partition] = []

    def put(self, full: np.ndarray) -> None:
        """Put each block in a partition of its own, on the device that owns it."""
        for number, (at, owner) in enumerate(zip(whole(self.case.lattice.splits), self.case.owners, strict=True)):
            box, device = self.case.lattice.block(at), self.devices[owner % len(self.devices)]
            assert number == number_of(self.case.lattice, at)
            cells = np.ascontiguousarray(full[tuple(map(slice, box.low, box.high))])
            buffer = device.allocate(cells.nbytes, stream=device.stream())
            device.copy_in(buffer, cells.reshape(-1).view("u1"), stream=device.stream())
            block = (HeldArray(Field("u", full.dtype.str, cells.shape), buffer=buffer),)
            self.values.append(Partition(number, 1, None, b"", [block], device, positions=(number,)))

    def become(self, blocks) -> None:
        """Go on with other blocks."""
        after = [value.with_blocks([blocks[value.index, 0]]) for value in self.values]
        for value in self.values:
            value.close(lambda buffer: self.scratch.recycle(buffer, self.streams.main(buffer.device)))
        self.values = after

    def replaced(self, arrays) -> list[Partition]:
        return [value.replacing(arrays) for value in self.values]

    def get(self) -> np.ndarray:
        """Return the whole field."""
        full = np.zeros(self.case.lattice.shape, self.values[0].blocks[0][0].field.dtype)
        flat = self.replaced(self.steps.flattened(self.values))
        for value in flat:
            box = self.case.lattice.block(list(whole(self.case.lattice.splits))[value.index])
            cells = np.empty(box.shape, full.dtype)
            value.device.copy_out(cells.reshape(-1).view("u1"), value.blocks[0][0].buffer,
                                  stream=self.streams.main(value.device))
            full[tuple(map(slice, box.low, box.high))] = cells
            value.close()
        return full

    def over(self, arrays) -> list[Partition]:
        """Return the values with some arrays exchanged for others; those before are closed."""
        after = self.replaced(arrays)
        for value in self.values:
            value.close()
        return after

    def cells(self, value: Partition) -> np.ndarray:
        """Return a partition's block, which is contiguous."""
        array = value.blocks[0][0]
        cells = np.empty(array.field.shape, array.field.dtype)
        value.device.copy_out(cells.reshape(-1).view("u1"), array.buffer, stream=self.streams.main(value.device))
        return cells

    def fail(self) -> None:
        """Give back all that was allocated, as a step has failed."""
        for value in self.values:
            value.close()
        self.steps.close()
        self.scratch.close()
        self.scratch.discard()
        self.streams.close()

    def close(self) -> None:
        for value in self.values:
            value.close()
        self.steps.close()
        self.arguments.close()
        self.scratch.close()
        self.streams.close()
        assert [device.memory().used for device in self.devices] == self._used


def halo(case: CutGrid, values: bool) -> Halo:
    sides = []
    for axis, side in itertools.product(AXES, (0, 1)):
        fixed = case.rules[axis][side] == GIVEN
        value = np.float64(case.fixed[axis][side]).tobytes() if fixed else b""
        sides.append(Side(case.rules[axis][side], value, 1 + 2 * axis + side if fixed and values else -1))
    return Halo("u", case.widths, case.widths, tuple(sides))


def slabs(case: CutGrid) -> list[np.ndarray]:
    return [np.ascontiguousarray(case.given(axis, side)).astype("f8") for axis, side in itertools.product(AXES, (0, 1))]


def stepped(full: np.ndarray, case: CutGrid, steps: int,
            of: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
    """Return the cells of steps of the stencil, by NumPy; of absolute values and weights the size of what is summed."""
    for _ in range(steps):
        ghosts = of(padded(full, case))
        after = np.zeros_like(full)
        for offsets in itertools.product(*(range(-width, width + 1) for width in case.widths)):
            dz, dy, dx = offsets
            cut = tuple(slice(width + at, width + at + extent)
                        for at, width, extent in zip(offsets, case.widths, full.shape, strict=True))
            after += of(0.01 * (1 + dx + 7 * dy + 49 * dz)) * ghosts[cut]
        full = after
    return full


def assert_stepped(cells: np.ndarray, full: np.ndarray, case: CutGrid, steps: int) -> None:
    """Check that the cells are those of steps of the stencil, but for the rounding of some hundred terms a step, which
    may cancel out.
    """
    error = np.abs(cells - stepped(full, case, steps))
    assert (error <= 1e-12 * steps * stepped(full, case, steps, np.abs)).all()


@pytest.fixture(scope="module", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def devices(request: pytest.FixtureRequest) -> Iterator[Sequence[Device]]:
    """Three of this machine's CPU, or all GPUs."""
    opened = [HostDevice(f"host:{number}", cache=KernelCache()) for number in range(3)] \
        if request.param == "host" else open_devices("cuda")
    yield opened
    for device in opened:
        device.close()


@pytest.fixture(scope="module")
def box(tmp_path_factory) -> Iterator[CrashRecorder]:
    recorder = CrashRecorder(tmp_path_factory.mktemp("box") / "box", epoch=1)
    yield recorder
    recorder.close()


_SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(case=cases(), count=st.integers(1, 3), steps=st.integers(1, 5), looped=st.booleans(), seed=st.integers(0, 99))
@_SETTINGS
def test_steps_are_those_of_numpy(devices, box, case: CutGrid, count: int, steps: int, looped: bool, seed: int):
    full = np.random.default_rng(seed).random(case.lattice.shape)
    machine = Machine(devices[:count], box, case, slabs(case) if case.varied else ())
    machine.put(full)
    machine.become(machine.steps.assembled(machine.values))
    if looped:
        phase = Phase("around", (halo(case, case.varied),), 0)
        machine.become(machine.steps.iterate(IterateStep("loop", (phase,), steps, 0, -1.0, 1, 0), machine.values))
        assert machine.steps.iterated[0].steps == steps
    else:
        for _ in range(steps):
            machine.steps.exchange(ExchangeStep("exchange", (halo(case, case.varied),)))
            machine.become(machine.steps.stencil(StencilStep("around", 0), machine.values))
    assert_stepped(machine.get(), full, case, steps)
    machine.close()


def test_more_rows_than_a_launch_has_thread_blocks(devices, box):
    case = CutGrid(Lattice((2, 70_001, 2), (1, 2, 1)), (0, 1, 1), ((GIVEN, GIVEN),) * 3, ((0, 0),) * 3, False, (0, 0))
    machine = Machine(devices[:1], box, case)
    full = np.random.default_rng(3).random(case.lattice.shape)
    machine.put(full)
    machine.become(machine.steps.assembled(machine.values))
    machine.steps.exchange(ExchangeStep("exchange", (halo(case, False),)))
    machine.become(machine.steps.stencil(StencilStep("around", 0), machine.values))
    assert_stepped(machine.get(), full, case, 1)
    machine.close()


@given(low=triples(0, 9), shape=st.tuples(st.integers(0, 3 * MOST_BLOCKS), st.integers(0, 5 * MOST_BLOCKS),
                                          st.integers(0, 9)), tile=triples(1, 4))
@_SETTINGS
def test_launches_share_a_box_and_are_within_cudas_limits(low, shape, tile):
    box = Box(low, tuple(map(sum, zip(low, shape, strict=True))))
    parts = list(launched(box, tile))
    assert all(max(grid_of(part.shape, tile)[1:]) <= MOST_BLOCKS for part in parts)
    assert sum(part.size for part in parts) == box.size
    assert all(one == other or not one.shared(other).size for one in parts for other in parts)
    assert all(part.shared(box) == part for part in parts)


class Apart(HostDevice):
    """A device whose kernels reach its own memory only."""

    def reaches(self, other: Device) -> bool:
        return other is self


CASE = CutGrid(Lattice((12, 9, 10), (2, 3, 2)), (2, 1, 3), ((PERIODIC,) * 2, (MIRRORED, GIVEN), (GIVEN, MIRRORED)),
               tuple((-10 - axis, -20 - axis) for axis in AXES), False, tuple(range(12)))


def loop(case: CutGrid, steps: int, *, until: float = -1.0, every: int = 1, done: int = 0, check: int = 0
         ) -> IterateStep:
    return IterateStep("loop", (Phase("around", (halo(case, False),), 0),), steps, done, until, every, check)


def test_devices_without_access_to_each_other(box):
    devices = [Apart(f"host:{number}", cache=KernelCache()) for number in range(3)]
    full = np.random.default_rng(1).random(CASE.lattice.shape)
    machine = Machine(devices, box, CASE)
    machine.put(full)
    machine.become(machine.steps.assembled(machine.values))
    machine.become(machine.steps.iterate(loop(CASE, 4), machine.values))
    assert_stepped(machine.get(), full, CASE, 4)
    machine.close()
    for device in devices:
        device.close()


def test_one_patch_gives_the_bits_of_many(devices, box):
    full, results = np.random.default_rng(1).random(CASE.lattice.shape), []
    for case in (CASE, replace(CASE, lattice=Lattice(CASE.lattice.shape, (1, 1, 1)), owners=(0,))):
        machine = Machine(devices, box, case)
        machine.put(full)
        machine.become(machine.steps.assembled(machine.values))
        machine.become(machine.steps.iterate(loop(case, 7), machine.values))
        results.append(machine.get())
        machine.close()
    np.testing.assert_array_equal(*results)


def test_a_loop_ends_when_cells_change_little(devices, box):
    full = np.random.default_rng(2).random(CASE.lattice.shape)
    case = replace(CASE, widths=(0, 0, 1))
    changes = [np.abs(stepped(full, case, step) - stepped(full, case, step - 1)).max() for step in range(1, 12)]
    until = changes[7] * 1.001
    expected = next(step for step in range(1, 12) if (step + 1) % 3 == 0 and changes[step - 1] <= until)
    machine = Machine(devices[:2], box, case)
    machine.put(full)
    machine.become(machine.steps.assembled(machine.values))
    machine.become(machine.steps.iterate(loop(case, 11, until=until, every=3, done=1), machine.values))
    ended = machine.steps.iterated[0]
    assert ended.steps == expected
    assert ended.change == pytest.approx(changes[expected - 1])
    machine.close()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_cell_that_is_not_finite_is_found(devices, box, value: float):
    case = replace(CASE, widths=(0, 0, 0), rules=((GIVEN, GIVEN),) * 3)
    full = np.ones(case.lattice.shape)
    full[7, 4, 9] = value
    machine = Machine(devices[:2], box, case)
    machine.put(full)
    machine.become(machine.steps.assembled(machine.values))
    with pytest.raises(NotFinite, match=r"cell \(7, 4, 9\) of u, in block \(1, 1, 1\), is NaN or inf.* step 2"):
        machine.steps.iterate(loop(case, 5, check=2), machine.values)
    machine.fail()


def test_a_loop_holds_two_buffers_for_each_field(devices, box):
    machine = Machine(devices[:1], box, replace(CASE, owners=(0,) * 12))
    machine.put(np.zeros(CASE.lattice.shape))
    machine.become(machine.steps.assembled(machine.values))
    size, used = machine.values[0].blocks[0][0].buffer.nbytes, devices[0].memory().used
    machine.become(machine.steps.iterate(loop(CASE, 200), machine.values))
    assert devices[0].memory().used - used < 2 * size + 100_000
    machine.get()
    machine.close()


def test_after_a_step_or_two_a_device_alone_launches_the_stencil_only(box):
    device = NullDevice()
    case = replace(CASE, owners=(0,) * 12, rules=((GIVEN, GIVEN),) * 3)
    machine = Machine([device], box, case)
    machine.put(np.zeros(case.lattice.shape))
    machine.become(machine.steps.assembled(machine.values))
    device.calls.clear()
    machine.become(machine.steps.iterate(loop(case, 50), machine.values))
    launched = [call[1] for call in device.calls if call[0] == "launch"]
    assert launched.count("around") == 50
    assert launched.count("copy_boxes") <= 3                        # the sides of the first patch and of two of ours
    machine.close()


def test_interiors_are_computed_while_halos_travel(box):
    devices = NullDevice("null:0"), NullDevice("null:1")
    case = replace(CASE, owners=(0,) * 6 + (1,) * 6, rules=((GIVEN, GIVEN),) * 3)
    machine = Machine(devices, box, case)
    machine.put(np.zeros(CASE.lattice.shape))
    machine.become(machine.steps.assembled(machine.values))
    machine.become(machine.steps.iterate(loop(case, 4), machine.values))
    calls = [call[0] if call[0] != "launch" else (call[1], int(call[4][2]["high"][0] - call[4][2]["low"][0]))
             if call[1] == "around" else call[1] for call in devices[0].calls if call[0] in ("launch", "wait")]
    # Two waits of the stream for copies, that of the rim for the ghosts, those for the rim and for the copies' source.
    step = ["wait", "wait", "copy_boxes", ("around", 4), "wait", ("around", 2), "wait", "wait"]
    assert calls[-len(step):] == step
    machine.close()


@given(st.data())
@_SETTINGS
def test_windows_are_slices(devices, box, data: st.DataObject):
    full = np.arange(np.prod(CASE.lattice.shape), dtype="i4").reshape(CASE.lattice.shape)
    cut = [data.draw(st.tuples(st.integers(0, extent), st.integers(0, extent), st.integers(1, 4)))
           for extent in full.shape]
    machine = Machine(devices, box, CASE)
    machine.put(full)
    if data.draw(st.booleans()):
        machine.become(machine.steps.assembled(machine.values))
    machine.values = machine.over(machine.steps.window(WindowStep(*zip(*cut, strict=True)), machine.values))
    for value, at in zip(machine.values, whole(CASE.lattice.splits), strict=True):
        box_of = CASE.lattice.block(at)
        chosen = [np.intersect1d(np.arange(*one), np.arange(low, high))
                  for one, low, high in zip(cut, box_of.low, box_of.high, strict=True)]
        np.testing.assert_array_equal(machine.cells(value), full[np.ix_(*chosen)])
    machine.close()


def test_kernels_of_others_get_blocks_with_their_ghosts(devices, box):
    full = np.random.default_rng(1).random(CASE.lattice.shape)
    machine = Machine(devices, box, CASE)
    machine.put(full)
    machine.become(machine.steps.assembled(machine.values))
    machine.steps.exchange(ExchangeStep("exchange", (halo(CASE, False),)))
    machine.steps.flush_exchange(machine.values)
    machine.values = machine.over(machine.steps.padded(machine.values))
    ghosts = padded(full, CASE)
    for value, at in zip(machine.values, whole(CASE.lattice.splits), strict=True):
        box_of = CASE.lattice.block(at)
        around = tuple(slice(low, high + 2 * width)
                       for low, high, width in zip(box_of.low, box_of.high, CASE.widths, strict=True))
        np.testing.assert_array_equal(machine.cells(value), ghosts[around])
    machine.values = machine.over(machine.steps.unpadded(machine.values))
    np.testing.assert_array_equal(machine.get(), full)
    machine.close()


def test_bad_grids_are_refused(devices, box):
    for shape, splits, widths in (((4, 4), (5, 1), (0, 0)), ((4, 4), (2, 1), (3, 0)), ((4,), (1, 1), (1,)),
                                  ((4, 4, 4, 4), (1,) * 4, (1,) * 4), ((4,), (0,), (0,)), ((100,), (1,), (40,))):
        with pytest.raises(PlanError):
            lattice_of(GridShape(shape, splits, widths))
    machine = Machine(devices, box, CASE)
    machine.put(np.zeros(CASE.lattice.shape))
    wide = replace(halo(CASE, False), below=(3, 1, 3))
    machine.become(machine.steps.assembled(machine.values))
    machine.steps.exchange(ExchangeStep("exchange", (wide,)))
    with pytest.raises(PlanError, match="more than the grid's halo"):
        machine.steps.flush_exchange(machine.values)
    machine.values[0].positions = (5,)
    with pytest.raises(PlanError, match="same place"):
        machine.steps.assembled(machine.values)
    machine.close()
