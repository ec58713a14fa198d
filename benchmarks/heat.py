"""Steps of the heat equation in three dimensions, every way that one would try.

What is measured is a step. The ways in one process, and ours, do many of them as one action and are divided by their
number; a Spark job a step is measured as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext, StorageLevel

from benchmarks import halos, peers, tasks
from benchmarks.bare import Copy, bytes_of
from benchmarks.measure import Case, Series, interleave
from benchmarks.regression import FLOOR, Settings
from benchmarks.results import Group
from gpu_worker.device import open_devices
from gpu_worker.device.base import Device, Kernel, Source
from vispark import VRDD, Grid, stencil

OURS = "vispark: iterate"
LISTING = "vispark: halo_extract, halo_shuffle, halo_append, vmap"
SPARK_C = "Spark-C: halos by a join, NumPy"
KERNELS = Path(__file__).parent / "kernels" / "heat.cu"

#: Of the diffusivity times the time step over the square of the spacing.
NUMBER = 0.1

#: How far a cell may be from the one in float64 after the steps that are checked, all cells being in [0, 1).
TOLERANCE = 1e-5
_CHECKED_STEPS = 3

#: Samples of ways with a Spark job a step.
_JOBS = 2


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
    """What every way starts from: waves that fit no boundary, in [0, 1)."""
    return np.float32(0.5) + np.float32(0.49) * np.sin(np.float32(0.37) * z + np.float32(0.21) * y
                                                        + np.float32(0.13) * x, dtype=np.float32)


@dataclass
class Way:
    """Does so many steps on from where it is; ``corner`` gives some of the cells that it has."""

    advance: Callable[[int], None]
    corner: Callable[[tuple[slice, slice, slice]], np.ndarray]


def run(sc: SparkContext, cube: Cube, settings: Settings, done: Callable[[str], None]) -> Group:
    """Measure all ways from the same cells."""
    group = Group("heat, " + " x ".join(map(str, cube.shape)), {
        "shape": list(cube.shape), "splits": list(cube.splits), "dtype": "float32", "steps": cube.steps,
        "bytes": cube.nbytes, "samples": settings.samples, "device": settings.kind})
    group.series = _fast(sc, cube, settings, group, done)
    for name, way in _by_jobs(sc, cube, settings.kind, group):
        _check(name, way, cube, 1, group)
        group.series += interleave([Case(name, lambda way=way: way.advance(1), cube.nbytes, (FLOOR,), repeat=False)],
                                   _JOBS, warm_up=0, done=done)
    return group


def _fast(sc: SparkContext, cube: Cube, settings: Settings, group: Group,
          done: Callable[[str], None]) -> list[Series]:
    """The ways that need no Spark job a step, and the floor, in turn."""
    with ExitStack() as stack:
        device = open_devices(settings.kind)[0]
        stack.callback(device.close)
        ways = _ours(sc, cube) | stack.enter_context(_single(device, cube, settings.kind))
        for name, way in ways.items():
            _check(name, way, cube, _CHECKED_STEPS, group)
        copy = Copy(device, max(64 << 20, min(cube.nbytes // 2, 1 << 30)),
                    1 if settings.kind == "cuda" else settings.units)
        stack.callback(copy.close)
        cases = [Case(name, lambda way=way: way.advance(cube.steps), cube.nbytes * cube.steps, _against(name, ways),
                      repeat=False) for name, way in ways.items()]
        found = interleave([*cases, Case(FLOOR, copy.run, copy.moved)], settings.samples, done=done)
        ways.clear()
    return [series if series.name == FLOOR else _a_step(series, cube.steps) for series in found]


def _a_step(series: Series, steps: int) -> Series:
    return Series(series.name, tuple(sample / steps for sample in series.samples), steps, series.nbytes // steps,
                  series.against, series.notes)


def _against(name: str, ways: dict[str, Way]) -> tuple[str, ...]:
    return (FLOOR, *(other for other in ways if other != name)) if name == OURS else (FLOOR,)


def _expected(cube: Cube, steps: int) -> np.ndarray:
    """A corner of the cells after some steps, in float64."""
    extent = [slice(0, min(8 + steps, cells)) for cells in cube.shape]
    cells = initial(*np.ogrid[extent]).astype(np.float64)
    for _ in range(steps):
        cells = halos.stepped(cells, (), NUMBER)
    return cells[:8, :8, :8]


def _check(name: str, way: Way, cube: Cube, steps: int, group: Group) -> None:
    """Raise AssertionError for a way whose cells are not those in float64."""
    way.advance(steps)
    off = float(np.abs(way.corner((slice(0, 8),) * 3) - _expected(cube, steps)).max())
    group.checks[name] = {"off": off, "allowed": TOLERANCE}
    if not off <= TOLERANCE:
        raise AssertionError(f"{name} is off by {off:.2g}")


def _cells(cube: Cube) -> np.ndarray:
    """All cells at the start, made by planes on all cores."""
    cells = np.empty(cube.shape, np.float32)
    _, y, x = np.ogrid[tuple(map(slice, cube.shape))]

    def fill(z: int) -> None:
        cells[z] = initial(np.int64(z), y[0], x[0])

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(cube.shape[0])))
    return cells


# -- ours -------------------------------------------------------------------------------------------------------------

def _ours(sc: SparkContext, cube: Cube) -> dict[str, Way]:
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
    """Ways without Spark, on one array."""
    cells = _cells(cube)
    if kind != "cuda":
        yield {"NumPy": _of_array(peers.NumpyHeat(cells.copy(), NUMBER))} | (
            {"Numba": _of_array(peers.NumbaHeat(cells.copy(), NUMBER))} if peers.numba is not None else {})
        return
    source = Source(KERNELS.read_text(), KERNELS.name, tuple(f"-D{name}={cells}" for name, cells in zip(
        ("NZ", "NY", "NX"), cube.shape, strict=True)))
    z, y, x = cube.shape
    ways = {"bare CUDA loop, a cell a thread": Bare(
        device, device.compile(source, "plain"), cells, (-(-x // 32), -(-y // 8), z), (32, 8, 1)).way()}
    if x % 4 == 0:
        ways["bare CUDA loop, marching along z"] = Bare(
            device, device.compile(source, "marching"), cells, (-(-x // 128), -(-y // 8), -(-z // 8)), (32, 8, 1)).way()
    if peers.cupy is not None:
        given = peers.cupy.asarray(cells)
        ways["CuPy"] = _of_array(peers.CupyHeat(given, NUMBER))
        if peers.jax is not None:
            ways["JAX"] = _of_array(peers.JaxHeat(given, NUMBER))
        del given
    yield ways
    ways.clear()


def _of_array(solver: Any) -> Way:
    return Way(solver.advance, solver.corner)


class Bare:
    """A kernel of :data:`KERNELS` in a loop over two arrays."""

    def __init__(self, device: Device, kernel: Kernel, cells: np.ndarray, grid: tuple[int, ...],
                 block: tuple[int, ...]):
        self._device, self._kernel, self._shape, self._launch = device, kernel, cells.shape, (grid, block)
        self._stream = device.stream()
        self._arrays = [device.allocate(cells.nbytes, stream=self._stream) for _ in range(2)]
        device.copy_in(self._arrays[0], bytes_of(cells), stream=self._stream)
        device.synchronize(stream=self._stream)

    def way(self) -> Way:
        return Way(self._advance, self._corner)

    def _advance(self, steps: int) -> None:
        for _ in range(steps):
            self._device.launch(self._kernel, *self._launch, [*self._arrays, np.float32(NUMBER)], stream=self._stream)
            self._arrays.reverse()
        self._device.synchronize(stream=self._stream)

    def _corner(self, where: tuple[slice, slice, slice]) -> np.ndarray:
        planes = where[0].stop
        found = np.empty((planes, *self._shape[1:]), np.float32)
        self._device.copy_out(found.reshape(-1).view(np.uint8), self._arrays[0], stream=self._stream)
        self._device.synchronize(stream=self._stream)
        return found[where]


# -- a Spark job a step -----------------------------------------------------------------------------------------------

def _by_jobs(sc: SparkContext, cube: Cube, kind: str, group: Group) -> Iterator[tuple[str, Way]]:
    count, parts = int(np.prod(cube.splits)), min(sc.defaultParallelism, int(np.prod(cube.splits)))
    yield SPARK_C, _stepwise(sc, cube, count, lambda blocks: _joined(blocks, cube, halos.stepped))
    if kind == "cuda" and peers.cupy is not None:
        yield "Spark-G: halos by a join, a kernel a block", _stepwise(
            sc, cube, count, lambda blocks: _joined(blocks, cube, tasks.heat_by_cupy))
    if tasks.has_mpi():
        with halos.ranks(parts, cube.splits) as directory:
            yield "Spark-C-MPI: halos by MPI, NumPy", _stepwise(
                sc, cube, parts, lambda blocks: blocks.barrier().mapPartitionsWithIndex(
                    lambda rank, mine: _by_mpi(directory, rank, mine, cube)))
    else:
        group.skipped["Spark-C-MPI: halos by MPI, NumPy"] = "there is no mpirun or no mpi4py"


def _stepwise(sc: SparkContext, cube: Cube, parts: int, step: Callable[[RDD], RDD]) -> Way:
    grid, splits = Grid(cube.shape, splits=cube.splits, halo=1), cube.splits
    positions = sc.parallelize([(position, None) for position in np.ndindex(*splits)]).partitionBy(
        parts, lambda position: halos.owner(position, splits, parts))
    starts = _starts(grid)
    held = [positions.map(lambda pair: (pair[0], initial(*np.ogrid[starts[pair[0]]])), preservesPartitioning=True)
            .persist(StorageLevel.MEMORY_ONLY)]
    held[0].count()

    def more(_: int) -> None:
        after = step(held[0]).persist(StorageLevel.MEMORY_ONLY)
        after.count()
        held[0].unpersist()
        held[0] = after

    def corner(where: tuple[slice, slice, slice]) -> np.ndarray:
        found, = held[0].filter(lambda pair: pair[0] == (0, 0, 0)).map(lambda pair: pair[1][where]).collect()
        return found

    return Way(more, corner)


def _starts(grid: Grid) -> dict[halos.Position, tuple[slice, ...]]:
    """Each block's cells of the whole grid, cut as ``numpy.array_split`` cuts."""
    ends = [np.cumsum([0, *[len(part) for part in np.array_split(np.empty(cells, bool), splits)]])
            for cells, splits in zip(grid.shape, grid.splits, strict=True)]
    return {position: tuple(slice(int(ends[axis][place]), int(ends[axis][place + 1]))
                            for axis, place in enumerate(position)) for position in np.ndindex(*grid.splits)}


def _joined(blocks: RDD, cube: Cube, stepped: Callable) -> RDD:
    """Blocks after a step; only halos are shuffled."""
    splits, parts = cube.splits, blocks.getNumPartitions()

    def place(position: halos.Position) -> int:
        return halos.owner(position, splits, parts)

    given = blocks.flatMap(lambda pair: halos.faces(*pair, splits)).groupByKey(parts, place)
    return blocks.leftOuterJoin(given, parts).mapValues(lambda pair: stepped(pair[0], pair[1] or (), NUMBER))


def _by_mpi(directory: str, rank: int, mine, cube: Cube) -> Iterator[tuple[halos.Position, np.ndarray]]:
    blocks = dict(mine)
    given = [each for pair in blocks.items() for each in halos.faces(*pair, cube.splits)]
    found: dict[halos.Position, list] = {position: [] for position in blocks}
    for position, halo in halos.exchanged(directory, rank, given):
        found[tuple(position)].append(halo)
    for position, block in blocks.items():
        yield position, halos.stepped(block, found[position], NUMBER)
