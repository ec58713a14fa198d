"""Specification of a grid: plain records that every process knows which works on the grid's blocks.

A description holds no code. Functions that give boundary values are referred to by a digest; see
:mod:`vispark.data.grid.boundary`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import GridShape

PERIODIC, MIRRORED, NUMBER, FUNCTION = "periodic", "mirrored", "number", "function"

#: The ghost cells that several steps at once read, by the grid's axes.
DEEP = {1: 1, 2: 8, 3: 3}


@dataclass(frozen=True, slots=True)
class Edge:
    """Boundary rule of a field at one side of an axis.

    Parameters
    ----------
    rule : str
        "periodic", "mirrored", "number" or "function".
    dtype, data : str, bytes
        The number.
    function : str
        The function's digest.
    """

    rule: str
    dtype: str = ""
    data: bytes = b""
    function: str = ""

    @classmethod
    def of_number(cls, number: complex | np.generic | np.ndarray) -> Edge:
        """Return a fixed value outside."""
        value = np.asarray(number)
        return cls(NUMBER, value.dtype.str, value.tobytes())

    @property
    def number(self) -> np.generic:
        """The fixed value outside."""
        value: np.generic = np.frombuffer(self.data, self.dtype)[0]
        return value


@dataclass(frozen=True, slots=True)
class FieldEdges:
    """The edges of a field, below and above each axis; without a name, of every field that is not named."""

    field: str
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class GridSpec:
    """Cells, blocks and halo along each axis, and how fields continue at the sides.

    Examples
    --------
    >>> description = GridSpec((10, 6), (3, 2), (1, 1), ())
    >>> description.cuts(0)
    (0, 4, 7, 10)
    >>> description.block_shape((0, 1))
    (4, 3)
    """

    shape: tuple[int, ...]
    splits: tuple[int, ...]
    halo: tuple[int, ...]
    edges: tuple[FieldEdges, ...]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return math.prod(self.splits)

    @property
    def grid_shape(self) -> GridShape:
        """The grid's shape as messages describe it."""
        return GridShape(self.shape, self.splits, self.halo, self.ghosts)

    @property
    def ghosts(self) -> tuple[int, ...]:
        """How many ghost cells blocks have in memory: as many as several steps at once read, where a block has as many.

        What a function of the position gives outside is there for the halo alone.
        """
        if any(edge.rule == FUNCTION for each in self.edges for edge in each.edges):
            return self.halo
        return tuple(max(halo, min(DEEP[self.ndim], extent // splits)) if halo else 0
                     for extent, splits, halo in zip(self.shape, self.splits, self.halo, strict=True))

    def cuts(self, axis: int) -> tuple[int, ...]:
        """Return the cuts of an axis into blocks, both ends included; blocks that are one cell longer come first."""
        size, longer = divmod(self.shape[axis], self.splits[axis])
        return tuple(part * size + min(part, longer) for part in range(self.splits[axis] + 1))

    def ranges(self, position: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Return the range of a block's cells along each axis: (first, last + 1)."""
        ranges = []
        for axis, part in enumerate(position):
            size, longer = divmod(self.shape[axis], self.splits[axis])
            low = part * size + min(part, longer)
            ranges.append((low, low + size + (part < longer)))
        return tuple(ranges)

    def block_shape(self, position: tuple[int, ...]) -> tuple[int, ...]:
        """Return the cells of a block along each axis."""
        return tuple(high - low for low, high in self.ranges(position))

    def padded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a block of ``shape`` with its halo."""
        return tuple(extent + 2 * width for extent, width in zip(shape, self.halo, strict=True))

    def positions(self) -> Iterator[tuple[int, ...]]:
        """Return an iterator over the positions of all blocks, in the order of their numbers."""
        return itertools.product(*map(range, self.splits))

    def block_beside(self, cell: Sequence[int]) -> tuple[int, ...]:
        """Return the block that has a cell, or for a cell outside of the grid the block beside it."""
        return tuple(bisect_right(self.cuts(axis), min(max(at, 0), self.shape[axis] - 1)) - 1
                     for axis, at in enumerate(cell))

    def number_of(self, position: tuple[int, ...]) -> int:
        """Return a block's number: its place in C order among all."""
        return int(np.ravel_multi_index(position, self.splits))

    def position_of(self, number: int) -> tuple[int, ...]:
        """Return the block of a number."""
        return tuple(map(int, np.unravel_index(number, self.splits)))

    def edges_of(self, field: str) -> tuple[Edge, ...]:
        """Return the boundary rules of a field: below and above each axis."""
        for name in (field, ""):
            for rules in self.edges:
                if rules.field == name:
                    return rules.edges
        return (Edge.of_number(0.0),) * (2 * self.ndim)

    def check_whole(self, numbers: list[int]) -> None:
        """Check that these are the blocks of the grid, each once.

        Raises
        ------
        PlanError
            If one is missing or there twice.
        """
        seen = set(numbers)
        if len(seen) < len(numbers):
            twice = next(number for number in numbers if numbers.count(number) > 1)
            raise PlanError(f"block {self.position_of(twice)} is there more than once; each block of a grid is one "
                            "record")
        if len(seen) < self.blocks:
            missing = next(number for number in range(self.blocks) if number not in seen)
            raise PlanError(f"block {self.position_of(missing)} of the grid is missing: {len(seen)} of its "
                            f"{self.blocks} blocks are there, and neighbours need each other's cells")
