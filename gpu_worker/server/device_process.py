"""The device process of a session: takes connections from the daemon and answers requests, until it is told to end.

It goes on when its daemon dies, and a new daemon adopts it. Without a daemon nobody watches the driver's lease, so the
process keeps a rule of its own: it lives while a client is connected or an anchor process of one of its clients lives,
and then ``options.lease`` seconds more.

It is started with the descriptor of its listening socket as the first argument and its configuration on its standard
input; the further arguments say in a list of processes whose it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType

from gpu_worker.execution.in_flight import Flight
from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.control import VISITOR, Configuration, Door, HandOver, Registration, Taken
from gpu_worker.protocol.errors import ProtocolError, VisparkError, WorkerLost
from gpu_worker.protocol.messages import VERSION, Done, Greeting, Piece, Reply, Request, Welcome
from gpu_worker.protocol.wire import LINGER_SECONDS, Connection, close_all, failure_of
from gpu_worker.server.chunk_reader import Arrivals, Asked
from gpu_worker.server.handlers import Worker
from gpu_worker.server.payload_cache import KEPT_SECONDS, Payloads
from gpu_worker.server.tcp import Guard
from gpu_worker.system import log
from gpu_worker.system.crash_record import BlackBox
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.launcher import start_from_client
from gpu_worker.system.paths import locate
from gpu_worker.system.peer import check_peer
from gpu_worker.system.watcher import Watcher

# Run as a program, this module is called otherwise.
_log = logging.getLogger("gpu_worker.server.device_process")

#: How long running requests may take to end when the process is told to, in seconds.
_DRAIN_SECONDS = 3.0
#: How long a process whose device cannot be had waits for its clients to learn of it.
_REFUSAL_SECONDS = 5.0
#: Where no daemon can be started in place of one that ended: when that is tried again, first and at most.
_DAEMON_AGAIN_SECONDS, _DAEMON_SELDOM_SECONDS = 0.1, 60.0


class Service:
    """Everything a device process does, but for the requests themselves.

    Parameters
    ----------
    configuration : Configuration
        Whose process it is.
    listener : socket.socket
        Where daemons connect.
    make_worker : callable
        Makes what answers the requests; called with the session's options, ``epoch=`` and ``box=``.
    """

    def __init__(self, configuration: Configuration, listener: socket.socket,
                 make_worker: Callable[..., Worker] = Worker):
        self._configuration = configuration
        self._listener = listener
        self._make_worker = make_worker
        self._box = BlackBox(Path(configuration.box), epoch=configuration.epoch)
        self._worker: Future[Worker] = Future()
        self._watcher = Watcher()
        self._lock = threading.Lock()
        #: Where the next request is looked for: one thread at a time, and none while another begins with a request.
        self._lingering: Connection | None = None
        self._arrivals = Arrivals()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._anchors: dict[int, int] = {}
        self._guard = Guard(configuration)
        self._door: Door | None = None
        self._called = threading.Event()
        self._controlled = False
        self._lapsed: float | None = None
        self._stopping = False

    # -- life ---------------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Serve until told to end or no longer needed; whether everything could be given back."""
        self._box.watch()
        threading.Thread(target=self._take_connections, name="control", daemon=True).start()
        try:
            self._worker.set_result(self._make_worker(
                self._configuration.options, epoch=self._configuration.epoch, box=self._box,
                session=self._configuration.session, secret=self._configuration.secret))
        except VisparkError as error:
            _log.error("no device: %s", error)
            self._worker.set_exception(error)
            self._called.wait(_REFUSAL_SECONDS)
            return self._drain(_DRAIN_SECONDS)
        while not self._stopping:
            patience = self._patience()
            if patience is not None and patience <= 0:
                _log.info("no daemon, no client and no anchor for %g s", self._configuration.options.lease)
                break
            self._watcher.wait(patience)
        return self._drain(_DRAIN_SECONDS) and self._close()

    def stop(self) -> None:
        """Make :meth:`run` return; may be called from a signal handler."""
        self._stopping = True
        self._watcher.wake()

    def _patience(self) -> float | None:
        """Seconds until nobody needs this process any more; ``None`` while somebody does."""
        with self._lock:
            if self._controlled or self._clients or self._anchors:
                self._lapsed = None
                return None
            now = time.monotonic()
            self._lapsed = self._lapsed or now
            return self._lapsed + self._configuration.options.lease - now

    def _drain(self, seconds: float) -> bool:
        """Let running requests end; whether they did."""
        until = time.monotonic() + seconds
        with self._lock:
            # Those that have started; the daemon is gone or about to end this process, so no more will.
            clients = {sock: thread for sock, thread in self._clients.items() if thread.ident is not None}
        for sock in clients:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD)
        for thread in clients.values():
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in clients.values())

    def _close(self) -> bool:
        self._arrivals.close()
        self._worker.result().close()
        self._box.close()
        return True

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def _take_connections(self) -> None:
        daemons = 0
        while True:
            try:
                control, _ = self._listener.accept()
            except OSError as error:
                # Out of descriptors, most likely; the daemon waits until there are some.
                _log.error("cannot accept: %s", error)
                time.sleep(0.1)
                continue
            with Connection(control) as connection:
                self._set_controlled(True)
                try:
                    check_peer(control, "the daemon")
                    connection.send(self._registration(), Registration)
                    daemons += 1
                    if daemons > 1 and self._worker.done() and self._worker.exception() is None:
                        self._worker.result().adopted()
                    while True:
                        self._take(*connection.receive(HandOver), connection)
                except VisparkError as error:
                    _log.info("no daemon: %s", error)
            self._set_controlled(False)
            if (self._door is not None or self._anchors) and not self._stopping:
                threading.Thread(target=self._have_daemon, name="daemon", daemon=True).start()

    def _have_daemon(self) -> None:
        """Start a daemon: drivers on other nodes reach the session through one, and cannot start it themselves; nor can
        one that is relayed to, where executors hold the lease and a daemon the snapshots.
        """
        seconds = _DAEMON_AGAIN_SECONDS
        while not (self._controlled or self._stopping):
            try:
                start_from_client(locate(), self._configuration.options.log_level)
                return
            except VisparkError as error:
                _log.error("no daemon in place of the one that ended: %s", error)
            time.sleep(seconds)
            seconds = min(2 * seconds, _DAEMON_SELDOM_SECONDS)

    def _take(self, message: HandOver, descriptors: list[int], connection: Connection) -> None:
        threads = []
        self._door = message.door or self._door
        for descriptor in descriptors:
            sock = socket.socket(fileno=descriptor)
            sock.settimeout(None)
            threads.append(threading.Thread(target=self._serve, args=[sock, message], name=message.role, daemon=True))
            with self._lock:
                self._clients[sock] = threads[-1]
        if message.anchor:
            self._watch_anchor(message.anchor)
        try:
            # Before the client hears anything: a daemon that gets no answer may hand it to this process's successor.
            connection.send(Taken(message.number, len(self._clients)), Taken)
        finally:
            for thread in threads:
                thread.start()
            self._called.set()

    def _registration(self) -> Registration:
        mine = self._configuration
        with self._lock:
            return Registration(mine.session, mine.secret, mine.application, mine.options, mine.epoch, os.getpid(),
                                tuple(self._anchors), self._door)

    def _set_controlled(self, controlled: bool) -> None:
        self._controlled = controlled
        self._watcher.wake()

    def _watch_anchor(self, pid: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if pid not in self._anchors:
                pidfd = self._anchors[pid] = os.pidfd_open(pid)
                self._watcher.watch(pidfd, partial(self._anchor_gone, pid, pidfd))

    def _anchor_gone(self, pid: int, pidfd: int) -> None:
        with self._lock:
            self._watcher.forget(pidfd)
            os.close(pidfd)
            del self._anchors[pid]

    # -- clients ------------------------------------------------------------------------------------------------------

    def _serve(self, sock: socket.socket, message: HandOver) -> None:
        try:
            if message.role != VISITOR:
                self._converse(Connection(sock), message)
                return
            connection, hello = self._guard.admit(sock, message.door)
            with connection:
                if hello.role == "driver":
                    self._converse(connection, message)
                else:
                    self._guard.attend(hello, connection)
        except WorkerLost as error:
            _log.debug("a client is gone: %s", error)
        except VisparkError as error:
            _log.info("a client is refused: %s", error)
        finally:
            with self._lock:
                del self._clients[sock]
            sock.close()
            self._watcher.wake()

    def _converse(self, connection: Connection, message: HandOver) -> None:
        """Welcome a client, and answer its requests."""
        of: object = Greeting
        try:
            worker = self._worker.result()
            connection.send(self._welcome(worker, message), Greeting)
            of = Reply
            failpoint("welcomed")
            with contextlib.closing(worker.payloads()) as payloads, Ahead(connection, worker) as ahead:
                def served(asked: Asked) -> bool:
                    """Answer a request; whether further pieces are to come that are only to be enqueued."""
                    _answer(connection, asked, worker, payloads, ahead)
                    return payloads.in_pieces_aside and connection.shares_memory

                rest = partial(worker.rest, KEPT_SECONDS, payloads)
                while not self._stopping:
                    asked = connection.receive(Request)
                    while asked is not None:
                        self._lingering = None
                        asked = self._arrivals.follow(connection, served, rest) if served(asked) else None
                    ahead.answer_until_input()
                    if not payloads.in_pieces:       # the next one is still to be packed
                        self._lingering = connection
                        connection.linger(LINGER_SECONDS, lambda: self._lingering is connection, list(self._clients))
                    while (payloads.any or worker.may_rest) and not connection.wait(KEPT_SECONDS):
                        rest()
        except WorkerLost:
            raise
        except VisparkError as error:
            with contextlib.suppress(WorkerLost):
                connection.send(failure_of(error), of)
            raise

    def _welcome(self, worker: Worker, message: HandOver) -> Welcome:
        return Welcome(VERSION, self._configuration.worker, self._configuration.epoch, os.getpid(), worker.devices,
                       worker.room, message.door.reach if message.door else None)


class Ahead:
    """The plans of a connection that were begun and not answered, in order."""

    def __init__(self, connection: Connection, worker: Worker):
        self._connection = connection
        self._worker = worker
        self._flights: deque[Flight] = deque()

    def add(self, flight: Flight) -> None:
        self._flights.append(flight)

    def answer_until_input(self) -> None:
        """Answer those that are complete, and wait for others as long as there is no further request."""
        while self._flights and (self._worker.is_done(self._flights[0]) or not self._connection.wait(0)):
            self._answer_first()

    def answer_all(self) -> None:
        """Answer all of them."""
        while self._flights:
            self._answer_first()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_) -> None:
        for flight in self._flights:
            self._worker.finish(flight)

    def _answer_first(self) -> None:
        flight = self._flights.popleft()
        with _Handling(flight.reply.number) as handling:
            handling.reply, handling.results = self._worker.finish(flight)
        _reply(self._connection, handling)


