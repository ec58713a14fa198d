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
    """Address of a thread's client, None without one."""

    address: int | None = None


_caller = _Caller()


@contextmanager
def serving(connection: socket.socket) -> Iterator[None]:
    """Let this thread work for the client of a connection during the block."""
    # This process shuts its own side down when it ends, while it still answers: of a Unix socket that can be told from
    # a client that is gone. Over TCP it cannot.
    client = _Client(connection.fileno(), 0 if connection.family == socket.AF_UNIX else select.POLLRDHUP)
    _caller.address = ctypes.addressof(client)
    try:
        yield
    finally:
        _caller.address = None


def address() -> int | None:
    """Return the address of what a device looks at to know whether this thread's client is gone; None without one.

    Examples
    --------
    >>> address() is None
    True
    """
    return _caller.address
