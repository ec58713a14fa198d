"""Halos of a grid's blocks between Spark's tasks: by a join, or by MPI.

With MPI a rank stands beside each partition for as long as the benchmark runs; a task gives it the faces of its blocks
and gets its neighbours', over a Unix socket. All tasks of a step must run at once, which a barrier stage sees to.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np

Position = tuple[int, ...]
Face = tuple[int, int]      # the axis, and -1 for the side below, 1 for that above

#: Until all ranks listen.
_START_SECONDS = 60


def all_faces(axes: int) -> Iterator[Face]:
    """The faces of a block with so many axes."""
    return product(range(axes), (-1, 1))


def neighbour(position: Position, face: Face, splits: Position) -> Position | None:
    """The block at a face; None at the grid's end."""
    axis, side = face
    place = position[axis] + side
    return (*position[:axis], place, *position[axis + 1:]) if 0 <= place < splits[axis] else None


def outermost(block: np.ndarray, face: Face) -> np.ndarray:
    """The cells of a block at a face, contiguous."""
    axis, side = face
    return np.ascontiguousarray(np.take(block, 0 if side < 0 else -1, axis))


def faces(position: Position, block: np.ndarray,
          splits: Position) -> Iterator[tuple[Position, tuple[Face, np.ndarray]]]:
    """What a block gives to others: to whom, at which of their faces, and the cells."""
    for axis, side in all_faces(len(splits)):
        other = neighbour(position, (axis, side), splits)
        if other is not None:
            yield other, ((axis, -side), outermost(block, (axis, side)))


def stepped(block: np.ndarray, halos: Iterable[tuple[Face, np.ndarray]], k: float) -> np.ndarray:
    """A block after a step of the heat equation; where it has no halo there is 0."""
    padded = np.pad(block, 1)
    for (axis, side), cells in halos:
        where: list[slice | int] = [slice(1, -1)] * 3
        where[axis] = 0 if side < 0 else -1
        padded[tuple(where)] = cells
    around = np.zeros_like(block)
    for axis, side in all_faces(3):
        where = [slice(1, -1)] * 3
        where[axis] = slice(1 + side, padded.shape[axis] - 1 + side)
        around += padded[tuple(where)]
    return block + np.float32(k) * (around - 6 * block)


# -- MPI --------------------------------------------------------------------------------------------------------------

def owner(position: Position, splits: Position, ranks: int) -> int:
    """The rank, and the partition, of a block."""
    return int(np.ravel_multi_index(position, splits)) * ranks // int(np.prod(splits))


@contextmanager
def ranks(count: int, splits: Position) -> Iterator[str]:
    """So many MPI ranks that exchange halos; the directory with their sockets."""
    with tempfile.TemporaryDirectory(prefix="vh-") as directory:
        started = subprocess.Popen(
            ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(count), sys.executable, "-m",
             "benchmarks.halo_rank", directory, *map(str, splits)])
        try:
            _await(Path(directory), count)
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


def _await(directory: Path, count: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while len(list(directory.glob("*.sock"))) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {count} MPI ranks have started")
        time.sleep(0.05)


def exchanged(directory: str, rank: int, given: list) -> list:
    """What the neighbours give for what a task gives to its rank."""
    with Client(_socket(directory, rank), "AF_UNIX") as connection:
        connection.send(given)
        found: list = connection.recv()
    return found


def listen(directory: str, rank: int) -> Listener:
    """A rank's socket."""
    return Listener(_socket(directory, rank), "AF_UNIX")


def _socket(directory: str, rank: int) -> str:
    return str(Path(directory, f"{rank}.sock"))
