"""Snapshots of long loops: their schedule, each loop's newest complete one, and the one being taken."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import RDD

from gpu_worker.protocol.messages import Save, Saved
from vispark.plan.ops import DatasetId
from vispark.runtime.driver.residency import Residency
from vispark.runtime.identity import WorkerAddress

log = logging.getLogger(__name__)

#: What is taken for granted of a snapshot until one was measured: bytes a second, and seconds beside.
_BYTES_PER_SECOND = 1e9
_LEAST_SECONDS = 0.001
#: A snapshot of which nothing is heard for so many times what it was to take, and so many seconds, has failed.
_PATIENCE = 20
_PATIENCE_SECONDS = 60.0


@dataclass
class SnapshotSchedule:
    """Schedule of snapshots by their cost; without a clock of its own.

    The time between two is the one that loses least, by Young's formula (J. W. Young, "A first order approximation to
    the optimum checkpoint interval", Communications of the ACM 17, 1974): sqrt(2 * cost * time to a loss). It is never
    so short that all of them together cost more than their share of the time.

    Parameters
    ----------
    share : float
        Of the time, which snapshots may cost; 0 for none.
    time_to_loss : float
        Seconds until something is lost, on average.
    """

    share: float
    time_to_loss: float
    #: Seconds that snapshots have cost, those on their way as they are expected to.
    spent: float = 0.0
    seconds_per_byte: float = 1 / _BYTES_PER_SECOND

    def cost(self, nbytes: int) -> float:
        """Return the seconds that a snapshot of so many bytes is expected to take."""
        return _LEAST_SECONDS + nbytes * self.seconds_per_byte

    def interval(self, nbytes: int) -> float:
        """Return the seconds between snapshots of so many bytes."""
        cost = self.cost(nbytes)
        return max(cost / self.share, math.sqrt(2 * cost * self.time_to_loss))

    def is_due(self, elapsed: float, since: float, step: float, nbytes: int) -> bool:
        """Return whether a snapshot is to be taken now.

        Parameters
        ----------
        elapsed : float
            Seconds since the first loop began.
        since : float
            Seconds since this loop began, or since its last snapshot.
        step : float
            Seconds until there is the next chance.
        nbytes : int
            Of the snapshot.
        """
        if not self.share or self.spent + self.cost(nbytes) > self.share * elapsed:
            return False
        return since + step / 2 >= self.interval(nbytes)

    def begin(self, nbytes: int) -> float:
        """Count the expected seconds of a snapshot that begins, and return them."""
        cost = self.cost(nbytes)
        self.spent += cost
        return cost

    def ended(self, expected: float, seconds: float, nbytes: int) -> None:
        """Update the estimated cost per byte by the time that a snapshot took."""
        self.spent += seconds - expected
        self.seconds_per_byte = seconds / max(nbytes, 1)


@dataclass(eq=False)
class Snapshot:
    """Snapshot of one version of a loop's state.

    Attributes
    ----------
    residency : Residency
        Its number; dropping the last reference lets workers forget the snapshot.
    places : dict of int to WorkerAddress
        Where each partition is.
    epochs : dict of WorkerAddress to int
        The processes that take it.
    expected : float
        The seconds that it was to take.
    began : float
        When it began, of the monotonic clock.
    waiting : set of WorkerAddress
        The workers where it is not complete yet.
    seconds : float
        What it took where it took longest.
    holders : dict of WorkerAddress to WorkerAddress
        Who was to have a copy of whose part.
    held_by : dict of WorkerAddress to int
        The processes of those that were to.
    """

    residency: Residency
    places: dict[int, WorkerAddress]
    epochs: dict[WorkerAddress, int]
    nbytes: int
    expected: float
    began: float
    waiting: set[WorkerAddress] = field(default_factory=set)
    seconds: float = 0.0
    holders: dict[WorkerAddress, WorkerAddress] = field(default_factory=dict)
    held_by: dict[WorkerAddress, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The snapshot's number in the workers."""
        return self.residency.cached.number

    @property
    def is_copied(self) -> bool:
        """Whether all parts are held on two nodes."""
        return self.holders.keys() >= set(self.places.values())

    def lost_a_copy(self, epochs: Mapping[WorkerAddress, int]) -> bool:
        """Return whether a process that holds a copy is gone, as far as is known: its daemon may be, too."""
        return any(epochs.get(holder) != self.held_by[holder] for holder in self.holders.values())


@dataclass
class _Loop:
    last: float
    sent: float
    newest: Snapshot | None = None
    taking: Snapshot | None = None
    has_failed: bool = False


