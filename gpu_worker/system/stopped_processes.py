"""Watch over processes that are stopped (SIGSTOP): they answer nobody, and their own watchdogs stand still too."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

#: How long a process may be stopped before it is taken for lost, and how often to look, in seconds.
STOPPED_SECONDS, LOOK_SECONDS = 10.0, 2.0


class StoppedProcesses:
    """Record of since when processes are stopped; one that a debugger holds is not.

    All counts start anew where nobody looked for two looks: whoever looks was held too, as by a suspended job, and what
    the processes did in between is unknown.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since: dict[int, float] = {}
        self._looked = clock()

    def overdue(self, pids: Collection[int]) -> list[int]:
        """Return the processes that have been stopped for too long, of ``pids``, which are all to be watched."""
        now = self._clock()
        if now - self._looked > 2 * LOOK_SECONDS:
            self._since.clear()
        self._looked = now
        self._since = {pid: self._since.get(pid, now) for pid in pids if is_stopped(pid)}
        return [pid for pid, since in self._since.items() if now - since >= STOPPED_SECONDS]


def is_stopped(pid: int) -> bool:
    """Return whether a process is there and stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] == [b"T"]
    except OSError:     # it has ended
        return False
