"""Inner iterations of the two-dimensional Navier-Stokes equations: 24 maps, each after an exchange, on six fields.

The scheme is that of ``examples/navier_stokes.py``, in float32 and with 0 outside instead of walls: a step without
pressure, its divergence, 21 sweeps for the pressure, and the correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np
from pyspark import SparkContext

from benchmarks import peers, solvers, tasks
from benchmarks.blocks import MakesWay, Stepping, joined, ways
from benchmarks.flow_peers import (
    DT,
    NU,
    H,
    JaxFlow,
    NumbaFlow,
    SlicedFlow,
    initial,
    iterated,
    swept,
    weights,
)
from benchmarks.halos import HaloStrips
from benchmarks.overlap import Solver
from benchmarks.regression import Settings
from benchmarks.results import Group
from benchmarks.solvers import OURS, Arrays, Jobs, Problem, Way
from gpu_worker.device.base import Device, Source
from vispark import VRDD, Grid, stencil

FIELDS = dict.fromkeys(("u", "v", "p", "u_star", "v_star", "source"), "f4")
KERNELS = Path(__file__).parent / "kernels" / "flow.cu"
BARE = "bare CUDA loop, a cell a thread"
SPARK_SWEEP = "Spark-C: one sweep of the 24 maps, halos by a join, NumPy"

#: Fields read and written by the maps: predict 2 and 2, divergence 2 and 1, a sweep 2 and 1, correct 3 and 2.
SWEEP_FIELDS = 3
STEP_FIELDS = 4 + 3 + 21 * SWEEP_FIELDS + 5

#: How far a velocity may be from the one in float64 after an iteration, all of them being in [-1, 1].
TOLERANCE = 2e-5
_CORNER = (slice(0, 16),) * 2


@stencil
def predict(u, v, dt, h, nu):
    uu = ((u[0, 0] + u[0, 1]) ** 2 - (u[0, -1] + u[0, 0]) ** 2) / 4
    vv = ((v[0, 0] + v[1, 0]) ** 2 - (v[-1, 0] + v[0, 0]) ** 2) / 4
    uv_up = ((v[1, 0] + v[1, -1]) * (u[0, 0] + u[1, 0]) - (v[0, 0] + v[0, -1]) * (u[0, 0] + u[-1, 0])) / 4
    uv_right = ((u[0, 1] + u[-1, 1]) * (v[0, 0] + v[0, 1]) - (u[0, 0] + u[-1, 0]) * (v[0, 0] + v[0, -1])) / 4
    u_spread = u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u[0, 0]
    v_spread = v[0, 1] + v[0, -1] + v[1, 0] + v[-1, 0] - 4 * v[0, 0]
    return {"u_star": u[0, 0] + dt * (nu * u_spread / h - uu - uv_up) / h,
            "v_star": v[0, 0] + dt * (nu * v_spread / h - vv - uv_right) / h}


@stencil
def divergence(u_star, v_star, dt, h):
    return {"source": (u_star[0, 1] - u_star[0, 0] + v_star[1, 0] - v_star[0, 0]) * h / dt}


@stencil
def sweep(p, source, weight):
    return {"p": p[0, 0] + weight * ((p[0, 1] + p[0, -1] + p[1, 0] + p[-1, 0] - source[0, 0]) / 4 - p[0, 0])}


@stencil
def correct(u_star, v_star, p, dt, h):
    return {"u": u_star[0, 0] - dt / h * (p[0, 0] - p[0, -1]), "v": v_star[0, 0] - dt / h * (p[0, 0] - p[-1, 0])}


#: The maps of an iteration, each with its arguments.
PHASES = [(predict, (DT, H, NU)), (divergence, (DT, H)), *((sweep, (float(each),)) for each in weights()),
          (correct, (DT, H))]


@dataclass(frozen=True)
class Plane:
    """A grid of so many cells in so many blocks, and the iterations that are one action where a way can do that."""

    shape: tuple[int, int]
    splits: tuple[int, int]
    steps: int

    @property
    def nbytes(self) -> int:
        """What an iteration must read and write, where each map reads and writes its fields once."""
        return STEP_FIELDS * int(np.prod(self.shape)) * 4

    @property
    def sweep_bytes(self) -> int:
        """What a sweep must read and write."""
        return SWEEP_FIELDS * int(np.prod(self.shape)) * 4


def run(sc: SparkContext, plane: Plane, settings: Settings, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure all ways from the same fields; the group comes again whenever it has more."""
    group = Group("Navier-Stokes, " + " x ".join(map(str, plane.shape)), {
        "shape": list(plane.shape), "splits": list(plane.splits), "dtype": "float32", "fields": list(FIELDS),
        "maps": len(PHASES), "steps": plane.steps, "bytes": plane.nbytes, "samples": settings.samples,
        "samples_of_jobs": 1, "device": settings.kind})
    problem = Problem(plane.nbytes, plane.steps, 1, _CORNER, lambda steps: expected(plane, steps), TOLERANCE)
    return solvers.measured(group, problem, settings, lambda device: _single(device, plane, settings.kind),
                            lambda: {OURS: ours(sc, plane)},
                            Jobs(sc, _by_jobs(sc, plane, settings.kind, group)), done)


