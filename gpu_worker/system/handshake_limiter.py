"""Connections that have not greeted yet: few, and not for long."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

MAX_UNGREETED = 64
GREETING_SECONDS = 5.0


class HandshakeLimiter:
    """Limiter of connections that have not greeted yet, by number and time.

    When there are too many, the oldest goes: whoever greets at once is never the oldest for long, so peers that never
    greet cannot keep others out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[socket.socket, float] = {}
        self._refused: dict[socket.socket, tuple[float, str]] = {}

    def add(self, sock: socket.socket) -> None:
        """Register an accepted connection that has not greeted yet; if too many have not, refuse the oldest."""
        with self._lock:
            if len(self._since) >= MAX_UNGREETED:
                self._refuse(next(iter(self._since)), f"more than {MAX_UNGREETED} connections had not greeted")
            self._since[sock] = time.monotonic()

    def remove(self, sock: socket.socket) -> str:
        """Remove a connection that greeted or is about to be closed; return why it was refused, or ``""``."""
        with self._lock:
            self._since.pop(sock, None)
            return self._refused.pop(sock, (0.0, ""))[1]

    def sweep(self) -> float | None:
        """Refuse connections that have not greeted in time; return when to call again, on the monotonic clock.

        Those that were refused, and that nobody has removed after as long again, have no thread: their peers read the
        end of the stream.
        """
        now = time.monotonic()
        with self._lock:
            for sock in [sock for sock, since in self._since.items() if now - since >= GREETING_SECONDS]:
                self._refuse(sock, f"no greeting came within {GREETING_SECONDS:g} s")
            for sock in [sock for sock, (since, _) in self._refused.items() if now - since >= GREETING_SECONDS]:
                del self._refused[sock]
                _shutdown(sock, socket.SHUT_RDWR)
            since = [*self._since.values(), *(since for since, _ in self._refused.values())]
            return min(since) + GREETING_SECONDS if since else None

    def close(self) -> None:
        """Refuse all."""
        with self._lock:
            for sock in list(self._since):
                self._refuse(sock, "the daemon stops")

    def _refuse(self, sock: socket.socket, why: str) -> None:
        del self._since[sock]
        self._refused[sock] = time.monotonic(), why
        # Its thread waits for the greeting and now reads the end of the stream; it can still answer.
        _shutdown(sock, socket.SHUT_RD)


def _shutdown(sock: socket.socket, how: int) -> None:
    with suppress(OSError):
        sock.shutdown(how)
