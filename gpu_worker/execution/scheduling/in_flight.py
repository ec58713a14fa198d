"""Plans in flight on the devices while the next one is prepared: a worker's run-ahead.

The work of such plans is enqueued on the same streams, one plan behind the other, as on a CUDA stream. So a plan may
read what the one before it writes, and write where the one before it reads. Nobody else sees a result before it is
complete, and a plan's deadline counts from when the one before it was complete.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from gpu_worker.device.base import Device, Stream
from gpu_worker.protocol.errors import Place, VisparkError
from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.system import as_error
from gpu_worker.system import caller
from gpu_worker.system.abandoned_kernels import Watched
from gpu_worker.system.crash_record import CrashRecorder

_log = logging.getLogger(__name__)

#: The most plans that are under way.
AHEAD = 8

#: How long a thread sleeps that waits for a plan with others behind it, in seconds.
_NAP = 5e-5


@dataclass(eq=False)
class Submission:
    """Plan whose work is enqueued completely.

    Attributes
    ----------
    place : Place
        Where its kernels are.
    seconds : float
        How long it may take.
    number : int
        Of its request.
    iterated : tuple of Iterated
        How its loops ended, or will: all that its answer says beside the time.
    marks : list of (Device, Stream, int)
        What the streams pass when it is.
    """

    place: Place
    seconds: float
    number: int
    iterated: tuple[Iterated, ...]
    marks: list[tuple[Device, Stream, int]]
    #: What is to be done when it is complete.
    on_complete: Callable[[], None]
    started: float = field(default_factory=time.monotonic)
    #: For whom.
    client: caller.Caller = field(default_factory=caller.current)
    done: bool = False
    #: What failed of what was to be done then.
    error: VisparkError | None = None
    noted: int = -1

    @property
    def has_passed(self) -> bool:
        """Whether the devices have completed the plan's work."""
        return all(stream.passed >= mark for _, stream, mark in self.marks)


class InFlightQueue:
    """Queue of the plans in flight, in order.

    Parameters
    ----------
    recorder : CrashRecorder
        Where the one that the devices work on is noted.
    """

    def __init__(self, recorder: CrashRecorder):
        self._recorder = recorder
        self._turn = threading.RLock()
        self._lock = threading.Lock()
        self._flights: deque[Submission] = deque()
        self._streams: dict[tuple[Device, int], Stream] = {}

    # -- beginning ----------------------------------------------------------------------------------------------------

    def stream(self, device: Device, number: int) -> Stream:
        """Return a stream of the queue."""
        if (device, number) not in self._streams:
            self._streams[device, number] = device.stream()
        return self._streams[device, number]

    @contextmanager
    def turn(self, *, alone: bool = False) -> Iterator[None]:
        """Hold the queue's turn: no other thread enqueues on its streams; with ``alone``, wait first until no plan is
        in flight.
        """
        if not self._turn.acquire(blocking=False):
            with self._recorder.waiting():
                self._turn.acquire()
        try:
            if alone:
                self.drain()
            while (first := self._nth(-AHEAD)) is not None:
                self.wait(first)
            yield
        finally:
            self._turn.release()

    def _nth(self, place: int) -> Submission | None:
        """Return the submission at a place of the queue; None if the queue is shorter."""
        with self._lock:
            return self._flights[place] if len(self._flights) >= -place else None

    def push(self, flight: Submission) -> None:
        """Append work that was enqueued within a turn."""
        with self._lock:
            self._flights.append(flight)
        self.reap()

    # -- ending -------------------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Remove the plans that are complete by now, and run their callbacks."""
        with self._lock:
            while self._flights and self._flights[0].has_passed:
                flight = self._flights.popleft()
                if flight.noted >= 0:
                    self._recorder.end(flight.noted)
                try:
                    flight.on_complete()
                except Exception as error:
                    # Whoever settles may be another plan's thread, or the one that looks after deadlines.
                    _log.exception("plan %d was not completed", flight.number)
                    flight.error = as_error(error)
                flight.done = True
            if self._flights and self._flights[0].noted < 0:
                first = self._flights[0]
                late = partial(self._late, first)
                first.noted = self._recorder.begin(first.place, time.monotonic() + first.seconds, first.number, late,
                                              watched=Watched(late, int, first.client))

    def _late(self, flight: Submission) -> Place | None:
        """Return the place of a plan's kernels at its deadline; None if the plan is complete."""
        self.reap()
        return None if flight.done else flight.place

    def finish(self, flight: Submission) -> None:
        """Wait until a plan is complete, on behalf of the thread that answers it.

        Raises
        ------
        VisparkError
            As :meth:`wait`, and where its results could not be kept.
        """
        self.wait(flight)
        if flight.error is not None:
            raise flight.error

    def wait(self, flight: Submission) -> None:
        """Wait until a plan is complete.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        """
        self.reap()
        if flight.done:
            return
        with self._recorder.waiting():
            while not flight.done:
                if flight is self._nth(-1):
                    for device, stream, _ in flight.marks:
                        device.synchronize(stream=stream)
                else:
                    for device, stream, _ in flight.marks:
                        device.query(stream=stream)
                    time.sleep(_NAP)
                self.reap()

    def drain(self) -> None:
        """Wait until no plan is in flight."""
        while (last := self._nth(-1)) is not None:
            self.wait(last)

    def suspect(self) -> Submission | None:
        """Return the plan whose kernel failed, if it is one of those in flight."""
        with self._lock:
            return next((flight for flight in self._flights if not flight.has_passed), None)
