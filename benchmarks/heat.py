"""Steps of the heat equation in three dimensions, every way that one would try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext

from benchmarks import peers, solvers, tasks
from benchmarks.blocks import Stepping, ways
from benchmarks.halos import HaloStrips, heated
from benchmarks.overlap import Solver
from benchmarks.regression import Settings
from benchmarks.results import Group
from benchmarks.solvers import OURS, Arrays, Jobs, Problem, Way
from gpu_worker.device.base import Device, Source
from vispark import VRDD, Grid, stencil

LISTING = "vispark: halo_extract, halo_shuffle, halo_append, vmap"
LOOPS = {"plain": "bare CUDA loop, a cell a thread", "marching": "bare CUDA loop, marching along z"}
KERNELS = Path(__file__).parent / "kernels" / "heat.cu"

#: Of the diffusivity times the time step over the square of the spacing.
NUMBER = 0.1

#: How far a cell may be from the one in float64 after the steps that are checked, all cells being in [0, 1).
TOLERANCE = 1e-5
_CHECKED_STEPS = 3


@stencil
def heat(u, k):
    return u[0, 0, 0] + k * (u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0]
                             + u[0, 0, 1] + u[0, 0, -1] - 6 * u[0, 0, 0])


@dataclass(frozen=True)
class Cube:
    """A grid of so many cells in so many blocks, and the steps that are one action where a way can do that."""

    shape: tuple[int, int, int]
    splits: tuple[int, int, int]
    steps: int

    @property
    def nbytes(self) -> int:
        """What a step must read and write."""
        return 2 * int(np.prod(self.shape)) * 4


def initial(z, y, x):
    """Return the cells that every way starts from: waves that fit no boundary, in [0, 1)."""
    return np.float32(0.5) + np.float32(0.49) * np.sin(np.float32(0.37) * z + np.float32(0.21) * y
                                                        + np.float32(0.13) * x, dtype=np.float32)


def run(sc: SparkContext, cube: Cube, settings: Settings, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure all ways from the same cells; the group comes again whenever it has more."""
    group = Group("heat, " + " x ".join(map(str, cube.shape)), {
        "shape": list(cube.shape), "splits": list(cube.splits), "dtype": "float32", "steps": cube.steps,
        "bytes": cube.nbytes, "samples": settings.samples, "samples_of_jobs": 1, "device": settings.kind})
    problem = Problem(cube.nbytes, cube.steps, _CHECKED_STEPS, (slice(0, 8),) * 3,
                      lambda steps: _expected(cube, steps), TOLERANCE)
    return solvers.measured(group, problem, settings, lambda device: _single(device, cube, settings.kind),
                            lambda: ours(sc, cube), Jobs(sc, ways(sc, stepping(cube), settings.kind, group.skipped)),
                            done)


def solver(cube: Cube) -> Solver:
    """Return the loop, to look at its exchanges."""
    return Solver("heat", Grid(cube.shape, splits=cube.splits, halo=1, boundary=0.0), [(heat, (NUMBER,))], cube.nbytes,
                  cube.steps)


def _expected(cube: Cube, steps: int) -> np.ndarray:
    """Return a corner of the cells after some steps, in float64."""
    extent = [slice(0, min(8 + steps, cells)) for cells in cube.shape]
    block = initial(*np.ogrid[extent]).astype(np.float64)
    for _ in range(steps):
        block = heated(block, {}, NUMBER)
    return block[:8, :8, :8]


def cells(cube: Cube) -> np.ndarray:
    """Return all cells at the start, made by planes on all cores."""
    grid = np.empty(cube.shape, np.float32)
    _, y, x = np.ogrid[tuple(map(slice, cube.shape))]

    def fill(z: int) -> None:
        grid[z] = initial(np.int64(z), y[0], x[0])

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(cube.shape[0])))
    return grid


# -- ours -------------------------------------------------------------------------------------------------------------

