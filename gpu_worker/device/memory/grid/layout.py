"""Memory layout of patches, and copies of boxes of cells between places in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpu_worker.device.memory.grid.boxes import Box, Triple

#: Rows start at multiples of so many elements, and a patch's first one has as many elements before it.
LINE = 32


@dataclass(frozen=True)
class PatchLayout:
    """The memory of one field of a patch: its cells with ghosts around them, row by row.

    Rows lie ``pitch`` elements apart and planes ``plane`` elements; both are the same for all fields of a patch. A
    row's ghost cells above x and the next row's below share the room between the rows.

    Parameters
    ----------
    box : Box
        The patch's cells, without ghosts.
    ghosts : (int, int, int)
        Ghost cells on either side of each axis; at most 32 along x.
    """

    box: Box
    ghosts: Triple

    @cached_property
    def pitch(self) -> int:
        return -(-(self.box.shape[2] + 2 * self.ghosts[2]) // LINE) * LINE

    @cached_property
    def plane(self) -> int:
        return self.pitch * (self.box.shape[1] + 2 * self.ghosts[1])

    @cached_property
    def origin(self) -> int:
        """The element of the patch's first cell."""
        return LINE + self.ghosts[0] * self.plane + self.ghosts[1] * self.pitch

    @cached_property
    def elements(self) -> int:
        """The elements of one field's memory, with a line on either end that vector accesses may touch."""
        return 2 * LINE + self.plane * (self.box.shape[0] + 2 * self.ghosts[0])

    @cached_property
    def strides(self) -> Triple:
        return self.plane, self.pitch, 1

    def element(self, cell: Triple) -> int:
        """Return the element of a cell, which is numbered over the grid and may be a ghost."""
        return self.origin + sum((at - low) * stride
                                 for at, low, stride in zip(cell, self.box.low, self.strides, strict=True))

    def view(self, memory: np.ndarray, *, ghosts: bool = False) -> np.ndarray:
        """Return a patch's cells in host memory, which is a flat array of the field's dtype; for tests and the host."""
        box = self.box.grown(self.ghosts, self.ghosts) if ghosts else self.box
        start, size = self.element(box.low), memory.itemsize
        return np.lib.stride_tricks.as_strided(memory[start:], box.shape, [stride * size for stride in self.strides])


@dataclass(frozen=True)
class PackedLayout(PatchLayout):
    """A block with its ghosts as one contiguous array, which is how kernels of others take it."""

    @cached_property
    def pitch(self) -> int:
        return self.box.shape[2] + 2 * self.ghosts[2]

    @cached_property
    def origin(self) -> int:
        return self.ghosts[0] * self.plane + self.ghosts[1] * self.pitch + self.ghosts[2]

    @cached_property
    def elements(self) -> int:
        return self.plane * (self.box.shape[0] + 2 * self.ghosts[0])


@dataclass(frozen=True, slots=True)
class BlockWindow:
    """A block's cells in memory that is laid out for more than them."""

    layout: PatchLayout
    box: Box


def packed(shape: Triple) -> Triple:
    """Return the strides of a contiguous array, in elements."""
    return shape[1] * shape[2], shape[2], 1


@dataclass(frozen=True)
class Copy:
    """Elements to copy from one place in memory to another; ``step`` 0 along all axes repeats one element.

    Attributes
    ----------
    source, target : int
        Addresses of the first elements.
    from_strides, to_strides : (int, int, int)
        In elements.
    shape : (int, int, int)
    itemsize : int
        Bytes of an element: 1, 2, 4, 8 or 16.
    """

    source: int
    target: int
    from_strides: Triple
    to_strides: Triple
    shape: Triple
    itemsize: int


#: What a kernel reads of a :class:`Copy`; extents and strides are in units of ``unit`` bytes along x, in bytes else.
COPY = np.dtype([("source", "i8"), ("target", "i8"), ("from_z", "i8"), ("from_y", "i8"), ("to_z", "i8"), ("to_y", "i8"),
                 ("from_x", "i4"), ("to_x", "i4"), ("nx", "i4"), ("ny", "i4"), ("unit", "i4"), ("rows", "i4")])

#: What one thread block copies: rows of one of the copies.
WORK = np.dtype([("copy", "i4"), ("first", "i4"), ("rows", "i4"), ("reserved", "i4")])

#: The most units of one row, and about how many one thread block copies.
_ROW = 1 << 14
_UNITS = 1 << 11
_MOST_ROWS = 1 << 30


def tables(copies: Sequence[Copy]) -> tuple[np.ndarray, np.ndarray]:
    """Return the copies as a kernel reads them, and the works of its thread blocks."""
    entries, works, _ = routed(copies)
    return entries, works


def routed(copies: Sequence[Copy]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tables of :func:`tables`, and for each copy in them the index of the given copy that it is a part of.
    """
    parts = [(number, part) for number, copy in enumerate(copies) for part in _cut(_joined(copy))]
    entries = np.array([_entry(part) for _, part in parts], COPY)
    rows = np.maximum(1, _UNITS // np.maximum(entries["nx"], 1))
    counts = -(-entries["rows"] // rows)
    which = np.repeat(np.arange(len(entries)), counts)
    works = np.zeros(len(which), WORK)
    works["copy"] = which
    works["first"] = (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)) * rows[which]
    works["rows"] = np.minimum(rows[which], entries["rows"][which] - works["first"])
    return entries, works, np.array([number for number, _ in parts])


def _joined(copy: Copy) -> Copy:
    """Merge a copy's rows into fewer, longer ones, if they are adjacent at both source and target."""
    for _ in range(2):
        (nz, ny, nx), reads, goes = copy.shape, copy.from_strides, copy.to_strides
        if ny == 1 or (reads[1] == nx * reads[2] and goes[1] == nx * goes[2]):
            copy = replace(copy, shape=(1, nz, ny * nx), from_strides=(reads[0], reads[0], reads[2]),
                           to_strides=(goes[0], goes[0], goes[2]))
    return copy


def _cut(copy: Copy) -> Iterator[Copy]:
    """Yield copies of short rows, and not too many of them."""
    nz, ny, nx = copy.shape
    if nx > _ROW:
        for x in range(0, nx, _ROW):
            yield replace(copy, source=copy.source + x * copy.from_strides[2] * copy.itemsize,
                          target=copy.target + x * copy.to_strides[2] * copy.itemsize,
                          shape=(nz, ny, min(_ROW, nx - x)))
    elif nz * ny > _MOST_ROWS:
        raise ValueError(f"{nz * ny:,} rows are more than one copy can have")
    else:
        yield copy


def _entry(copy: Copy) -> tuple[Any, ...]:
    size = copy.itemsize
    (nz, ny, nx), reads, goes = copy.shape, copy.from_strides, copy.to_strides
    repeated = reads == (0, 0, 0)
    unit = size
    if goes[2] == 1 and (reads[2] == 1 or repeated):
        # The widest accesses that all addresses and the length of rows are multiples of.
        steps = [stride * size for strides in (reads, goes) for stride, extent in zip(strides, (nz, ny), strict=False)
                 if extent > 1]
        bits = 16 | nx * size | copy.target | (0 if repeated else copy.source)
        for step in steps:
            bits |= step
        unit = max(bits & -bits, size)
    per = unit // size
    return (copy.source, copy.target, reads[0] * size, reads[1] * size, goes[0] * size, goes[1] * size,
            0 if repeated else reads[2], goes[2], nx // per, ny, unit, nz * ny)
