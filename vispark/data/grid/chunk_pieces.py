"""Pieces of blocks that lie across chunks, on their way into the chunks: tasks that have the blocks write them to files
beside the target, and tasks that write chunks read them there, so that none passes through a JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.data.grid import attributes
from vispark.data.grid.chunks import pieces_of, within
from vispark.data.grid.key import BlockKey
from vispark.data.grid.zarr_files import written_group
from vispark.data.storage.opening import Locations


@dataclass(frozen=True)
class Piece:
    """Cells of one block in one chunk, as a file of pieces has them.

    Parameters
    ----------
    number : int
        The block's, which is the file's name.
    cells : tuple of slice
        Where they are in the grid.
    spans : dict of str to (int, int, dtype)
        The bytes of each field in the file, from the first to behind the last.
    """

    number: int
    cells: tuple[slice, ...]
    spans: dict[str, tuple[int, int, np.dtype]]


#: A chunk, and a piece of it.
Placed = tuple[tuple[int, ...], Piece]


def write_pieces(directory: str, records: Iterable[tuple[BlockKey, Any]], chunks: tuple[int, ...]) -> Iterator[Placed]:
    """Write a file with the pieces of each block, one behind the other, and yield where they are; in a task."""
    locations = Locations()
    for key, block in records:
        fields = block if isinstance(block, dict) else {attributes.CELLS: block}
        parts: list[np.ndarray] = []
        nbytes = 0
        for chunk, cells in pieces_of(key.slices, chunks):
            own = within(cells, [one.start for one in key.slices])
            spans = {}
            for name, array in fields.items():
                parts.append(np.asarray(array)[own])
                spans[name] = nbytes, nbytes + parts[-1].nbytes, parts[-1].dtype
                nbytes += parts[-1].nbytes
            yield chunk, Piece(key.number, cells, spans)
        # As bytes, since not every store takes arrays of several axes.
        (locations(directory) / str(key.number)).write(
            (np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in parts), nbytes)


def join_pieces(directory: str, path: str, documents: Mapping[str, bytes], shape: tuple[int, ...],
                chunks: tuple[int, ...], gathered: Iterable[tuple[tuple[int, ...], list[Piece]]]) -> Iterator[None]:
    """Write chunks of a group out of the pieces of each; in a task, whose result is nothing."""
    place = Locations()(directory)
    with written_group(path, documents) as write:
        for chunk, pieces in gathered:
            corner = [at * edge for at, edge in zip(chunk, chunks, strict=True)]
            box = tuple(slice(first, min(first + edge, extent))
                        for first, edge, extent in zip(corner, chunks, shape, strict=True))
            whole: dict[str, np.ndarray] = {}
            for piece in pieces:
                bounds = [(start, stop) for start, stop, _ in piece.spans.values()]
                arrays = (place / str(piece.number)).read(bounds)
                for (name, (_, _, dtype)), data in zip(piece.spans.items(), arrays, strict=True):
                    target = whole.setdefault(name, np.zeros([one.stop - one.start for one in box], dtype))
                    cells = target[within(piece.cells, corner)]
                    cells[...] = np.frombuffer(data, dtype).reshape(cells.shape)
            write(box, whole)
    return iter(())
