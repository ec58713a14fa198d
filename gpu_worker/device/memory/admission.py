"""Admission of plans to the memory of a session's devices.

Plans run side by side until one of them finds no room. That one gives back all that it has, waits until no other plan
holds memory of its own, and runs again by itself. So plans at once never overrun what each alone keeps within, and as
nobody holds memory while it waits, none waits for another for ever. Plans that come meanwhile go on as long as it waits
for one that was there before it, such as a load whose records are slow to come; then they wait behind it.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from gpu_worker.protocol.errors import DeadlineExceeded


@dataclass(eq=False, slots=True)
class _QueuedPlan:
    """Plan in the queue: one that is to run alone waits for those that ran before it came, and then for all."""

    alone: bool
    before: frozenset[int]


class Admission:
    """Queue of plans for the memory of devices.

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
        self._waiting: list[_QueuedPlan] = []
        self._is_alone = False
        self._running: set[int] = set()
        self._numbers = itertools.count(1)

    @property
    def running(self) -> int:
        """How many plans hold memory."""
        return len(self._running)

    @property
    def is_crowded(self) -> bool:
        """Whether other plans than the caller's hold memory, or wait for it."""
        return len(self._running) > 1 or bool(self._waiting)

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

    def enter(self, seconds: float, *, alone: bool = False) -> int:
        """Wait for the right to allocate, and return its number, with which :meth:`leave` gives it back. Raises as
        :meth:`among_others`.
        """
        with self._changed:
            if alone or self._is_alone or self._waiting:
                self._wait(_QueuedPlan(alone, frozenset(self._running)), seconds)
            number = next(self._numbers)
            self._running.add(number)
            self._is_alone = alone
            return number

    def _wait(self, plan: _QueuedPlan, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._waiting.append(plan)
        try:
            while not self._may_enter(plan):
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() > deadline:
                    raise DeadlineExceeded(f"other plans had the devices' memory for {seconds:.3g} s")
        finally:
            self._waiting.remove(plan)
            self._changed.notify_all()

    def _may_enter(self, plan: _QueuedPlan) -> bool:
        if self._is_alone:
            return False
        if plan.alone:
            return self._waiting[0] is plan and not self._running
        ahead = self._waiting[:self._waiting.index(plan)]
        return all(not each.alone or not each.before.isdisjoint(self._running) for each in ahead)

    def leave(self, number: int) -> None:
        """Give back the right to allocate."""
        with self._changed:
            self._running.discard(number)
            self._is_alone = False
            if self._waiting:
                self._changed.notify_all()


@dataclass(slots=True)
class _Admitted:
    """Context of a plan that may allocate: a class because every plan enters one, at a third of a generator's cost."""

    admission: Admission
    seconds: float
    alone: bool
    number: int = field(default=0, init=False)

    def __enter__(self) -> None:
        self.number = self.admission.enter(self.seconds, alone=self.alone)

    def __exit__(self, *_: object) -> None:
        self.admission.leave(self.number)