def _answer(connection: Connection, asked: Asked, worker: Worker, payloads: Payloads, ahead: Ahead) -> None:
    """Answer one request, after those before it, unless it is only begun."""
    request, descriptors = asked
    with _Handling(request.number) as handling:
        failpoint("request-received")
        if isinstance(request, Piece):
            worker.take(request, descriptors, payloads)
            return
        begun = worker.begin(request, descriptors, payloads)
        if isinstance(begun, Flight):
            ahead.add(begun)
            return
        handling.reply, handling.results = begun
    ahead.answer_all()
    _reply(connection, handling)


def _reply(connection: Connection, handling: _Handling) -> None:
    reply, results = handling.reply, handling.results
    try:
        failpoint("before-reply")
        _send(connection, reply, results)
        failpoint("replied")
    finally:
        close_all(results)


class _Handling:
    """A request on its way to an answer: its reply, or what went wrong, a defect of ours included.

    The worker outlives its defects, whose trace is in the log; what was held before the request is still held.
    """

    def __init__(self, number: int):
        self.reply: Reply = Done(number)
        self.results: list[int] = []

    def __enter__(self) -> _Handling:
        return self

    def __exit__(self, _: type | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            if not isinstance(error, VisparkError):
                _log.error("request %d met a defect", self.reply.number, exc_info=error)
                lines = "".join(traceback.format_exception(error))
                error = VisparkError(f"the worker met a defect of its own: {type(error).__name__}: {error}",
                                     detail=lines)
            self.reply = failure_of(error, self.reply.number)
            return True
        return False


def _send(connection: Connection, reply: Reply, descriptors: list[int]) -> None:
    try:
        connection.send(reply, Reply, descriptors)
    except ProtocolError as error:
        # It is too long for a frame; nothing of it was sent.
        connection.send(failure_of(error, reply.number), Reply)


def main() -> None:
    """Be the device process that a daemon starts."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.setblocking(True)
    configuration = decode(sys.stdin.buffer.read(), Configuration)
    log.to_stderr(configuration.options.log_level, configuration.session)
    service = Service(configuration, listener)
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clean = service.run()
    _log.info("device process ends%s", "" if clean else " with requests still running")
    logging.shutdown()
    # Threads that still run a kernel or wait for the daemon must not hold up the end.
    os._exit(0 if clean else 1)


if __name__ == "__main__":
    main()
