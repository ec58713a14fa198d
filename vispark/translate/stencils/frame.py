"""Common parts of stencil kernels' frames: the function of one cell, and its call.

The user's function becomes ``name(outputs by reference, neighbours, coordinates, parameters)``, which computes one
cell from numbers. Each frame brings these numbers its own way: along an axis with planes in registers
(``stencil_march``), several time steps at once (``stencil_fused``), or on the host. As the function is the same, and is
compiled without fusing products and sums, every frame gives the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: An offset along (z, y, x); what a grid has fewer of comes first and is 0.
Offset = tuple[int, int, int]

#: What a kernel knows of the cells that it computes.
REGION = """#include "vispark/target.h"

struct vp_region { long long pitch, plane; int low[3], high[3]; long long origin[3], shape[3]; };
"""

AXES = "zyx"

#: What a thread reads at once where it can, and the threads of a warp.
ACCESS_BYTES = 16
WARP = 32

#: The distance of neighbours along z and y.
STRIDES = ("plane", "pitch")

LOAD = """// Neighbouring cells along x, in one access.
template <class T, int n> struct __align__(sizeof(T) * n) vp_lanes { T item[n]; };
template <int n, class T> static __device__ __forceinline__ void vp_load(T* to, const T* from)
{
    const vp_lanes<T, n> lanes = *(const vp_lanes<T, n>*)from;
    #pragma unroll
    for (int l = 0; l < n; ++l) to[l] = lanes.item[l];
}
"""

STORE = """// Marked as not to be read soon, so that the cache keeps neighbours instead.
template <int n, class T> static __device__ __forceinline__ void vp_store(T* to, const T* from)
{
    vp_lanes<T, n> lanes;
    #pragma unroll
    for (int l = 0; l < n; ++l) lanes.item[l] = from[l];
    vispark::store_aside((vp_lanes<T, n>*)to, lanes);
}
"""


WRAP = """// A place beyond a periodic grid, as the one it stands for.
static __device__ __forceinline__ long long vp_wrapped(long long place, long long extent)
{
    return place < 0 ? place + extent : place >= extent ? place - extent : place;
}
"""


@dataclass(frozen=True)
class FieldRead:
    """A field that a stencil reads, its C++ type, the bytes of a cell, and the offsets that it is read at."""

    field: str
    name: str
    c: str
    itemsize: int
    offsets: tuple[Offset, ...]

    def reach(self, axis: int) -> tuple[int, int]:
        """Return the lowest and the highest offset of the reads along an axis of (z, y, x), at most and at least 0."""
        along = [offset[axis] for offset in self.offsets]
        return min(0, *along), max(0, *along)


@dataclass(frozen=True)
class Write:
    """A field that a stencil writes, its C++ type and the bytes of a cell."""

    field: str
    name: str
    c: str
    itemsize: int


@dataclass(frozen=True)
class Cell:
    """The function of one cell.

    Attributes
    ----------
    name : str
        What the frames call.
    text : str
        Its C++.
    dims : int
        The axes of the grid, 1 to 3.
    coordinates, extents : tuple of int
        The axes of (z, y, x) along which it takes the cell's place in the whole grid, and the grid's length.
    given : tuple of (str, str)
        Declaration and name of each further parameter.
    total : bool
        Whether it may be called for cells that nobody wants: it always ends, and never with a fault.
    divides : bool
        Whether it has quotients that may not be ``sure``: then it is a template of ``exact``, with which they are, and
        takes ``sure`` by reference as its last parameter.
    """

    name: str
    text: str
    dims: int
    reads: tuple[FieldRead, ...]
    writes: tuple[Write, ...]
    coordinates: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    total: bool = True
    divides: bool = False

    @property
    def both(self) -> list[FieldRead | Write]:
        """The reads and the writes."""
        return [*self.reads, *self.writes]

    def call(self, target: Callable[[Write], str], neighbour: Callable[[FieldRead, Offset], str],
             place: Callable[[int], str], *, exact: bool) -> str:
        """Return a call: ``target`` is what an output is stored in, ``place`` the cell's index in the grid along an
        axis.
        """
        arguments = [target(write) for write in self.writes]
        arguments += [neighbour(read, offset) for read in self.reads for offset in read.offsets]
        arguments += [place(axis) for axis in self.coordinates]
        arguments += [f"region.shape[{axis}]" for axis in self.extents]
        arguments += [name for _, name in self.given]
        if self.divides:
            return f"{self.name}<{str(exact).lower()}>({', '.join([*arguments, 'sure'])});"
        return f"{self.name}({', '.join(arguments)});"

    def signature(self, kernel: str, bounds: str) -> list[str]:
        """Return the kernel's head."""
        parts = [f"const {read.c}* __restrict__ {read.name}_in" for read in self.reads]
        parts += [f"{write.c}* __restrict__ {write.name}" for write in self.writes]
        parts += ["const vp_region region", *(declared for declared, _ in self.given)]
        return [f'extern "C" __global__ void __launch_bounds__({bounds})', f"{kernel}({', '.join(parts)})"]


