"""Client for which a thread of a device process works, so that a device can tell whether anybody still waits for it."""

from __future__ import annotations

import ctypes
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class _Client(ctypes.Structure):
    """ctypes mirror of ``Client`` in interrupts.h: the descriptor of a connection, and the events of ``poll`` that say
    that the client is gone; the device notes when it looks next, and since when the client is gone.
    """

    _fields_: ClassVar = [("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("next", ctypes.c_longlong),
                          ("gone", ctypes.c_longlong)]


class _Caller(threading.local):
    """Address of a thread's client, None without one, and what ``poll`` is asked of it."""

    address: int | None = None
    poll: tuple[int, int] = (-1, 0)


_caller = _Caller()


@contextmanager
def serving(connection: socket.socket) -> Iterator[None]:
    """Let this thread work for the client of a connection during the block."""
    # This process shuts its own side down when it ends, while it still answers: of a Unix socket that can be told from
    # a client that is gone. Over TCP it cannot.
    client = _Client(connection.fileno(), 0 if connection.family == socket.AF_UNIX else select.POLLRDHUP)
    _caller.address, _caller.poll = ctypes.addressof(client), (client.descriptor, client.events)
    try:
        yield
    finally:
        _caller.address, _caller.poll = None, (-1, 0)


def address() -> int | None:
    """Return the address of what a device looks at to know whether this thread's client is gone; None without one.

    Examples
    --------
    >>> address() is None
    True
    """
    return _caller.address


def current() -> tuple[int, int]:
    """Return the descriptor of this thread's client, -1 without one, and what to ask ``poll`` beside POLLHUP.

    Examples
    --------
    >>> current()
    (-1, 0)
    """
    return _caller.poll


def is_gone(descriptor: int, events: int) -> bool:
    """Return whether a client is gone, by what :func:`current` returned in the thread that works for it.

    Examples
    --------
    >>> is_gone(-1, 0)
    False
    """
    if descriptor < 0:
        return False
    look = select.poll()
    look.register(descriptor, events)
    return any(found & (select.POLLHUP | select.POLLERR | events) for _, found in look.poll(0))
