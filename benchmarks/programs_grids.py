"""The heat equation and the Navier-Stokes equations from a function to the cells, every way that one would try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

import vispark
from benchmarks import blocks, flow, flow_peers, heat, peers
from benchmarks.blocks import SPARK_C_KEPT, SPARK_G, SPARK_G_KEPT, Stepping
from benchmarks.flow import Plane
from benchmarks.halos import ranks
from benchmarks.heat import Cube
from benchmarks.programs import OneProgram, Program, alone, both, by_spark
from benchmarks.programs_rows import NO_GPU, Here
from benchmarks.recorder import Lap, LapRecorder
from benchmarks.solvers import Arrays
from benchmarks.solvers import Way as Stepper

#: What is to be measured of a whole program: blocks that Python workers keep are there on the GPU.
_LEFT_OUT = (SPARK_C_KEPT,)


@contextmanager
def heated(here: Here, cube: Cube) -> Iterator[Program]:
    """Yield the program of the heat equation."""
    def ours(iterations: int) -> np.ndarray:
        grid = vispark.Grid(cube.shape, splits=cube.splits, halo=1, boundary=0.0)
        cells = grid.scatter(here.sc, heat.initial).cache("GPU")
        cells = cells.iterate(heat.heat, heat.NUMBER, steps=iterations * cube.steps, progress=False)
        return vispark.Grid.gather(cells)

    with ExitStack() as stack:
        skipped: dict[str, str] = {}
        ways = both(ours) | _by_spark(here, heat.stepping(cube), cube.steps, stack, skipped)
        ways |= {name: alone(partial(_in_process, lambda: heat.cells(cube), make, cube.shape, cube.steps))
                 for name, make in _heat_alone(here, cube).items()}
        yield Program("heat", {"shape": list(cube.shape), "splits": list(cube.splits),
                               "steps_an_iteration": cube.steps}, ways, 1e-4, skipped)


@contextmanager
def flowing(here: Here, plane: Plane) -> Iterator[Program]:
    """Yield the program of the Navier-Stokes equations; the result is the velocity u, and ours brings all six fields.
    """
    def ours(iterations: int) -> np.ndarray:
        fields = flow.at_start(here.sc, plane).iterate(flow.PHASES, steps=iterations * plane.steps, progress=False)
        return vispark.Grid.gather(fields)["u"]

    with ExitStack() as stack:
        skipped: dict[str, str] = {}
        ways = both(ours) | _by_spark(here, flow.stepping(plane), plane.steps, stack, skipped)
        ways |= {name: alone(partial(_in_process, lambda: flow.fields(plane.shape), make, plane.shape, plane.steps))
                 for name, make in _flow_alone(here, plane).items()}
        yield Program("Navier-Stokes", {"shape": list(plane.shape), "splits": list(plane.splits),
                                        "steps_an_iteration": plane.steps}, ways, 1e-3, skipped)


# -- Spark jobs -------------------------------------------------------------------------------------------------------

def _by_spark(here: Here, stepping: Stepping, steps: int, stack: ExitStack, skipped: dict[str, str]
              ) -> dict[str, OneProgram]:
    """Return the ways with a job a step. MPI's ranks are up beforehand, as the Spark context is."""
    sc = here.sc
    ways = blocks.joins(sc, stepping, here.kind)
    by_ranks = {name: way for name, way in blocks.by_ranks(sc, stepping, here.kind, skipped).items()
                if name not in _LEFT_OUT}
    try:
        directory = stack.enter_context(ranks(blocks.at_once(sc, stepping.halos), stepping.halos)) if by_ranks else ""
        ways |= {name: partial(way, directory) for name, way in by_ranks.items()}
    except TimeoutError as error:
        skipped |= dict.fromkeys(by_ranks, str(error))
    for name in _LEFT_OUT:
        skipped.pop(name, None)
    if SPARK_G not in ways:
        skipped |= dict.fromkeys((SPARK_G, SPARK_G_KEPT), NO_GPU)
    return {name: by_spark(sc, partial(_stepped, stepping, steps, way)) for name, way in ways.items()}


def _stepped(stepping: Stepping, steps: int, make: Callable[..., AbstractContextManager[Stepper]], iterations: int,
             recorder: LapRecorder) -> np.ndarray:
    with make(recorder=recorder) as way:
        for _ in range(iterations * steps):
            way.advance(1)
        cells = np.empty(stepping.grid.shape, np.float32)
        places = {key.position: key.slices for key in stepping.grid.blocks()}
        for position, block in way.blocks() if way.blocks else ():
            cells[places[position]] = block
    return cells


# -- one process ------------------------------------------------------------------------------------------------------

def _in_process(cells: Callable[[], Any], make: Callable[[Any, ExitStack], Any], shape: tuple[int, ...], steps: int,
                iterations: int, lap: Lap) -> np.ndarray:
    start = cells()
    lap("parse")
    with ExitStack() as stack:
        way = make(start, stack)
        lap("host-to-device")
        way.advance(iterations * steps)
        lap("kernel")
        result = way.corner(tuple([slice(0, extent) for extent in shape]))
        lap("transport")
    return result


def _heat_alone(here: Here, cube: Cube) -> dict[str, Callable[[np.ndarray, ExitStack], Any]]:
    """Return the ways that one writes without Spark; each takes the cells, and what to give back afterwards."""
    if here.kind != "cuda":
        return {"NumPy": lambda cells, _: peers.NumpyHeat(cells, heat.NUMBER)} | (
            {"Numba": lambda cells, _: peers.NumbaHeat(cells, heat.NUMBER)} if peers.numba is not None else {})

    def bare(name: str, cells: np.ndarray, stack: ExitStack) -> Any:
        arrays = Arrays(here.device, cube.shape)
        stack.callback(arrays.close)
        return heat.bare(arrays, cells, name)

    ways = {heat.LOOPS[name]: partial(bare, name) for name in heat.launches(cube.shape)}
    if peers.cupy is not None:
        ways["CuPy"] = lambda cells, _: _there(peers.CupyHeat(peers.cupy.asarray(cells), heat.NUMBER))
        if peers.jax is not None:
            ways["JAX"] = lambda cells, _: peers.JaxHeat(_there(peers.cupy.asarray(cells)), heat.NUMBER)
    return ways


def _flow_alone(here: Here, plane: Plane) -> dict[str, Callable[[dict[str, np.ndarray], ExitStack], Any]]:
    """Return the ways as above, from the fields."""
    def bare(fields: dict[str, np.ndarray], stack: ExitStack) -> Stepper:
        arrays = Arrays(here.device, plane.shape)
        stack.callback(arrays.close)
        return flow.bare(arrays, fields)

    ways: dict[str, Callable[[dict[str, np.ndarray], ExitStack], Any]] = {flow.BARE: bare}
    if here.kind != "cuda":
        ways["NumPy"] = lambda fields, _: flow_peers.SlicedFlow(np, fields)
        if peers.numba is not None:
            ways["Numba"] = lambda fields, _: flow_peers.NumbaFlow(fields)
    elif peers.cupy is not None:
        ways["CuPy"] = lambda fields, _: _there(flow_peers.SlicedFlow(peers.cupy, fields))
        if peers.jax is not None:
            ways["JAX"] = lambda fields, _: flow_peers.JaxFlow(fields)
    return ways


def _there(what: Any) -> Any:
    """Return cells once they are on the GPU."""
    peers.cupy.cuda.Stream.null.synchronize()
    return what
