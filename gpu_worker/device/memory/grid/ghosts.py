"""Sources of the values of a patch's ghost cells: pure geometry.

Ghost cells inside the grid have their values in other patches. Those outside follow the boundary, axis by axis: a
periodic axis continues at its other end, a mirrored side repeats the cells before it in reverse, and a given side has
values of its own. Axes are continued in order, each with what was continued before, as :func:`numpy.pad` would axis by
axis. So a ghost cell outside along several axes follows the last of them that is given, at the place that the periodic
and mirrored axes after it map it to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gpu_worker.device.memory.grid.boxes import AXES, Box, Triple

#: How a side of the grid continues.
PERIODIC, MIRRORED, GIVEN = "periodic", "mirrored", "given"

#: Of each axis, how it continues below and above.
Rules = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Copied:
    """Ghost cells that have a patch's values.

    Attributes
    ----------
    target, source : int
        Which of the patches to fill, and which of those that have values.
    to : Box
        The ghost cells, numbered over the grid.
    start : (int, int, int)
        The cell whose value ``to.low`` gets.
    steps : (int, int, int)
        1, or -1 along an axis where cells are taken in reverse.
    """

    target: int
    to: Box
    source: int
    start: Triple
    steps: Triple


@dataclass(frozen=True, slots=True)
class Filled:
    """Ghost cells of a patch that have the values given for a side of the grid: 0 below, 1 above.

    ``start`` is where, over the grid, ``to.low`` finds its value, and ``steps`` are as in :class:`Copied`.
    """

    target: int
    to: Box
    axis: int
    side: int
    start: Triple
    steps: Triple


@dataclass(frozen=True, slots=True)
class _Range:
    """Range of cells along one axis, and the first of their source cells; ``side`` is set if their values are given."""

    low: int
    high: int
    start: int
    step: int = 1
    side: int = -1
    ghost: bool = True


def ghosts(targets: Sequence[Box], sources: Sequence[Box], shape: Triple, below: Triple, above: Triple,
           rules: Rules) -> Iterator[Copied | Filled]:
    """Yield the copies and fills of patches' ghost cells, in an order that depends on the arguments alone.

    Parameters
    ----------
    targets : sequence of Box
        The interiors of the patches to fill.
    sources : sequence of Box
        The interiors of the patches to take values from; what none of them has is left out.
    shape : (int, int, int)
        The extents of the whole grid.
    below, above : (int, int, int)
        How many ghost cells to fill on either side of each axis; no more than the axis has cells.
    rules : tuple
        How the grid continues at its sides.
    """
    for target, box in enumerate(targets):
        ranges = [list(_ranges(box.low[axis], box.high[axis], below[axis], above[axis], shape[axis], rules[axis]))
                  for axis in AXES]
        for parts in product(*ranges):
            if any(part.ghost for part in parts):
                to = Box(tuple(part.low for part in parts), tuple(part.high for part in parts))
                outside = next((axis for axis in reversed(AXES) if parts[axis].side >= 0), -1)
                if outside >= 0:
                    yield Filled(target, to, outside, parts[outside].side, *_mapped(parts, outside))
                else:
                    yield from _copied(target, to, parts, sources)


def slab_box(shape: Triple, widths: Triple, axis: int, side: int) -> Box:
    """Return the ghost cells of the whole grid for which a side's values are given, where they differ: edges included.
    """
    box = Box((0, 0, 0), shape).grown(widths, widths)
    return box.along(axis, shape[axis], box.high[axis]) if side else box.along(axis, box.low[axis], 0)


def _ranges(low: int, high: int, below: int, above: int, extent: int, rules: tuple[str, str]) -> Iterator[_Range]:
    """Yield the cells of a patch along one axis, with its ghosts."""
    first, last = low - below, high + above
    if first < 0:
        yield _outside(first, 0, extent, rules[0], 0)
    if max(first, 0) < low:
        yield _Range(max(first, 0), low, max(first, 0))
    yield _Range(low, high, low, ghost=False)
    if high < min(last, extent):
        yield _Range(high, min(last, extent), high)
    if extent < last:
        yield _outside(extent, last, extent, rules[1], 1)


def _outside(low: int, high: int, extent: int, rule: str, side: int) -> _Range:
    if rule == PERIODIC:
        return _Range(low, high, low - extent if side else low + extent)
    if rule == MIRRORED:
        return _Range(low, high, 2 * extent - 1 - low if side else -1 - low, -1)
    return _Range(low, high, low, side=side)


def _mapped(parts: Sequence[_Range], side_axis: int) -> tuple[Triple, Triple]:
    """Return the position and the steps of a ghost box within a side's values; axes before the side's are not continued
    yet.
    """
    return (tuple(part.start if axis > side_axis else part.low for axis, part in enumerate(parts)),
            tuple(part.step if axis > side_axis else 1 for axis, part in enumerate(parts)))


def _copied(target: int, to: Box, parts: Sequence[_Range], sources: Sequence[Box]) -> Iterator[Copied]:
    steps = tuple(part.step for part in parts)
    # The cells that the values come from, in the grid's own order.
    ends = [part.start + part.step * (part.high - part.low - 1) for part in parts]
    origin = Box(tuple(min(part.start, end) for part, end in zip(parts, ends, strict=True)),
                 tuple(max(part.start, end) + 1 for part, end in zip(parts, ends, strict=True)))
    for source, box in enumerate(sources):
        overlap = origin.shared(box)
        if overlap.size:
            low, start = [], []
            for axis in AXES:
                forwards = steps[axis] > 0
                first = overlap.low[axis] if forwards else overlap.high[axis] - 1
                low.append(to.low[axis] + abs(first - parts[axis].start))
                start.append(first)
            shape = overlap.shape
            high = tuple(low[axis] + shape[axis] for axis in AXES)
            yield Copied(target, Box(tuple(low), high), source, tuple(start), steps)
