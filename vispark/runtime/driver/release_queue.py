"""Thread-safe queue of VRDDs whose last reference is gone, drained to tell the workers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

#: For how long, in seconds, what was released waits for a plan to take it along.
_PATIENCE = 0.005


class Released:
    """Thread-safe queue of VRDDs' numbers that finalizers fill from any thread."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque()
        self._some = threading.Event()
        self._closed = threading.Event()

    def __bool__(self) -> bool:
        """Return whether the queue has entries."""
        return bool(self._numbers)

    def put(self, *numbers: int) -> None:
        self._numbers.extend(numbers)
        self._some.set()

    @contextmanager
    def taken(self, is_used: Callable[[int], bool]) -> Iterator[tuple[int, ...]]:
        """Yield the numbers of all released VRDDs that are unused, for the workers to forget; if the block fails, put
        them back.
        """
        numbers = self.take()
        if not numbers:
            yield numbers
            return
        with ExitStack() as undo:
            undo.callback(self.put, *numbers)
            unused = tuple([number for number in numbers if not is_used(number)])
            yield unused
            undo.pop_all()
            if len(unused) < len(numbers):
                self.put(*set(numbers).difference(unused))

    def take(self) -> tuple[int, ...]:
        """Remove and return all released numbers."""
        if not self._numbers:
            return ()
        numbers: list[int] = []
        with ExitStack() as undo:
            undo.callback(lambda: self.put(*numbers))
            with suppress(IndexError):
                while True:
                    numbers.append(self._numbers.popleft())
            undo.pop_all()
        return tuple(numbers)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the queue has had entries for a while, or for ``seconds``; return False once the queue is closed.
        """
        self._some.wait(seconds)
        self._some.clear()
        if not self._closed.is_set():
            time.sleep(_PATIENCE)
        return not self._closed.is_set()

    def closes(self, seconds: float) -> bool:
        """Wait some time; return whether the queue is closed."""
        return self._closed.wait(seconds)

    def wake(self) -> None:
        """End a :meth:`wait`."""
        self._some.set()

    @property
    def is_closed(self) -> bool:
        """Whether the queue is closed."""
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()
        self._some.set()
