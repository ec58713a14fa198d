"""Kernels that the generator makes of functions that a user might write, kernel by kernel, without Spark, worker or
plan.

None of these functions is known to the generator by name. Each kernel runs beside a copy of as many bytes and beside
one with a cell, or a row, a thread. Stencils give NumPy's cells, bit for bit, with 0 outside the grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import flow, heat, machine
from benchmarks.bare import BareCopy
from benchmarks.kernel_launches import GridPatch
from benchmarks.measure import Case, interleave
from benchmarks.results import Group
from gpu_worker.device.base import Buffer, Device
from vispark import stencil
from vispark.translate import (
    ChainPart,
    ChainSurroundings,
    ElementField,
    Stencil,
    StencilKernel,
    Surroundings,
    passes_of,
    specialise_chain,
    specialise_stencil,
    specialise_steps,
    trace,
)
from vispark.translate.stencils.kernel import specialised
from vispark.translate.stencils.one_step import March, march

MADE, SINGLE, COPY = "what the generator makes", "a cell a thread", "copy within the device"

#: Cells that no step of a boundary of 0 may leave out, on a grid that NumPy is quick with.
_SMALL = (6, 21, 75)


@dataclass(frozen=True)
class Alone:
    """The cells of a stencil's grid and of Navier-Stokes', rows, and records of a fold by key."""

    shape: tuple[int, int, int]
    plane: tuple[int, int]
    rows: int
    records: int


# -- the stencils, as a user writes them ------------------------------------------------------------------------------

@stencil
def points_27(u):
    faces = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
    edges = (u[1, 1, 0] + u[1, -1, 0] + u[-1, 1, 0] + u[-1, -1, 0] + u[1, 0, 1] + u[1, 0, -1] + u[-1, 0, 1]
             + u[-1, 0, -1] + u[0, 1, 1] + u[0, 1, -1] + u[0, -1, 1] + u[0, -1, -1])
    corners = (u[1, 1, 1] + u[1, 1, -1] + u[1, -1, 1] + u[1, -1, -1] + u[-1, 1, 1] + u[-1, 1, -1] + u[-1, -1, 1]
               + u[-1, -1, -1])
    return 0.25 * u[0, 0, 0] + 0.0625 * faces + 0.02 * edges + 0.01 * corners


@stencil
def width_2(u, k):
    near = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
    far = u[2, 0, 0] + u[-2, 0, 0] + u[0, 2, 0] + u[0, -2, 0] + u[0, 0, 2] + u[0, 0, -2]
    return u[0, 0, 0] + k * (16 * near - far - 90 * u[0, 0, 0]) / 12


@stencil
def conducted(u, c, k):
    here = u[0, 0, 0]
    return {"u": here + k * (c[1, 0, 0] * (u[1, 0, 0] - here) + c[-1, 0, 0] * (u[-1, 0, 0] - here)
                             + c[0, 1, 0] * (u[0, 1, 0] - here) + c[0, -1, 0] * (u[0, -1, 0] - here)
                             + c[0, 0, 1] * (u[0, 0, 1] - here) + c[0, 0, -1] * (u[0, 0, -1] - here))}


@stencil
def wave(u, before, k):
    faces = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
    return {"u": 2 * u[0, 0, 0] - before[0, 0, 0] + k * (faces - 6 * u[0, 0, 0]), "before": u[0, 0, 0]}


#: A name, the function, its fields and its arguments.
STENCILS = [("27 points", points_27, ("",), ()), ("width 2", width_2, ("",), (0.1,)),
            ("variable coefficients", conducted, ("u", "c"), (0.1,)), ("two outputs", wave, ("u", "before"), (0.1,))]


def of_stencils(device: Device, shape: tuple[int, int, int], samples: int, done: Callable[[str], None]
                ) -> Iterator[Group]:
    """Measure each stencil, a step at a time."""
    for name, function, fields, args in STENCILS:
        part = ChainPart(trace(function, args), tuple(ElementField(field, "float32") for field in fields), args)
        kernel = specialise_stencil(part.function, part.fields, args, dims=3)
        values = kernel.values(part.function, args)
        group = _group(f"kernels, {name}", shape, samples, device)
        with GridPatch(device, _SMALL, kernel.halo) as patch:
            start = patch.noisy(fields)
            results = patch.advanced(kernel, values, start)
            group.checks[MADE] = _numpy(patch, function, args, start, results)
        nbytes = (len(kernel.fields) + len(kernel.outputs)) * int(np.prod(shape)) * 4
        with GridPatch(device, shape, kernel.halo) as patch:
            start = patch.noisy(fields)
            kernels = {MADE: kernel, SINGLE: a_cell_a_thread(part, kernel)}
            ends, cases = {}, []
            for way, variant in kernels.items():
                launched, ends[way] = patch.launch(variant, values, start)
                cases.append(Case(way, launched, nbytes, (COPY,)))
            group.series = beside_a_copy(device, cases, samples, done)
            group.checks[SINGLE] = _same(patch, ends[MADE], ends[SINGLE])
        yield group


def a_cell_a_thread(part: ChainPart, kernel: StencilKernel) -> StencilKernel:
    """Return the kernel of the same function of a cell, with nothing kept from one cell to the next."""
    how = March((32, 8), 1, 1, 1, False, False)
    outline = specialised(part.function, part.fields, part.args, 3, None)
    return replace(kernel, source=march(outline.cell, kernel.name, how), block=(*how.threads, 1), tile=how.tile(3))


class _Shifted:
    """A field as a stencil sees it, all cells at an offset; 0 outside."""

    def __init__(self, cells: np.ndarray):
        self._cells, self._padded = cells, np.pad(cells, 2)

    def __getitem__(self, offset: tuple[int, ...]) -> np.ndarray:
        return self._padded[tuple(slice(2 + by, 2 + by + extent)
                                  for by, extent in zip(offset, self._cells.shape, strict=True))]


def _numpy(patch: GridPatch, function: Stencil, args: tuple, inputs: dict[str, Buffer], outputs: dict[str, Buffer]
           ) -> dict:
    if patch.device.kind == "null":
        return {"recorded": True}
    fields = [_Shifted(patch.cells(buffer)) for buffer in inputs.values()]
    names = list(inspect.signature(function.function).parameters)
    assert len(names) == len(fields) + len(args)
    result = function.function(*fields, *args)
    wanted = result if isinstance(result, dict) else {"": result}
    cells = sum(int(np.count_nonzero(patch.cells(outputs[name]) != wanted[name])) for name in wanted)
    return {"cells_unlike_NumPys": cells, "off": cells, "allowed": 0, "grid": list(_SMALL)}


# -- several at once --------------------------------------------------------------------------------------------------

def of_steps(device: Device, shape: tuple[int, int, int], samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure three steps of heat at once against three single ones, whose cells they must have bit for bit."""
    args, steps = (heat.NUMBER,), 3
    part = ChainPart(trace(heat.heat, args), (ElementField("", "float32"),), args)
    single = specialise_stencil(part.function, part.fields, args, dims=3)
    kernel = specialise_steps([part] * steps, Surroundings((("", ("kept",) * 6),), (steps,) * 3))
    values, nbytes = single.values(part.function, args), 2 * int(np.prod(shape)) * 4
    group = _group("kernels, three steps of heat", shape, samples, device)
    with GridPatch(device, shape, kernel.halo) as patch:
        start = patch.noisy(("",))
        after = start
        for _ in range(steps):
            after = patch.advanced(single, values, after)
        launched, end = patch.launch(kernel, values, start)
        one, _ = patch.launch(single, values, start)
        group.series = beside_a_copy(device, [Case("three steps at once", launched, nbytes, (COPY, "one step")),
                                               Case("one step", one, nbytes, (COPY,))], samples, done)
        group.checks["three steps at once"] = _same(patch, end, after)
    yield group


