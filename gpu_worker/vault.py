"""Snapshots that outlive the device processes which took them: shared memory that the daemon holds on to.

The daemon never looks into it. Of a session it holds the last two, since the newest may not be complete on other nodes.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass

from gpu_worker.protocol.errors import PartitionMissing

KEPT = 2


@dataclass(frozen=True)
class Snapshot:
    """A memfd, and where in it lies what describes it."""

    descriptor: int
    offset: int
    nbytes: int


class Vault:
    """The snapshots of a daemon's sessions, by the VRDD that they are of. May be used by several threads."""

    def __init__(self) -> None:
        self._held: dict[str, OrderedDict[int, Snapshot]] = {}
        self._lock = threading.Lock()

    def put(self, session: str, vrdd: int, snapshot: Snapshot) -> None:
        """Hold on to a snapshot, whose descriptor is the vault's now."""
        with self._lock:
            held = self._held.setdefault(session, OrderedDict())
            if vrdd in held:
                os.close(held.pop(vrdd).descriptor)
            held[vrdd] = snapshot
            while len(held) > KEPT:
                os.close(held.popitem(last=False)[1].descriptor)

    def get(self, session: str, vrdd: int) -> Snapshot:
        """A snapshot, with a descriptor that is the caller's to close.

        Raises
        ------
        PartitionMissing
            If there is none of the VRDD.
        """
        with self._lock:
            found = self._held.get(session, OrderedDict()).get(vrdd)
            if found is None:
                raise PartitionMissing(f"there is no snapshot of VRDD {vrdd} here")
            return Snapshot(os.dup(found.descriptor), found.offset, found.nbytes)

    def drop(self, session: str) -> None:
        """Let go of a session's snapshots."""
        with self._lock:
            for snapshot in self._held.pop(session, OrderedDict()).values():
                os.close(snapshot.descriptor)
