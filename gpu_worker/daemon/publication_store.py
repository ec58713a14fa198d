"""Store of publications: shared memory held by the daemon under names, until nobody is left who uses it.

A publication lives while its owner's session or a session that has attached it lives, and for its lease after that. One
that was replaced or taken back has its name no more, and goes with the last session that has attached it. The daemon
never looks into the memory.
"""

from __future__ import annotations

import hmac
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from gpu_worker.protocol.errors import ProtocolError, PublicationExists, PublicationLost, Unauthorized
from gpu_worker.protocol.publications import (
    MAX_LEASE,
    MAX_NAME,
    SECRET_BYTES,
    DetachPublications,
    GetPublication,
    PublicationPart,
    PublicationReport,
    PublicationStatus,
    PutPublication,
)
from gpu_worker.protocol.system import system_call
from gpu_worker.protocol.wire import close_all

#: How many publications that have ended are remembered, for whoever asks for them.
_ENDED_KEPT = 64


@dataclass
class StoredPublication:
    """Publication with its descriptors, and who uses it: its owner's session, and the VRDDs of readers' sessions.

    ``lapsed`` is since when none of these sessions lives, and ``is_listed`` whether it has its name still.
    """

    content: PublicationPart
    descriptors: list[int]
    readers: set[tuple[str, int]] = field(default_factory=set)
    lapsed: float | None = None
    is_listed: bool = True

    @property
    def expiry(self) -> float:
        """The time on the store's clock at which it ends."""
        if self.lapsed is None:
            return math.inf
        return self.lapsed + (self.content.details.lease if self.is_listed else 0.0)

    @property
    def sessions(self) -> set[str]:
        """The sessions that keep it: those that have attached it, and, while it has its name, its owner's."""
        return {session for session, _ in self.readers} | ({self.content.owner} if self.is_listed else set())