def solver(plane: Plane) -> Solver:
    """Return the loop, to look at its exchanges."""
    return Solver("Navier-Stokes", Grid(plane.shape, splits=plane.splits, halo=1, boundary=0.0, fields=FIELDS), PHASES,
                  plane.nbytes, plane.steps)


def expected(plane: Plane, steps: int) -> np.ndarray:
    """Return a corner of u after some iterations, in float64: what is further away than its maps reach does not count.
    """
    extents = [min(_CORNER[0].stop + len(PHASES) * steps, cells) for cells in plane.shape]
    flow = SlicedFlow(np, {name: cells.astype(np.float64) for name, cells in fields(extents).items()})
    flow.advance(steps)
    return flow.corner(_CORNER)


def fields(shape) -> dict[str, np.ndarray]:
    """Return the velocities at the start; all else is 0."""
    y, x = np.ogrid[tuple(map(slice, shape))]
    return {name: initial(name)(y, x) for name in ("u", "v")}


def at_start(sc: SparkContext, plane: Plane) -> VRDD:
    """Return the fields on the device."""
    grid = Grid(plane.shape, splits=plane.splits, halo=1, boundary=0.0, fields=FIELDS)
    return grid.scatter(sc, dict.fromkeys(FIELDS, 0.0) | {name: initial(name) for name in ("u", "v")}).cache("GPU")


def ours(sc: SparkContext, plane: Plane) -> Way:
    """Return the way with all iterations in one call."""
    held = [at_start(sc, plane)]
    held[0].count()

    def more(steps: int) -> None:
        held[0] = held[0].iterate(PHASES, steps=steps, progress=False)
        # A cell is asked for, so that the action ends when the last step has.
        Grid.gather(held[0], np.s_[:1, :1])

    return Way(more, lambda where: Grid.gather(held[0], where)["u"])


# -- in one process ---------------------------------------------------------------------------------------------------

@contextmanager
def _single(device: Device, plane: Plane, kind: str) -> Iterator[dict[str, Way]]:
    """Yield ways without Spark, on whole arrays."""
    start = fields(plane.shape)
    with ExitStack() as stack:
        arrays = Arrays(device, plane.shape)
        stack.callback(arrays.close)
        ways = {BARE: bare(arrays, start)}
        if kind != "cuda":
            ways["NumPy"] = _of_arrays(SlicedFlow(np, start))
            if peers.numba is not None:
                ways["Numba"] = _of_arrays(NumbaFlow(start))
        elif peers.cupy is not None:
            ways["CuPy"] = _of_arrays(SlicedFlow(peers.cupy, start))
            if peers.jax is not None:
                ways["JAX"] = _of_arrays(JaxFlow(start))
        del start
        yield ways
        ways.clear()
        peers.give_back()


