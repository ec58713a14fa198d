"""Client for which a thread of a device process works, so that a device can tell whether anybody still waits for it."""

from __future__ import annotations

import ctypes
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class _Mirror(ctypes.Structure):
    """ctypes mirror of ``Client`` in interrupts.h: the descriptor of a connection, and the events of ``poll`` that say
    that the client is gone; the device notes when it looks next, and since when the client is gone.
    """

    _fields_: ClassVar = [("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("next", ctypes.c_longlong),
                          ("gone", ctypes.c_longlong)]


class Caller:
    """Client that a thread works for, as others see it.

    Plans on a GPU go on behind the connection that asked for them: once the thread has left it, its descriptor may be
    that of another client.

    Parameters
    ----------
    descriptor : int
        Of its connection, -1 without one.
    events : int
        What ``poll`` is asked beside POLLHUP and POLLERR.
    """

    __slots__ = ("_left", "_look")

    def __init__(self, descriptor: int = -1, events: int = 0) -> None:
        self._left = False
        self._look: tuple[int, int] | None = (descriptor, events) if descriptor >= 0 else None

    def leave(self) -> None:
        """Note that nobody serves it any more."""
        self._left = True

    def is_gone(self) -> bool:
        """Return whether nobody waits at the other end any more.

        Examples
        --------
        >>> Caller().is_gone()
        False
        """
        if self._left or self._look is None:
            return self._left
        descriptor, events = self._look
        look = select.poll()
        look.register(descriptor, events)
        return any(found & (select.POLLHUP | select.POLLERR | select.POLLNVAL | events) for _, found in look.poll(0))


class _OfThread(threading.local):
    """Address of a thread's client, None without one, and the client."""

    address: int | None = None
    client: Caller = Caller()


_caller = _OfThread()


@contextmanager
def serving(connection: socket.socket) -> Iterator[None]:
    """Mark this thread as working for the client of a connection during the block."""
    # This process shuts its own side down when it ends, while it still answers: of a Unix socket that can be told from
    # a client that is gone. Over TCP it cannot.
    mirror = _Mirror(connection.fileno(), 0 if connection.family == socket.AF_UNIX else select.POLLRDHUP)
    client = Caller(mirror.descriptor, mirror.events)
    _caller.address, _caller.client = ctypes.addressof(mirror), client
    try:
        yield
    finally:
        client.leave()
        del _caller.address, _caller.client


def address() -> int | None:
    """Return the address of what a device looks at to know whether this thread's client is gone; None without one.

    Examples
    --------
    >>> address() is None
    True
    """
    return _caller.address


def current() -> Caller:
    """Return this thread's client.

    Examples
    --------
    >>> current().is_gone()
    False
    """
    return _caller.client
