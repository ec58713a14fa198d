"""Streams of server-sent events: what is looked at once a second for all viewers, and what was seen in ten minutes; an
ASGI endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from gpu_worker.commands.web.guard import AsgiReceive, AsgiScope, AsgiSend

#: Samples that are kept, one a second.
HISTORY = 600
#: Viewers at one time.
MOST_VIEWERS = 64
#: Seconds after which a viewer that takes nothing is left.
_STALLED = 30.0
#: Seconds between two looks whether the server is to end.
_LOOK = 0.5


class Feed(ABC):
    """Feed of a page's events, for one event loop; a class of it says what is looked at.

    Parameters
    ----------
    seconds : float, optional
        Between two looks.
    """

    def __init__(self, seconds: float = 1.0):
        self._seconds = seconds
        self._points: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self._state: dict[str, Any] = {"up": False, "reason": "not asked yet"}
        self._count = 0
        #: Set, and replaced, when there is another sample.
        self.changed = asyncio.Event()

    @abstractmethod
    def look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Look, in a thread, and return the state of things and the point of the charts."""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            started = time.monotonic()
            try:
                self.take(*await asyncio.to_thread(self.look))
            except RuntimeError:
                if threading.main_thread().is_alive():
                    raise
                return      # the program ends, and Python starts no thread any more
            await asyncio.sleep(max(0.0, started + self._seconds - time.monotonic()))

    def take(self, state: dict[str, Any], point: dict[str, Any]) -> None:
        """Add a sample, and wake the viewers."""
        self._state = state
        self._points.append(point)
        self._count += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def after(self, seen: int) -> tuple[bytes, int]:
        """Return a server-sent event with what is new after ``seen`` samples, and the number of samples now.

        A viewer that was slow has all that it missed in one event.
        """
        new = min(self._count - seen, len(self._points))
        points = list(self._points)[len(self._points) - new:]
        body = json.dumps({"node": self._state, "points": points}, separators=(",", ":"))
        return f"data: {body}\n\n".encode(), self._count

    @contextlib.asynccontextmanager
    async def running(self, _: Any = None) -> Any:
        """Return the lifespan of an application with this feed."""
        task = asyncio.create_task(self.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Events:
    """ASGI endpoint with a stream of a feed's events for each viewer.

    Parameters
    ----------
    feed : Feed
        What is streamed.
    is_ending : callable
        Whether the server waits for its streams to end.
    stalled : float, optional
        Seconds after which a viewer that takes nothing is left.
    """

    def __init__(self, feed: Feed, is_ending: Callable[[], bool], stalled: float = _STALLED):
        self._feed, self._is_ending, self._stalled = feed, is_ending, stalled
        self.viewers = 0

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Stream events until the viewer goes, or takes nothing."""
        if self.viewers >= MOST_VIEWERS:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"there are as many viewers as the server takes\n"})
            return
        self.viewers += 1
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": 200,
                        "headers": [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]})
            # A viewer that takes nothing is left; the kernel, or the user who sees it stand, ends its connection.
            with contextlib.suppress(TimeoutError):
                await self._stream(send, gone)
                await send({"type": "http.response.body", "body": b""})
        finally:
            self.viewers -= 1
            gone.cancel()

    async def _stream(self, send: AsgiSend, gone: asyncio.Future[Any]) -> None:
        seen = 0
        while not gone.done() and not self._is_ending():
            changed: asyncio.Future[Any] = asyncio.ensure_future(self._feed.changed.wait())
            event, seen = self._feed.after(seen)
            try:
                async with asyncio.timeout(self._stalled):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                while not (changed.done() or gone.done() or self._is_ending()):
                    await asyncio.wait({changed, gone}, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()


async def _disconnected(receive: AsgiReceive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
