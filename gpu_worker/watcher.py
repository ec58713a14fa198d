"""Waiting for many descriptors on one thread."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Any


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

    def forget(self, descriptor: Any) -> None:
        """Stop watching; call it before the descriptor is closed."""
        self._selector.unregister(descriptor)

    def wake(self) -> None:
        """End the current or the next :meth:`wait`."""
        os.eventfd_write(self._waker, 1)

    def wait(self, seconds: float | None) -> None:
        """Wait for something to happen, at most ``seconds``, and call back."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def close(self) -> None:
        self._selector.close()
        os.close(self._waker)

    def _woken(self) -> None:
        os.eventfd_read(self._waker)
