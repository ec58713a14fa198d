"""Metrics of a daemon in Prometheus' text format, and the server that gives them out: ``/metrics`` and ``/health``.

The server only reads. It listens on the loopback interface unless it is told otherwise, and answers only requests whose
``Host`` is an address, ``localhost`` or the name that it listens on: a page of another site that a browser shows cannot
read it by a name of its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpu_worker.commands.monitor.samples import SharedSamples, partitions
from gpu_worker.commands.web.access import is_own_host
from gpu_worker.protocol.errors import WorkerError
from gpu_worker.protocol.extras import install
from gpu_worker.protocol.messages import SessionStatus

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
except ImportError:
    CollectorRegistry = None  # type: ignore[assignment, misc]
    CONTENT_TYPE_LATEST = ""

log = logging.getLogger(__name__)

_LABELS = ["application", "session"]

#: Counters of a session's report, with their names and meanings.
_COUNTERS = {
    "requests": ("requests", "Requests that a session's process has answered."),
    "plans": ("plans", "Plans of actions that a session's process has begun."),
    "repeated": ("replayed_plans", "Plans that were replayed from recordings."),
    "failed": ("failed_plans", "Plans that ended with an error."),
    "lowered": ("new_plans", "Plans that a client sent in full, as the session's process had not met them."),
    "snapshots": ("snapshots", "Snapshots that were completed."),
    "received": ("received_bytes", "Bytes of partitions and arguments that a session's process took in."),
    "returned": ("returned_bytes", "Bytes of results that a session's process gave back."),
    "kernels": ("launched_kernels", "Launches of kernels on a session's devices."),
    "loaded": ("loaded_kernels", "Kernels that were compiled, or taken from the cache on disk."),
    "compiling": ("compile_seconds", "Seconds in which kernels were compiled, or taken from the cache on disk."),
    "working": ("plan_seconds", "Seconds that plans took, each for itself: by the second, how many were under way."),
    "busy": ("busy_seconds", "Seconds in which a session's devices had at least one plan: by the second, their use."),
    "crowded": ("out_of_memory_plans", "Plans that ended with an error as memory was out."),
    "sent": ("sent_bytes", "Bytes that a session's worlds sent to other nodes."),
}


class DaemonCollector:
    """Collector of a daemon's metrics, for a registry of prometheus_client.

    Labels are applications, their sessions and devices: of what is there now, and no more.
    """

    def __init__(self, samples: SharedSamples):
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of the latest sample."""
        report = self._samples.latest().report
        yield _gauge("vispark_up", "Whether the node's daemon answers.", float(report is not None))
        if report is None:
            return
        yield _gauge("vispark_uptime_seconds", "How long the daemon has run.", report.uptime)
        yield _gauge("vispark_sessions", "Sessions of applications on the node.", float(len(report.sessions)))
        yield from _of_sessions(report.sessions)


def _gauge(name: str, meaning: str, value: float) -> Any:
    return GaugeMetricFamily(name, meaning, value=value)


def _of_sessions(sessions: tuple[SessionStatus, ...]) -> Iterator[Any]:
    clients = GaugeMetricFamily("vispark_clients", "Connections of a session.", labels=_LABELS)
    held = GaugeMetricFamily("vispark_partitions", "Partitions that a session holds.", labels=_LABELS)
    host = GaugeMetricFamily("vispark_host_memory_bytes", "Host memory that a session's content takes.", labels=_LABELS)
    used = GaugeMetricFamily("vispark_device_memory_bytes", "Memory of a device that a session takes.",
                             labels=[*_LABELS, "device"])
    busy = CounterMetricFamily("vispark_device_busy_seconds", "Seconds in which a session had at least one plan with "
                               "work for a device: by the second, its use.", labels=[*_LABELS, "device"])
    limit = GaugeMetricFamily("vispark_device_memory_limit_bytes", "Memory of a device that a session may take.",
                              labels=[*_LABELS, "device"])
    counters = {name: CounterMetricFamily(f"vispark_{title}", meaning, labels=_LABELS)
                for name, (title, meaning) in _COUNTERS.items()}
    ended, faults = (CounterMetricFamily(f"vispark_{title}", meaning, labels=_LABELS) for title, meaning in (
        ("ended_processes", "Processes of a session that ended, since the daemon began."),
        ("kernel_faults", "Processes of a session that were ended by a kernel, since the daemon began.")))
    for session in sessions:
        own = [session.application, session.session]
        clients.add_metric(own, session.clients)
        ended.add_metric(own, session.ended)
        faults.add_metric(own, session.faults)
        if session.report is None:      # its process is busy or gone
            continue
        held.add_metric(own, partitions(session))
        host.add_metric(own, session.report.host_bytes)
        for memory in session.report.memory:
            used.add_metric([*own, memory.device], memory.used)
            limit.add_metric([*own, memory.device], memory.total)
            busy.add_metric([*own, memory.device], memory.busy)
        for name, family in counters.items():
            family.add_metric(own, getattr(session.report, name))
    yield from (clients, held, host, used, limit, busy, ended, faults, *counters.values())


def text(samples: SharedSamples) -> bytes:
    """Return the metrics in Prometheus' text format.

    Raises
    ------
    WorkerError
        If prometheus_client is missing.
    """
    if CollectorRegistry is None:
        raise WorkerError(f"metrics need prometheus_client: {install('metrics')}")
    registry = CollectorRegistry()
    registry.register(DaemonCollector(samples))
    return generate_latest(registry)


def server(samples: SharedSamples, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server of ``/metrics`` and ``/health``, which listens already; ``serve_forever`` runs it.

    Parameters
    ----------
    samples : SharedSamples
        Of the daemon.
    host, port : str and int
        Where it listens; 0 is any port.

    Raises
    ------
    WorkerError
        If prometheus_client is missing, or it cannot listen there.
    """
    text(samples)

    class Handler(_Handler):
        """Handler of this server's requests."""

        own_name = host
        shared = samples

    try:
        http = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise WorkerError(f"cannot listen on {host}:{port}: {error.strerror}; choose another by --listen") from error
    http.daemon_threads = True
    return http


class _Handler(BaseHTTPRequestHandler):
    own_name: str
    shared: SharedSamples
    #: Seconds that a client has for its request.
    timeout = 10

    def do_GET(self) -> None:
        """Answer a request."""
        if not is_own_host(self.headers.get("Host", ""), [self.own_name]):
            self._answer(403, "text/plain", b"this server has another name\n")
        elif self.path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, text(self.shared))
        elif self.path == "/health":
            latest = self.shared.latest()
            health = {"up": latest.report is not None, "reason": latest.reason}
            self._answer(200 if latest.report else 503, "application/json", json.dumps(health).encode() + b"\n")
        else:
            self._answer(404, "text/plain", b"there are /metrics and /health\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request."""
        log.debug(format, *args)
