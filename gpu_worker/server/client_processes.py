"""Client processes of a device process, for whose sake it lives without a daemon, and the devices assigned to them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from functools import partial

from gpu_worker.system.watcher import Watcher

_log = logging.getLogger(__name__)


class ClientProcesses:
    """Processes of clients that are watched, with the addresses of devices that Spark assigned to each.

    Parameters
    ----------
    watcher : Watcher
        Tells when one ends.
    lock : threading.Lock
        Held while they change; the caller's.
    lease : float
        For how many seconds the device process stays when it is unused, or a device is assigned to nobody.
    """

    def __init__(self, watcher: Watcher, lock: threading.Lock, lease: float):
        self._watcher = watcher
        self._lock = lock
        self._lease = lease
        #: The descriptor of each process, by its number.
        self._known: dict[int, int] = {}
        self._assigned: dict[int, set[str]] = {}
        self._unused_since: float | None = None
        self._unassigned_since: float | None = None

    def pids(self) -> tuple[int, ...]:
        """Return the numbers of the processes."""
        with self._lock:
            return tuple(self._known)

    def watch(self, pid: int, gpus: tuple[str, ...]) -> None:
        """Watch a process, unless it has ended already."""
        with self._lock:
            if pid in self._known:
                self._assigned.setdefault(pid, set()).update(gpus)
                return
            try:
                with contextlib.ExitStack() as undo:
                    pidfd = os.pidfd_open(pid)
                    undo.callback(os.close, pidfd)
                    self._watcher.watch(pidfd, partial(self._gone, pid, pidfd))
                    self._known[pid] = pidfd
                    self._assigned[pid] = set(gpus)
                    undo.pop_all()
            except ProcessLookupError:
                pass
            except OSError as error:
                # Its client is served all the same; and the daemon, while there is one, watches it too.
                _log.warning("process %d, of a client, is not watched: %s", pid, error)

    def _gone(self, pid: int, pidfd: int) -> None:
        with self._lock:
            del self._known[pid]
            del self._assigned[pid]
            self._watcher.forget(pidfd)
            os.close(pidfd)

    def assigned(self) -> set[str]:
        """Return the addresses of devices that are assigned to a process that lives."""
        with self._lock:
            return {each for known in self._assigned.values() for each in known}

    def seconds_left(self, *, is_used: bool) -> float | None:
        """Return the seconds until a device process, which otherwise ``is_used`` or not, has been unused for its lease;
        None while it is in use. The lock is held by the caller.
        """
        if is_used or self._known:
            self._unused_since = None
            return None
        now = time.monotonic()
        self._unused_since = self._unused_since or now
        return self._unused_since + self._lease - now

    def grace(self, *, is_assigned: bool) -> float | None:
        """Return the seconds until devices have been assigned to nobody for a lease; None while all are assigned."""
        if is_assigned:
            self._unassigned_since = None
            return None
        now = time.monotonic()
        self._unassigned_since = self._unassigned_since or now
        return self._unassigned_since + self._lease - now
