"""Sampler of a daemon for all viewers of a dashboard: one request a second, and what was seen in ten minutes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections import deque
from typing import Any

from gpu_worker.monitor.samples import Rates, Sample, SharedSamples, rates
from gpu_worker.protocol.messages import SessionStatus

#: Samples that are kept, one a second.
HISTORY = 600
_OF_SESSION = ("session", "application", "pid", "clients", "ended", "faults")
_OF_REPORT = ("plans", "failed", "lowered", "snapshots", "kernels", "loaded", "compiling", "crowded")
_NO_RATES = Rates(*(0.0 for _ in dataclasses.fields(Rates)))


class Sampler:
    """Sampler of a daemon, for a dashboard's event loop.

    Parameters
    ----------
    samples : SharedSamples
        Of the daemon; metrics take from it, too.
    seconds : float, optional
        Between two requests.
    """

    def __init__(self, samples: SharedSamples, seconds: float = 1.0):
        self.samples, self._seconds = samples, seconds
        self._points: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self._node: dict[str, Any] = {"up": False, "reason": "not asked yet"}
        self._count = 0
        #: Set, and replaced, when there is another sample.
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Ask the daemon again and again, until cancelled."""
        before: Sample | None = None
        while True:
            started = time.monotonic()
            found = await asyncio.to_thread(self.samples.refresh)
            self._take(found, rates(before, found))
            before = found
            await asyncio.sleep(max(0.0, started + self._seconds - time.monotonic()))

    def _take(self, found: Sample, speeds: dict[str, Rates]) -> None:
        self._node = described(found, speeds)
        self._points.append(point(self._node, time.time() + found.at - time.monotonic()))
        self._count += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def after(self, seen: int) -> tuple[bytes, int]:
        """Return a server-sent event with what is new after ``seen`` samples, and the number of samples now.

        A viewer that was slow has all that it missed in one event.
        """
        new = min(self._count - seen, len(self._points))
        points = list(self._points)[len(self._points) - new:]
        said = json.dumps({"node": self._node, "points": points}, separators=(",", ":"))
        return f"data: {said}\n\n".encode(), self._count


def described(found: Sample, speeds: dict[str, Rates]) -> dict[str, Any]:
    """Return a sample as what a page shows of it."""
    report = found.report
    if report is None:
        return {"up": False, "reason": found.reason}
    return {"up": True, "worker": report.worker, "pid": report.pid, "uptime": report.uptime,
            "sessions": [_session(each, speeds.get(each.session)) for each in report.sessions]}


def _session(session: SessionStatus, speed: Rates | None) -> dict[str, Any]:
    said: dict[str, Any] = {name: getattr(session, name) for name in _OF_SESSION}
    said |= {"busy": session.report is None, "memory": [], "vrdds": [], "rates": dataclasses.asdict(speed or _NO_RATES)}
    if (report := session.report) is not None:
        said |= {name: getattr(report, name) for name in _OF_REPORT}
        said |= {"host": report.host_bytes, "memory": [dataclasses.asdict(each) for each in report.memory],
                 "vrdds": [dataclasses.asdict(each) for each in report.vrdds]}
    return said


def point(node: dict[str, Any], at: float) -> dict[str, Any]:
    """Return the sums over a node's sessions that charts show, with the time in seconds since 1970."""
    devices: dict[str, int] = {}
    total: dict[str, float] = {}
    for session in node.get("sessions", ()):
        for memory in session["memory"]:
            devices[memory["device"]] = devices.get(memory["device"], 0) + memory["used"]
        for name, value in session["rates"].items():
            total[name] = total.get(name, 0.0) + value
    if node["up"] and not total:
        total = dataclasses.asdict(_NO_RATES)
    return {"at": at, "up": node["up"], "devices": devices, "rates": total}
