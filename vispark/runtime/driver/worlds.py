"""Worlds of a session: which workers exchange halos, where they reach each other, and the order of their plans."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_worker.protocol.grids import World, place_name
from vispark.errors import WorldLost
from vispark.plan.ops import LogicalPlan, needs_neighbours
from vispark.runtime.identity import WorkerAddress

log = logging.getLogger(__name__)

#: Opens a worker's end of the world with a key, and returns its address.
OpenEnd = Callable[[WorkerAddress, bytes], bytes]


@dataclass
class _Ends:
    """Addresses of a world's workers, in the order of ranks, once they are ``known``; none where that failed."""

    known: threading.Event = field(default_factory=threading.Event)
    addresses: tuple[bytes, ...] = ()


class Worlds:
    """Present world of a session; its plans have turns, so that they reach all workers in one order."""

    def __init__(self) -> None:
        self._homes: tuple[WorkerAddress, ...] = ()
        self._epochs: tuple[int, ...] = ()
        self._key = b""
        self._turn = 0
        self._ends = _Ends()
        self._lock = threading.Lock()

    def of(self, epochs: Mapping[WorkerAddress, int], nodes: LogicalPlan,
           open_end: OpenEnd | None = None, exchanges: bool = False) -> list[World | None]:
        """Return the world of a plan for each of its workers; none if the plan needs no neighbours and exchanges no
        rows, or one worker has them all.

        Parameters
        ----------
        epochs : mapping of WorkerAddress to int
            The workers, and the present process of each: another one has not joined the world of those before.
        nodes : LogicalPlan
            The plan's operations.
        open_end : callable, optional
            Of an exchange that needs addresses.
        exchanges : bool
            Whether workers exchange rows behind the operations.

        Raises
        ------
        VisparkError
            What ``open_end`` raises; the next plan begins another world.
        """
        if len(epochs) < 2 or not (exchanges or any(needs_neighbours(nodes, at) for at in range(len(nodes)))):
            return [None] * len(epochs)
        with self._lock:
            members = tuple(sorted(epochs, key=lambda home: (home.machine, home.runtime_dir)))
            processes = tuple([epochs[home] for home in members])
            if not self._key or (members, processes) != (self._homes, self._epochs):
                if self._homes:
                    log.warning("another world is begun, of %d workers, and the plan waits for it", len(members))
                self._homes, self._epochs, self._key, self._turn = members, processes, secrets.token_bytes(16), 0
                self._ends = _Ends()
            key, turn, ends = self._key, self._turn, self._ends
            self._turn += 1
        addresses = () if open_end is None else self._addresses(key, turn, ends, members, open_end)
        names = tuple(place_name(home.machine, home.runtime_dir) for home in members)
        return [World(key, members.index(home), names, turn, addresses) for home in epochs]

    def _addresses(self, key: bytes, turn: int, ends: _Ends, members: tuple[WorkerAddress, ...],
                   open_end: OpenEnd) -> tuple[bytes, ...]:
        """Return the addresses of a world, which its first plan asks for; others wait for them."""
        if turn == 0:
            try:
                ends.addresses = tuple(open_end(home, key) for home in members)
            finally:
                ends.known.set()
                if not ends.addresses:
                    self._forget(key)
        ends.known.wait()
        if not ends.addresses:
            raise WorldLost("the first plan of a world did not find all workers, and others waited for it")
        return ends.addresses

    def _forget(self, key: bytes) -> None:
        with self._lock:
            if self._key == key:
                self._key = b""

    def renew(self) -> None:
        """Start a new world with the next plan, after a loss or the failure of a plan."""
        with self._lock:
            self._key = b""

    def end(self, world: World) -> tuple[WorkerAddress, ...]:
        """Start a new world with the next plan, and return the workers that may wait in the given one, in the order of
        ranks, if it is the present one.
        """
        with self._lock:
            if self._key != world.key:
                return ()
            self._key = b""
            return self._homes
