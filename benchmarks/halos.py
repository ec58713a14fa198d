"""Strips that a grid's blocks give to their neighbours, and their way by MPI between Spark's tasks.

With MPI a rank stands beside each partition for as long as the benchmark runs; a task gives it the strips of its blocks
and gets its neighbours', over a Unix socket. All tasks of a step must run at once, which a barrier stage sees to.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import numpy as np

BlockPlace = tuple[int, ...]
Direction = tuple[int, ...]    # where a neighbour lies, seen from a block: -1, 0 or 1 for each axis
Given = Mapping[Direction, Any]

#: Until all ranks listen.
_START_SECONDS = 60


@dataclass(frozen=True)
class HaloStrips:
    """Strips so many cells wide, which blocks give to the neighbours at their faces, or at edges and corners too.

    >>> sorted(Halos((2, 2), 1, corners=False).offsets)
    [(-1, 0), (0, -1), (0, 1), (1, 0)]
    """

    splits: BlockPlace
    width: int
    corners: bool

    @property
    def offsets(self) -> list[Direction]:
        return [offset for offset in product((-1, 0, 1), repeat=len(self.splits))
                if any(offset) and (self.corners or np.count_nonzero(offset) == 1)]

    def neighbour(self, position: BlockPlace, offset: Direction) -> BlockPlace | None:
        """Return the block there; None beyond the grid's end."""
        other = tuple(map(sum, zip(position, offset, strict=True)))
        return other if all(0 <= place < end for place, end in zip(other, self.splits, strict=True)) else None

    def given(self, position: BlockPlace, block: Any) -> Iterator[tuple[BlockPlace, tuple[Direction, np.ndarray]]]:
        """Yield the strips of a block: to whom, where that one has it, and the cells; ``block`` may have axes before
        those.
        """
        for offset in self.offsets:
            other = self.neighbour(position, offset)
            if other is not None:
                strip = block[(..., *(edge(side, self.width) for side in offset))]
                yield other, (tuple(-side for side in offset),
                              strip.get() if hasattr(strip, "get") else np.ascontiguousarray(strip))

    def owner(self, position: BlockPlace, ranks: int) -> int:
        """Return the rank, and the partition, of a block."""
        return int(np.ravel_multi_index(position, self.splits)) * ranks // int(np.prod(self.splits))

    def owned(self, rank: int, ranks: int) -> list[BlockPlace]:
        """Return the blocks of a rank."""
        return [position for position in np.ndindex(*self.splits) if self.owner(position, ranks) == rank]


def edge(side: int, width: int = 1) -> slice:
    """Return the first or last places of an axis, or all."""
    return slice(width) if side < 0 else slice(-width, None) if side > 0 else slice(None)


def heated(block: np.ndarray, strips: Given, k: float) -> np.ndarray:
    """Return a block after a step of the heat equation; where it is given nothing there is 0.

    A plane is done after the other, so that what is added up stays in a core's cache.
    """
    stepped, number = np.empty_like(block), block.dtype.type(k)
    for z, here in enumerate(block):
        around = np.multiply(here, -6, out=stepped[z])
        for side in (-1, 1):
            if 0 <= z + side < len(block):
                around += block[z + side]
            elif (side, 0, 0) in strips:
                around += strips[side, 0, 0][0]
        around[1:] += here[:-1]
        around[:-1] += here[1:]
        around[:, 1:] += here[:, :-1]
        around[:, :-1] += here[:, 1:]
        for (up, *within), strip in strips.items():
            if not up:
                around[tuple(map(edge, within))] += strip[z]
        around *= number
        around += here
    return stepped


# -- MPI --------------------------------------------------------------------------------------------------------------

@contextmanager
def ranks(count: int, halos: HaloStrips) -> Iterator[str]:
    """So many MPI ranks that exchange strips; the directory with their sockets."""
    with tempfile.TemporaryDirectory(prefix="vh-") as directory:
        started = subprocess.Popen(
            ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(count), sys.executable, "-m",
             "benchmarks.halo_rank", directory, str(int(halos.corners)), *map(str, halos.splits)])
        try:
            _await(Path(directory), count, started)
            yield directory
        finally:
            # Ranks that are killed leave their shared memory behind.
            for rank in range(count):
                with suppress(OSError), Client(_socket(directory, rank), "AF_UNIX") as connection:
                    connection.send(None)
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()


def _await(directory: Path, count: int, started: subprocess.Popen) -> None:
    end = time.monotonic() + _START_SECONDS
    while len(list(directory.glob("*.sock"))) < count:
        if time.monotonic() > end or started.poll() is not None:
            raise TimeoutError(f"not all of {count} MPI ranks have started")
        time.sleep(0.05)


def exchanged(directory: str, rank: int, halos: HaloStrips, blocks: Iterable[tuple[BlockPlace, Any]]
              ) -> dict[BlockPlace, dict[Direction, np.ndarray]]:
    """Exchange strips: return those that a rank's blocks get of their neighbours, which get what these give."""
    strips: dict[BlockPlace, dict[Direction, np.ndarray]] = defaultdict(dict)
    with Client(_socket(directory, rank), "AF_UNIX") as connection:
        connection.send([each for pair in blocks for each in halos.given(*pair)])
        for position, (offset, strip) in connection.recv():
            strips[position][offset] = strip
    return strips


def listen(directory: str, rank: int) -> Listener:
    """Open a rank's socket."""
    return Listener(_socket(directory, rank), "AF_UNIX")


def _socket(directory: str, rank: int) -> str:
    return str(Path(directory, f"{rank}.sock"))
