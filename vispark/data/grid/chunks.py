"""Chunks of array files and the blocks of a grid: which splits fit, so that no chunk is in two blocks, and what of a
block is in which chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from gpu_worker.protocol.errors import PlanError
from vispark.data.grid.spec import GridSpec

#: How many times the grid's bytes a scatter may read.
MOST_READ = 1.1
#: How many splits of an axis an error names.
_NAMED = 8


def cuts_of(extent: int, splits: int) -> list[int]:
    """Return the cuts of an axis between its ends."""
    return list(GridSpec((extent,), (splits,), (0,), ()).cuts(0))[1:-1]


def fits(extent: int, splits: int, chunk: int) -> bool:
    """Return whether an axis is cut between chunks alone.

    Examples
    --------
    >>> [splits for splits in range(1, 11) if fits(10, splits, 2)]
    [1, 5]
    """
    return all(cut % chunk == 0 for cut in cuts_of(extent, splits))


def most_splits(extent: int, chunks: Sequence[int]) -> int:
    """Return the most splits of an axis that fit arrays with chunks of these lengths.

    Examples
    --------
    >>> most_splits(10, [2]), most_splits(10, [3]), most_splits(7, [4])
    (5, 1, 2)
    """
    most = min(-(-extent // chunk) for chunk in chunks)
    return next(splits for splits in range(most, 0, -1) if all(fits(extent, splits, chunk) for chunk in chunks))


def check_readable(shape: tuple[int, ...], splits: tuple[int, ...], chunks: tuple[int, ...], path: str) -> None:
    """Check that blocks are read without the cells of others.

    Raises
    ------
    PlanError
        If chunks are in several blocks, so that much more would be read than the grid; it names splits that fit.
    """
    shares = [_read_share(*axis) for axis in zip(shape, splits, chunks, strict=True)]
    if math.prod(shares) <= MOST_READ:
        return
    fitting = "; ".join(f"axis {axis}: {_fitting(extent, parts, chunk)}"
                        for axis, (extent, parts, chunk) in enumerate(zip(shape, splits, chunks, strict=True)))
    raise PlanError(f"{path} has chunks of {chunks}, which splits={splits} cut through, so that "
                    f"{math.prod(shares):.2g} times its bytes would be read. Splits that fit are, along {fitting}; or "
                    "write the file with other chunks")


def _read_share(extent: int, splits: int, chunk: int) -> float:
    """Return the times that a cell is read on average, where each block reads the chunks that it has cells of."""
    cuts = [0, *cuts_of(extent, splits), extent]
    read = sum(min(-(-high // chunk) * chunk, extent) - low // chunk * chunk
               for low, high in pairwise(cuts))
    return read / extent


def block_chunks(description: GridSpec) -> tuple[int, ...]:
    """Return the chunks of a grid that is saved: as long as its longest block along each axis."""
    return tuple(-(-extent // splits) for extent, splits in zip(description.shape, description.splits, strict=True))


def are_blocks(description: GridSpec, chunks: tuple[int, ...]) -> bool:
    """Return whether each chunk is a block: whether blocks are of one length along each axis, but for the last one.

    Examples
    --------
    >>> are_blocks(GridSpec((10, 8), (5, 2), (0, 0), ()), (2, 4)), are_blocks(GridSpec((10,), (4,), (0,), ()), (3,))
    (True, False)
    """
    return all(fits(*axis) for axis in zip(description.shape, description.splits, chunks, strict=True))


def check_blocks_are_chunks(description: GridSpec, chunks: tuple[int, ...], path: str) -> None:
    """Check that each block is a chunk of its own.

    Raises
    ------
    PlanError
        If blocks are of several lengths along an axis, other than the last one being shorter; it names splits that fit.
    """
    for axis, (extent, splits, chunk) in enumerate(zip(description.shape, description.splits, chunks, strict=True)):
        if not fits(extent, splits, chunk):
            raise PlanError(f"{path} cannot have a compressed chunk for each block: splits={description.splits} cut "
                            f"the {extent} cells of axis {axis} into blocks of several lengths, and chunks have one. "
                            f"Splits of that axis that fit are {_fitting(extent, splits, None)}; or save the grid "
                            "without compress=True, which any splits can write")


def pieces_of(slices: tuple[slice, ...],
              chunks: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield the chunks that a box of cells is in, each with the cells of both.

    Examples
    --------
    >>> list(pieces_of((slice(3, 6),), (4,)))
    [((0,), (slice(3, 4, None),)), ((1,), (slice(4, 6, None),))]
    """
    along = [[(number, slice(max(one.start, number * chunk), min(one.stop, (number + 1) * chunk)))
              for number in range(one.start // chunk, -(-one.stop // chunk))]
             for one, chunk in zip(slices, chunks, strict=True)]
    for piece in product(*along):
        yield tuple(number for number, _ in piece), tuple(cells for _, cells in piece)


def within(cells: tuple[slice, ...], corner: Sequence[int]) -> tuple[slice, ...]:
    """Return cells as a box whose first cell is ``corner`` counts them."""
    return tuple(slice(one.start - first, one.stop - first) for one, first in zip(cells, corner, strict=True))


def _fitting(extent: int, near: int, chunk: int | None) -> str:
    """Return the splits that fit an axis, the ones nearest to the splits that were asked for; without chunks, those for
    which the blocks can be the chunks.
    """
    every = [splits for splits in range(1, min(extent, 4 * near + 64) + 1)
             if fits(extent, splits, chunk or -(-extent // splits))]
    return ", ".join(map(str, sorted(sorted(every, key=lambda splits: (abs(splits - near), splits))[:_NAMED])))
