"""An MPI rank that carries strips for one of Spark's partitions: benchmarks.halo_rank DIRECTORY CORNERS SPLITS..."""

from __future__ import annotations

import sys

from mpi4py import MPI

from benchmarks.halos import HaloStrips, listen


def main(directory: str, halos: HaloStrips) -> None:
    world = MPI.COMM_WORLD
    expected = sum(halos.neighbour(position, offset) is not None
                   for position in halos.owned(world.rank, world.size) for offset in halos.offsets)
    with listen(directory, world.rank) as listener:
        while True:
            with listener.accept() as connection:
                strips = connection.recv()
                if strips is None:
                    return
                sent = [world.isend(each, halos.owner(each[0], world.size)) for each in strips]
                connection.send([world.recv() for _ in range(expected)])
                MPI.Request.waitall(sent)


if __name__ == "__main__":
    main(sys.argv[1], HaloStrips(tuple(map(int, sys.argv[3:])), 1, corners=sys.argv[2] == "1"))
