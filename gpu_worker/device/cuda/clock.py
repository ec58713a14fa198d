"""Clock of a GPU, by events in its streams."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from gpu_worker.device.clock import Clock
from gpu_worker.device.cuda.driver import bindings, check
from gpu_worker.protocol.errors import VisparkError

log = logging.getLogger(__name__)

#: Launches and copies whose events are held at once.
_MOST = 4096


class EventClock(Clock):
    """Clock with an event before each launch and copy, and one after it: an idle GPU passes the first one when it is
    recorded.

    Parameters
    ----------
    device : CudaDevice
        The GPU, which is active.
    home : CudaStream
        A stream of it that is idle.
    """

    def __init__(self, device: Any, home: Any):
        super().__init__()
        self._device = device
        self._home = home
        self._events: list[Any] = []
        self._idle: list[Any] = []
        self._pending: list[tuple[Any, Any]] = []
        self._start = self.record(home)

    def of(self, stream: Any) -> AbstractContextManager[None]:
        return _Work(self, stream)

    def record(self, stream: Any) -> Any:
        """Record an event; the device is active."""
        if not self._idle:
            self._events.append(check(bindings.cuEventCreate(0)))
            self._idle.append(self._events[-1])
        event = self._idle.pop()
        check(bindings.cuEventRecord(event, stream.handle))
        return event

    def take(self, first: Any, last: Any) -> None:
        """Take account of work between two events; the device is active."""
        self._pending.append((first, last))
        if len(self._pending) == _MOST:
            self._read()

    def busy(self) -> float:
        with self._device.active():
            self._read()
            # From near moments, as the driver tells the time between two events as a float32 of milliseconds.
            self._idle.append(self._start)
            self._start = self.record(self._home)
        return super().busy()

    def _read(self) -> None:
        """Wait for pending events, and record the spans between them."""
        check(bindings.cuEventSynchronize(self._start))
        for first, last in self._pending:
            check(bindings.cuEventSynchronize(last))
            self._spans.append((self._since(first), self._since(last)))
            self._idle += first, last
        self._pending.clear()

    def _since(self, event: Any) -> float:
        return 1e-3 * check(bindings.cuEventElapsedTime(self._start, event))

    def close(self) -> None:
        events, self._events = self._events, []
        try:
            with self._device.active():
                for event in events:
                    check(bindings.cuEventDestroy(event))
        except VisparkError as error:
            log.info("events go with the process: %s", error)


class _Work:
    """Context that times the work enqueued on one stream."""

    __slots__ = ("_clock", "_first", "_stream")

    def __init__(self, clock: EventClock, stream: Any):
        self._clock = clock
        self._stream = stream
        self._first: Any = None

    def __enter__(self) -> None:
        self._first = self._clock.record(self._stream)

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._clock.take(self._first, self._clock.record(self._stream))


def wait_asleep(stream: Any) -> None:
    """Wait for a stream of the active device, leaving the processor to others."""
    flags = bindings.CUevent_flags
    event = check(bindings.cuEventCreate(flags.CU_EVENT_BLOCKING_SYNC | flags.CU_EVENT_DISABLE_TIMING))
    try:
        check(bindings.cuEventRecord(event, stream.handle))
        check(bindings.cuEventSynchronize(event))
    finally:
        bindings.cuEventDestroy(event)