class Snapshots:
    """Snapshots of a session's loops; a loop is identified by the RDD that it is computed from.

    Parameters
    ----------
    share, time_to_loss : float
        As for :class:`SnapshotSchedule`.
    """

    def __init__(self, share: float, time_to_loss: float):
        self.pace = SnapshotSchedule(share, time_to_loss)
        #: How many were complete, and how often one was gone back to.
        self.taken = self.restored = 0
        self._began = 0.0
        self._loops: weakref.WeakKeyDictionary[RDD[Any], _Loop] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def is_due(self, loader: RDD[Any], nbytes: int, epochs: Mapping[WorkerAddress, int]) -> bool:
        """Return whether the loop's plan that is about to be sent is to take a snapshot.

        Parameters
        ----------
        loader : RDD
            What the loop started from.
        nbytes : int
            Of what is kept.
        epochs : mapping of WorkerAddress to int
            The present process of each worker that is there.
        """
        now = time.monotonic()
        with self._lock:
            self._began = self._began or now
            loop = self._loops.setdefault(loader, _Loop(now, now))
            step, loop.sent = now - loop.sent, now
            if loop.taking is not None and not self._has_failed(loop.taking, now, epochs):
                return False
            if loop.newest is not None and loop.newest.lost_a_copy(epochs) and not loop.has_failed:
                return True
            return self.pace.is_due(now - self._began, now - loop.last, step, nbytes)

    def _has_failed(self, snapshot: Snapshot, now: float, epochs: Mapping[WorkerAddress, int]) -> bool:
        late = now - snapshot.began > _PATIENCE_SECONDS + _PATIENCE * snapshot.expected
        return late or any(epochs.get(home, epoch) != epoch for home, epoch in snapshot.epochs.items())

    def begin(self, loader: RDD[Any], residency: Residency, vrdd: int, places: Mapping[int, WorkerAddress], nbytes: int,
              epochs: Mapping[WorkerAddress, int],
              holders: Mapping[WorkerAddress, WorkerAddress] | None = None) -> Save:
        """Record a snapshot that a plan begins; return the snapshot request for the plan.

        Parameters
        ----------
        loader : RDD
            What the loop started from.
        residency : Residency
            A number for it.
        vrdd : int
            The VRDD that it is of.
        places, nbytes, epochs, holders
            Where the VRDD will be, how large it will be, the present process of each worker, and who is to have a copy
            of whose part.
        """
        now = time.monotonic()
        with self._lock:
            loop = self._loops[loader]
            expected = self.pace.begin(nbytes)
            loop.taking = Snapshot(residency, dict(places), {home: epochs[home] for home in set(places.values())},
                                   nbytes, expected, now, set(places.values()), holders=dict(holders or {}),
                                   held_by={holder: epochs.get(holder, 0) for holder in (holders or {}).values()})
            loop.last = now
            needed = [each.number for other in self._loops.values() for each in (other.newest, other.taking)
                      if each is not None and each is not loop.taking]
            return Save(vrdd, loop.taking.number, tuple(needed))

    def learn(self, home: WorkerAddress, saved: Iterable[Saved]) -> None:
        """Record the snapshots that are complete on a node, or failed there.

        One that failed anywhere is given up; the loop tries again when the next one is due.
        """
        heard = {each.snapshot: each for each in saved}
        if not heard:
            return
        with self._lock:
            for loop in self._loops.values():
                if loop.taking is None or loop.taking.number not in heard or home not in loop.taking.waiting:
                    continue
                part = heard[loop.taking.number]
                if part.failed:
                    self._give_up(loop, home, part.failed)
                else:
                    self._complete(loop, loop.taking, home, part)

    def _complete(self, loop: _Loop, taking: Snapshot, home: WorkerAddress, saved: Saved) -> None:
        """Record that a snapshot is complete on a node; the lock is held."""
        taking.waiting.discard(home)
        if not saved.copied:
            taking.holders.pop(home, None)
        taking.seconds = max(taking.seconds, saved.seconds)
        if not taking.waiting:
            self.pace.ended(taking.expected, taking.seconds, taking.nbytes)
            loop.newest, loop.taking, loop.has_failed = taking, None, False
            self.taken += 1

    def _give_up(self, loop: _Loop, home: WorkerAddress, reason: str) -> None:
        """Give up the snapshot that a loop takes, and say so once until one succeeds; the lock is held."""
        loop.taking = None
        if not loop.has_failed:
            back = "its start" if loop.newest is None else \
                f"its snapshot of {time.monotonic() - loop.newest.began:.0f} s ago"
            log.warning("a snapshot of a loop failed at %s, and the loop goes on without: after a loss it would go "
                        "back to %s: %s", home, back, reason)
        loop.has_failed = True

    def find(self, saved: DatasetId | None) -> Snapshot | None:
        """Return a snapshot by its number, if it is complete and the newest of its loop."""
        if saved is None:
            return None
        with self._lock:
            return next((loop.newest for loop in self._loops.values()
                         if loop.newest is not None and loop.newest.number == saved.number), None)

    def latest(self) -> Snapshot | None:
        """Return the complete snapshot, of any loop, that was begun last."""
        with self._lock:
            complete = [loop.newest for loop in self._loops.values() if loop.newest is not None]
        return max(complete, key=lambda snapshot: snapshot.began, default=None)

    def is_taking(self) -> bool:
        """Return whether a snapshot is being taken, as far as is known."""
        with self._lock:
            return any(loop.taking is not None for loop in self._loops.values())

    def forget(self, snapshot: Snapshot) -> None:
        """Forget a snapshot that is lost."""
        with self._lock:
            for loop in self._loops.values():
                if loop.newest is snapshot:
                    loop.newest = None
