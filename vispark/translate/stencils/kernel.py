"""Specialisation of functions of a grid's cells: a stencil or a plain function becomes a kernel for a box of cells."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vispark.translate.codegen.scalar.interface import ElementField, KernelOutput, KernelParameter, ResultStructure
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.frontend.capture import argument
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant, Definition, Function
from vispark.translate.ir.source_text import at_definition
from vispark.translate.language.stencil import HaloWidths
from vispark.translate.stencils.cell import CellWriter, Made
from vispark.translate.stencils.frame import ACCESS_BYTES, WARP, Cell, FieldRead, axes_of
from vispark.translate.stencils.one_step import March, march, registers_of

#: How stencil kernels are compiled: products and sums are rounded each, as NumPy does, so that every frame, device and
#: split of the grid gives the same bits.
OPTIONS = ("-fmad=false",)

_MOST_BYTES = 32
_MOST_LANES = 8
#: The most registers for neighbours with which blocks are short; by the grid's axes.
_MOST_REGISTERS = {1: 96, 2: 96, 3: 64}
#: The planes between the lowest and the highest that are read, from which on they are many.
_DEEP = 4
#: The registers of a multiprocessor, and how many a thread then has for each that its neighbours take: as measured with
#: reaches of 2 and 3, for which 80 and 128 were best.
_REGISTERS, _FREE_SHARE = 65536, (9, 5)


@dataclass(frozen=True)
class StencilKernel:
    """A kernel that computes a box of a patch's cells, and how it is launched.

    Attributes
    ----------
    source : str
        CUDA C++, for NVRTC and for the host device.
    name : str
        The ``extern "C"`` function in it.
    options : tuple of str
        What it must be compiled with.
    fields : tuple of str
        The fields that it reads, in the order of its first parameters.
    outputs : tuple of KernelOutput
        The arrays that it writes, in the order of its next parameters.
    structure : ResultStructure
        How the function's result is built of them.
    parameters : tuple of KernelParameter
        All that it takes, in order: kinds ``"input"``, ``"output"``, ``"region"`` (a ``vp_region`` by value), and
        ``"argument"`` and ``"capture"`` as in :class:`~vispark.translate.Kernel`.
    halo : tuple of (int, int)
        How many cells it reads below and above the region along each axis of the grid.
    block : (int, int, int)
        Threads of a block.
    tile : (int, int, int)
        Cells of a block along x, y and z: a launch needs the region's extents over these, rounded up, as its grid. More
        blocks along ``dealt`` are right too, and better for small regions: these share the region's planes evenly.
    dealt : int
        The place in ``tile`` of the axis that blocks share.
    shared : int
        Bytes of dynamic shared memory.
    steps : int
        Time steps that it does at once.
    reach : tuple of tuple of (int, int)
        What ``halo`` is for each of the fields.
    """

    source: str
    name: str
    options: tuple[str, ...]
    fields: tuple[str, ...]
    outputs: tuple[KernelOutput, ...]
    structure: ResultStructure
    parameters: tuple[KernelParameter, ...]
    halo: HaloWidths
    block: tuple[int, int, int]
    tile: tuple[int, int, int]
    dealt: int
    shared: int = 0
    steps: int = 1
    reach: tuple[HaloWidths, ...] = ()

    def grid(self, low: Sequence[int], high: Sequence[int]) -> tuple[int, ...]:
        """Return the launch's grid for the cells [low, high) along (z, y, x)."""
        extents = (high[axis] - low[axis] for axis in (2, 1, 0))
        return tuple(max(1, -(-extent // tile)) for extent, tile in zip(extents, self.tile, strict=True))

    def values(self, function: Function, args: Sequence[Any]) -> tuple[np.ndarray | np.generic, ...]:
        """Return the values of the parameters of kind "argument" and "capture", in the parameters' order."""
        values = []
        for parameter in self.parameters:
            if parameter.kind in ("argument", "capture"):
                value = function.captures[parameter.number].value if parameter.kind == "capture" else \
                    argument(function.definition, args[parameter.number], parameter.number)
                values.append(value.array if parameter.pointer else value.array[()])
        return tuple(values)


def specialise_stencil(function: Function, fields: Sequence[ElementField], args: Sequence[Any] = (), *, dims: int,
                       halo: HaloWidths | None = None) -> StencilKernel:
    """Return the kernel of a traced function of a grid's cells.

    Parameters
    ----------
    function : Function
        What :func:`trace` gave for a stencil, or for a plain function, which sees its own cell only.
    fields : sequence of ElementField
        The grid's fields: one without a name, or several, which the function takes by naming parameters after them.
    args : sequence
        The arguments, numbers and arrays.
    dims : int
        The grid's axes, 1 to 3.
    halo : tuple of (int, int), optional
        How far below and above itself a cell may read along each axis; left out, as far as the function does.

    Raises
    ------
    TranslationError
        If the types do not go together, or an offset leads beyond the halo; at the user's line.

    Examples
    --------
    >>> from vispark.translate import ElementField, stencil, trace
    >>> @stencil
    ... def smooth(u):
    ...     return 0.25 * u[-1] + 0.5 * u[0] + 0.25 * u[1]
    >>> kernel = specialise_stencil(trace(smooth), [ElementField("", "float32")], dims=1)
    >>> kernel.halo, kernel.outputs[0].dtype
    (((1, 1),), 'float32')
    """
    cell = specialised(function, tuple(fields), args, dims, halo)
    return _kernel(function.definition, cell)


def specialised(function: Function, fields: tuple[ElementField, ...], args: Sequence[Any], dims: int,
                 halo: HaloWidths | None) -> Made:
    """Translate a function of a cell; numbers become constants only where they must."""
    definition = function.definition
    values: dict[tuple[str, int], Constant] = {("capture", i): one.value for i, one in enumerate(function.captures)}
    values |= {("argument", i): argument(definition, arg, i) for i, arg in enumerate(args)}
    statics: Mapping[tuple[str, int], Any] = {place: value.number for place, value in values.items()
                                              if not value.shape and value.weak and np.dtype(value.dtype) == np.bool_}
    typed = tuple((place, _typed(value)) for place, value in values.items())
    names = tuple(capture.name for capture in function.captures)
    while True:
        try:
            return _write(definition, fields, dims, halo, names, typed, tuple(statics.items()))
        except NeedsStatic as needed:
            statics = {**statics, **{place: values[place].number for place in needed.sources}}


def _typed(value: Constant) -> Constant:
    """Return a constant's type without its value, as a kernel depends on the type alone."""
    return Constant(value.dtype, value.shape, b"", value.weak)


@functools.lru_cache(maxsize=512)
def _write(definition: Definition, fields: tuple[ElementField, ...], dims: int, halo: HaloWidths | None,
           names: tuple[str, ...],
           constants: tuple[tuple[tuple[str, int], Constant], ...],
           statics: tuple[tuple[tuple[str, int], Any], ...]) -> Made:
    try:
        return CellWriter(definition, fields, dims, halo, names, dict(constants), dict(statics)).write()
    except Refusal as error:
        raise at_definition(definition, str(error)) from error


@functools.lru_cache(maxsize=512)
def _kernel(definition: Definition, cell: Made) -> StencilKernel:
    """Return the kernel of one time step around a function of a cell."""
    how, name = march_of(cell.cell), f"{definition.name}_kernel"
    return StencilKernel(
        march(cell.cell, name, how), name, OPTIONS, tuple(read.field for read in cell.cell.reads), cell.outputs,
        cell.structure, parameters_of(cell), cell.halo, (*how.threads, 1), how.tile(cell.cell.dims),
        1 if cell.cell.dims == 2 else 2, reach=tuple(_reach(read, cell.cell.dims) for read in cell.cell.reads))


def _reach(read: FieldRead, dims: int) -> HaloWidths:
    """Return the reach of a field's reads below and above along each axis of the grid."""
    reach = [read.reach(axis) for axis in range(3 - dims, 3)]
    return tuple((max(0, -low), max(0, high)) for low, high in reach)


def parameters_of(cells: Made) -> tuple[KernelParameter, ...]:
    """Return the parameters of a kernel around a function of a cell."""
    dtypes = dict(cells.dtypes)
    inputs = tuple(KernelParameter("input", read.field, 0, dtypes[read.field], (), True) for read in cells.cell.reads)
    outputs = tuple(KernelParameter("output", output.name, 0, output.dtype, (), True) for output in cells.outputs)
    return (*inputs, *outputs, KernelParameter("region", dtype=""), *cells.parameters)


def lanes_of(cell: Cell) -> int:
    """Return the neighbouring cells of a thread: accesses of 16 bytes for the smallest type, and of 32 at most."""
    sizes = [read.itemsize for read in cell.reads] + [write.itemsize for write in cell.writes]
    return max(1, min(ACCESS_BYTES // min(sizes), _MOST_BYTES // max(sizes), _MOST_LANES))


def march_of(cell: Cell) -> March:
    """Choose the tiling of a stencil, from its reads and writes.

    Where little is read again, memory sets the pace: then few planes at once, so that blocks which run together read
    and write one stretch of memory. Else the first planes of a block, which it reads before it computes any, weigh
    more. Quotients take registers of their own: beside many planes a thread has one row, and few registers, so that
    more threads run at once.
    """
    threads, rows = ((WARP, 4), 2) if cell.dims == len("zyx") else ((4 * WARP, 1), 1)
    light = March(threads, lanes_of(cell), rows, 4, True, True)
    if registers_of(cell, light) <= _MOST_REGISTERS[cell.dims]:
        return light
    heavy = replace(light, chunk=32)
    deepest = max(top - bottom for bottom, top in (read.reach(axes_of(cell.dims)[0]) for read in cell.reads))
    if not cell.divides or deepest < _DEEP:
        return heavy
    single = replace(heavy, rows=1)
    return replace(single,
                   least=_REGISTERS // (math.prod(threads) * registers_of(cell,
                                                                          single) * _FREE_SHARE[0] // _FREE_SHARE[1]))
