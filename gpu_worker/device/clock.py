"""Clocks of a device's busy time, measured apart from the host's, and of the time in which plans are under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

#: Of a stream whose work nobody times.
UNTIMED: AbstractContextManager[None] = nullcontext()


class Clock:
    """Clock of a device's busy time, which is that of the work enqueued within contexts of :meth:`of`.

    This one is for a device that does at once what it is told. One that never enters its streams' contexts does
    nothing that takes time.

    Examples
    --------
    >>> clock = Clock()
    >>> with clock.of(None):
    ...     time.sleep(0.001)
    >>> clock.busy() >= 0.001, clock.busy()
    (True, 0.0)
    """

    def __init__(self) -> None:
        #: In seconds from some moment, which is the same for all of them.
        self._spans: list[tuple[float, float]] = []
        self._began = 0.0

    def of(self, stream: Any) -> AbstractContextManager[None]:
        """Return the context that times a stream's work, for :attr:`~gpu_worker.device.base.Stream.clock`."""
        return self

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._spans.append((self._began, time.monotonic()))

    def busy(self) -> float:
        """Return the seconds that the device worked since the last call. All work must be complete."""
        seconds, self._spans = united(self._spans), []
        return seconds

    def close(self) -> None:
        """Free the clock's events."""


def united(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans, each from one moment to another.

    Examples
    --------
    >>> united([(4.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.0)])
    5.0
    """
    total, until = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, until))
        until = max(until, last)
    return total


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
