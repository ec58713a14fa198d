"""Plans on grids, as a worker runs them: what is held under a number between them, and given back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from gpu_worker.device.memory.grid.boxes import Lattice, whole
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Halo, IterateStep, Phase, Side, StencilStep, WindowStep
from gpu_worker.protocol.messages import (
    ExecStep,
    FetchStep,
    Field,
    In,
    Input,
    KeepStep,
    Launch,
    LoadStep,
    Module,
    Out,
    Plan,
    PutStep,
    Release,
    ScalarArgument,
    Signature,
    StencilLaunch,
    Step,
    ToDeviceStep,
    ToHostStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload, aligned
from tests.unit.plans import Bench, bench

GRID = GridShape((7, 10), (2, 3), (1, 1))
LATTICE = Lattice((1, 7, 10), (1, 2, 3))

SOURCE = """
struct vp_region { long long pitch, plane; int low[3], high[3]; long long origin[3], shape[3]; };
extern "C" __global__ void spread(const float* u, float* out, const vp_region r, float k)
{
    const int x = r.low[2] + blockIdx.x * blockDim.x + threadIdx.x, y = r.low[1] + blockIdx.y;
    if (x >= r.high[2]) return;
    const float* at = u + y * r.pitch + x;
    out[y * r.pitch + x] = at[0] + k * (at[-1] + at[1] + at[-r.pitch] + at[r.pitch] - 4 * at[0]);
}
extern "C" __global__ void raw(const float* in, float* out, int rows, int columns)
{
    const int x = threadIdx.x + 1, y = blockIdx.x + 1;
    if (x < columns - 1 && y < rows - 1)
        out[y * columns + x] = in[(y - 1) * columns + x] + in[y * columns + x + 1];
}
"""

HALO = Halo("", (1, 1), (1, 1), (Side("given", np.float32(5).tobytes(), -1), Side("mirrored", b"", -1),
                                 Side("periodic", b"", -1), Side("periodic", b"", -1)))
SPREAD = StencilLaunch(0, "spread", ("",), (Field("", "<f4", ()),), (ScalarArgument("<f4", np.float32(0.1).tobytes()),),
                       (1, 1),
                       (1, 1), (32, 1, 1), (32, 1, 1), 0, True)


class GridBench:
    """A worker, and a grid of which every partition has two blocks."""

    def __init__(self, worker: Bench):
        self.worker = worker
        self.positions = [(0, 3), (5, 1), (2, 4)]

    def blocks(self, full: np.ndarray, partition: int) -> list[np.ndarray]:
        boxes = [LATTICE.block(list(whole(LATTICE.splits))[number]) for number in self.positions[partition]]
        return [np.ascontiguousarray(full[box.low[1]:box.high[1], box.low[2]:box.high[2]]) for box in boxes]

    def put(self, vrdd: int, full: np.ndarray) -> None:
        for partition, positions in enumerate(self.positions):
            blocks = self.blocks(full, partition)
            variants = [Variant(Signature((Field("", block.dtype.str, block.shape),)), (), (b"",), (-1,))
                        for block in blocks]
            item = Input(partition, 2, 0, 0, b"", (0, 1), positions)
            plan = Plan((PutStep(), ToDeviceStep(), KeepStep(0, "u", "device")), (), tuple(variants), (item,), (),
                        grid=GRID)
            with Payload.create(sum(aligned(block.nbytes) for block in blocks)) as payload:
                payload.put(0, blocks[0])
                payload.put(aligned(blocks[0].nbytes), blocks[1])
                self.worker.run(plan, (vrdd,), descriptors=[payload.release()])

    def plan(self, *steps: Step, launches: Sequence[Launch] = ()) -> Plan:
        """Return a plan from what is held on, with a launch for each block where it has one."""
        keeps = sum(isinstance(step, KeepStep) for step in steps)
        shapes = [block.shape for partition in range(3) for block in self.blocks(np.zeros((7, 10), "f4"), partition)]
        variants = tuple(Variant(Signature((Field("", "<f4", shape),)), tuple(launches[number:number + 1]),
                                 (b"",) * keeps, (-1,) * keeps) for number, shape in enumerate(shapes))
        inputs = tuple(Input(partition, 2, 0, 0, b"", (2 * partition, 2 * partition + 1), positions)
                       for partition, positions in enumerate(self.positions))
        return Plan((LoadStep(0), *steps), (Module(SOURCE, "test.cu", (), (), ()),), variants, inputs, (), GRID,
                    (SPREAD,))

    def fetch(self, vrdd: int, *steps: Step, launches: Sequence[Launch] = ()) -> np.ndarray:
        """Return the whole field behind some steps."""
        reply, data = self.worker.run(self.plan(*steps, FetchStep(-1, "blocks"), launches=launches), (vrdd,))
        full = np.full((7, 10), -1, "f4")
        for output in reply.outputs:
            offset = output.offset
            for number in self.positions[output.partition]:
                box = LATTICE.block(list(whole(LATTICE.splits))[number])
                shape = box.shape[1:]
                cells = data.field(Field("", "<f4", shape), offset)
                full[box.low[1]:box.high[1], box.low[2]:box.high[2]] = cells
                offset += aligned(cells.nbytes)
        return full


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def grid(request: pytest.FixtureRequest, tmp_path) -> Iterator[GridBench]:
    with bench(tmp_path, request.param) as worker:
        yield GridBench(worker)


@pytest.fixture
def full() -> np.ndarray:
    return np.random.default_rng(3).random((7, 10), "f4")


def around(full: np.ndarray) -> np.ndarray:
    """Return the field with ghost cells as HALO says."""
    tall = np.concatenate([np.full((1, 10), 5, "f4"), full, full[-1:]])
    return np.concatenate([tall[:, -1:], tall, tall[:, :1]], 1)


def spread(full: np.ndarray, steps: int = 1) -> np.ndarray:
    for _ in range(steps):
        u = around(full)
        full = full + np.float32(0.1) * (u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * full)
    return full


def test_a_step_is_kept_and_the_one_before_does_not_change(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    for vrdd in range(1, 5):
        grid.worker.run(grid.plan(ExchangeStep("exchange", (HALO,)), StencilStep("spread", 0),
                                  KeepStep(1, "u", "device")),
                        (vrdd, vrdd + 1))
    for vrdd in range(1, 6):
        np.testing.assert_allclose(grid.fetch(vrdd), spread(full, vrdd - 1), rtol=1e-6)


def test_several_steps_in_a_plan_and_a_loop(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    step = ExchangeStep("exchange", (HALO,)), StencilStep("spread", 0)
    np.testing.assert_allclose(grid.fetch(1, *step, *step, *step), spread(full, 3), rtol=1e-6)
    loop = IterateStep("loop", (Phase("spread", (HALO,), 0),), 50, 0, -1.0, 1, 0)
    np.testing.assert_allclose(grid.fetch(1, loop), spread(full, 50), rtol=1e-5)
    np.testing.assert_array_equal(grid.fetch(1), full)


def test_a_loop_tells_how_it_ended(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    loop = IterateStep("loop", (Phase("spread", (HALO,), 0),), 500, 0, 0.01, 10, 0)
    reply, _ = grid.worker.run(grid.plan(loop, KeepStep(1, "u", "device")), (1, 2))
    ended, = reply.iterated
    assert ended.steps % 10 == 0 and 0 < ended.steps < 500 and ended.change <= 0.01
    np.testing.assert_allclose(grid.fetch(2), spread(full, ended.steps), rtol=1e-4)


@pytest.mark.parametrize(("steps", "done", "until", "every", "check", "sweeps"), [
    (7, 0, -1.0, 1, 0, 3 * 3 + 1),          # three times two steps, and one
    (7, 4, 0.0, 5, 0, 1 + 2 * 3 + 2),       # numbered from 5: 5 is compared, 6 to 9 are free, 10 is compared; 11
    (4, 0, 0.0, 2, 0, 4), (6, 0, -1.0, 1, 3, 2 * (3 + 1))])
def test_several_steps_at_once_end_where_something_is_asked(grid: GridBench, full: np.ndarray, steps, done, until,
                                                            every, check, sweeps):
    phase = Phase("spread", (HALO,), 0)
    # Three sweeps that count as two steps tell how often they were done.
    loop = IterateStep("loop", (phase,), steps, done, until, every, check, (phase,) * 3, 2)
    grid.put(1, full)
    np.testing.assert_allclose(grid.fetch(1, loop), spread(full, sweeps), rtol=1e-5)


def test_results_go_to_host_memory(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    grid.worker.run(grid.plan(ExchangeStep("exchange", (HALO,)), StencilStep("spread", 0), ToHostStep(),
                              KeepStep(1, "u", "host")),
                    (1, 2))
    np.testing.assert_allclose(grid.fetch(2), spread(full), rtol=1e-6)
    np.testing.assert_allclose(grid.fetch(2, ExchangeStep("exchange", (HALO,)), StencilStep("spread", 0)),
                               spread(full, 2),
                               rtol=1e-6)


def test_kernels_of_others_see_ghosts_and_write_none(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    launches = []
    for partition in range(3):
        for block in grid.blocks(full, partition):
            rows, columns = (extent + 2 for extent in block.shape)
            launches.append(Launch((rows - 2,), (32,), 0, (
                In(""), Out(""), ScalarArgument("<i4", np.int32(rows).tobytes()),
                                                           ScalarArgument("<i4", np.int32(columns).tobytes())),
                (Field("", "<f4", (rows, columns)),), kernel="raw"))
    u = around(full)
    expected = u[:-2, 1:-1] + u[1:-1, 2:]
    exchange = ExchangeStep("exchange", (HALO,))
    np.testing.assert_allclose(grid.fetch(1, exchange, ExecStep("raw"), launches=launches), expected, rtol=1e-6)
    np.testing.assert_allclose(
        grid.fetch(1, exchange, ExecStep("raw"), exchange, StencilStep("spread", 0), launches=launches),
                               spread(expected),
        rtol=1e-5)


def test_a_window_is_plain_blocks(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    plan = grid.plan(WindowStep((1, 0), (6, 10), (2, 3)), FetchStep(-1, "blocks"))
    reply, data = grid.worker.run(plan, (1,))
    flattened = []
    for output in reply.outputs:
        offset = output.offset
        for number in grid.positions[output.partition]:
            box = LATTICE.block(list(whole(LATTICE.splits))[number])
            ys = [y for y in range(1, 6, 2) if box.low[1] <= y < box.high[1]]
            xs = [x for x in range(0, 10, 3) if box.low[2] <= x < box.high[2]]
            cells = data.field(Field("", "<f4", (len(ys), len(xs))), offset)
            np.testing.assert_array_equal(cells, full[np.ix_(ys, xs)])
            flattened += cells.reshape(-1).tolist()
            offset += aligned(cells.nbytes)
    assert sorted(flattened) == sorted(full[1:6:2, ::3].reshape(-1).tolist())


def test_memory_of_a_loop_of_plans_stays_what_it_is(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    used = []
    for vrdd in range(1, 40):
        grid.worker.run(grid.plan(ExchangeStep("exchange", (HALO,)), StencilStep("spread", 0),
                                  KeepStep(1, "u", "device")),
                        (vrdd, vrdd + 1))
        grid.worker.process.handle(Release(0, (vrdd,)), [])
        used.append(grid.worker.process.report().memory[0].used)
    # Memory for two states, and tables, once it was seen that it is a loop.
    assert len(set(used[6:])) == 1 and used[-1] < 4 * used[0]
    np.testing.assert_allclose(grid.fetch(40), spread(full, 39), rtol=1e-4)
    grid.worker.process.handle(Release(0, (40,)), [])
    assert grid.worker.process.report().memory[0].used == 0


def test_what_fails_leaves_all_as_it_was(grid: GridBench, full: np.ndarray):
    grid.put(1, full)
    exchange = ExchangeStep("exchange", (HALO,))
    np.testing.assert_allclose(grid.fetch(1, exchange, StencilStep("spread", 0)), spread(full), rtol=1e-6)
    used = grid.worker.process.report().memory[0].used
    with pytest.raises(PlanError, match="stencil 7"):
        grid.worker.run(grid.plan(exchange, StencilStep("spread", 7)), (1,))
    assert grid.worker.process.report().memory[0].used == used
    np.testing.assert_allclose(grid.fetch(1, exchange, StencilStep("spread", 0)), spread(full), rtol=1e-6)
