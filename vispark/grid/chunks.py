"""Chunks of array files and the blocks of a grid: which splits fit, so that no chunk is in two blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gpu_worker.protocol.errors import PlanError
from vispark.grid.spec import GridSpec

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


def block_chunks(description: GridSpec, path: str) -> tuple[int, ...]:
    """Return the chunks with which each block is written as one.

    Raises
    ------
    PlanError
        If blocks are of several lengths along an axis, other than the last one being shorter; it names splits that fit.
    """
    chunks = []
    for axis, (extent, splits) in enumerate(zip(description.shape, description.splits, strict=True)):
        chunk = -(-extent // splits)
        if not fits(extent, splits, chunk):
            raise PlanError(f"{path} cannot have a chunk for each block: splits={description.splits} cut the {extent} "
                            f"cells of axis {axis} into blocks of several lengths, and chunks have one. Splits of that "
                            f"axis that fit are {_fitting(extent, splits, None)}; or save the grid as .npy, which any "
                            "splits can write")
        chunks.append(chunk)
    return tuple(chunks)


def _fitting(extent: int, near: int, chunk: int | None) -> str:
    """Return the splits that fit an axis, the ones nearest to the splits that were asked for; without chunks, those for
    which the blocks can be the chunks.
    """
    every = [splits for splits in range(1, min(extent, 4 * near + 64) + 1)
             if fits(extent, splits, chunk or -(-extent // splits))]
    return ", ".join(map(str, sorted(sorted(every, key=lambda splits: (abs(splits - near), splits))[:_NAMED])))
