"""Reader thread of uploaded pieces, shared by all connections that upload some.

If each connection's own thread took them, as many threads would want the interpreter's lock as tasks load. Each lets go
of it in every call of the system or the driver, and has to be woken to have it again, which takes longer than the call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import Chunk, Request
from gpu_worker.protocol.system import as_error, start_thread, system_call
from gpu_worker.protocol.wire import Connection
from gpu_worker.server.payload_cache import KEPT_SECONDS
from gpu_worker.system.watcher import Watcher

log = logging.getLogger(__name__)

#: A request with the descriptors that came with it.
ReceivedRequest = tuple[Request, list[int]]


@dataclass(frozen=True, eq=False)
class _Followed:
    """Connection on which pieces arrive, and the future of its next other message."""

    connection: Connection
    take: Callable[[ReceivedRequest], bool]
    rest: Callable[[], None]
    other: Future[ReceivedRequest | None] = field(default_factory=Future)


class ChunkReader:
    """Registry of the connections on which pieces arrive, and their reader thread, which starts with the first."""

    def __init__(self) -> None:
        self._watcher = Watcher()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._followed: set[_Followed] = set()

    def follow(self, connection: Connection, take: Callable[[ReceivedRequest], bool],
               rest: Callable[[], None]) -> ReceivedRequest | None:
        """Leave a connection to the reader thread until a message other than a further piece arrives.

        Parameters
        ----------
        connection : Connection
            A connection over a Unix socket.
        take : callable
            Takes a piece that is behind another, and tells whether further ones may come.
        rest : callable
            What is to be done where no piece came for some seconds.

        Returns
        -------
        tuple or None
            What came, to be answered; None behind a piece after which no further ones may come.

        Raises
        ------
        VisparkError
            As :meth:`Connection.receive`, what ``take`` and ``rest`` raise, and where the system has no thread.
        """
        followed = _Followed(connection, take, rest)
        with self._lock:
            if self._thread is None:
                self._thread = start_thread(self._run, name="chunks")
            with system_call("a connection that brings pieces"):
                self._watcher.watch(connection.socket, partial(self._read, followed))
            self._followed.add(followed)
        try:
            return followed.other.result()
        finally:
            # The frames of an error have what a piece held, and lead to those below. If one of them had what has the
            # error, all would stay until Python collects garbage, which an idle process does not.
            del followed

    def close(self) -> None:
        """End the reader thread, which follows no connection any more."""
        self._closed = True
        self._watcher.wake()
        if self._thread is not None:
            self._thread.join()
        self._watcher.close()

    def _run(self) -> None:
        while not self._closed:
            if not self._watcher.wait(KEPT_SECONDS):
                with self._lock:
                    silent = list(self._followed)
                for followed in silent:
                    self._rest(followed)

    def _read(self, followed: _Followed) -> None:
        message: ReceivedRequest | None
        try:
            message = followed.connection.receive(Request)
            if isinstance(message[0], Chunk) and message[0].offset:
                if followed.take(message):
                    return
                message = None
        except Exception as error:
            self._fail(followed, error)
        else:
            self._return_connection(followed, partial(followed.other.set_result, message))
        finally:
            del followed        # as in follow()

    def _rest(self, followed: _Followed) -> None:
        try:
            followed.rest()
        except Exception as error:
            self._fail(followed, error)
        finally:
            del followed        # as in follow()

    def _fail(self, followed: _Followed, error: Exception) -> None:
        if not isinstance(error, VisparkError):
            log.error("a connection that brings pieces met a defect", exc_info=error)
        self._return_connection(followed, partial(followed.other.set_exception, as_error(error)))

    def _return_connection(self, followed: _Followed, tell: Callable[[], None]) -> None:
        """Return a connection to its own thread, which is woken in any case."""
        with ExitStack() as stack, self._lock:
            stack.callback(tell)
            self._followed.discard(followed)
            self._watcher.forget(followed.connection.socket)
