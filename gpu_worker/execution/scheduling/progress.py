"""Progress marks of a plan on its devices, from which a failed or late kernel is identified."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from gpu_worker.device.base import Device, Stream
from gpu_worker.protocol.errors import Place
from gpu_worker.system.abandoned_kernels import Watched
from gpu_worker.system.crash_record import CrashRecorder


@dataclass
class Progress:
    """Marks that a plan leaves on its streams.

    Parameters
    ----------
    recorder : CrashRecorder
        Where a kernel is noted while it runs.
    vrdd : str
        What the plan starts from.
    seconds : float
        How long its kernels may take, from the first launch on.
    """

    recorder: CrashRecorder
    vrdd: str
    seconds: float
    #: Behind each launch: the stream, the mark there, the partitions, the label and the device.
    marks: list[tuple[Stream, int, Sequence[int], str, str]] = field(default_factory=list)

    #: When they must be done, on the monotonic clock; None before the first launch.
    _deadline: float | None = None

    def mark(self, label: str, partitions: Sequence[int], device: Device, stream: Stream) -> None:
        """Record that a launch was enqueued."""
        self.marks.append((stream, device.mark(stream=stream), partitions, label, device.name))

    def launching(self, label: str, partitions: Sequence[int], device: Device) -> AbstractContextManager[None]:
        """Return a context in which this thread launches a kernel, which may run synchronously."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.seconds
        return self.recorder.running(self._place({label}, partitions, {device.name}), self._deadline)

    def watching(self) -> AbstractContextManager[None]:
        """Return a context in which this thread runs the plan; at the deadline, a kernel that still runs is reported.

        It is for the whole plan, as the thread may wait for its kernels at many calls of a driver: a copy to or from
        memory that is not pinned, a kernel that is loaded, memory that is given back.
        """
        return self.recorder.watching(Place(self.vrdd), time.monotonic() + self.seconds, self._late,
                                 Watched(self._running, self._advanced))

    def _late(self) -> Place | None:
        """Return the place of the kernels that have not completed at the deadline; None if all have."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        return self._running()

    def _running(self) -> Place | None:
        """Return the place of the kernels that have not completed; None if all have."""
        return self.pending_place() if any(number > stream.passed for stream, number, *_ in list(self.marks)) else None

    def _advanced(self) -> tuple[int, int]:
        """Return the launches that were enqueued, and those that have completed, as counts."""
        marks = list(self.marks)
        return len(marks), sum(number <= stream.passed for stream, number, *_ in marks)

    def pending_place(self) -> Place:
        """Return the place of the kernels that have not completed: a fault was caused by one of them."""
        waiting: dict[Stream, tuple[Sequence[int], str, str]] = {}
        for stream, number, partitions, label, device in self.marks:
            if number > stream.passed:
                waiting.setdefault(stream, (partitions, label, device))
        marks = list(waiting.values())
        partitions = [each for among, _, _ in marks for each in among]
        return self._place({label for _, label, _ in marks}, partitions, {device for _, _, device in marks})

    def launched_place(self) -> Place:
        """Return the place of all launches so far."""
        partitions = [each for _, _, among, _, _ in self.marks for each in among]
        return self._place({mark[3] for mark in self.marks}, partitions, {mark[4] for mark in self.marks})

    def _place(self, labels: set[str], partitions: Sequence[int], devices: set[str]) -> Place:
        among = sorted(set(partitions))
        several = f" in one of the partitions {', '.join(map(str, among))}" if len(among) > 1 else ""
        return Place(self.vrdd, among[0] if len(among) == 1 else None, " or ".join(sorted(labels)) + several,
                     " or ".join(sorted(devices)))
