"""Samples of a daemon: its report, and rates between two of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, fields

from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import Reported, SessionStatus, Status, StatusReport
from gpu_worker.system import admin


@dataclass(frozen=True)
class Sample:
    """Report of a daemon at a moment of ``time.monotonic``; or the reason for which there is none."""

    at: float
    report: StatusReport | None
    reason: str = ""


def sample(runtime_dir: str | None) -> Sample:
    """Ask a daemon for its report; no daemon is started."""
    try:
        report = admin.administer(Status(), runtime_dir=runtime_dir)
        return Sample(time.monotonic(), report)
    except VisparkError as error:
        return Sample(time.monotonic(), None, str(error))


class SharedSamples:
    """Samples for many readers: a daemon is asked at most once in ``seconds``.

    Parameters
    ----------
    runtime_dir : str or None
        Of the daemon.
    seconds : float
        How old a sample may be.
    """

    def __init__(self, runtime_dir: str | None, seconds: float = 1.0):
        self._runtime_dir, self._seconds = runtime_dir, seconds
        self._lock = threading.Lock()
        self._last: Sample | None = None

    def latest(self) -> Sample:
        """Return the last sample, or a new one where it is too old."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last.at >= self._seconds:
                self._last = sample(self._runtime_dir)
            return self._last

    def refresh(self) -> Sample:
        """Return a new sample, which is the last one from then on."""
        latest = sample(self._runtime_dir)
        with self._lock:
            self._last = latest
        return latest


@dataclass(frozen=True)
class Rates:
    """Rates of a session between two samples, a second, each of the counter of its name in the session's report.

    ``devices`` has the busy share of each of its devices.
    """

    requests: float
    repeated: float
    sent: float
    plans: float = 0.0
    received: float = 0.0
    returned: float = 0.0
    kernels: float = 0.0
    working: float = 0.0
    busy: float = 0.0
    devices: dict[str, float] = field(init=False, default_factory=dict)


#: The counters of reports whose rates these are.
COUNTED = tuple(each.name for each in fields(Rates) if each.name != "devices")


def rates(before: Sample | None, after: Sample) -> dict[str, Rates]:
    """Return the rates of the sessions that are in both samples, in the same process of theirs, by their names.

    Examples
    --------
    >>> from gpu_worker.protocol.messages import Reported
    >>> def of(at, requests):
    ...     report = Reported(0, (), (), 0, requests)
    ...     return Sample(at, StatusReport(1, "", 1, at, (SessionStatus("s", "app", 7, 1, 1, "held", report),)))
    >>> rates(of(0.0, 10), of(2.0, 30))["s"].requests
    10.0
    """
    if before is None or before.report is None or after.report is None or after.at <= before.at:
        return {}
    earlier = {(each.session, each.epoch): each.report for each in before.report.sessions}
    result = {}
    for session in after.report.sessions:
        first, last = earlier.get((session.session, session.epoch)), session.report
        if first is not None and last is not None:
            seconds = after.at - before.at
            rate = Rates(*((getattr(last, name) - getattr(first, name)) / seconds for name in COUNTED))
            result[session.session] = rate
            rate.devices.update(_busy_shares(first, last, seconds))
    return result


def _busy_shares(first: Reported, last: Reported, seconds: float) -> dict[str, float]:
    before = {memory.device: memory.busy for memory in first.memory}
    return {memory.device: (memory.busy - before.get(memory.device, 0.0)) / seconds for memory in last.memory}


def partitions(session: SessionStatus) -> int:
    """Return the number of partitions that a session holds on the node, as far as it says."""
    return sum(held.partitions for held in session.report.vrdds) if session.report else 0