class PublicationStore:
    """Store of a daemon's publications. May be used by several threads.

    Parameters
    ----------
    clock : callable
        Monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._lock = threading.Lock()
        self._stored: dict[str, StoredPublication] = {}
        self._keys: dict[str, str] = {}
        #: How those ended that did, by name, and when.
        self._ended: dict[str, tuple[str, float]] = {}

    def put(self, request: PutPublication, descriptors: Sequence[int]) -> None:
        """Store a publication, whose descriptors belong to the store from then on.

        One that is stored already only gets another reader, if a reader brings it.

        Raises
        ------
        PublicationExists
            If another one has the name, and is not to be replaced.
        ProtocolError
            If name, lease, secret or descriptors are not as they should be.
        """
        with ExitStack() as undo:
            undo.callback(close_all, descriptors)
            _check(request, descriptors)
            with self._lock:
                earlier = self._stored.get(request.details.key)
                if earlier is not None:
                    if request.vrdd:
                        earlier.readers.add((request.session, request.vrdd))
                    return
                stored = self._new(request, descriptors)
                stored.readers |= {(request.session, request.vrdd)} if request.vrdd else set()
            undo.pop_all()

    def _new(self, request: PutPublication, descriptors: Sequence[int]) -> StoredPublication:
        details = request.details
        before = self._keys.get(details.name)
        content = PublicationPart(details, request.segments, request.offset, request.nbytes, request.owner)
        stored = StoredPublication(content, list(descriptors))
        if before is not None and not request.replace:
            if not request.vrdd:
                raise _taken(self._stored[before])
            stored.is_listed = False        # it was replaced before the daemon that knew of it ended
        elif before is not None:
            self._unlist(before, "it was replaced")
        self._stored[details.key] = stored
        if stored.is_listed:
            self._keys[details.name] = details.key
            self._ended.pop(details.name, None)
        return stored

    def take(self, request: GetPublication) -> tuple[PublicationPart, list[int]]:
        """Count a reader of a publication; return its content, with descriptors that are the caller's to close.

        Raises
        ------
        PublicationLost
            If there is none of that name, or that one is gone.
        Unauthorized
            If it has another secret.
        """
        with self._lock:
            stored = self._stored.get(request.key or self._keys.get(request.name, ""))
            if stored is None:
                raise self._lost(request.name)
            if not hmac.compare_digest(stored.content.details.digest, request.digest):
                raise Unauthorized(f"the publication {request.name!r} is attached with its secret only, and this is "
                                   "another one: attach(..., secret=)")
            copies: list[int] = []
            with ExitStack() as undo, system_call("descriptors of a publication"):
                undo.callback(close_all, copies)
                copies.extend(os.dup(descriptor) for descriptor in stored.descriptors)
                undo.pop_all()
            stored.readers.add((request.session, request.vrdd))
            stored.lapsed = None
            return stored.content, copies

    def detach(self, request: DetachPublications) -> None:
        """Take a session's VRDDs off the readers."""
        gone = {(request.session, vrdd) for vrdd in request.vrdds}
        with self._lock:
            for stored in self._stored.values():
                stored.readers -= gone

    def unpublish(self, name: str, key: str = "") -> None:
        """Take a publication back: who has attached it keeps it. Raises PublicationLost if there is none."""
        with self._lock:
            stored_key = self._keys.get(name)
            if stored_key is None or key not in ("", stored_key):
                raise self._lost(name)
            self._unlist(stored_key, "it was taken back")

    def expire(self, lives: Callable[[str], bool | None]) -> float | None:
        """Close what nobody has used for its lease; return when to call again on the clock, None if no lease runs.

        ``lives`` says whether a session is kept by its driver or executors; None where there is no such session.
        """
        with self._lock:
            now = self._clock()
            for key, stored in list(self._stored.items()):
                stored.readers = {(session, vrdd) for session, vrdd in stored.readers if lives(session) is not None}
                stored.lapsed = None if any(map(lives, stored.sessions)) else stored.lapsed or now
                if stored.expiry <= now:
                    lease = stored.content.details.lease
                    self._unlist(key, f"its lease of {lease:g} s after its last user has run out")
                    close_all(self._stored.pop(key).descriptors)
            return min((stored.expiry for stored in self._stored.values() if stored.lapsed is not None), default=None)

    @property
    def is_empty(self) -> bool:
        return not self._stored

    def report(self) -> PublicationReport:
        """Return the status of the publications that have their names."""
        with self._lock:
            listed = [self._stored[key] for key in self._keys.values()]
            return PublicationReport(tuple([_status(stored, self._clock()) for stored in listed]))

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            while self._stored:
                close_all(self._stored.popitem()[1].descriptors)
            self._keys.clear()

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        for name, key in self._keys.items():
            assert self._stored[key].is_listed and self._stored[key].content.details.name == name
        assert all(self._keys[stored.content.details.name] == key
                   for key, stored in self._stored.items() if stored.is_listed)

    def _unlist(self, key: str, reason: str) -> None:
        stored = self._stored[key]
        if stored.is_listed:
            stored.is_listed = False
            name = stored.content.details.name
            del self._keys[name]
            self._ended.pop(name, None)
            self._ended[name] = reason, self._clock()
            while len(self._ended) > _ENDED_KEPT:
                del self._ended[next(iter(self._ended))]

    def _lost(self, name: str) -> PublicationLost:
        if name in self._ended:
            reason, when = self._ended[name]
            return PublicationLost(f"the publication {name!r} is not there any more: {reason}, "
                                   f"{self._clock() - when:.0f} s ago")
        others = ", ".join(map(repr, sorted(self._keys)[:8])) or "none"
        return PublicationLost(f"there is no publication {name!r} of this user on this node; there are: {others}")


def _check(request: PutPublication, descriptors: Sequence[int]) -> None:
    details = request.details
    if not 0 < len(details.name) <= MAX_NAME or not details.name.isprintable() or not 0 < len(details.key) <= MAX_NAME:
        raise ProtocolError(f"a publication's name has 1 to {MAX_NAME} printable characters, not {details.name[:80]!r}")
    if not 0 < details.lease <= MAX_LEASE:
        raise ProtocolError(f"a publication's lease is 0 to {MAX_LEASE:g} s, not {details.lease}")
    if len(details.digest) not in (0, SECRET_BYTES):
        raise ProtocolError(f"the digest of a secret has {SECRET_BYTES} bytes, not {len(details.digest)}")
    if not descriptors or len(descriptors) != len(request.segments):
        raise ProtocolError(f"a publication of {len(request.segments)} segments came with {len(descriptors)} "
                            "descriptors")


def _taken(stored: StoredPublication) -> PublicationExists:
    details = stored.content.details
    return PublicationExists(f"there is a publication {details.name!r} already, of the application "
                             f"{details.application!r}: publish(..., replace=True) takes its place, and who has "
                             "attached it keeps it")


def _status(stored: StoredPublication, now: float) -> PublicationStatus:
    details = stored.content.details
    expires = -1.0 if stored.lapsed is None else max(stored.expiry - now, 0.0)
    return PublicationStatus(details.name, details.key, details.application, details.dataset, details.partitions,
                             sum(segment.nbytes for segment in stored.content.segments),
                             len({session for session, _ in stored.readers}), expires)
