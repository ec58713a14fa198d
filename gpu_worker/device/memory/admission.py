"""Admission of plans to the memory of a session's devices.

Plans run side by side until one of them finds no room. That one gives back all that it has, waits until no other plan
holds memory of its own, and runs again by itself; plans that come meanwhile wait behind it. So plans at once never
overrun what each alone keeps within, and as nobody holds memory while it waits, none waits for another for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass

from gpu_worker.protocol.errors import DeadlineExceeded


class Admission:
    """Queue of plans for the memory of devices, first come first served.

    Examples
    --------
    >>> admission = Admission()
    >>> with admission.among_others(1.0):
    ...     admission.is_crowded
    False
    >>> with admission.alone(1.0):
    ...     admission.running
    1
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._is_alone = False
        #: How many plans hold memory.
        self.running = 0

    @property
    def is_crowded(self) -> bool:
        """Whether other plans than the caller's hold memory, or wait for it."""
        return self.running > 1 or bool(self._waiting)

    def among_others(self, seconds: float) -> AbstractContextManager[None]:
        """Return a context in which a plan may allocate, beside others that do.

        Raises
        ------
        DeadlineExceeded
            If its turn does not come within so many ``seconds``.
        """
        return _Admitted(self, seconds, alone=False)

    def alone(self, seconds: float) -> AbstractContextManager[None]:
        """Return a context in which no other plan may allocate. Raises as :meth:`among_others`."""
        return _Admitted(self, seconds, alone=True)

    def enter(self, seconds: float, *, alone: bool = False) -> None:
        """Wait for the right to allocate, which :meth:`leave` gives back. Raises as :meth:`among_others`."""
        turn, deadline = object(), time.monotonic() + seconds
        with self._changed:
            if not (alone or self._is_alone or self._waiting):
                self.running += 1
                return
            self._waiting.append(turn)
            try:
                while self._waiting[0] is not turn or self._is_alone or (alone and self.running):
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() > deadline:
                        raise DeadlineExceeded(f"other plans had the devices' memory for {seconds:.3g} s")
                self.running += 1
                self._is_alone = alone
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()

    def leave(self) -> None:
        """Give back the right to allocate."""
        with self._changed:
            self.running -= 1
            self._is_alone = False
            if self._waiting:
                self._changed.notify_all()


@dataclass(slots=True)
class _Admitted:
    """Context of a plan that may allocate: a class because every plan enters one, at a third of a generator's cost."""

    admission: Admission
    seconds: float
    alone: bool

    def __enter__(self) -> None:
        self.admission.enter(self.seconds, alone=self.alone)

    def __exit__(self, *_: object) -> None:
        self.admission.leave()
