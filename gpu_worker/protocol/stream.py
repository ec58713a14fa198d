"""Frames over TLS: as over a Unix socket, but what a descriptor would share follows the message, in chunks.

A frame is the lengths of the message (four bytes) and of the payload (eight bytes, 0 for none), then both. Neither is
allocated for before its length is known to be within its cap, and each step has its time: a peer may be silent between
frames, but has to go on with one that it has begun.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gpu_worker.protocol.errors import ProtocolError, WorkerLost
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.system import system_call
from gpu_worker.protocol.wire import MAX_FRAME, Connection, Sockets, encoded, read_as_it_comes

#: How much of a payload is sent at once.
CHUNK_BYTES = 1 << 20

#: How long a message, or a chunk of a payload, may take once it has begun, in seconds.
CHUNK_SECONDS = 30.0

#: How long a peer may take until it takes what is sent; a driver may wait for another worker's answer meanwhile.
TAKE_SECONDS = 600.0

#: A peer that does not answer for about half a minute is gone.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4,
              socket.TCP_USER_TIMEOUT: int(TAKE_SECONDS * 1000)}

_LENGTHS = struct.Struct("!IQ")


def max_payload() -> int:
    """Return the most bytes of a payload that are taken of a peer: half of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


class StreamConnection(Connection):
    """A stream of typed messages over TLS. Not for several threads at once.

    Parameters
    ----------
    sock : ssl.SSLSocket
        Connected, its handshake done.
    payload_limit : int
        The most bytes of a payload that are taken with a message.
    until : float, optional
        When, on the monotonic clock, all must have been said, until :meth:`clear_deadline` is called.
    """

    shares_memory = False
    socket: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket, payload_limit: int = 0, until: float | None = None):
        super().__init__(sock)
        self.payload_limit = payload_limit
        self.until = until

    def send(self, message: object, of: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message of the type or union ``of``, followed by the content of its memfd.

        Raises
        ------
        WorkerLost
            If the peer is gone or does not take it in time.
        """
        body = encoded(message, of)
        payload = memoryview(b"")
        mapped = None
        if descriptors:
            with system_call("a descriptor of shared memory"):
                copy = os.dup(descriptors[0])
            mapped = Payload.receive(copy)
        if mapped is not None:
            payload = mapped.array.data
        try:
            self._send_all(_LENGTHS.pack(len(body), payload.nbytes) + body)
            for start in range(0, payload.nbytes, CHUNK_BYTES):
                self._send_all(payload[start:start + CHUNK_BYTES])
        finally:
            payload.release()
            if mapped is not None:
                mapped.close()

    def receive_as(self, read: Callable[[bytearray], Any], cap: int = MAX_FRAME) -> tuple[Any, list[int]]:
        """Receive what ``read`` makes of a message's bytes, and its payload as the descriptor of a memfd.

        Raises
        ------
        WorkerLost
            If the peer closed the connection, or did not go on with what it had begun.
        ProtocolError
            If message or payload is over its cap, or ``read`` refuses the message.
        """
        head = bytearray(_LENGTHS.size)
        self._read(memoryview(head)[:1], self.until)
        begun = time.monotonic() + CHUNK_SECONDS
        self._read(memoryview(head)[1:], begun)
        length, nbytes = _LENGTHS.unpack(head)
        if length > cap:
            raise ProtocolError(f"a frame of {length} bytes is over the cap of {cap}")
        if nbytes > self.payload_limit:
            raise ProtocolError(f"a payload of {nbytes} bytes is over the cap of {self.payload_limit}")
        body = read_as_it_comes(length, lambda view: self._read(view, begun))
        message = read(body)
        return message, [self._read_payload(nbytes)] if nbytes else []

    def _read_payload(self, nbytes: int) -> int:
        with Payload.create(nbytes) as payload, payload.array.data as view:
            for start in range(0, nbytes, CHUNK_BYTES):
                self._read(view[start:start + CHUNK_BYTES], time.monotonic() + CHUNK_SECONDS)
            return payload.release()

    def clear_deadline(self) -> None:
        """Remove the deadline, as :meth:`Connection.clear_deadline` does."""
        self.until = None

    def wait_for_end(self) -> None:
        """Wait until the peer closes the connection, or says something that it should not."""
        with suppress(WorkerLost):
            self._read(memoryview(bytearray(1)), None)

    def wait(self, seconds: float) -> bool:
        """Wait for data, as :meth:`Connection.wait` does; deciphered bytes that are not read yet count as data."""
        return self.socket.pending() > 0 or super().wait(seconds)

    def poll(self, seconds: float, still: Callable[[], bool] = lambda: True,
             others: Sockets = ()) -> bool:
        """Poll for data, as :meth:`Connection.poll` does; deciphered bytes that are not read yet count as data."""
        return self.socket.pending() > 0 or super().poll(seconds, still, others)

    def _read(self, view: memoryview, until: float | None) -> None:
        if self.until is not None:
            until = min(self.until, until or self.until)
        while view:
            try:
                self.socket.settimeout(None if until is None else _left(until))
                count = self.socket.recv_into(view)
            except OSError as error:
                raise self._gone(error) from error
            if not count:
                raise WorkerLost("the peer closed the connection")
            view = view[count:]

    def _send_all(self, data: bytes | memoryview) -> None:
        try:
            self.socket.settimeout(TAKE_SECONDS if self.until is None else _left(self.until))
            self.socket.sendall(data)
        except OSError as error:
            raise self._gone(error) from error

    def _gone(self, error: OSError) -> WorkerLost:
        if self.socket.fileno() < 0:
            return WorkerLost("the connection was closed here, as what went over it before was lost")
        return WorkerLost(f"the peer is gone: {error}")


def keep_alive(sock: socket.socket) -> None:
    """Configure a socket to notice that its peer's machine is gone, and to send small messages at once."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def shake_hands(sock: ssl.SSLSocket, until: float) -> None:
    """Do a TLS handshake, however slowly the peer speaks, until a time on the monotonic clock.

    Raises
    ------
    WorkerLost
        If the peer closes the connection, does not speak TLS, or is too slow.
    """
    sock.setblocking(False)
    try:
        while True:
            try:
                return sock.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as want:
                waiting = select.poll()
                waiting.register(sock, select.POLLIN if isinstance(want, ssl.SSLWantReadError) else select.POLLOUT)
                if not waiting.poll(_left(until) * 1000):
                    raise TimeoutError("the peer was too slow") from want
    except OSError as error:
        raise WorkerLost(f"no TLS with the peer: {error}") from error


def _left(until: float) -> float:
    """Return the seconds until a time.

    Raises
    ------
    TimeoutError
        If there are none.
    """
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the peer was too slow")
    return seconds
