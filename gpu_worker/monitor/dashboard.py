"""Dashboard of a node's daemon: an ASGI application, and the server of it; the one place that imports starlette."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

from gpu_worker.monitor.metrics import CONTENT_TYPE_LATEST, text
from gpu_worker.monitor.sampler import Sampler
from gpu_worker.monitor.samples import SharedSamples
from gpu_worker.protocol.errors import WorkerError, WorkerUnavailable
from gpu_worker.protocol.extras import install
from gpu_worker.system.paths import RuntimeDirectory
from gpu_worker.web.access import Access
from gpu_worker.web.guard import PageGuard, Receive, Scope, Send
from gpu_worker.web.server import PageServer, address

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
except ImportError:
    Starlette = None  # type: ignore[assignment, misc]

_PAGES = Path(__file__).parent / "pages"
#: Viewers at one time.
MOST_VIEWERS = 64
#: Seconds after which a viewer that takes nothing is left.
_STALLED = 30.0
#: Seconds between two looks whether the server is to end.
_LOOK = 0.5
_AGAIN = "'gpu-worker dashboard --link' prints another link"


class _Events:
    """ASGI endpoint with a stream of server-sent events for each viewer."""

    def __init__(self, sampler: Sampler, is_ending: Callable[[], bool], stalled: float = _STALLED):
        self._sampler, self._is_ending, self._stalled = sampler, is_ending, stalled
        self.viewers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.viewers >= MOST_VIEWERS:
            await Response("there are as many viewers as the dashboard takes\n", 503)(scope, receive, send)
            return
        self.viewers += 1
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": 200,
                        "headers": [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]})
            # A viewer that takes nothing is left; the kernel, or the user who sees it stand, ends its connection.
            with contextlib.suppress(TimeoutError):
                await self._stream(send, gone)
                await send({"type": "http.response.body", "body": b""})
        finally:
            self.viewers -= 1
            gone.cancel()

    async def _stream(self, send: Send, gone: asyncio.Future[Any]) -> None:
        seen = 0
        while not gone.done() and not self._is_ending():
            changed: asyncio.Future[Any] = asyncio.ensure_future(self._sampler.changed.wait())
            event, seen = self._sampler.after(seen)
            try:
                async with asyncio.timeout(self._stalled):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                while not (changed.done() or gone.done() or self._is_ending()):
                    await asyncio.wait({changed, gone}, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
    if Starlette is None:
        raise WorkerError(f"the dashboard needs starlette and uvicorn: {install('dashboard')}")
    sampler = Sampler(samples, seconds)

    @contextlib.asynccontextmanager
    async def sampling(_: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(sampler.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def page(_: Request) -> Response:
        return FileResponse(_PAGES / "index.html", media_type="text/html")

    def metrics(_: Request) -> Response:
        return Response(text(samples), media_type=CONTENT_TYPE_LATEST)

    def health(_: Request) -> Response:
        up = samples.latest().report is not None
        return Response(json.dumps({"up": up}) + "\n", 200 if up else 503, media_type="application/json")

    routes = [Route("/", page), Route("/events", _Events(sampler, is_ending)), Route("/metrics", metrics),
              Route("/health", health), Mount("/pages", StaticFiles(directory=_PAGES))]
    return PageGuard(Starlette(routes=routes, lifespan=sampling), access, names, ["/health"], _AGAIN)


class Dashboard:
    """Dashboard of a daemon at a socket that listens, with a file from which other commands make links.

    Parameters
    ----------
    directory : RuntimeDirectory
        Of the daemon.
    sock : socket.socket
        From :func:`~gpu_worker.web.server.listen` or :func:`~gpu_worker.web.server.listen_at_path`.
    names : collection of str, optional
        Host names under which it is reached.
    certificate, key : str, optional
        Files of a TLS certificate and its key.
    """

    def __init__(self, directory: RuntimeDirectory, sock: socket.socket, names: Collection[str] = (),
                 certificate: str | None = None, key: str | None = None):
        self.access = Access()
        self._record = _record(directory)
        self._address = address(sock, bool(certificate))
        samples = SharedSamples(str(directory.path), seconds=5.0)
        self._server = PageServer(application(samples, self.access, names, is_ending=self._is_ending),
                                  sock, certificate, key)

    def link(self) -> str:
        """Return a new link, which opens once."""
        return f"{self._address}/?token={self.access.new_token()}"

    def run(self) -> None:
        """Serve until an interrupt."""
        said = json.dumps({"address": self._address, "secret": self.access.secret, "pid": os.getpid()})
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:
            file.write(said)
        try:
            self._server.run()
        finally:
            self._record.unlink(missing_ok=True)

    def _is_ending(self) -> bool:
        return self._server.is_ending

    def stop(self) -> None:
        """End the server soon; any thread may call it."""
        self._server.stop()


def another_link(directory: RuntimeDirectory) -> str:
    """Return a new link to the dashboard that runs for a daemon's directory.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    """
    try:
        said = json.loads(_record(directory).read_text())
        os.kill(said["pid"], 0)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise WorkerUnavailable(f"no dashboard runs for {directory.path}; 'gpu-worker dashboard' starts one") from error
    return f"{said['address']}/?token={Access(said['secret']).new_token()}"


def _record(directory: RuntimeDirectory) -> Path:
    return directory.path / "dashboard.json"