def of_chains(device: Device, shape: tuple[int, int], samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure an iteration of Navier-Stokes in as few passes as are made of it, against its maps one by one."""
    fields = tuple(ElementField(name, "float32") for name in flow.FIELDS)
    parts = [ChainPart(trace(function, args), fields, args) for function, args in flow.PHASES]
    beyond = ChainSurroundings(tuple((field.name, ("0.0f",) * 4) for field in fields), (8, 8))
    singles = [specialise_stencil(part.function, fields, part.args, dims=2) for part in parts]
    values = [kernel.values(part.function, part.args) for kernel, part in zip(singles, parts, strict=True)]
    group, first, cases = _group("kernels, chains of Navier-Stokes", shape, samples, device), 0, []
    with GridPatch(device, shape, ((8, 8),) * 2) as patch:
        start = patch.noisy(field.name for field in fields)
        for count in passes_of(parts, beyond, dims=2)[0]:
            after, several = start, range(first, first + count)
            for number in several:
                after = after | patch.advanced(singles[number], values[number], after)
            kernel = singles[first] if count == 1 else specialise_chain(parts[first:first + count], beyond, dims=2)
            launched, end = patch.launch(kernel, [each for number in several for each in values[number]], start)
            moved = (len(kernel.fields) + len(kernel.outputs)) * int(np.prod(shape)) * 4
            name = f"map {first + 1}" if count == 1 else f"maps {first + 1} to {first + count} at once"
            launched()
            group.checks[name] = _same(patch, end, after)
            patch.keep_only(start, end)
            cases.append(Case(name, launched, moved, (COPY,)))
            first += count
        group.series = beside_a_copy(device, cases, samples, done)
    yield group


# -- what they share --------------------------------------------------------------------------------------------------

def _group(name: str, shape: tuple[int, ...], samples: int, device: Device) -> Group:
    return Group(f"{name}, {' x '.join(map(str, shape))}", {
        "shape": list(shape), "dtype": "float32", "samples": samples, "device": device.kind})


def beside_a_copy(device: Device, cases: list[Case], samples: int, done: Callable[[str], None]) -> list:
    """Measure in turn with a copy of as many bytes as the first case moves."""
    copy = BareCopy(device, cases[0].nbytes // 2, machine.cores() if device.kind == "host" else 1)
    try:
        return interleave([*cases, Case(COPY, copy.run, copy.moved)], samples, done=done)
    finally:
        copy.close()


def _same(patch: GridPatch, outputs: dict[str, Buffer], wanted: dict[str, Buffer]) -> dict:
    """Return the number of cells that have other bits."""
    if patch.device.kind == "null":
        return {"recorded": True}
    cells = sum(patch.differing(buffer, wanted[name]) for name, buffer in outputs.items())
    return {"cells_that_differ": cells, "off": cells, "allowed": 0, "compared": patch.size * len(outputs)}


def check(groups: Iterable[Group]) -> None:
    """Raise AssertionError where something found was not what it must be."""
    wrong = [f"{group.name}: {name}: {found}" for group in groups for name, found in group.checks.items()
             if found.get("off", 0) > found.get("allowed", 0)]
    assert not wrong, "\n".join(wrong)