def offset_name(read: str, offset: Offset, dims: int) -> str:
    """Return a neighbour's name: ``u_0_m1`` for ``u[0, -1]``."""
    return "_".join([read, *(str(step).replace("-", "m") for step in offset[3 - dims:])])


def axes_of(dims: int) -> tuple[int, int]:
    """Return the axes of (z, y, x) along which threads march, and across which their rows lie."""
    return (1, 0) if dims == 2 else (0, 1)


def moved(base: str, steps: int, stride: str) -> str:
    """Return an address some steps along an axis from another."""
    if steps == 0:
        return base
    sign, count = ("+" if steps > 0 else "-"), abs(steps)
    return f"{base} {sign} {stride}" if count == 1 else f"{base} {sign} {count} * {stride}"


def shifted(index: str, steps: int) -> str:
    """Return an index some steps from another."""
    return index if steps == 0 else f"{index} {'+' if steps > 0 else '-'} {abs(steps)}"


#: How a field continues below and above z, y and x, from one of several steps to the next: "periodic", "mirrored", or
#: "kept" where the cells beyond the grid keep their values.
Rims = tuple[str, str, str, str, str, str]


@dataclass(frozen=True)
class TimeSteps:
    """Tiling of several time steps: how threads share the work, and the grid's boundary rules.

    Attributes
    ----------
    steps : int
        Time steps at once.
    warps, rows : int
        Warps of a block, one above the other, and the rows of each.
    chunk : int
        About how many planes a block goes through.
    rims : tuple of (str, Rims)
        How each field continues. An axis of (z, y, x) is periodic for all of them, or for none.
    buffers : int
        Buffers of outer rows in shared memory, 2 or more.
    """

    steps: int
    warps: int
    rows: int
    chunk: int
    rims: tuple[tuple[str, Rims], ...]
    buffers: int

    def periodic(self, axis: int) -> bool:
        """Return whether the grid continues at its other end."""
        return all(rims[2 * axis] == "periodic" for _, rims in self.rims)

    def kept(self, axis: int) -> bool:
        """Return whether cells beyond the grid keep their values."""
        return any("kept" in rims[2 * axis:2 * axis + 2] for _, rims in self.rims)

    def mirrored(self, field: str, axis: int) -> tuple[bool, bool]:
        """Return whether cells below and above an axis are those before the side, in reverse."""
        below, above = dict(self.rims)[field][2 * axis:2 * axis + 2]
        return below == "mirrored", above == "mirrored"


@dataclass(frozen=True)
class Carried:
    """A field on its way through several steps.

    Attributes
    ----------
    field, name, c, itemsize
        The field, what it is called in the source, its C++ type and the bytes of a cell.
    out : str
        The name of what its last values are written to; empty where it is only read.
    live : tuple of bool
        Whether what it holds before each step is needed, by that step or by one behind it.
    """

    field: str
    name: str
    c: str
    itemsize: int
    out: str
    live: tuple[bool, ...]

    @property
    def loaded(self) -> bool:
        """Whether it is read from memory."""
        return self.live[0]


def carried(cells: Sequence[Cell], rims: Mapping[str, Rims]) -> tuple[Carried, ...]:
    """Return the fields that some cells' functions go through, one after the other.

    What a step does not write goes on as it is. Where cells beyond the grid keep their values, a field that is computed
    on the way has them from memory.
    """
    by_field: dict[str, FieldRead | Write] = {}
    for cell in cells:
        for port in cell.both:
            by_field.setdefault(port.field, port)
    written = {write.field: write.name for cell in cells for write in cell.writes}
    alike = all(cell is cells[0] for cell in cells)
    fields = []
    for number, (field, first) in enumerate(by_field.items()):
        is_kept = "kept" in rims[field] and any(any(offset) for cell in cells for read in cell.reads
                                            if read.field == field for offset in read.offsets)
        live = [field in written]
        for cell in reversed(cells):
            is_written = field in {write.field for write in cell.writes} and not is_kept
            live.insert(0, (live[0] and not is_written) or field in {read.field for read in cell.reads})
        name = first.name if alike else f"{re.sub(r'[^A-Za-z0-9_]', '_', field) or 'cells'}_{number}f"
        out = written.get(field, "") if alike or field not in written else f"{name}_out"
        fields.append(Carried(field, name, first.c, first.itemsize, out, tuple(live[:-1])))
    return tuple(fields)


@dataclass(frozen=True)
class Tile:
    """The sizes of a tile of cells for several steps; ``inner`` are the cells whose last step is right."""

    lanes: int
    width: int
    height: int
    side: int
    inner: tuple[int, int]

    @classmethod
    def of(cls, itemsize: int, how: TimeSteps) -> Tile:
        """Return the tile of a block, for fields with cells of ``itemsize`` bytes."""
        lanes = ACCESS_BYTES // itemsize
        width, height, side = WARP * lanes, how.warps * how.rows, -(-how.steps // lanes) * lanes
        return cls(lanes, width, height, side, (width - 2 * side, height - 2 * how.steps))
