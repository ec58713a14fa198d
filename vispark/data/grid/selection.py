"""Selections of a grid's cells by an index of the whole array."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from vispark.data.grid.key import BlockKey
from vispark.data.grid.spec import GridSpec


@dataclass(frozen=True)
class CellSelection:
    """Selection of a grid's cells: from, up to (without), and the stride along each axis.

    ``dropped`` are the axes that a whole number was given for.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: tuple[int, ...] = ()

    @classmethod
    def of(cls, index: Any, shape: tuple[int, ...]) -> CellSelection:
        """Return the cells that an index of the whole array means.

        Raises
        ------
        PlanError
            If it is none of slices with positive steps, whole numbers and an ellipsis.
        """
        items = list(index) if isinstance(index, tuple) else [index]
        # By identity, since an array is equal to nothing as a whole.
        ellipses = [place for place, item in enumerate(items) if item is ...]
        if len(ellipses) > 1 or len(items) - len(ellipses) > len(shape):
            raise PlanError(f"cells={index!r} does not index a grid of {len(shape)} axes")
        for at in ellipses:
            items[at:at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
        items += [slice(None)] * (len(shape) - len(items))
        ranges = [_range(item, extent, axis) for axis, (item, extent) in enumerate(zip(items, shape, strict=True))]
        dropped = tuple(axis for axis, item in enumerate(items) if not isinstance(item, slice))
        starts, stops, steps = zip(*ranges, strict=True)
        return cls(starts, stops, steps, dropped)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the gathered array, with an extent of 1 for axes that are dropped."""
        return tuple(len(range(*each)) for each in zip(self.starts, self.stops, self.steps, strict=True))

    def within(self, key: BlockKey) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the selected cells of a block, and their places in the result."""
        return self.ranges(key.grid.description, key.position)

    def blocks(self, description: GridSpec) -> Iterator[int]:
        """Return the numbers of the blocks that have some of these cells."""
        along = []
        for axis, bounds in enumerate(zip(self.starts, self.stops, self.steps, strict=True)):
            cells, cuts = range(*bounds), description.cuts(axis)
            along.append([place for place, (low, high) in enumerate(pairwise(cuts))
                          if cells and bisect_left(cells, low) < bisect_left(cells, high)])
        return (description.number_of(position) for position in itertools.product(*along))

    def shape_within(self, description: GridSpec, position: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of selected cells of a block along each axis."""
        return tuple(part.stop - part.start for part in self.ranges(description, position)[1])

    def ranges(self, description: GridSpec,
               position: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the selected cells of the block at ``position``, and their places in the result, as :meth:`within`
        does.
        """
        inside, target = [], []
        for (low, high), start, stop, step in zip(description.ranges(position), self.starts, self.stops, self.steps,
                                                  strict=True):
            first = max(0, -(-(low - start) // step))
            last = max(first, -(-(min(high, stop) - start) // step))
            inside.append(slice(start + first * step - low, max(min(high, stop) - low, 0), step))
            target.append(slice(first, last))
        return tuple(inside), tuple(target)


def _range(item: Any, extent: int, axis: int) -> tuple[int, int, int]:
    if isinstance(item, slice):
        if item.step is not None and item.step < 1:
            raise PlanError(f"cells= has a step of {item.step} along axis {axis}; steps are 1 or more")
        return item.indices(extent)
    if isinstance(item, int | np.integer) and not isinstance(item, bool) and -extent <= item < extent:
        at = int(item) % extent
        return at, at + 1, 1
    raise PlanError(f"cells= has {item!r} along axis {axis} of {extent} cells; it takes slices and whole numbers that "
                    "are inside")
