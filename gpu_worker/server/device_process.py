"""Main loop of a session's device process: it takes connections from the daemon and answers requests until told to end.

It goes on when its daemon dies, and a new daemon adopts it. Without a daemon nobody watches the driver's lease, so the
process keeps a rule of its own: it lives while a client is connected or the process of one of its clients lives,
and then ``options.lease`` seconds more.

It is started with the descriptor of its listening socket as the first argument and its configuration on its standard
input; the further arguments say in a list of processes whose it is.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType

from gpu_worker.execution.scheduling.in_flight import Submission
from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.control import NOT_TAKEN, REMOTE, Configuration, HandOver, Registration, Taken, TcpEndpoint
from gpu_worker.protocol.errors import OutOfMemory, OutOfResources, ProtocolError, VisparkError, WorkerLost
from gpu_worker.protocol.messages import VERSION, Chunk, Done, Greeting, Reply, Request, Welcome
from gpu_worker.protocol.system import Thread, as_error, start_thread, system_call
from gpu_worker.protocol.wire import LINGER_SECONDS, Connection, CutOff, close_all, failure_of
from gpu_worker.server.chunk_reader import ChunkReader, ReceivedRequest
from gpu_worker.server.client_processes import ClientProcesses
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.server.payload_cache import KEPT_SECONDS, Payloads
from gpu_worker.server.tcp import Guard
from gpu_worker.system import caller, log
from gpu_worker.system.crash_record import CrashRecorder
from gpu_worker.system.daemon_watch import DaemonWatch
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.launcher import start_from_client
from gpu_worker.system.paths import locate
from gpu_worker.system.peer import check_peer
from gpu_worker.system.stopped_processes import LOOK_SECONDS
from gpu_worker.system.watcher import Watcher

# Run as a program, this module is called otherwise.
_log = logging.getLogger("gpu_worker.server.device_process")

#: How long running requests may take to end when the process is told to, in seconds.
_DRAIN_SECONDS = 3.0
#: How long a process whose device cannot be had waits for its clients to learn of it.
_REFUSAL_SECONDS = 5.0
#: Where no daemon can be started in place of one that ended: when that is tried again, first and at most.
_DAEMON_AGAIN_SECONDS, _DAEMON_SELDOM_SECONDS = 0.1, 60.0
#: How long the control thread stands still after a defect, and tries to answer where the system has no memory for it.
_AFTER_DEFECT_SECONDS, _REFUSED_SECONDS = 0.1, 5.0


class Service:
    """Service of a device process: everything but the requests themselves.

    Parameters
    ----------
    configuration : Configuration
        Whose process it is.
    listener : socket.socket
        Where daemons connect.
    make_worker : callable
        Makes what answers the requests; called with the session's options, ``epoch=`` and ``recorder=``.
    """

    def __init__(self, configuration: Configuration, listener: socket.socket,
                 make_worker: Callable[..., SessionWorker] = SessionWorker):
        self._configuration = configuration
        self._listener = listener
        self._make_worker = make_worker
        self._recorder: CrashRecorder | None = None
        self._worker: Future[SessionWorker] = Future()
        self._watcher = Watcher()
        self._lock = threading.Lock()
        #: Where the next request is looked for: one thread at a time, and none while another begins with a request.
        self._lingering: Connection | None = None
        self._chunks = ChunkReader()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._client_processes = ClientProcesses(self._watcher, self._lock, configuration.options.lease)
        self._guard = Guard(configuration)
        self._endpoint: TcpEndpoint | None = None
        self._called = threading.Event()
        #: Of the daemon that controls this process; None where there is none.
        self._daemon: DaemonWatch | None = None
        self._stopping = False

    # -- life ---------------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Serve until told to end or no longer needed; return whether all memory could be freed."""
        start_thread(self._take_connections, name="control")
        try:
            self._worker.set_result(self._opened())
        except Exception as error:
            _log.exception("no device")
            # Its clients, who wait, hear why, and this process, which holds nothing, ends.
            self._worker.set_exception(as_error(error))
            self._called.wait(_REFUSAL_SECONDS)
            return self._drain(_DRAIN_SECONDS)
        while not self._stopping:
            patience = self._seconds_left()
            if patience is not None and patience <= 0:
                _log.info("no daemon, no connection and no client process for %g s", self._configuration.options.lease)
                break
            grace = self._grace()
            if grace is not None and grace <= 0:
                self._stopping = True
                break
            look = self._look_at_daemon()
            self._watcher.wait(min([each for each in (patience, grace, look) if each is not None], default=None))
        return self._drain(_DRAIN_SECONDS) and self._close()

    def _opened(self) -> SessionWorker:
        own = self._configuration
        with system_call("the record of what a device process does"):
            self._recorder = CrashRecorder(Path(own.crash_record), epoch=own.epoch)
        self._recorder.watch()
        return self._make_worker(own.options, epoch=own.epoch, recorder=self._recorder, session=own.session,
                                 secret=own.secret)

    def stop(self) -> None:
        """Make :meth:`run` return; may be called from a signal handler."""
        self._stopping = True
        self._watcher.wake()

    def _look_at_daemon(self) -> float | None:
        """End a daemon that has been stopped for long, in whose place another one is started; return the seconds until
        it is to be looked at again, None where there is none.
        """
        watch = self._daemon
        if watch is None:
            return None
        watch.look()
        return LOOK_SECONDS

    def _seconds_left(self) -> float | None:
        """Return the seconds until this process has been unused for its lease; None while it is in use."""
        with self._lock:
            return self._client_processes.seconds_left(is_used=self._daemon is not None or bool(self._clients))

    def _grace(self) -> float | None:
        """Return the seconds until devices are given back whose executors have ended; None while all have one.

        They are Spark's to assign to others. This process ends, as a context of a device ends with its process at the
        latest; the next one opens what is assigned then, and what was here is made again there or elsewhere.
        """
        if not self._configuration.options.scheduled:
            return None
        unassigned = self._worker.result().unassigned(self._client_processes.assigned())
        grace = self._client_processes.grace(is_assigned=not unassigned)
        if grace is not None and grace <= 0:
            _log.info("%s: no executor that Spark assigned it to for %g s; the process ends, and the next one takes "
                      "what is assigned then", ", ".join(unassigned), self._configuration.options.lease)
        return grace

    def _drain(self, seconds: float) -> bool:
        """Wait for running requests to end; return whether they did."""
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
        self._chunks.close()
        self._worker.result().close()
        if self._recorder is not None:
            self._recorder.close()
        return True

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def _take_connections(self) -> None:
        adopts = False          # the first daemon is the one that has started this process
        while True:
            try:
                control, _ = self._listener.accept()
                with Connection(control) as connection:
                    self._controlled_by(connection, adopts=adopts)
            except VisparkError as error:
                _log.info("no daemon: %s", error)
            except Exception:
                # Out of descriptors, most likely; the daemon waits until there are some, or connects anew.
                _log.exception("the daemon's connection failed")
                time.sleep(_AFTER_DEFECT_SECONDS)
            adopts = True

    def _controlled_by(self, connection: Connection, *, adopts: bool) -> None:
        """Serve a daemon until it disconnects; one that ``adopts`` this process is given what it keeps of a session."""
        try:
            check_peer(connection.socket, "the daemon")
            self._set_daemon(DaemonWatch(connection.socket, locate().lock))
            connection.send(self._registration(), Registration)
            if adopts and self._worker.done() and self._worker.exception() is None:
                self._worker.result().adopted()
            while True:
                try:
                    message, descriptors = connection.receive(HandOver)
                except CutOff as error:
                    _log.warning("a client is not taken: %s", error)
                    self._answer_daemon(connection, Taken(error.cut.number, NOT_TAKEN))
                else:
                    self._take(message, descriptors, connection)
        finally:
            self._set_daemon(None)
            if (self._endpoint is not None or self._client_processes.pids()) and not self._stopping:
                start_thread(self._have_daemon, name="daemon")

    def _have_daemon(self) -> None:
        """Start a daemon: drivers on other nodes reach the session through one, and cannot start it themselves; nor can
        one that is relayed to, where executors hold the lease and a daemon the snapshots.
        """
        seconds = _DAEMON_AGAIN_SECONDS
        while self._daemon is None and not self._stopping:
            try:
                start_from_client(locate(), self._configuration.options.log_level)
                return
            except VisparkError as error:
                _log.error("no daemon in place of the one that ended: %s", error)
            except Exception:
                _log.exception("no daemon in place of the one that ended")
            time.sleep(seconds)
            seconds = min(2 * seconds, _DAEMON_SELDOM_SECONDS)

    def _take(self, message: HandOver, descriptors: list[int], connection: Connection) -> None:
        self._endpoint = message.endpoint or self._endpoint
        clients = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for sock in clients:
            sock.settimeout(None)
            thread = Thread(self._serve, [sock, message], name=message.role)
            with self._lock:
                self._clients[sock] = thread
        try:
            if message.client_pid:
                self._client_processes.watch(message.client_pid, message.gpus)
            # Before the client hears anything: a daemon that gets no answer may hand it to this process's successor.
            self._answer_daemon(connection, Taken(message.number, len(self._clients)))
        finally:
            for sock in clients:
                self._begin(sock, message)
            self._called.set()

    def _answer_daemon(self, connection: Connection, clients: Taken) -> None:
        """Answer a daemon, which would end this process without an answer."""
        until = time.monotonic() + _REFUSED_SECONDS
        while True:
            try:
                return connection.send(clients, Taken)
            except (OutOfMemory, OutOfResources):
                if time.monotonic() > until:
                    raise
            time.sleep(_AFTER_DEFECT_SECONDS)

    def _begin(self, sock: socket.socket, message: HandOver) -> None:
        """Start a client's thread; if none can be started, tell the client."""
        with self._lock:
            thread = self._clients[sock]
        try:
            thread.start()
        except VisparkError as refusal:
            _log.warning("a client is refused: %s", refusal)
            if message.role != REMOTE:
                with contextlib.suppress(VisparkError):
                    Connection(sock).send(failure_of(refusal), Greeting)
            self._client_gone(sock)

    def _registration(self) -> Registration:
        own = self._configuration
        return Registration(own.session, own.secret, own.application, own.options, own.epoch, os.getpid(),
                            self._client_processes.pids(), self._endpoint)

    def _set_daemon(self, watch: DaemonWatch | None) -> None:
        self._daemon = watch
        self._watcher.wake()

    # -- clients ------------------------------------------------------------------------------------------------------

    def _serve(self, sock: socket.socket, message: HandOver) -> None:
        try:
            with caller.serving(sock):
                self._serve_client(sock, message)
        except WorkerLost as error:
            _log.debug("a client is gone: %s", error)
        except VisparkError as error:
            _log.info("a client is refused: %s", error)
        except Exception:
            _log.exception("a client's connection met a defect")
        finally:
            self._client_gone(sock)

    def _serve_client(self, sock: socket.socket, message: HandOver) -> None:
        """Answer a client's requests until it is gone; of another node one that says who it is."""
        if message.role != REMOTE:
            self._converse(Connection(sock), message)
            return
        assert message.endpoint is not None
        connection, hello = self._guard.admit(sock, message.endpoint)
        with connection:
            if hello.role == "driver":
                self._converse(connection, message)
            else:
                self._guard.serve_driver(hello, connection)

    def _client_gone(self, sock: socket.socket) -> None:
        with self._lock:
            del self._clients[sock]
        sock.close()
        self._watcher.wake()

    def _converse(self, connection: Connection, message: HandOver) -> None:
        """Welcome a client, and answer its requests."""
        of: object = Greeting
        try:
            worker = self._worker.result()
            self._open(worker, message)
            connection.send(self._welcome(worker, message), Greeting)
            of = Reply
            failpoint("welcomed")
            with contextlib.closing(worker.payloads()) as payloads, UnansweredPlans(connection, worker) as ahead:
                def served(request: ReceivedRequest) -> bool:
                    """Answer a request; return whether further pieces are to come that are only to be enqueued."""
                    _answer(connection, request, worker, payloads, ahead)
                    return payloads.in_pieces_aside and connection.shares_memory

                release = partial(worker.rest, KEPT_SECONDS, payloads)
                while not self._stopping:
                    try:
                        request: ReceivedRequest | None = connection.receive(Request)
                    except CutOff as error:
                        ahead.answer_all()
                        connection.send(failure_of(error, error.cut.number), Reply)
                        continue
                    while request is not None:
                        self._lingering = None
                        request = self._chunks.follow(connection, served, release) if served(request) else None
                    ahead.answer_until_input()
                    if not payloads.in_pieces:       # the next one is still to be packed
                        self._lingering = connection
                        connection.poll(LINGER_SECONDS, lambda: self._lingering is connection, list(self._clients))
                    while (payloads.any or worker.may_rest) and not connection.wait(KEPT_SECONDS):
                        release()
        except WorkerLost:
            raise
        except Exception as error:
            with contextlib.suppress(VisparkError):
                connection.send(failure_of(as_error(error)), of)
            raise

    def _open(self, worker: SessionWorker, message: HandOver) -> None:
        """Open the devices that Spark assigned to a client; another client than an executor goes without one that
        cannot be had.
        """
        try:
            worker.open(message.gpus)
        except VisparkError as error:
            if message.role == "executor":
                raise
            _log.warning("a device of another client is not open: %s", error)
        finally:
            self._watcher.wake()

    def _welcome(self, worker: SessionWorker, message: HandOver) -> Welcome:
        return Welcome(VERSION, self._configuration.worker, self._configuration.epoch, os.getpid(), worker.devices,
                       worker.shared_limit, message.endpoint.reach if message.endpoint else None)


