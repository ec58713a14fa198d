"""One rank of a session's world; mpirun starts it. The one file that imports mpi4py.

It serves its node's device process, and ends when that does. It never finalizes MPI: an end out of order makes mpirun
end all ranks of this world, which is how the other device processes notice at once.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mpi4py import MPI

from gpu_worker.exchange.mpi.exit_report import ExitReport
from gpu_worker.exchange.mpi.messages import (
    Forget,
    Gather,
    Gathered,
    Go,
    Joined,
    Moved,
    Order,
    RankAnswer,
    StagedExchange,
)
from gpu_worker.exchange.mpi.nodes import KEY, world_socket
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.wire import Connection
from gpu_worker.system.paths import locate

#: The tag of what ranks tell each other; those of cells are lower.
_SAID = 1 << 20

#: How long a rank waits without a pause, and the pauses that it makes from then on.
_BUSY_SECONDS, _NAP_SECONDS = 0.0003, 0.00003


class Rank:
    """Carries out what the device process asks for."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self._stages: dict[int, tuple[Payload, list[Any], int]] = {}
        self._sent = 0

    def answer(self, order: Order, descriptors: list[int]) -> RankAnswer | None:
        match order:
            case StagedExchange():
                self._stages[order.number] = self._staged(order, Payload.receive(descriptors[0], mmap.ACCESS_WRITE))
            case Forget():
                _, requests, _ = self._stages.pop(order.number)
                for request in requests:
                    request.Free()
            case Go():
                _, requests, nbytes = self._stages[order.number]
                MPI.Prequest.Startall(requests)
                _await(partial(MPI.Prequest.Testall, requests))
                self._sent += nbytes
                return Moved(self._sent)
            case Gather():
                return Gathered(tuple(self._gathered(order.data)))
        return None

    def _gathered(self, data: bytes) -> Iterator[bytes]:
        """Yield the data of all ranks; exchanged by messages, since the data is small, and without mpi4py's pickling.
        """
        world, status = self._world, MPI.Status()
        others = [rank for rank in range(world.size) if rank != world.rank]
        sends = [world.Isend([data, MPI.BYTE], peer, _SAID) for peer in others]
        for rank in range(world.size):
            if rank == world.rank:
                yield data
                continue
            _await(partial(world.Iprobe, rank, _SAID, status))
            received = bytearray(status.Get_count(MPI.BYTE))
            world.Recv([received, MPI.BYTE], rank, _SAID)
            yield bytes(received)
        MPI.Request.Waitall(sends)

    def _staged(self, stage: StagedExchange, memory: Payload) -> tuple[Payload, list[Any], int]:
        """Return the memory, requests that are started again and again, and the bytes that go out each time."""
        requests = [self._world.Recv_init([memory.view(part.offset, part.nbytes), MPI.BYTE], part.peer, part.tag)
                    for part in stage.receives]
        requests += [self._world.Send_init([memory.view(part.offset, part.nbytes), MPI.BYTE], part.peer, part.tag)
                     for part in stage.sends]
        return memory, requests, sum(part.nbytes for part in stage.sends)


def _await(done: Callable[[], bool]) -> None:
    """Wait in MPI, which by itself would keep a core busy that the computation has work for."""
    until = time.perf_counter() + _BUSY_SECONDS
    while not done():
        if time.perf_counter() > until:
            time.sleep(_NAP_SECONDS)


def main() -> None:
    """Serve the device process of this node until it ends."""
    key = bytes.fromhex(os.environ[KEY])
    with socket.socket(socket.AF_UNIX) as sock, \
            ExitReport(Connection(sock), f"rank {MPI.COMM_WORLD.rank}", locate().process_log) as connection:
        sock.connect(str(world_socket(locate(), key)))
        rank = Rank()
        connection.send(Joined(key, MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size), Joined)
        while True:
            answer = rank.answer(*connection.receive(Order))
            if answer is not None:
                connection.send(answer, RankAnswer)


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(1)     # before MPI could be finalized
