"""Snapshots that outlive the device processes which took them: shared memory that the daemon holds on to.

The daemon never looks into it. Which of them are of use, those who ask for new ones say.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from gpu_worker.protocol.errors import PartitionMissing


@dataclass(frozen=True)
class Snapshot:
    """A memfd, and where in it lies what describes it."""

    descriptor: int
    offset: int
    nbytes: int


class Vault:
    """The snapshots of a daemon's sessions, by their numbers. May be used by several threads."""

    def __init__(self) -> None:
        self._held: defaultdict[str, dict[int, Snapshot]] = defaultdict(dict)
        self._lock = threading.Lock()

    def put(self, session: str, number: int, snapshot: Snapshot, needed: Collection[int] = ()) -> None:
        """Hold on to a snapshot, whose descriptor is the vault's now, and of the others to those ``needed``."""
        with self._lock:
            held = self._held[session]
            for other in [other for other in held if other == number or other not in needed]:
                os.close(held.pop(other).descriptor)
            held[number] = snapshot

    def get(self, session: str, number: int) -> Snapshot:
        """A snapshot, with a descriptor that is the caller's to close.

        Raises
        ------
        PartitionMissing
            If there is none of that number.
        """
        with self._lock:
            found = self._held.get(session, {}).get(number)
            if found is None:
                raise PartitionMissing(f"there is no snapshot {number} here")
            return Snapshot(os.dup(found.descriptor), found.offset, found.nbytes)

    def discard(self, session: str, numbers: Collection[int]) -> None:
        """Let go of some of a session's snapshots."""
        with self._lock:
            held = self._held.get(session, {})
            for number in held.keys() & set(numbers):
                os.close(held.pop(number).descriptor)

    def drop(self, session: str) -> None:
        """Let go of a session's snapshots."""
        with self._lock:
            for snapshot in self._held.pop(session, {}).values():
                os.close(snapshot.descriptor)