class UnansweredPlans:
    """Queue of a connection's plans that are begun and not answered, in order."""

    def __init__(self, connection: Connection, worker: SessionWorker):
        self._connection = connection
        self._worker = worker
        self._flights: deque[Submission] = deque()

    def add(self, flight: Submission) -> None:
        self._flights.append(flight)

    def answer_until_input(self) -> None:
        """Answer complete plans, and wait for incomplete ones as long as there is no further request."""
        while self._flights and (self._worker.is_done(self._flights[0]) or not self._connection.wait(0)):
            self._answer_first()

    def answer_all(self) -> None:
        """Answer all plans in the queue."""
        while self._flights:
            self._answer_first()

    def __enter__(self) -> UnansweredPlans:
        return self

    def __exit__(self, *_: object) -> None:
        for flight in self._flights:
            self._worker.finish(flight)

    def _answer_first(self) -> None:
        flight = self._flights.popleft()
        with _Handling(flight.number) as handling:
            handling.reply, handling.results = self._worker.finish(flight)
        _reply(self._connection, handling)


def _answer(connection: Connection, received: ReceivedRequest, worker: SessionWorker, payloads: Payloads,
            ahead: UnansweredPlans) -> None:
    """Answer one request, after those before it, or only begin it."""
    request, descriptors = received
    with _Handling(request.number) as handling:
        failpoint("request-received")
        if isinstance(request, Chunk):
            worker.take(request, descriptors, payloads)
            return
        begun = worker.begin(request, descriptors, payloads)
        if isinstance(begun, Submission):
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
    """Context of a request's handling, which turns errors, our own defects included, into its reply.

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
            self.reply = failure_of(as_error(error), self.reply.number)
            return True
        return False


def _send(connection: Connection, reply: Reply, descriptors: list[int]) -> None:
    try:
        connection.send(reply, Reply, descriptors)
    except (ProtocolError, OutOfMemory, OutOfResources) as error:
        # It is too long for a frame, or the system has no room for it; nothing of it was sent.
        connection.send(failure_of(error, reply.number), Reply)


def main() -> None:
    """Run the device process that a daemon starts."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.setblocking(True)
    configuration = decode(sys.stdin.buffer.read(), Configuration)
    log.to_stderr(configuration.options.log_level, configuration.session)
    service = Service(configuration, listener)
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()     # what is imported is not looked through with each full collection of later garbage
    clean = service.run()
    _log.info("device process ends%s", "" if clean else " with requests still running")
    logging.shutdown()
    # Threads that still run a kernel or wait for the daemon must not hold up the end.
    os._exit(0 if clean else 1)


if __name__ == "__main__":
    main()
