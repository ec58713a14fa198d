"""Long-lived process of a node, which greets clients, keeps sessions and hands connections on.

One thread waits for everything that just happens (connections, processes that end, leases that close, time); one more
per connection reads its greeting and answers it. It never imports CUDA, MPI or NumPy and never runs a user's code, and
whatever it refuses it survives.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress

from gpu_worker.daemon.session_state import ADMIN_ROLES, check
from gpu_worker.daemon.supervisor import Supervisor
from gpu_worker.exchange.mpi.cluster import Cluster
from gpu_worker.protocol.errors import OutOfMemory, OutOfResources, ProtocolError, VisparkError, WorkerLost
from gpu_worker.protocol.messages import (
    VERSION,
    AdminReply,
    AdminRequest,
    DetachPublications,
    Discard,
    Done,
    GetExitStatus,
    GetPublication,
    GetSnapshot,
    Greeting,
    Hello,
    Leased,
    ListPublications,
    PutPublication,
    PutSnapshot,
    SnapshotPart,
    StartPrted,
    Status,
    StatusReport,
    Stop,
    Unpublish,
)
from gpu_worker.protocol.system import as_error, start_thread, system_call
from gpu_worker.protocol.versions import greeting, other_version
from gpu_worker.protocol.wire import MAX_GREETING, Connection, close_all, failure_of
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.handshake_limiter import HandshakeLimiter
from gpu_worker.system.paths import RuntimeDirectory
from gpu_worker.system.peer import check_peer
from gpu_worker.system.watcher import Watcher

_log = logging.getLogger(__name__)

_BACKLOG = 256
_SEND_SECONDS = 5.0
_LAST_REPLY_SECONDS = 1.0
PublicationRequest = GetPublication | DetachPublications | ListPublications | Unpublish

#: How long the loop stands still after a turn that failed, in seconds.
_AFTER_DEFECT_SECONDS = 0.1


class Daemon:
    """The daemon of a runtime directory, whose lock the caller holds.

    Parameters
    ----------
    directory : RuntimeDirectory
        Made and checked.
    idle : float or None
        Seconds without a session after which :meth:`run` returns.
    cluster : Cluster, optional
        The nodes that it knows; none but its own where it is left out.
    port : int
        Where sessions that span nodes are reached over TCP; 0 for any port that is free.
    listener : socket.socket, optional
        A socket that listens at the directory's path, which the daemon leaves there; its own where it is left out.
    """

    def __init__(self, directory: RuntimeDirectory, *, idle: float | None = None, cluster: Cluster | None = None,
                 port: int = 0, listener: socket.socket | None = None):
        self._directory = directory
        self._idle = idle
        self._worker = directory.worker
        self._started = time.monotonic()
        self._watcher = Watcher()
        self._supervisor = Supervisor(directory, self._watcher, port)
        self._handshakes = HandshakeLimiter()
        self._cluster = cluster or Cluster(directory)
        self._listener = listener
        self._owns_path = listener is None
        self._stopping = False
        self._released = threading.Event()
        self._stop_requests: list[threading.Thread] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Adopt the processes that an earlier daemon left, and listen."""
        self._supervisor.adopt()
        listener = self._listener = self._listener or self._bound_listener()
        # Of a socket that was passed, too: its peers are told the process and the user that called this last.
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._watcher.listen(listener, self._begin, _log)
        self._cluster.open()
        _log.info("daemon %s listens on %s%s", self._worker, self._directory.socket,
                  "" if self._owns_path else ", which the service manager passed")

    def _bound_listener(self) -> socket.socket:
        self._directory.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._directory.socket))
        self._directory.socket.chmod(0o600)
        return listener

    def run(self) -> None:
        """Serve until :meth:`stop`, or until idle for long."""
        while not self._stopping:
            try:
                if self._is_idle():
                    return
            except Exception:
                _log.exception("a turn of the daemon's loop failed")
                time.sleep(_AFTER_DEFECT_SECONDS)

    def _is_idle(self) -> bool:
        """Serve one event: do what is due, wait, and answer; return whether there has been no session for the idle
        time.
        """
        expiry, empty_since = self._supervisor.expire()
        due = [self._handshakes.sweep(), self._supervisor.tcp_listeners.sweep(), expiry, self._supervisor.end_stopped()]
        if self._idle is not None and empty_since is not None:
            if time.monotonic() >= empty_since + self._idle:
                _log.info("no session for %g s", self._idle)
                return True
            due.append(empty_since + self._idle)
        earliest = min((moment for moment in due if moment is not None), default=None)
        self._watcher.wait(None if earliest is None else max(earliest - time.monotonic(), 0.0))
        return False

    def stop(self) -> None:
        """Make :meth:`run` return; may be called from anywhere, signal handlers included."""
        self._stopping = True
        self._watcher.wake()

    def close(self) -> None:
        """End all sessions and close everything; a part that fails to close does not keep the others from being closed.
        """
        with ExitStack() as stack:
            stack.callback(self._close_files)
            for part in (self._cluster.close, self._supervisor.stop, self._handshakes.close, self._close_listener):
                stack.callback(part)
        _log.info("daemon ended")

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._watcher.forget(self._listener)
            self._listener.close()
            if self._owns_path:
                self._directory.socket.unlink(missing_ok=True)

    def _close_files(self) -> None:
        with suppress(OSError):
            self._directory.sessions.rmdir()

    def released(self) -> None:
        """Note that the daemon's lock is free, and wait for the threads that answer requests to stop."""
        self._released.set()
        for thread in self._stop_requests:
            thread.join(_LAST_REPLY_SECONDS)

    # -- connections --------------------------------------------------------------------------------------------------

    def _begin(self, sock: socket.socket) -> None:
        self._handshakes.add(sock)
        try:
            start_thread(self._serve, [sock], name="connection")
        except (OutOfMemory, OutOfResources) as error:
            _log.warning("refused: %s", error)
            self._handshakes.remove(sock)
            self._refuse(sock, error, Greeting)
            sock.close()

    def _serve(self, sock: socket.socket) -> None:
        """Greet a connection, and answer its request or pass the connection on."""
        of, is_handed_over = Greeting, False
        try:
            connection = Connection(sock)
            hello = self._greeting(connection)
            of = AdminReply if hello.role in ADMIN_ROLES else Greeting
            is_handed_over = self._greeted(hello, connection)
        except WorkerLost as error:
            _log.debug("a peer went away: %s", error)
        except VisparkError as error:
            _log.info("refused: %s", error)
            self._refuse(sock, error, of)
        except Exception as error:
            _log.exception("a connection met a defect")
            self._refuse(sock, as_error(error), of)
        finally:
            if not is_handed_over:
                sock.close()

    def _refuse(self, sock: socket.socket, error: VisparkError, of: object) -> None:
        """Send a client, which may be gone, the reason why it is refused."""
        with suppress(VisparkError, OSError):
            sock.settimeout(_SEND_SECONDS)
            Connection(sock).send(failure_of(error), of)

    def _greeting(self, connection: Connection) -> Hello:
        """Return the connection's first message, after a check that the peer is of our user."""
        refused = ""
        try:
            failpoint("accepted")
            check_peer(connection.socket, "the client")
            hello, descriptors = connection.receive_as(greeting, cap=MAX_GREETING)
            close_all(descriptors)
            return hello
        except ProtocolError as error:
            raise ProtocolError(f"{error.message}; this worker speaks version {VERSION}") from error
        except WorkerLost as error:
            refused = self._handshakes.remove(connection.socket)
            raise ProtocolError(f"refused: {refused}") if refused else error from None
        finally:
            self._handshakes.remove(connection.socket)

    def _greeted(self, hello: Hello, connection: Connection) -> bool:
        """Serve a greeted connection; return whether its socket stays open here."""
        if hello.role == "admin" and hello.version != VERSION:
            self._administer_other(connection, hello.version)
            return False
        check(hello)
        if hello.role == "admin":
            self._administer(connection)
            return False
        if hello.role == "lease":
            self._lease(hello, connection)
            return True
        if hello.role == "finish":
            self._supervisor.finish(hello)
            connection.send(Done(0), AdminReply)
            return False
        self._supervisor.hand_over(hello, connection.socket)
        return False

    def _lease(self, hello: Hello, connection: Connection) -> None:
        self._supervisor.lease(hello)
        sock = connection.socket

        def closed() -> None:
            with ExitStack() as stack:
                stack.callback(self._supervisor.lease_closed, hello.session)
                stack.callback(sock.close)
                self._watcher.forget(sock)
            _log.info("a lease of session %s closed", hello.session)

        with ExitStack() as stack:
            stack.callback(self._supervisor.lease_closed, hello.session)
            failpoint("authenticated")
            sock.settimeout(_SEND_SECONDS)
            connection.send(Leased(self._worker), AdminReply)
            # A lease's holder never speaks again: whatever there is to read is its end.
            with system_call("a lease"):
                self._watcher.watch(sock, closed)
            stack.pop_all()

    # -- administration -----------------------------------------------------------------------------------------------

    def _administer(self, connection: Connection) -> None:
        while True:
            request, descriptors = connection.receive(AdminRequest, cap=MAX_GREETING)
            if isinstance(request, PutSnapshot):
                self._supervisor.put_snapshot(request, descriptors)
                connection.send(Done(0), AdminReply)
                continue
            if isinstance(request, PutPublication):
                self._supervisor.put_publication(request, descriptors)
                connection.send(Done(0), AdminReply)
                continue
            close_all(descriptors)
            if isinstance(request, GetSnapshot):
                part = self._supervisor.get_snapshot(request)
                try:
                    connection.send(SnapshotPart(part.offset, part.nbytes), AdminReply, [part.descriptor])
                finally:
                    os.close(part.descriptor)
            elif isinstance(request, PublicationRequest):
                self._administer_publications(request, connection)
            elif isinstance(request, Discard):
                self._supervisor.discard(request)
                connection.send(Done(0), AdminReply)
            elif isinstance(request, Status):
                connection.send(self._status(), AdminReply)
            elif isinstance(request, GetExitStatus):
                connection.send(self._supervisor.exit_status(request.session, request.epoch), AdminReply)
            elif isinstance(request, StartPrted):
                connection.send(self._cluster.start(request), AdminReply)
            else:
                self._end_for(connection)
                return

    def _administer_publications(self, request: PublicationRequest, connection: Connection) -> None:
        if isinstance(request, ListPublications):
            connection.send(self._supervisor.publications.report(), AdminReply)
            return
        if isinstance(request, GetPublication):
            reply, descriptors = self._supervisor.get_publication(request)
            try:
                connection.send(reply, AdminReply, descriptors)
            finally:
                close_all(descriptors)
            return
        if isinstance(request, Unpublish):
            self._supervisor.unpublish(request)
        else:
            self._supervisor.detach_publications(request)
        connection.send(Done(0), AdminReply)

    def _administer_other(self, connection: Connection, version: int) -> None:
        """Serve a client of another version, which may only stop the daemon."""
        try:
            request, descriptors = connection.receive(AdminRequest, cap=MAX_GREETING)
        except ProtocolError as error:
            raise other_version(version) from error
        close_all(descriptors)
        if not isinstance(request, Stop):
            raise other_version(version)
        self._end_for(connection)

    def _end_for(self, connection: Connection) -> None:
        self._stop_requests.append(threading.current_thread())
        self.stop()
        self._released.wait()
        connection.send(Done(0), AdminReply)

    def _status(self) -> StatusReport:
        return StatusReport(VERSION, self._worker, os.getpid(), time.monotonic() - self._started,
                            self._supervisor.status())
