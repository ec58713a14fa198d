"""Supervisor of device processes, leases and client processes of all sessions, by the decisions of
:mod:`gpu_worker.daemon.session_state`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from gpu_worker.daemon.device_process import DeviceProcess
from gpu_worker.daemon.publication_store import PublicationStore
from gpu_worker.daemon.session_state import End, Instruction, SessionState, SessionStateMachine, Start, Watch
from gpu_worker.daemon.snapshot_store import SnapshotStore, StoredSnapshot
from gpu_worker.daemon.tcp_listener import TcpListeners
from gpu_worker.protocol.control import REMOTE, Configuration, HandOver, TcpEndpoint
from gpu_worker.protocol.errors import (
    OutOfMemory,
    OutOfResources,
    ProtocolError,
    Unauthorized,
    VisparkError,
    WorkerLost,
    WorkerUnavailable,
)
from gpu_worker.protocol.messages import (
    Death,
    DetachPublications,
    Discard,
    GetPublication,
    GetSnapshot,
    Greeting,
    Hello,
    PublicationPart,
    PutPublication,
    PutSnapshot,
    Reply,
    Report,
    Reported,
    Request,
    SessionStatus,
    Unpublish,
)
from gpu_worker.protocol.system import as_error, is_refusal, refused, start_thread, system_call
from gpu_worker.protocol.wire import Connection, close_all, failure_of
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.paths import RuntimeDirectory
from gpu_worker.system.peer import has_ended
from gpu_worker.system.stopped_processes import LOOK_SECONDS, STOPPED_SECONDS, StoppedProcesses
from gpu_worker.system.watcher import Watcher

_log = logging.getLogger(__name__)

_HAND_OVER_ATTEMPTS = 8
_REPORT_SECONDS = 2.0
#: A process's sockets close a little before it counts as ended.
_DEATH_SECONDS = 1.0
#: When a thread is asked for again that ends a session, in seconds.
_END_AGAIN_SECONDS = 1.0


class Supervisor:
    """Supervisor of the daemon's sessions and their processes. Its methods may be called from any thread.

    Parameters
    ----------
    directory : RuntimeDirectory
        Made and checked.
    watcher : Watcher
        Where processes and leases are waited for; woken when there is something new to wait for.
    port : int
        Where sessions that span nodes are reached; 0 for any port that is free.
    """

    def __init__(self, directory: RuntimeDirectory, watcher: Watcher, port: int = 0):
        self._directory = directory
        self.tcp_listeners = TcpListeners(directory, watcher, self.hand_over_remote, port)
        self._watcher = watcher
        self._worker = directory.worker
        # A clock in milliseconds outruns any count of processes.
        self._sessions = SessionStateMachine(time.monotonic, last_epoch=int(time.time() * 1000))
        self._processes: dict[str, Future[DeviceProcess]] = {}
        #: Done once nothing is left of an earlier session of a name.
        self._endings: dict[str, Future[None]] = {}
        #: The ends for which the system had no thread yet.
        self._unended: deque[Callable[[], None]] = deque()
        self._snapshots = SnapshotStore()
        self.publications = PublicationStore(time.monotonic)
        self._client_processes: dict[Watch, int] = {}
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._stopped = False
        self._stops = StoppedProcesses()
        self._next_look = 0.0

    # -- events -------------------------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over the processes that an earlier daemon left, and remove the files of processes that have ended."""
        self._directory.sessions.mkdir(mode=0o700, exist_ok=True)
        for name in self._directory.found_sessions():
            try:
                process = DeviceProcess.adopt(self._directory, name)
            except VisparkError as error:
                _log.info("session %s is not adopted: %s", name, error)
                self._remove_files(name)
                continue
            self._adopt(name, process)

    def _adopt(self, name: str, process: DeviceProcess) -> None:
        endpoint = process.registration.endpoint and self.tcp_listeners.open_again(process.registration.endpoint)
        coming: Future[DeviceProcess] = Future()
        with self._lock:
            self._processes[name] = coming
            instructions = self._sessions.adopt(replace(process.registration, endpoint=endpoint))
        try:
            self._watch_process(process)
            coming.set_result(process)
            self._carry_out(instructions)
        except VisparkError as error:
            # It goes on; that it, or an executor, has ended is noticed when somebody asks for it.
            _log.error("session %s is not watched: %s", name, error)
            if not coming.done():
                coming.set_result(process)
        registration = process.registration
        _log.info("session %s is adopted with process %d, epoch %d", name, registration.pid, registration.epoch)

    def lease(self, hello: Hello) -> None:
        """Admit a driver's lease of its session; :meth:`lease_closed` must follow."""
        self._admit(hello.session, lambda: self._sessions.greet(hello))
        self._watcher.wake()

    def finish(self, hello: Hello) -> None:
        """End a session whose application is over."""
        with self._lock:
            instructions = self._sessions.finish(hello)
        self._carry_out(instructions)
        self._watcher.wake()

    def lease_closed(self, session: str) -> None:
        with self._lock:
            self._sessions.lease_closed(session)
        self._watcher.wake()

    def hand_over(self, hello: Hello, client: socket.socket) -> None:
        """Hand a client's connection to its session's process, starting the process if necessary.

        Raises
        ------
        VisparkError
            If the client is refused, or no process takes it.
        """
        def coming() -> Future[DeviceProcess] | None:
            return self._admit(hello.session, lambda: self._sessions.greet(hello))

        first = coming()
        endpoint = self._endpoint(hello) if hello.reach else None
        message = HandOver(0, hello.role, hello.client_pid, endpoint, self._gpus(hello))
        self._hand_over(hello.session, first, coming, message, client)

    def hand_over_remote(self, session: str, client: socket.socket) -> None:
        """Hand over a TCP connection whose peer names a session. Raises as :meth:`hand_over`."""
        def coming() -> Future[DeviceProcess] | None:
            return self._admit(session, lambda: self._sessions.admit_remote(session))

        first = coming()
        with self._lock:
            session_state = self._sessions.get(session)
            endpoint, gpus = (session_state.endpoint, session_state.assigned) if session_state else (None, ())
        self._hand_over(session, first, coming, HandOver(0, REMOTE, 0, endpoint, gpus), client)

    def _gpus(self, hello: Hello) -> tuple[str, ...]:
        """Return the addresses of an executor's devices; for other clients those of all executors of the session."""
        if hello.role == "executor":
            return hello.gpus
        with self._lock:
            session = self._sessions.get(hello.session)
            return session.assigned if session else ()

    def _hand_over(self, session: str, first: Future[DeviceProcess] | None,
                   again: Callable[[], Future[DeviceProcess] | None], message: HandOver, client: socket.socket) -> None:
        coming = first
        for attempt in range(_HAND_OVER_ATTEMPTS):
            if attempt:
                coming = again()
            else:
                failpoint("authenticated")
            assert coming is not None
            if self._handed_over(coming, session, message, client):
                failpoint("handed-over")
                self._watcher.wake()
                return
        raise WorkerUnavailable(f"the device processes of session {session} end as soon as they are started; "
                                f"see {self._directory.process_log}")

    def _endpoint(self, hello: Hello) -> TcpEndpoint | None:
        """Return the TCP address of a session, opening a port if there is none yet; None if no port can be opened."""
        with self._opening:
            with self._lock:
                session = self._sessions.get(hello.session)
                endpoint = session.endpoint if session else None
            if endpoint is None:
                try:
                    endpoint = self.tcp_listeners.open(hello.reach)
                except VisparkError as error:
                    _log.error("session %s is not reached over TCP: %s", hello.session, error)
                    return None
                with self._lock:
                    self._sessions.opened(hello.session, endpoint)
            return endpoint

    def put_snapshot(self, request: PutSnapshot, descriptors: list[int]) -> None:
        """Store a snapshot until it is discarded, or its session ends.

        Raises
        ------
        Unauthorized
            If there is no such session, or it has another secret.
        ProtocolError
            If it came without the memory.
        """
        with self._lock:
            refused = not self._sessions.knows(request.session, request.secret)
        if refused or len(descriptors) != 1:
            close_all(descriptors)
            if refused:
                raise Unauthorized(f"session {request.session} is not known here under this secret")
            raise ProtocolError(f"a snapshot came with {len(descriptors)} descriptors")
        self._snapshots.put(request.session, (request.snapshot, request.owner),
                            StoredSnapshot(descriptors[0], request.offset, request.nbytes), request.needed)

    def get_snapshot(self, request: GetSnapshot) -> StoredSnapshot:
        """Return a session's snapshot, with a descriptor for the caller; raises as :meth:`put_snapshot` and
        :meth:`SnapshotStore.get`.
        """
        self._check(request)
        return self._snapshots.get(request.session, (request.snapshot, request.owner))

    def discard(self, request: Discard) -> None:
        """Discard some of a session's snapshots; raises as :meth:`put_snapshot`."""
        self._check(request)
        self._snapshots.discard(request.session, request.snapshots)

    def put_publication(self, request: PutPublication, descriptors: list[int]) -> None:
        """Store a publication; raises as :meth:`put_snapshot` and :meth:`PublicationStore.put`."""
        try:
            self._check(request)
        except VisparkError:
            close_all(descriptors)
            raise
        self.publications.put(request, descriptors)

    def get_publication(self, request: GetPublication) -> tuple[PublicationPart, list[int]]:
        """Return a publication, with descriptors for the caller; raises as :meth:`put_snapshot` and
        :meth:`PublicationStore.take`.
        """
        self._check(request)
        return self.publications.take(request)

    def detach_publications(self, request: DetachPublications) -> None:
        """Take a session's VRDDs off the readers of publications; raises as :meth:`put_snapshot`."""
        self._check(request)
        self.publications.detach(request)
        self._watcher.wake()

    def unpublish(self, request: Unpublish) -> None:
        """Take a publication back; raises as :meth:`PublicationStore.unpublish`."""
        self.publications.unpublish(request.name, request.key)
        self._watcher.wake()

    def _check(self, request: GetSnapshot | Discard | PutPublication | GetPublication | DetachPublications,
               ) -> None:
        with self._lock:
            if not self._sessions.knows(request.session, request.secret):
                raise Unauthorized(f"session {request.session} is not known here under this secret")

    def expire(self) -> tuple[float | None, float | None]:
        """End the sessions whose lease has run out; return when to call again, and since when there is no session."""
        with self._lock:
            instructions = self._sessions.expire()
        self._carry_out(instructions)
        self._end_threads()
        with self._lock:
            expiry, empty_since = self._sessions.next_expiry(), self._sessions.empty_since()
            ending = self.publications.expire(self._sessions.lives)
        if ending is not None:
            expiry = ending if expiry is None else min(expiry, ending)
        if not self.publications.is_empty:
            empty_since = None
        if self._unended:
            again = time.monotonic() + _END_AGAIN_SECONDS
            return again if expiry is None else min(expiry, again), None
        return expiry, empty_since

    def end_stopped(self) -> float | None:
        """End the device processes that have been stopped for long: clients would wait for them without end, as their
        deadlines are their own. Return when to look again.
        """
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look
        with self._lock:
            comings = list(self._processes.values())
        processes = {coming.result().registration.pid: coming.result() for coming in comings
                     if coming.done() and coming.exception() is None}
        self._next_look = now + LOOK_SECONDS
        for pid in self._stops.overdue(processes):
            _log.error("process %d has been stopped for %g s, and is ended", pid, STOPPED_SECONDS)
            processes[pid].kill()
        return self._next_look if processes else None

    def stop(self) -> None:
        """End all sessions and admit no more; returns when all processes have ended."""
        self.tcp_listeners.close()
        with self._lock:
            self._stopped = True
            instructions = self._sessions.stop()
        self._carry_out(instructions)
        while self._unended:
            self._unended.popleft()()
        for ending in list(self._endings.values()):
            ending.result()
        self.publications.close()
        self._clear_worlds()

    # -- questions ----------------------------------------------------------------------------------------------------

    def exit_status(self, session: str, epoch: int) -> Death:
        """Return the death of a session's process of an epoch, waiting briefly for a process that is about to end."""
        with self._lock:
            death, coming = self._sessions.exit_status(session, epoch), self._processes.get(session)
        if death.alive and coming is not None and coming.done() and coming.exception() is None:
            process = coming.result()
            if process.registration.epoch == epoch and process.ended(_DEATH_SECONDS):
                self._process_ended(process)
        with self._lock:
            return self._sessions.exit_status(session, epoch)

    def status(self) -> tuple[SessionStatus, ...]:
        """Return the status of all sessions: their processes, clients and content."""
        with self._lock:
            sessions = [(session, self._processes.get(session.name)) for session in self._sessions]
        return tuple(self._status(session, coming) for session, coming in sessions)

    # -- instructions -------------------------------------------------------------------------------------------------

    def _admit(self, name: str, decide: Callable[[], list[Instruction]]) -> Future[DeviceProcess] | None:
        """Decide on a greeting, and start a process if necessary; return the session's process, which another thread
        may be starting.
        """
        with self._lock:
            if self._stopped:
                raise WorkerLost("the daemon stops")
            instructions = decide()
            starts = [one for one in instructions if isinstance(one, Start)]
            if starts:
                self._processes[name] = Future()
            session, coming = self._sessions.get(name), self._processes.get(name)
            ending = self._endings.get(name)
        if not starts:
            self._carry_out(instructions)
            return coming
        try:
            self._carry_out(instructions)
            if ending is not None:
                # An earlier session of the same name is still clearing away its files.
                ending.result()
            assert session is not None and coming is not None
            self._start(session, starts[0].epoch, coming)
        except Exception as error:
            # Others wait for it, and the next greeting tries again.
            _log.exception("session %s gets no device process", name)
            if coming is not None:
                self._not_started(name, starts[0].epoch, coming, as_error(error))
        return coming

    def _handed_over(self, coming: Future[DeviceProcess], session: str, message: HandOver,
                     client: socket.socket) -> bool:
        """Hand a connection over; return False if the process is found dead."""
        try:
            process = coming.result()
        except WorkerLost:
            return False
        failpoint("before-hand-over")
        try:
            process.hand_over(message, client)
            return True
        except WorkerLost as error:
            _log.info("process %d of session %s does not take a client: %s", process.registration.pid, session, error)
            if process.ended(_DEATH_SECONDS):
                self._process_ended(process)
                return False
            # It may have the client all the same, who must try again with a new connection.
            self._reconnect(process)
            raise

    def _reconnect(self, process: DeviceProcess) -> None:
        """Reconnect to a process that closed its connection, or end the process if it does not answer."""
        try:
            process.reconnect()
            _log.info("process %d is connected to anew", process.registration.pid)
        except VisparkError as error:
            _log.error("process %d is ended: %s", process.registration.pid, error)
            process.terminate()
            self._process_ended(process)

    def _start(self, session: SessionState, epoch: int, coming: Future[DeviceProcess]) -> None:
        configuration = Configuration(session.name, session.secret, session.application, session.options, epoch,
                                      self._worker, str(self._directory.session_crash_record(session.name)))
        try:
            process = DeviceProcess.start(self._directory, configuration)
        except VisparkError as error:
            _log.error("%s", error)
            self._not_started(session.name, epoch, coming, error)
            return
        with ExitStack() as undo:
            undo.callback(process.exit_status)
            undo.callback(process.terminate)
            self._watch_process(process)
            undo.pop_all()
        coming.set_result(process)
        _log.info("session %s has process %d, epoch %d", session.name, process.registration.pid, epoch)

    def _not_started(self, name: str, epoch: int, coming: Future[DeviceProcess], error: VisparkError) -> None:
        with self._lock:
            self._sessions.process_ended(name, epoch, Death(False, 0, failure_of(error)))
        coming.set_exception(error)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Watch):
                self._watch_client(instruction)
            elif isinstance(instruction, End):
                self._end(instruction)

    def _end(self, end: End) -> None:
        with self._lock:
            coming, before = self._processes.pop(end.session, None), self._endings.get(end.session)
            for watch in [watch for watch in self._client_processes if watch.session == end.session]:
                self._forget_client(watch)
            ending: Future[None] = Future()
            self._endings[end.session] = ending
        self._unended.append(partial(self._end_session, end.session, coming, before, ending))
        self._end_threads()

    def _end_threads(self) -> None:
        """Start a thread for each session's end that is pending; :meth:`expire` tries again if no thread can be
        started.
        """
        while self._unended:
            try:
                end = self._unended.popleft()
            except IndexError:      # another thread has it
                return
            try:
                start_thread(end, name="end of a session")
            except (OutOfMemory, OutOfResources) as error:
                self._unended.appendleft(end)
                _log.warning("a session ends later: %s", error)
                return

    def _end_session(self, name: str, coming: Future[DeviceProcess] | None, before: Future[None] | None,
                     ending: Future[None]) -> None:
        """End a session's process and remove its files and snapshots; ``ending`` is done afterwards, even if a step
        failed.
        """
        if before is not None:
            before.result()
        for step in (partial(self._end_process, coming), partial(self._remove_files, name),
                     partial(self._snapshots.drop, name)):
            try:
                step()
            except Exception:
                _log.exception("session %s does not end as it should", name)
        _log.info("session %s ended", name)
        with self._lock:
            if self._endings.get(name) is ending:
                del self._endings[name]
        ending.set_result(None)

    def _end_process(self, coming: Future[DeviceProcess] | None) -> None:
        if coming is not None and coming.exception() is None:
            coming.result().terminate()
            self._process_ended(coming.result())

    def _clear_worlds(self) -> None:
        """Remove the sockets of MPI worlds that failed to start."""
        for path in self._directory.sessions.glob("*.world"):
            path.unlink(missing_ok=True)

    def _remove_files(self, name: str) -> None:
        self._directory.session_socket(name).unlink(missing_ok=True)
        self._directory.session_crash_record(name).unlink(missing_ok=True)

    def _watch_client(self, watch: Watch) -> None:
        with ExitStack() as undo:
            undo.callback(self._client_unknown, watch)
            try:
                pidfd = os.pidfd_open(watch.pid)
            except OSError as error:
                if is_refusal(error):
                    raise refused(error, "a descriptor of an executor's process") from error
                return
            undo.callback(os.close, pidfd)
            with self._lock, system_call("the end of an executor"):
                self._watcher.watch(pidfd, partial(self._client_gone, watch))
                self._client_processes[watch] = pidfd
            undo.pop_all()

    def _client_unknown(self, watch: Watch) -> None:
        with self._lock:
            self._sessions.client_process_ended(watch.session, watch.pid)

    def _client_gone(self, watch: Watch) -> None:
        with self._lock:
            # The session may have ended just now, and another one may watch the same process.
            if watch in self._client_processes and has_ended(self._client_processes[watch]):
                self._forget_client(watch)
                self._sessions.client_process_ended(watch.session, watch.pid)

    def _forget_client(self, watch: Watch) -> None:
        pidfd = self._client_processes.pop(watch)
        self._watcher.forget(pidfd)
        os.close(pidfd)

    # -- processes ----------------------------------------------------------------------------------------------------

    def _watch_process(self, process: DeviceProcess) -> None:
        with system_call("the end of a device process"):
            self._watcher.watch(process.pidfd, partial(self._process_ended, process))
        process.is_watched = True

    def _process_ended(self, process: DeviceProcess) -> None:
        """Record the death of a process, once; other threads wait until it is recorded.

        Whatever an error keeps from being done is done by the next call: the watcher's, as the process has still ended.
        """
        with process.reap_lock:
            if not process.ended():
                return
            if not process.reaped:
                self._record_death(process)
                process.reaped = True
            if process.is_watched:
                self._watcher.forget(process.pidfd)
                process.is_watched = False

    def _record_death(self, process: DeviceProcess) -> None:
        registration = process.registration
        try:
            death = process.exit_status()
        except Exception:
            _log.exception("how process %d ended is not known", registration.pid)
            death = Death(False, 0, None)
        with self._lock:
            self._sessions.process_ended(registration.session, registration.epoch, death)
        _log.info("process %d of session %s ended: signal %d, %s", registration.pid, registration.session, death.signal,
                  death.failure.message if death.failure else "nothing to blame")

    def _status(self, session: SessionState, coming: Future[DeviceProcess] | None) -> SessionStatus:
        pid, clients, report = 0, 0, None
        if coming is not None and coming.done() and coming.exception() is None and not coming.result().reaped:
            pid = coming.result().registration.pid
            try:
                clients, report = _report(coming.result())
            except VisparkError as error:
                _log.info("no report of session %s: %s", session.name, error)
        with self._lock:
            lease = self._sessions.lease_text(session)
        return SessionStatus(session.name, session.application, pid, session.epoch, clients, lease, report,
                             session.ended, session.faults)


def _report(process: DeviceProcess) -> tuple[int, Reported | None]:
    """Return the number of a process's clients and a report of its content, requested as by a client."""
    with system_call("a pair of sockets"):
        ours, theirs = socket.socketpair()
    with Connection(ours) as connection:
        with theirs:
            clients = process.hand_over(HandOver(0, "driver", 0), theirs, _REPORT_SECONDS)
        ours.settimeout(_REPORT_SECONDS)
        connection.receive(Greeting)
        connection.send(Report(0), Request)
        reply, descriptors = connection.receive(Reply)
    close_all(descriptors)
    return clients - 1, reply if isinstance(reply, Reported) else None
