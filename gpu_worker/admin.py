"""Asks a daemon, by its socket, what concerns no session; the daemon uses it too, so nothing here loads NumPy."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from gpu_worker import launcher
from gpu_worker.paths import RuntimeDirectory, locate
from gpu_worker.peer import check_peer
from gpu_worker.protocol.errors import Unauthorized, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import VERSION, AdminReply, AdminRequest, Failure, Hello, SessionOptions
from gpu_worker.protocol.wire import Connection, close_all, error_of


def administer(request: AdminRequest, *, runtime_dir: str | None = None, timeout: float = 60.0) -> Any:
    """Ask the daemon of this node, which is never started for that; a member of ``AdminReply``.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    """
    hello = Hello(VERSION, "admin", "", b"", "", 0, SessionOptions("", 0, 0.0, "", ""))
    with open_connection(locate(runtime_dir), False, "", timeout) as connection:
        connection.send(hello, Hello)
        connection.send(request, AdminRequest)
        reply, descriptors = connection.receive(AdminReply)
    close_all(descriptors)
    if isinstance(reply, Failure):
        raise error_of(reply)
    return reply


def exchange_descriptors(request: AdminRequest, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
    """As :func:`administer`, with descriptors beside the request, and those that come with the reply."""
    hello = Hello(VERSION, "admin", "", b"", "", 0, SessionOptions("", 0, 0.0, "", ""))
    with open_connection(locate(), False, "", 60.0) as connection:
        connection.send(hello, Hello)
        connection.send(request, AdminRequest, descriptors)
        reply, received = connection.receive(AdminReply)
    if isinstance(reply, Failure):
        close_all(received)
        raise error_of(reply)
    return reply, received


def open_connection(directory: RuntimeDirectory, start: bool, log_level: str, timeout: float) -> Connection:
    """A connection to the daemon, whose user is checked."""
    path = directory.socket
    if start:
        directory.ensure()
    elif directory.path.exists():
        directory.check()
    sock = _connected(path, timeout)
    if sock is None and start:
        launcher.start_from_client(directory, log_level)
        sock = _connected(path, timeout)
        if sock is None:
            raise WorkerLost("the daemon ended as soon as it was started")
    if sock is None:
        raise WorkerUnavailable(f"no GPU worker runs in {directory.path}; start one with 'gpu-worker start'")
    return Connection(sock)


def _connected(path: os.PathLike[str], timeout: float) -> socket.socket | None:
    """A socket connected to the daemon; ``None`` where nobody listens."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(os.fspath(path))
        check_peer(sock, f"the worker at {path}")
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    except Unauthorized:
        sock.close()
        raise
    except PermissionError as error:
        sock.close()
        raise Unauthorized(f"the worker at {path} is not open to user {os.geteuid()}") from error
    except OSError as error:
        sock.close()
        raise WorkerLost(f"the worker at {path} does not accept: {error}") from error
    return sock
