"""Peers of a process in a world over UCX: connections, tags, and signs of life."""

from __future__ import annotations

import time

from gpu_worker.exchange.ucx.ucp import UcpRequest, UcxEndpoint, UcxWorker
from gpu_worker.protocol.errors import WorldLost
from gpu_worker.protocol.grids import World as Wanted

#: The tags of what ranks tell each other, and of their signs of life; those of cells are lower.
SAID, BEAT = 1 << 20, 1 << 21

#: How often a rank gives a sign of life, and how long it may give none to those that wait for it.
_BEAT_SECONDS, SILENT_SECONDS = 0.5, 4.0
#: A process that itself did nothing for so long has not listened, and takes nobody for silent.
_DEAF_SECONDS = 1.0

_RANK_BITS, _KIND_BITS = 16, 24


def tag(key: bytes, sender: int, kind: int) -> int:
    """Return the tag of a message: what is left of the world's key, the sender's rank, and the kind.

    Examples
    --------
    >>> hex(tag(bytes.fromhex("a1b2c3d4"), 1, 0x12))
    '0xa1b2c30001000012'
    """
    return (int.from_bytes(key[:3], "big") << _RANK_BITS | sender) << _KIND_BITS | kind


class Peers:
    """The other ranks of a world; used under the world's lock.

    UCX itself notices a process that has ended, as its connection breaks or its memory has no owner. One that is
    stopped, or whose machine is gone without a word, is noticed as it gives no signs of life.

    Attributes
    ----------
    endpoints : dict of int to UcxEndpoint
        Of each other rank.
    names : str
        Of all ranks, for errors.
    transports : list of str
        What UCX sends over to the other ranks, each once; empty until all have said something.
    """

    def __init__(self, worker: UcxWorker, wanted: Wanted):
        self.endpoints: dict[int, UcxEndpoint] = {}
        self.names = ", ".join(wanted.workers)
        self._worker, self._wanted = worker, wanted
        self.transports: list[str] = []
        self._beats: dict[int, UcpRequest] = {}
        self._heard: dict[int, float] = {}
        self._due = self._listened = 0.0

    def connect(self) -> None:
        """Make the connections, which come to be with the first messages."""
        for rank, address in enumerate(self._wanted.addresses):
            if rank != self._wanted.rank:
                self.endpoints[rank] = self._worker.connect(address)

    def begin_listening(self) -> None:
        """Take ranks for silent from now on, and note what UCX has chosen to send over."""
        self.transports = list(dict.fromkeys(each for endpoint in self.endpoints.values()
                                             for each in endpoint.transports()))
        self._listened = time.monotonic()
        self._heard = dict.fromkeys(self.endpoints, self._listened)

    def beat(self) -> None:
        """Give a sign of life and look for those of others, when it is time to."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _BEAT_SECONDS
        deaf = now - self._listened if now - self._listened > _DEAF_SECONDS else 0.0
        self._listened = now
        for rank, endpoint in self.endpoints.items():
            if rank in self._heard:
                self._heard[rank] += deaf
            if self._take_signs(rank):
                self._heard[rank] = now
            if not endpoint.failure and self._has_beaten(rank):
                self._beats[rank] = endpoint.send_bytes(b".", tag(self._wanted.key, self._wanted.rank, BEAT))

    def _take_signs(self, rank: int) -> bool:
        """Take the signs of life of a rank; return whether there are some."""
        count = 0
        while arrived := self._worker.arrived(tag(self._wanted.key, rank, BEAT)):
            arrived[1].free()
            count += 1
        return count > 0

    def _has_beaten(self, rank: int) -> bool:
        """Return whether the last sign of life is sent, so that they do not pile up before one who takes none."""
        return rank not in self._beats or self._beats[rank].done()

    def check(self) -> None:
        """Raise WorldLost if a rank is gone, or has given no sign of life for too long."""
        for rank, endpoint in self.endpoints.items():
            if endpoint.failure:
                raise self._lost(rank, endpoint.failure)
            silence = self._listened - self._heard.get(rank, self._listened)
            if silence > SILENT_SECONDS:
                raise self._lost(rank, f"no sign of life for {silence:.1f} s")

    def _lost(self, rank: int, reason: str) -> WorldLost:
        return WorldLost(f"rank {rank} of {len(self._wanted.workers)}, worker {self._wanted.workers[rank]}, is lost, "
                         f"and with it the world: {reason}")

    def close(self) -> list[UcpRequest]:
        """Begin to close the connections; what is left to wait for."""
        endpoints, self.endpoints = self.endpoints, {}
        for beat in self._beats.values():
            beat.free()
        for rank in endpoints:
            self._take_signs(rank)       # UCX warns of what nobody took
        return [endpoint.close() for endpoint in endpoints.values()]
