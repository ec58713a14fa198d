"""Breakdown of a plan's time in the worker."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

from gpu_worker.execution.passes.step_handlers import StepHandler
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.messages import Times


class PlanTiming:
    """Timing of a plan: seconds of device work by kind (of several devices, those of the busiest), of compilation,
    and of other work.

    Parameters
    ----------
    started : float
        When, on the monotonic clock.
    streams : Streams
        What the devices work on.
    with_others : bool
        Whether other nodes run the plan too: then steps on grids also wait for these.
    """

    def __init__(self, started: float, streams: Streams, *, with_others: bool = False):
        self._spent: dict[str, float] = defaultdict(float)
        self._streams = streams
        self._with_others = with_others
        self._before = self._compiling()
        self._started, self._last, self._compiled = started, started, 0.0

    @property
    def compiled(self) -> float:
        """Seconds of compilation since the start."""
        return self._compiling() - self._before

    def lap(self, step: StepHandler[Any] | None) -> None:
        """Attribute the device time since the previous lap to ``step``, or to copying out results if it is None."""
        now, compiled, busy = time.monotonic(), self.compiled, self._streams.busy()
        self._spent["copy_out" if step is None else step.timed_as] += busy
        if self._with_others and step is not None and step.fills_ghosts:
            self._spent["exchange"] += max(0.0, now - self._last - busy - (compiled - self._compiled))
        self._last, self._compiled = now, compiled

    def times(self, *, profiled: bool, copied_before: float = 0.0) -> Times:
        """Return the plan's times by kind; ``copied_before`` are seconds of copying in before the timing started."""
        total, compiled = time.monotonic() - self._started, self.compiled
        if not profiled:
            return Times(total, compiled)
        scheduling = max(0.0, total - compiled - sum(self._spent.values()))
        times = Times(total, compiled, **self._spent, scheduling=scheduling)
        return replace(times, copy_in=times.copy_in + copied_before)

    def _compiling(self) -> float:
        return sum([device.counts.compiling for device in self._streams.devices])
