"""Waiting for many descriptors on one thread."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

_log = logging.getLogger(__name__)

#: How long a loop stands still whose turn failed, in seconds.
_AFTER_DEFECT_SECONDS = 0.1


class Watcher:
    """Calls back when a descriptor has something to say.

    :meth:`wait` is for one thread; the other methods may be called from any, and :meth:`wake` from a signal handler.
    """

    def __init__(self) -> None:
        self._selector = selectors.EpollSelector()
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._waker, selectors.EVENT_READ, self._woken)

    def watch(self, descriptor: Any, callback: Callable[[], None]) -> None:
        """Call ``callback`` from :meth:`wait` whenever ``descriptor`` can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def listen(self, listener: socket.socket, serve: Callable[[socket.socket], None], failures: logging.Logger) -> None:
        """Call ``serve`` from :meth:`wait` with each connection that a socket takes, which must not block."""
        self.watch(listener, partial(_accept, listener, serve, failures))

    def forget(self, descriptor: Any) -> None:
        """Stop watching; call it before the descriptor is closed."""
        self._selector.unregister(descriptor)

    def wake(self) -> None:
        """End the current or the next :meth:`wait`."""
        os.eventfd_write(self._waker, 1)

    def wait(self, seconds: float | None) -> bool:
        """Wait for an event, at most ``seconds``, and call back; return whether there was one.

        A callback that fails is in the log with its trace, and the others are called all the same.
        """
        callbacks = deque(key.data for key, _ in self._selector.select(seconds))
        is_event = bool(callbacks)
        while callbacks:
            # No variable has it while it runs: the frames of an error under it lead to this one.
            try:
                callbacks.popleft()()
            except Exception:
                _log.exception("a callback failed")
                # What it was told of may be there still, and the loop would do nothing else.
                time.sleep(_AFTER_DEFECT_SECONDS)
        return is_event

    def close(self) -> None:
        self._selector.close()
        os.close(self._waker)

    def _woken(self) -> None:
        os.eventfd_read(self._waker)


def _accept(listener: socket.socket, serve: Callable[[socket.socket], None], failures: logging.Logger) -> None:
    try:
        sock, _ = listener.accept()
    except BlockingIOError:
        return
    except OSError as error:
        # Out of descriptors, most likely. The peer stays in the backlog until there are some.
        failures.error("cannot accept: %s", error)
        time.sleep(_AFTER_DEFECT_SECONDS)
        return
    with ExitStack() as stack:
        stack.callback(sock.close)
        serve(sock)
        stack.pop_all()
