"""Sockets of a server, and the loop that serves an ASGI application there; the one place that imports uvicorn."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_worker.protocol.errors import WorkerError
from gpu_worker.protocol.extras import install

try:
    import uvicorn
except ImportError:
    uvicorn = None  # type: ignore[assignment]

#: Milliseconds after which the kernel gives up a connection whose peer takes nothing.
_STALLED = 30_000


def listen(host: str, port: int, is_certified: bool = False) -> socket.socket:
    """Return a socket that listens at an address of this machine; port 0 is any that is free.

    Parameters
    ----------
    host : str
        Address or name; one of the loopback interface unless the server has a certificate.
    port : int
        Between 0 and 65535.
    is_certified : bool, optional
        Whether the server has a certificate.

    Raises
    ------
    WorkerError
        If it is taken, is none of this machine's, or may be reached from elsewhere without a certificate.

    Examples
    --------
    >>> with listen("127.0.0.1", 0) as sock:
    ...     address(sock).rpartition(":")[0]
    'http://127.0.0.1'
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        port_too = host.count(":") == 1 and host.rpartition(":")[2].isdigit()
        raise WorkerError(f"{host} is no address of this machine: {error.strerror}"
                          + "; the port is another option, --port" * port_too) from error
    if not is_certified and not ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback:
        raise WorkerError(f"{host} can be reached from other machines: that takes --certificate; or listen on 127.0.0.1"
                          " and reach it by 'ssh -L'")
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections have it of this socket. Nobody reads at the other end: no reason to hold memory for long.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED)
        sock.bind(where)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise WorkerError(f"cannot listen on {host}:{port}: {error.strerror}; --port 0 takes any port that is free"
                          ) from error
    return sock


def listen_at_path(path: Path) -> socket.socket:
    """Return a Unix socket that listens at a path, which only this user may open; one that nobody serves is replaced.

    Raises
    ------
    WorkerError
        If something else is there, another server listens there, or the directory is not to be written.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        if _is_left_over(path):
            path.unlink()
        before = os.umask(0o177)
        try:
            sock.bind(os.fspath(path))
        finally:
            os.umask(before)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise WorkerError(f"cannot listen at {path}: {error.strerror or error}") from error
    return sock


def _is_left_over(path: Path) -> bool:
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return False
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(os.fspath(path))
        except ConnectionRefusedError:
            return True
    return False


def address(sock: socket.socket, is_certified: bool = False, names: Collection[str] = ()) -> str:
    """Return the address of a server that listens at a socket, without a path: ``http://127.0.0.1:8050``.

    One that listens on all of the machine's addresses is named by the first of its host names, or by the loopback one.
    """
    if sock.family == socket.AF_UNIX:
        return "http://localhost"
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = next(iter(names), "::1" if sock.family == socket.AF_INET6 else "127.0.0.1")
    return f"{'https' if is_certified else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Have SIGTERM end a block as an exception does, so that its files go; for the main thread of a command.

    uvicorn ends its loop first, and then hands the signal on to the handler that was there.
    """
    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class PageServer:
    """Server of an ASGI application at a socket that listens.

    Parameters
    ----------
    application : ASGI application
        Which answers.
    sock : socket.socket
        From :func:`listen` or :func:`listen_at_path`; the server closes it.
    certificate, key : path, optional
        Files of a TLS certificate and its key.

    Raises
    ------
    WorkerError
        If uvicorn is missing, or the certificate is none.
    """

    def __init__(self, application: Any, sock: socket.socket, certificate: str | None = None, key: str | None = None):
        if uvicorn is None:
            raise WorkerError(f"a server of pages needs uvicorn and starlette: {install('dashboard')}")
        config = uvicorn.Config(application, log_level="warning", access_log=False, server_header=False, lifespan="on",
                                timeout_graceful_shutdown=3, timeout_keep_alive=15, limit_concurrency=256,
                                h11_max_incomplete_event_size=16384, ssl_certfile=certificate, ssl_keyfile=key,
                                proxy_headers=False, ws="none", http="h11", loop="asyncio")
        self._sock = sock
        try:
            config.load()
        except OSError as error:
            raise WorkerError(f"{certificate} and {key or certificate} are no certificate and its key: {error}"
                              ) from error
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until an interrupt, or until :meth:`stop`."""
        path = self._sock.getsockname() if self._sock.family == socket.AF_UNIX else None
        try:
            with suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._sock])
        finally:
            self._sock.close()
            if path:
                Path(path).unlink(missing_ok=True)

    @property
    def is_ending(self) -> bool:
        """Whether the server waits for its answers to be complete, to end then."""
        return self._server.should_exit

    def stop(self) -> None:
        """End the server soon; any thread may call it."""
        self._server.should_exit = True
