"""Client for which a thread of a device process works, so that a device can tell whether anybody still waits for it."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Caller(threading.local):
    """A thread's client: the descriptor of its connection, and the events of ``poll`` that say that it is gone."""

    descriptor = -1
    events = 0


_caller = _Caller()


@contextmanager
def serving(connection: socket.socket) -> Iterator[None]:
    """Let this thread work for the client of a connection during the block."""
    _caller.descriptor = connection.fileno()
    # This process shuts its own side down when it ends, while it still answers: of a Unix socket that can be told from
    # a client that is gone. Over TCP it cannot.
    _caller.events = 0 if connection.family == socket.AF_UNIX else select.POLLRDHUP
    try:
        yield
    finally:
        _caller.descriptor = -1


def current() -> tuple[int, int]:
    """Return the descriptor of this thread's client, -1 without one, and what to ask ``poll`` beside POLLHUP.

    Examples
    --------
    >>> current()
    (-1, 0)
    """
    return _caller.descriptor, _caller.events
