"""Check for processors to spare, which threads need that look for messages again and again instead of sleeping."""

from __future__ import annotations

import os
import sys
import threading
import time

#: The fewest processors of which some may be spared, and for how long an answer counts, in seconds.
LEAST_PROCESSORS = 4
_VALID_SECONDS = 0.02
#: For what share of the time since the last look a thread may have waited for a processor.
_MOST_WAITED = 0.1


class _Look(threading.local):
    """Last look of a thread: its answer, when it was, and how long the thread had waited for processors by then."""

    are_free = False
    at = 0.0
    waited = 0.0


_last = _Look()


def are_free() -> bool:
    """Return whether this thread may use up time in order to be quick.

    What counts is who wants a processor at this moment: means over minutes tell of work that is long over. The system
    counts the threads that run on the whole machine, of whose processors this process may have some alone: whether
    these are wanted, too, the thread's own waiting tells.
    """
    now = time.monotonic()
    if now > _last.at + _VALID_SECONDS:
        has_some = len(os.sched_getaffinity(0)) >= LEAST_PROCESSORS
        waited = _waited() if has_some else 0.0
        is_held_up = waited - _last.waited > _MOST_WAITED * (now - _last.at)
        _last.at, _last.waited = now, waited
        _last.are_free = has_some and not is_held_up and _running() < (os.cpu_count() or 1)
    return _last.are_free


def _running() -> int:
    """Return the number of threads on this machine that run or wait for a processor; a very large number if it is
    unknown.
    """
    try:
        with open("/proc/loadavg", "rb", buffering=0) as load:
            return int(load.read(128).split()[3].partition(b"/")[0])
    except OSError:
        return sys.maxsize


def _waited() -> float:
    """Return the seconds that this thread wanted a processor and had none; 0 if it is unknown."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as times:
            return int(times.read(128).split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
