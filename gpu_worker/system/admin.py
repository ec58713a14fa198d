"""Administrative requests to a daemon, by its socket; the daemon uses this module too, so nothing here loads NumPy."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gpu_worker.protocol.errors import ProtocolError, Unauthorized, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import AdminReply, AdminRequest, Hello, Stop
from gpu_worker.protocol.system import system_call
from gpu_worker.protocol.versions import answer, asking
from gpu_worker.protocol.wire import Connection, close_all
from gpu_worker.system import launcher
from gpu_worker.system.daemon_watch import DaemonConnection
from gpu_worker.system.paths import RuntimeDirectory, locate
from gpu_worker.system.peer import ROOT, check_peer, has_ended, holds_open, peer_process


def administer(request: AdminRequest, *, runtime_dir: str | None = None, timeout: float = 60.0) -> Any:
    """Ask the daemon of this node, which is never started for that; a member of ``AdminReply``.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    ProtocolError
        If it is of another version, and is not asked to stop by it.
    """
    with open_connection(locate(runtime_dir), False, "", timeout) as connection:
        reply, descriptors = _asked(connection, request)
    close_all(descriptors)
    return reply


def exchange_descriptors(request: AdminRequest, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
    """Send an administrative request with descriptors, like :func:`administer`, and return the reply with its
    descriptors.
    """
    with open_connection(locate(), False, "", 60.0) as connection:
        return _asked(connection, request, descriptors)


def _asked(connection: Connection, request: AdminRequest, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
    with suppress(WorkerLost):
        # A daemon that refuses may do so, and close, before it has read everything.
        connection.send(asking("admin"), Hello)
        connection.send(request, AdminRequest, descriptors)
    connection.await_answer()
    return connection.receive_as(lambda body: answer(body, AdminReply))


def stop(*, runtime_dir: str | None = None, timeout: float = 60.0) -> None:
    """End the daemon of this node and its sessions; also one of a version that does not understand the request.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    WorkerLost
        If it does not end in time.
    """
    try:
        administer(Stop(), runtime_dir=runtime_dir, timeout=timeout)
    except ProtocolError:
        if not _terminated(locate(runtime_dir), timeout):
            raise


def _terminated(directory: RuntimeDirectory, timeout: float) -> bool:
    """End the daemon by a signal; return whether there is a process that certainly is the daemon."""
    with open_connection(directory, False, "", timeout) as connection:
        pid = peer_process(connection.socket)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return False    # ended meanwhile, or of another container
    try:
        if not holds_open(pid, directory.lock):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not has_ended(pidfd, timeout):
            raise WorkerLost(f"the worker, process {pid}, has not ended within {timeout:g} s; see {directory.log}")
    finally:
        os.close(pidfd)
    return True


def open_connection(directory: RuntimeDirectory, start: bool, log_level: str, timeout: float) -> Connection:
    """Return a connection to the daemon, whose user is checked."""
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
    return DaemonConnection(sock, directory.lock)


def _connected(path: os.PathLike[str], timeout: float) -> socket.socket | None:
    """Return a socket connected to the daemon; ``None`` if none listens there."""
    with system_call("a socket to the worker"):
        sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(os.fspath(path))
        # The client that makes a service manager start the daemon still sees who listened for it.
        check_peer(sock, f"the worker at {path}", [ROOT])
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
