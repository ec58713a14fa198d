"""Daemon's side of TCP: it listens at the addresses that sessions ask for, and reads one line of each peer.

Nothing is believed of an unauthenticated peer but which session it names; its connection goes on to that session's
device process, which does the rest (:mod:`gpu_worker.server.tcp`).
"""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.control import KeyPair, TcpEndpoint
from gpu_worker.protocol.errors import (
    OutOfMemory,
    OutOfResources,
    ProtocolError,
    VisparkError,
    WorkerLost,
    WorkerUnavailable,
)
from gpu_worker.protocol.messages import VERSION
from gpu_worker.protocol.system import as_error, is_refusal, refused, start_thread, system_call
from gpu_worker.protocol.tcp_auth import ADMISSION_SECONDS, MAX_ANSWER, MAX_LINE, READY, REFUSED
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.handshake_limiter import HandshakeLimiter
from gpu_worker.system.launcher import environment
from gpu_worker.system.paths import RuntimeDirectory
from gpu_worker.system.watcher import Watcher

_log = logging.getLogger(__name__)

_BACKLOG = 64
_KEY_SECONDS = 30.0
_LINE = re.compile(rb"vispark (\d{1,6}) (\S+)\n")

#: Takes a session's name and a connection of somebody who named it.
ConnectionTaker = Callable[[str, socket.socket], None]


class TcpListeners:
    """TCP listeners of a node's sessions, one port for each address. Methods may be called from any thread.

    Parameters
    ----------
    directory : RuntimeDirectory
        The daemon's.
    watcher : Watcher
        Where connections are waited for.
    hand_over : callable
        Hands a connection on to a session's device process.
    port : int
        The port to take; 0 for any that is free.
    """

    def __init__(self, directory: RuntimeDirectory, watcher: Watcher, hand_over: ConnectionTaker, port: int = 0):
        self._directory = directory
        self._watcher = watcher
        self._hand_over = hand_over
        self._port = port
        self._listeners: dict[str, socket.socket] = {}
        # Unauthenticated peers keep each other waiting, and nobody else.
        self._unauthenticated = HandshakeLimiter()
        self._lock = threading.Lock()

    def open(self, host: str) -> TcpEndpoint:
        """Listen at an address, unless the daemon does already, and make a key pair for a session.

        Raises
        ------
        WorkerUnavailable, OutOfMemory, OutOfResources
            If either cannot be done.
        """
        with self._lock:
            port = self._listen(host, self._port)
            return TcpEndpoint(host, port, _new_pair(self._directory))

    def open_again(self, endpoint: TcpEndpoint) -> TcpEndpoint | None:
        """Listen at the address of an earlier daemon, for an adopted session; return None if that fails.

        At another port where somebody has taken that one: then the driver hears of it from the next task.
        """
        with self._lock:
            try:
                return replace(endpoint, port=self._listen(endpoint.host, endpoint.port))
            except VisparkError as error:
                _log.warning("%s", error)
                return None

    def sweep(self) -> float | None:
        """Refuse connections that greet too slowly; return when to call again, on the monotonic clock."""
        return self._unauthenticated.sweep()

    def close(self) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            self._watcher.forget(listener)
            listener.close()
        self._unauthenticated.close()

    def _listen(self, host: str, port: int) -> int:
        listener = self._listeners.get(host)
        if listener is None:
            listener = _listening(host, port)
            with ExitStack() as stack, system_call(f"a port of {host}", WorkerUnavailable):
                stack.callback(listener.close)
                listener.setblocking(False)
                self._watcher.listen(listener, self._begin, _log)
                stack.pop_all()
            self._listeners[host] = listener
            self._watcher.wake()
            _log.info("sessions that span nodes are reached at %s, port %d", *listener.getsockname()[:2])
        return listener.getsockname()[1]

    # -- unauthenticated peers ----------------------------------------------------------------------------------------

    def _begin(self, sock: socket.socket) -> None:
        self._unauthenticated.add(sock)
        try:
            start_thread(self._serve, [sock], name="tcp client")
        except (OutOfMemory, OutOfResources) as error:
            _log.warning("an unauthenticated peer is refused: %s", error)
            self._unauthenticated.remove(sock)
            with sock:
                _say(sock, f"{REFUSED} {type(error).__name__} {error.message}")

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                try:
                    failpoint("accepted")
                    session = _named(sock)
                finally:
                    self._unauthenticated.remove(sock)
                self._hand_over(session, sock)
                _say(sock, READY)
            except WorkerLost as error:
                _log.debug("an unauthenticated peer went away: %s", error)
            except VisparkError as error:
                _log.info("an unauthenticated peer is refused: %s", error)
                _say(sock, f"{REFUSED} {type(error).__name__} {error.message}")
            except Exception as error:
                _log.exception("an unauthenticated peer met a defect")
                known_error = as_error(error)
                _say(sock, f"{REFUSED} {type(known_error).__name__} {known_error.message}")


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket, at another port if the given one is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if is_refusal(error):
            raise refused(error, f"a socket that listens on {host}") from error
        if not port:
            raise WorkerUnavailable(f"the daemon cannot listen on {host}: {error}") from error
        _log.warning("port %d of %s cannot be had, and another is taken: %s", port, host, error)
        return _listening(host, 0)


def _named(sock: socket.socket) -> str:
    """Return the session that a peer names in its first line; no byte after the line is read."""
    sock.settimeout(ADMISSION_SECONDS)
    line, byte = bytearray(), b"."
    try:
        while byte and len(line) < MAX_LINE and not line.endswith(b"\n"):
            byte = sock.recv(1)
            line += byte
    except OSError as error:
        raise WorkerLost(f"it named no session: {error}") from error
    if not byte:
        raise WorkerLost("it named no session")
    match = _LINE.fullmatch(line)
    if match is None:
        raise ProtocolError("this is a GPU worker of vispark, and that is not its protocol")
    if int(match[1]) != VERSION:
        raise ProtocolError(f"the client speaks version {int(match[1])} of the protocol and this worker {VERSION}")
    return match[2].decode(errors="replace")


def _say(sock: socket.socket, line: str) -> None:
    with suppress(OSError):
        sock.settimeout(ADMISSION_SECONDS)
        sock.sendall(" ".join(line.split()).encode()[:MAX_ANSWER - 1] + b"\n")


def _new_pair(directory: RuntimeDirectory) -> KeyPair:
    command = [sys.executable, "-P", "-m", "gpu_worker.daemon.tcp_keys"]
    try:
        with system_call("a process that makes a key pair", WorkerUnavailable):
            result = subprocess.run(command, env=environment(directory), stdin=subprocess.DEVNULL, capture_output=True,
                                    timeout=_KEY_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise WorkerUnavailable(f"no key pair could be made: {error}") from error
    if result.returncode:
        last = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise WorkerUnavailable(f"no key pair could be made, which takes 'pip install cryptography': {last}")
    return decode(result.stdout, KeyPair)
