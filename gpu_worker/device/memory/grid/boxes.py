"""Boxes of cells, or of blocks, and how a set of blocks is covered by them or dealt to devices."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

#: One number for each of the axes z, y, x.
Triple = tuple[int, ...]

AXES = (0, 1, 2)


@dataclass(frozen=True, order=True, slots=True)
class Box:
    """The cells from ``low`` on up to, without, ``high``."""

    low: Triple
    high: Triple

    @property
    def shape(self) -> Triple:
        return tuple(max(0, high - low) for low, high in zip(self.low, self.high, strict=True))

    @property
    def size(self) -> int:
        """The number of cells."""
        return prod(self.shape)

    def shared(self, other: Box) -> Box:
        """Return the cells that are in both; perhaps none."""
        return Box(tuple(map(max, self.low, other.low)), tuple(map(min, self.high, other.high)))

    def grown(self, below: Triple, above: Triple) -> Box:
        """Return the box with ``below`` and ``above`` more cells on the two sides of each axis."""
        return Box(tuple(low - width for low, width in zip(self.low, below, strict=True)),
                   tuple(high + width for high, width in zip(self.high, above, strict=True)))

    def seen_from(self, origin: Triple) -> Box:
        """Return the box with its cells numbered from ``origin``."""
        return Box(tuple(low - start for low, start in zip(self.low, origin, strict=True)),
                   tuple(high - start for high, start in zip(self.high, origin, strict=True)))

    def along(self, axis: int, low: int, high: int) -> Box:
        """Return the box with another range of cells along one axis."""
        return Box((*self.low[:axis], low, *self.low[axis + 1:]), (*self.high[:axis], high, *self.high[axis + 1:]))

    def __contains__(self, cell: Triple) -> bool:
        return all(low <= at < high for low, at, high in zip(self.low, cell, self.high, strict=True))

    def __iter__(self) -> Iterator[Triple]:
        """Return the cells, in the order of memory."""
        return product(*map(range, self.low, self.high))


def whole(shape: Triple) -> Box:
    """Return the box of all cells of a grid."""
    return Box((0, 0, 0), shape)


@lru_cache(maxsize=256)
def cuts(extent: int, splits: int) -> tuple[int, ...]:
    """Return the cuts of an axis into parts as equal as possible: ``splits + 1`` numbers from 0 to the extent.

    The first parts are those that are one longer, as :func:`numpy.array_split` has them.

    Examples
    --------
    >>> cuts(10, 4)
    (0, 3, 6, 8, 10)
    """
    size, longer = divmod(extent, splits)
    return tuple(part * size + min(part, longer) for part in range(splits + 1))


@dataclass(frozen=True)
class Lattice:
    """Grid and its division into blocks.

    Parameters
    ----------
    shape : (int, int, int)
        Cells along each axis.
    splits : (int, int, int)
        Blocks along each axis.
    """

    shape: Triple
    splits: Triple

    def cells(self, blocks: Box) -> Box:
        """Return the cells of a box of blocks."""
        ends = [cuts(extent, splits) for extent, splits in zip(self.shape, self.splits, strict=True)]
        return Box(tuple(at[low] for at, low in zip(ends, blocks.low, strict=True)),
                   tuple(at[high] for at, high in zip(ends, blocks.high, strict=True)))

    def block_of(self, cell: Triple) -> Triple:
        """Return the position of the block that has a cell."""
        return tuple(bisect_right(cuts(extent, splits), at) - 1
                     for at, extent, splits in zip(cell, self.shape, self.splits, strict=True))

    def block(self, position: Triple) -> Box:
        """Return the cells of one block."""
        return _block(self, position)


@lru_cache(maxsize=1 << 16)
def _block(lattice: Lattice, position: Triple) -> Box:
    # Kept, as each step of a loop asks for all of them.
    return lattice.cells(Box(position, tuple(at + 1 for at in position)))


def bisected(lattice: Lattice, parts: int) -> list[Box]:
    """Return boxes of blocks for ``parts`` devices, with nearly equal numbers of cells and short surfaces.

    Recursive coordinate bisection: the box is cut across its longest side, in cells, where the numbers of cells on
    either side are nearest to the numbers of devices that they are for (M. J. Berger and S. H. Bokhari, IEEE
    Trans. Comput. C-36, 1987). Where there are fewer blocks than devices, the last boxes are empty.

    Examples
    --------
    >>> [box.shape for box in bisected(Lattice((64, 32, 32), (4, 4, 4)), 2)]
    [(2, 4, 4), (2, 4, 4)]
    """
    return _bisected(lattice, whole(lattice.splits), parts)


def _bisected(lattice: Lattice, blocks: Box, parts: int) -> list[Box]:
    if parts == 1:
        return [blocks]
    if blocks.size <= 1:
        return [blocks] + [Box(blocks.low, blocks.low)] * (parts - 1)
    cells = lattice.cells(blocks)
    axis = max((axis for axis in AXES if blocks.shape[axis] > 1), key=lambda axis: cells.shape[axis])
    lower = parts // 2
    ends = cuts(lattice.shape[axis], lattice.splits[axis])
    middle = cells.low[axis] + cells.shape[axis] * lower / parts
    cut = min(range(blocks.low[axis] + 1, blocks.high[axis]), key=lambda at: abs(ends[at] - middle))
    below, above = blocks.along(axis, blocks.low[axis], cut), blocks.along(axis, cut, blocks.high[axis])
    # No device goes without while a block is left: those that have none on one side serve the other.
    if blocks.size >= parts:
        lower = min(max(lower, parts - above.size), below.size)
    return _bisected(lattice, below, lower) + _bisected(lattice, above, parts - lower)


def device_of_blocks(lattice: Lattice, parts: int) -> dict[Triple, int]:
    """Return the device of each block."""
    return {position: device for device, blocks in enumerate(bisected(lattice, parts)) for position in blocks}


def covered(positions: Collection[Triple]) -> list[Box]:
    """Return disjoint boxes that cover exactly these blocks: few boxes, and one if the blocks form a box.

    Each box starts at the first block that is left, and grows along x, y and z as far as blocks are left.
    """
    remaining, boxes = set(positions), []
    while remaining:
        low = min(remaining)
        box = Box(low, tuple(at + 1 for at in low))
        for axis in reversed(AXES):
            while remaining.issuperset(box.along(axis, box.high[axis], box.high[axis] + 1)):
                box = box.along(axis, box.low[axis], box.high[axis] + 1)
        remaining.difference_update(box)
        boxes.append(box)
    return boxes


def around(box: Box, widths: Triple, shape: Triple, periodic: Sequence[bool]) -> list[Box]:
    """Return disjoint boxes of a grid's cells that are within ``widths`` of a box's, the one with the box first; an
    axis that is periodic goes on at its other end.

    Examples
    --------
    >>> [(each.low, each.high) for each in around(Box((0, 2, 0), (2, 4, 1)), (1, 1, 0), (6, 6, 1), (True, False, True))]
    [((0, 1, 0), (3, 5, 1)), ((5, 1, 0), (6, 5, 1))]
    """
    ranges = [_around(box.low[axis], box.high[axis], widths[axis], shape[axis], periodic[axis]) for axis in AXES]
    return [Box(tuple(low for low, _ in parts), tuple(high for _, high in parts)) for parts in product(*ranges)]


def _around(low: int, high: int, width: int, extent: int, is_periodic: bool) -> list[tuple[int, int]]:
    """Return the ranges of cells along one axis that are within ``width`` of a range."""
    first, behind = low - width, high + width
    if is_periodic and behind - first >= extent:
        return [(0, extent)]
    ranges = [(max(first, 0), min(behind, extent))]
    if is_periodic and first < 0:
        ranges.append((extent + first, extent))
    if is_periodic and behind > extent:
        ranges.append((0, behind - extent))
    return ranges


def shells(box: Box, below: Sequence[int], above: Sequence[int]) -> tuple[Box, list[Box]]:
    """Return the cells of a box at the given distances from its sides, and disjoint boxes with all other cells.

    Slabs across z come first and are whole, those across x last and shortest, since these are slow to read.
    """
    inner, outer = box, []
    for axis in AXES:
        low, high = inner.low[axis], inner.high[axis]
        start = min(low + below[axis], high)
        end = max(high - above[axis], start)
        outer += [slab for slab in (inner.along(axis, low, start), inner.along(axis, end, high)) if slab.size]
        inner = inner.along(axis, start, end)
    return inner, outer
