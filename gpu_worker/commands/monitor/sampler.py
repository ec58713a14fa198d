"""Sampler of a daemon for all viewers of a dashboard: one request a second, whatever their number."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from gpu_worker.commands.monitor.samples import COUNTED, Rates, Sample, SharedSamples, rates
from gpu_worker.commands.web.stream import Feed
from gpu_worker.protocol.messages import SessionStatus

_OF_SESSION = ("session", "application", "pid", "clients", "ended", "faults")
_OF_REPORT = ("plans", "failed", "lowered", "snapshots", "kernels", "loaded", "compiling", "crowded")
_NO_RATES = Rates(*(0.0 for _ in COUNTED))


class Sampler(Feed):
    """Sampler of a daemon, for a dashboard's event loop.

    Parameters
    ----------
    samples : SharedSamples
        Of the daemon; metrics take from it, too.
    seconds : float, optional
        Between two requests.
    """

    def __init__(self, samples: SharedSamples, seconds: float = 1.0):
        super().__init__(seconds)
        self.samples = samples
        self._before: Sample | None = None

    def look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask the daemon."""
        before, self._before = self._before, self.samples.refresh()
        node = described(self._before, rates(before, self._before))
        return node, point(node, time.time() + self._before.at - time.monotonic())


def described(latest: Sample, speeds: dict[str, Rates]) -> dict[str, Any]:
    """Return the parts of a sample that a page shows, as JSON has them."""
    report = latest.report
    if report is None:
        return {"up": False, "reason": latest.reason}
    return {"up": True, "worker": report.worker, "pid": report.pid, "uptime": report.uptime,
            "sessions": [_session(each, speeds.get(each.session)) for each in report.sessions]}


def _session(session: SessionStatus, speed: Rates | None) -> dict[str, Any]:
    item: dict[str, Any] = {name: getattr(session, name) for name in _OF_SESSION}
    item |= {"busy": session.report is None, "memory": [], "vrdds": [], "rates": dataclasses.asdict(speed or _NO_RATES)}
    if (report := session.report) is not None:
        item |= {name: getattr(report, name) for name in _OF_REPORT}
        item |= {"host": report.host_bytes, "memory": [dataclasses.asdict(each) for each in report.memory],
                 "vrdds": [dataclasses.asdict(each) for each in report.vrdds]}
    return item


def point(node: dict[str, Any], at: float) -> dict[str, Any]:
    """Return the sums over a node's sessions that charts show, with the time in seconds since 1970."""
    devices: dict[str, int] = {}
    total: dict[str, float] = {}
    for session in node.get("sessions", ()):
        for memory in session["memory"]:
            devices[memory["device"]] = devices.get(memory["device"], 0) + memory["used"]
        for name in COUNTED:
            total[name] = total.get(name, 0.0) + session["rates"][name]
    if node["up"] and not total:
        total = dict.fromkeys(COUNTED, 0.0)
    return {"at": at, "up": node["up"], "devices": devices, "rates": total}
