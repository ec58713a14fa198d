"""Store of snapshots that outlive the device processes which took them: shared memory held by the daemon.

The daemon never looks into it. Which of them are of use, those who ask for new ones say.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from gpu_worker.protocol.errors import PartitionMissing
from gpu_worker.protocol.system import system_call


@dataclass(frozen=True)
class StoredSnapshot:
    """Snapshot in a memfd, and the place of its description in it."""

    descriptor: int
    offset: int
    nbytes: int


#: A snapshot's number, and whose part of it this is; nobody is named where it is this node's.
PartOfSnapshot = tuple[int, str]


class SnapshotStore:
    """Store of the snapshots of a daemon's sessions. May be used by several threads."""

    def __init__(self) -> None:
        self._held: defaultdict[str, dict[PartOfSnapshot, StoredSnapshot]] = defaultdict(dict)
        self._lock = threading.Lock()

    def put(self, session: str, part: PartOfSnapshot, snapshot: StoredSnapshot, needed: Collection[int] = ()) -> None:
        """Store a snapshot, whose descriptor belongs to the store from then on, and close all others but the
        ``needed``.
        """
        with self._lock:
            held = self._held[session]
            for other in [other for other in held if other == part or other[0] not in (part[0], *needed)]:
                os.close(held.pop(other).descriptor)
            held[part] = snapshot

    def get(self, session: str, part: PartOfSnapshot) -> StoredSnapshot:
        """Return a snapshot, with a descriptor that is the caller's to close.

        Raises
        ------
        PartitionMissing
            If there is none of that number.
        """
        with self._lock:
            stored = self._held.get(session, {}).get(part)
            if stored is None:
                number, owner = part
                raise PartitionMissing(f"there is no snapshot {number} here" + (f" of {owner}" if owner else ""))
            with system_call("a descriptor of a snapshot"):
                return StoredSnapshot(os.dup(stored.descriptor), stored.offset, stored.nbytes)

    def discard(self, session: str, numbers: Collection[int]) -> None:
        """Close some of a session's snapshots."""
        with self._lock:
            held = self._held.get(session, {})
            for part in [part for part in held if part[0] in numbers]:
                os.close(held.pop(part).descriptor)

    def drop(self, session: str) -> None:
        """Close all of a session's snapshots."""
        with self._lock:
            for snapshot in self._held.pop(session, {}).values():
                os.close(snapshot.descriptor)
