"""Keys of a grid's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from importlib import import_module
from typing import Protocol, cast

from vispark.data.grid.spec import GridSpec


class GridLike(Protocol):
    """Interface of a grid for its keys: the grid's description."""

    @property
    def description(self) -> GridSpec:
        """Cells, blocks and halo along each axis."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Name and dtype of each field that was declared."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The cells along each axis."""


def grid_of(description: GridSpec, fields: tuple[tuple[str, str], ...]) -> GridLike:
    """Return the grid of a description without functions, as its keys have it.

    The class is the API's, above this package; keys that come in pickles name it, too.
    """
    return cast(GridLike, import_module("vispark.api.grids.grid").restored(description, fields, {}))


@total_ordering
@dataclass(frozen=True)
class BlockKey:
    """The key of a block: which block of which grid.

    Attributes
    ----------
    grid : Grid
        The grid.
    position : tuple of int
        The block's place among the blocks along each axis.

    Examples
    --------
    >>> from vispark import Grid
    >>> key = Grid((4, 6), splits=(2, 2)).block(1, 0)
    >>> key.position, key.grid.shape
    ((1, 0), (4, 6))
    """

    grid: GridLike
    position: tuple[int, ...]

    @property
    def number(self) -> int:
        """Its place among all blocks in C order."""
        return self.grid.description.number_of(self.position)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its cells along each axis, without the halo."""
        return self.grid.description.block_shape(self.position)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where in the grid its cells are."""
        return tuple(slice(low, high) for low, high in self.grid.description.ranges(self.position))

    def __lt__(self, other: object) -> bool:
        return self.position < other.position if isinstance(other, BlockKey) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.grid, self.position))

    def __repr__(self) -> str:
        return f"BlockKey({', '.join(map(str, self.position))})"
