"""MPI worlds of a session: which workers exchange halos, and the order of their plans."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping

from gpu_worker.protocol.grids import World, place_name
from vispark.plan.ops import LogicalPlan, needs_neighbours
from vispark.runtime.identity import WorkerAddress

log = logging.getLogger(__name__)


class MpiWorlds:
    """Present MPI world of a session; its plans have turns, so that they reach all workers in one order."""

    def __init__(self) -> None:
        self._homes: tuple[WorkerAddress, ...] = ()
        self._epochs: tuple[int, ...] = ()
        self._key = b""
        self._turn = 0
        self._lock = threading.Lock()

    def of(self, epochs: Mapping[WorkerAddress, int], nodes: LogicalPlan) -> list[World | None]:
        """Return the world of a plan for each of its workers; none if the plan needs no neighbours, or one worker has
        them all.

        Parameters
        ----------
        epochs : mapping of WorkerAddress to int
            The workers, and the present process of each: another one has not joined the world of those before.
        nodes : LogicalPlan
            The plan's operations.
        """
        if len(epochs) < 2 or not any(needs_neighbours(nodes, position) for position in range(len(nodes))):
            return [None] * len(epochs)
        with self._lock:
            members = tuple(sorted(epochs, key=lambda home: (home.machine, home.runtime_dir)))
            processes = tuple([epochs[home] for home in members])
            if not self._key or (members, processes) != (self._homes, self._epochs):
                if self._homes:
                    log.warning("another MPI world is begun, of %d workers, and the plan waits for it", len(members))
                self._homes, self._epochs, self._key, self._turn = members, processes, secrets.token_bytes(16), 0
            turn, self._turn = self._turn, self._turn + 1
            names = tuple(place_name(home.machine, home.runtime_dir) for home in members)
            return [World(self._key, members.index(home), names, turn) for home in epochs]

    def renew(self) -> None:
        """Start a new world with the next plan, after a loss or the failure of a plan."""
        with self._lock:
            self._key = b""

    def end(self, world: World) -> list[WorkerAddress]:
        """Start a new world with the next plan, and return the workers that may wait in the given one, if it is the
        present one.
        """
        with self._lock:
            if self._key != world.key:
                return []
            self._key = b""
            return [home for rank, home in enumerate(self._homes) if rank != world.rank]
