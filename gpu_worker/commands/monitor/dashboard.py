"""Dashboard of a node's daemon: an ASGI application, and the server of it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gpu_worker.commands.monitor.metrics import CONTENT_TYPE_LATEST, text
from gpu_worker.commands.monitor.sampler import Sampler
from gpu_worker.commands.monitor.samples import SharedSamples
from gpu_worker.commands.web.access import Access
from gpu_worker.commands.web.guard import PageGuard
from gpu_worker.commands.web.live_pages import PageAnswer, live_application
from gpu_worker.commands.web.server import PageServer, address
from gpu_worker.protocol.errors import WorkerError, WorkerUnavailable
from gpu_worker.system.paths import RuntimeDirectory

_PAGES = Path(__file__).parent / "pages"
_AGAIN = "'gpu-worker dashboard --link' prints another link"


def application(samples: SharedSamples, access: Access, names: Collection[str] = (), seconds: float = 1.0,
                is_ending: Callable[[], bool] = lambda: False) -> PageGuard:
    """Return a dashboard as an ASGI application: the page, its events, ``/metrics`` and ``/health``.

    Parameters
    ----------
    samples : SharedSamples
        Of the daemon, which is asked once in ``seconds`` whatever the number of viewers.
    access : Access
        Who may read it; ``/health`` may be read without, and says nothing but whether the daemon answers.
    names : collection of str, optional
        Host names under which it is reached, beside addresses and localhost.
    seconds : float, optional
        Between two samples.
    is_ending : callable, optional
        Whether the server waits for its streams to end.

    Raises
    ------
    WorkerError
        If starlette or prometheus_client is missing.
    """
    def metrics() -> PageAnswer:
        return 200, CONTENT_TYPE_LATEST, text(samples)

    def health() -> PageAnswer:
        up = samples.latest().report is not None
        return 200 if up else 503, "application/json", json.dumps({"up": up}).encode() + b"\n"

    return live_application(Sampler(samples, seconds), _PAGES, access, names, again=_AGAIN, is_ending=is_ending,
                            answers={"/metrics": metrics, "/health": health}, open_paths=["/health"])


class Dashboard:
    """Dashboard of a daemon at a socket that listens, with a file from which other commands make links.

    Parameters
    ----------
    directory : RuntimeDirectory
        Of the daemon.
    sock : socket.socket
        From :func:`~gpu_worker.commands.web.server.listen` or :func:`~gpu_worker.commands.web.server.listen_at_path`.
    names : collection of str, optional
        Host names under which it is reached.
    certificate, key : str, optional
        Files of a TLS certificate and its key.
    """

    def __init__(self, directory: RuntimeDirectory, sock: socket.socket, names: Collection[str] = (),
                 certificate: str | None = None, key: str | None = None):
        self.access = Access()
        self._record = _record(directory)
        self._address = address(sock, bool(certificate), names)
        samples = SharedSamples(str(directory.path), seconds=5.0)
        self._server = PageServer(application(samples, self.access, names, is_ending=self._is_ending),
                                  sock, certificate, key)

    def link(self) -> str:
        """Return a new link, which opens once."""
        return f"{self._address}/?token={self.access.new_token()}"

    def run(self) -> None:
        """Serve until an interrupt."""
        record = json.dumps({"address": self._address, "secret": self.access.secret, "pid": os.getpid()})
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:
            file.write(record)
        try:
            self._server.run()
        finally:
            self._record.unlink(missing_ok=True)

    def _is_ending(self) -> bool:
        return self._server.is_ending

    def stop(self) -> None:
        """End the server soon; any thread may call it."""
        self._server.stop()


def check_alone(directory: RuntimeDirectory) -> None:
    """Raise WorkerError if a dashboard runs for a daemon's directory already: the file for links is of one."""
    record = _running(directory)
    if record:
        raise WorkerError(f"a dashboard of this node runs already at {record['address']}, process {record['pid']}; "
                          "'gpu-worker dashboard --link' prints another link to it")


def another_link(directory: RuntimeDirectory) -> str:
    """Return a new link to the dashboard that runs for a daemon's directory.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    """
    record = _running(directory)
    if not record:
        raise WorkerUnavailable(f"no dashboard runs for {directory.path}; 'gpu-worker dashboard' starts one")
    return f"{record['address']}/?token={Access(record['secret']).new_token()}"


def _running(directory: RuntimeDirectory) -> dict[str, Any]:
    """Return the record of the dashboard that runs for a daemon's directory; an empty one where none does."""
    try:
        record: dict[str, Any] = json.loads(_record(directory).read_text())
        # One that was killed leaves its record, and its number may be another program's.
        command = Path(f"/proc/{record['pid']}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return record if b"dashboard" in command or record["pid"] == os.getpid() else {}


def _record(directory: RuntimeDirectory) -> Path:
    return directory.path / "dashboard.json"
