"""An MPI rank that carries halos for one of Spark's partitions: python -m benchmarks.halo_rank DIRECTORY SPLITS..."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

from benchmarks.halos import Position, all_faces, listen, neighbour, owner


def main(directory: str, splits: Position) -> None:
    world = MPI.COMM_WORLD
    mine = [position for position in np.ndindex(*splits) if owner(position, splits, world.size) == world.rank]
    expected = sum(neighbour(position, face, splits) is not None for position in mine
                   for face in all_faces(len(splits)))
    with listen(directory, world.rank) as listener:
        while True:
            with listener.accept() as connection:
                given = connection.recv()
                if given is None:
                    return
                sent = [world.isend(each, owner(each[0], splits, world.size)) for each in given]
                connection.send([world.recv() for _ in range(expected)])
                MPI.Request.waitall(sent)


if __name__ == "__main__":
    main(sys.argv[1], tuple(map(int, sys.argv[2:])))
