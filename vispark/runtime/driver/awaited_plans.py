"""Watch over plans whose answers threads wait for: after a while a log line names the plan and the waiting line of the
program.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gpu_worker.protocol.system import start_thread
from vispark._utils.callers import user_line
from vispark.errors import VisparkError

log = logging.getLogger(__name__)

#: Seconds after which a plan is said to run still; then after twice as many, and so on.
FIRST_SECONDS = 10.0

_LOOK_SECONDS = 1.0


@dataclass
class _Awaited:
    """Plan that a thread waits for, with the start of the wait and the seconds to the next log line."""

    what: tuple[str, ...]
    thread: int
    since: float
    next: float = 0.0


class AwaitedPlans:
    """Registry of the plans that the driver's threads wait for, and the thread that watches it.

    Parameters
    ----------
    deadline : float
        Seconds after which a worker ends a plan.
    """

    def __init__(self, deadline: float):
        self._deadline = deadline
        self._awaited: dict[int, _Awaited] = {}
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, what: tuple[str, ...]) -> int:
        """Register that the calling thread waits for the operations ``what``; return the number for :meth:`end`."""
        if self._thread is None:
            self._start()
        awaited = _Awaited(what, threading.get_ident(), time.monotonic())
        self._awaited[id(awaited)] = awaited
        return id(awaited)

    def end(self, number: int) -> None:
        """Remove a registered wait."""
        self._awaited.pop(number, None)

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Register that the calling thread waits for the operation ``what`` while the context is entered."""
        number = self.begin((what,))
        try:
            yield
        finally:
            self.end(number)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                with suppress(VisparkError):        # without a thread to spare plans run all the same
                    self._thread = start_thread(self._watch, name="awaited-plans")

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            for awaited in list(self._awaited.values()):
                seconds = time.monotonic() - awaited.since
                if seconds > (awaited.next or FIRST_SECONDS):
                    awaited.next = 2 * (awaited.next or FIRST_SECONDS)
                    self._log_wait(awaited, seconds)

    def _log_wait(self, awaited: _Awaited, seconds: float) -> None:
        where = user_line(sys._current_frames().get(awaited.thread))
        log.warning("%s still runs after %.0f s%s; a worker ends a plan after %g s (spark.vispark.deadline)",
                    ", ".join(awaited.what) or "a plan", seconds, f", at {where}" if where else "", self._deadline)
