"""Counters of a device process, for reports."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counters that only rise: of plans that were begun, failed, or sent in full, of bytes of payloads,
    of seconds that plans took, and of plans that found no memory."""

    begun: int = 0
    failed: int = 0
    lowered: int = 0
    received: int = 0
    returned: int = 0
    working: float = 0.0
    crowded: int = 0


class BusyTime:
    """Clock of the seconds in which at least one plan was under way, however many there were at once.

    Examples
    --------
    >>> busy = BusyTime()
    >>> busy.begin()
    >>> busy.begin()
    >>> busy.end()
    >>> busy.seconds > 0
    True
    >>> busy.end()
    >>> busy.seconds == busy.seconds
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans = 0
        self._since = self._seconds = 0.0

    def begin(self) -> None:
        """Count a plan that begins."""
        with self._lock:
            if not self._plans:
                self._since = time.monotonic()
            self._plans += 1

    def end(self) -> None:
        """Count a plan that has ended."""
        with self._lock:
            self._plans -= 1
            if not self._plans:
                self._seconds += time.monotonic() - self._since

    @property
    def seconds(self) -> float:
        """The seconds so far, those of plans that are under way among them."""
        with self._lock:
            return self._seconds + (time.monotonic() - self._since if self._plans else 0.0)