def _of_arrays(flow) -> Way:
    return Way(flow.advance, flow.corner)


def bare(arrays: Arrays, start: dict[str, np.ndarray]) -> Way:
    """Return the way that runs the kernels of :data:`KERNELS` in a loop."""
    device, (ny, nx) = arrays.device, arrays.shape
    source = Source(KERNELS.read_text(), KERNELS.name, (f"-DNY={ny}", f"-DNX={nx}"))
    kernels = {name: device.compile(source, name) for name in ("predict", "divergence", "sweep", "correct")}
    grid, block = (-(-nx // 32), -(-ny // 8)), (32, 8)
    for name in ("u", "v"):
        arrays.put(name, start[name])
    for name in ("p", "next", "u_star", "v_star", "source"):
        arrays.put(name, np.zeros(arrays.shape, np.float32))
    dt, h, nu = np.float32(DT), np.float32(H), np.float32(NU)

    def advance(steps: int) -> None:
        for _ in range(steps):
            arrays.launch(kernels["predict"], grid, block, "u v u_star v_star", dt, h, nu)
            arrays.launch(kernels["divergence"], grid, block, "u_star v_star source", dt, h)
            for weight in weights():
                arrays.launch(kernels["sweep"], grid, block, "p source next", np.float32(weight))
                arrays.exchange("p", "next")
            arrays.launch(kernels["correct"], grid, block, "u_star v_star p u v", dt, h)
        arrays.wait()

    return Way(advance, lambda where: arrays.corner("u", where))


# -- a Spark job an iteration, or a map -------------------------------------------------------------------------------

def _by_jobs(sc: SparkContext, plane: Plane, kind: str, group: Group) -> Iterator[tuple[str, MakesWay]]:
    """Yield the ways with all maps in one job; and a sweep alone, as each of the 24 maps is such a job where it has an
    exchange of its own.

    The sweep's p and source are as u and v are at the start.
    """
    yield from ways(sc, stepping(plane), kind, group.skipped)
    grid, sweep = Grid(plane.shape, splits=plane.splits, halo=1), partial(swept, weight=weights()[0])
    yield SPARK_SWEEP, partial(joined, sc, Stepping(
        grid, HaloStrips(plane.splits, 1, corners=False), partial(_stacked, ("u", "v")), itemgetter(0), sweep, sweep,
        {"nbytes": plane.sweep_bytes, "expected": lambda steps: _swept(plane, steps)}), partial(tasks.by_numpy, sweep))


def stepping(plane: Plane) -> Stepping:
    """Return the steps that Spark's tasks do."""
    return Stepping(
        Grid(plane.shape, splits=plane.splits, halo=len(PHASES)), HaloStrips(plane.splits, len(PHASES), corners=True),
        partial(_stacked, ("u", "v", "p")), itemgetter(0), partial(iterated, np, width=len(PHASES)),
        partial(iterated, peers.cupy, width=len(PHASES)))


def _stacked(names: tuple[str, ...], cells: tuple[slice, ...]) -> np.ndarray:
    """Return fields at the start in one array; p is 0."""
    at = np.ogrid[cells]
    return np.stack([initial(name)(*at) if name != "p" else np.zeros((len(at[0]), at[1].size), np.float32)
                     for name in names])


def _swept(plane: Plane, steps: int) -> np.ndarray:
    """Return a corner of p after some sweeps, in float64."""
    extents = [min(_CORNER[0].stop + steps, cells) for cells in plane.shape]
    stacked = np.stack(list(fields(extents).values())).astype(np.float64)
    for _ in range(steps):
        stacked = swept(stacked, {}, weights()[0])
    return stacked[0][_CORNER]
