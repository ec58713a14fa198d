"""Distribution of blocks' rows over the thread blocks of a table launch."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np


def tile_rows(rows: Sequence[int], tile: int, most: int = 0, largest: int = 0) -> np.ndarray:
    """Deal the rows of some blocks to works.

    Parameters
    ----------
    rows : sequence of int
        The rows of each block.
    tile : int
        Works begin at multiples of so many rows, and have as many but for the last of a block.
    most : int
        About how many works there are to be, at most: one for each block that has rows where those are more. 0 for one
        work for each tile.
    largest : int
        No work has more rows than this, or than a tile where that is more, even if there are more works than ``most``;
        0 for any number of rows.

    Returns
    -------
    ndarray of int64, (works, 3)
        Block, first row and rows of each work, in order. No work has more tiles than it must, and those of one block
        differ by a tile at most.

    Examples
    --------
    >>> tile_rows([10, 0, 3], 2).tolist()
    [[0, 0, 2], [0, 2, 2], [0, 4, 2], [0, 6, 2], [0, 8, 2], [2, 0, 2], [2, 2, 1]]
    >>> tile_rows([10, 0, 3], 2, 3).tolist()
    [[0, 0, 4], [0, 4, 6], [2, 0, 3]]
    >>> tile_rows([10], 2, 1, 6).tolist()
    [[0, 0, 4], [0, 4, 6]]
    """
    return _divided_rows(tuple(rows), tile, most, largest)


@functools.lru_cache(maxsize=256)
def _divided_rows(rows: tuple[int, ...], tile: int, most: int, largest: int) -> np.ndarray:
    extents = np.asarray(rows, np.int64)
    tiles = -(-extents // tile)
    share = _share(tiles, most) if most else 1
    if largest:
        share = min(share, max(1, largest // tile))
    counts = -(-tiles // share)
    entries = np.repeat(np.arange(len(extents)), counts)
    place = np.arange(len(entries)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = place * tiles[entries] // counts[entries] * tile
    behind = np.minimum((place + 1) * tiles[entries] // counts[entries] * tile, extents[entries])
    works = np.stack([entries, first, behind - first], axis=1)
    works.flags.writeable = False
    return works


def _share(tiles: np.ndarray, most: int) -> int:
    """Return the smallest number of tiles per work that gives at most ``most`` works, or one a block."""
    most = max(most, int(np.count_nonzero(tiles)))
    low, high = 1, max(1, int(tiles.max(initial=1)))
    while low < high:
        middle = (low + high) // 2
        if int((-(-tiles // middle)).sum()) <= most:
            high = middle
        else:
            low = middle + 1
    return low


def starts(works: np.ndarray, entries: int) -> np.ndarray:
    """Return the index of each block's first work, and behind the last block the number of works; int64, one more than
    there are blocks.

    >>> starts(tile_rows([4, 0, 3], 2), 3).tolist()
    [0, 2, 2, 4]
    """
    return np.searchsorted(works[:, 0], np.arange(entries + 1)).astype(np.int64)