def ours(sc: SparkContext, cube: Cube) -> dict[str, Way]:
    """Return a loop in one call, and one step by step."""
    def loop(blocks: VRDD, steps: int) -> VRDD:
        return blocks.iterate(heat, NUMBER, steps=steps, progress=False)

    def listing(blocks: VRDD, steps: int) -> VRDD:
        for _ in range(steps):
            blocks.halo_extract().halo_shuffle()
            blocks = blocks.halo_append()
            blocks = blocks.vmap(heat, NUMBER).cache()
        return blocks

    return {OURS: _held(sc, cube, loop), LISTING: _held(sc, cube, listing)}


def _held(sc: SparkContext, cube: Cube, advance: Callable[[VRDD, int], VRDD]) -> Way:
    grid = Grid(cube.shape, splits=cube.splits, halo=1, boundary=0.0)
    held = [grid.scatter(sc, initial).cache("GPU")]
    held[0].count()

    def more(steps: int) -> None:
        held[0] = advance(held[0], steps)
        # A cell is asked for, so that the action ends when the last step has.
        Grid.gather(held[0], np.s_[:1, :1, :1])

    return Way(more, lambda where: Grid.gather(held[0], where))


# -- in one process ---------------------------------------------------------------------------------------------------

@contextmanager
def _single(device: Device, cube: Cube, kind: str) -> Iterator[dict[str, Way]]:
    """Yield ways without Spark, on one array."""
    start = cells(cube)
    if kind != "cuda":
        yield {"NumPy": _of_array(peers.NumpyHeat(start.copy(), NUMBER))} | (
            {"Numba": _of_array(peers.NumbaHeat(start.copy(), NUMBER))} if peers.numba is not None else {})
        return
    stack, ways = ExitStack(), {}
    for name in launches(cube.shape):
        arrays = Arrays(device, cube.shape)
        stack.callback(arrays.close)
        ways[LOOPS[name]] = bare(arrays, start, name)
    if peers.cupy is not None:
        on_gpu = peers.cupy.asarray(start)
        ways["CuPy"] = _of_array(peers.CupyHeat(on_gpu, NUMBER))
        if peers.jax is not None:
            ways["JAX"] = _of_array(peers.JaxHeat(on_gpu, NUMBER))
        del on_gpu
    with stack:
        yield ways
        ways.clear()
        peers.give_back()


def _of_array(solver: Any) -> Way:
    return Way(solver.advance, solver.corner)


def launches(shape: tuple[int, int, int]) -> dict[str, tuple[int, ...]]:
    """Return the grids of the kernels of :data:`KERNELS` that such a shape allows."""
    z, y, x = shape
    grids: dict[str, tuple[int, ...]] = {"plain": (-(-x // 32), -(-y // 8), z)}
    if x % 4 == 0:
        grids["marching"] = -(-x // 128), -(-y // 8), -(-z // 8)
    return grids


def bare(arrays: Arrays, start: np.ndarray, name: str) -> Way:
    """Return the way that runs a kernel of :data:`KERNELS` in a loop over two arrays."""
    source = Source(KERNELS.read_text(), KERNELS.name, tuple(f"-D{axis}={extent}" for axis, extent in zip(
        ("NZ", "NY", "NX"), arrays.shape, strict=True)))
    kernel, grid = arrays.device.compile(source, name), launches(start.shape)[name]
    for array in ("u", "next"):
        arrays.put(array, start)

    def advance(steps: int) -> None:
        for _ in range(steps):
            arrays.launch(kernel, grid, (32, 8, 1), "u next", np.float32(NUMBER))
            arrays.exchange("u", "next")
        arrays.wait()

    return Way(advance, lambda where: arrays.corner("u", where))


# -- a Spark job a step -----------------------------------------------------------------------------------------------

def stepping(cube: Cube) -> Stepping:
    """Return the steps that Spark's tasks do."""
    return Stepping(Grid(cube.shape, splits=cube.splits, halo=1), HaloStrips(cube.splits, 1, corners=False),
                    lambda cells: initial(*np.ogrid[cells]), lambda block: block, partial(heated, k=NUMBER),
                    partial(tasks.heated, k=NUMBER))
