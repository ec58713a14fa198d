"""Daemon's side of a device process: start or adopt it, hand connections to it, record its death."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace

from gpu_worker.protocol.codec import encode
from gpu_worker.protocol.control import NOT_TAKEN, Configuration, HandOver, Registration, Taken
from gpu_worker.protocol.errors import WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import Death
from gpu_worker.protocol.system import refused, system_call
from gpu_worker.protocol.wire import Connection
from gpu_worker.system import crash_record, log
from gpu_worker.system.launcher import environment
from gpu_worker.system.paths import RuntimeDirectory
from gpu_worker.system.peer import check_peer, has_ended

_log = logging.getLogger(__name__)

#: How long a process may take until it runs, and until it takes a connection, in seconds.
START_SECONDS = 60.0
HAND_OVER_SECONDS = 30.0
ADOPT_SECONDS = 5.0

#: How long a process may take to end by itself.
GRACE_SECONDS = 5.0
_END_SECONDS = 1.0

_LOG_LINES = 20


class DeviceProcess:
    """A session's device process, as the daemon sees it. Its methods may be called from any thread.

    Attributes
    ----------
    found : Registration
        What the process says of itself.
    pidfd : int
        Readable once the process has ended.
    reaped : bool
        Whether its end has been dealt with, which is done under the lock ``reap_lock``.
    is_watched : bool
        Whether the daemon's loop waits for its end.
    """

    def __init__(self, directory: RuntimeDirectory, registration: Registration, control: Connection, pidfd: int,
                 child: subprocess.Popen[bytes] | None):
        self.registration = registration
        self.pidfd = pidfd
        self._directory = directory
        self._control = control
        #: The connection that failed last, where it did.
        self._broken: Connection | None = None
        self._child = child
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self.reap_lock = threading.Lock()
        self.reaped = False
        self.is_watched = False

    def __del__(self) -> None:
        # Not earlier: other threads may still ask whether the process has ended.
        os.close(self.pidfd)
        self._control.close()

    @classmethod
    def start(cls, directory: RuntimeDirectory, configuration: Configuration) -> DeviceProcess:
        """Start a process and wait until it listens.

        Raises
        ------
        WorkerUnavailable
            If it cannot be started or ends at once; with the last lines it printed.
        WorkerLost
            If it was killed meanwhile.
        OutOfMemory, OutOfResources
            If the system has no room for it.
        """
        path = directory.session_socket(configuration.session)
        with ExitStack() as undo:
            with system_call("a device process", WorkerUnavailable):
                path.unlink(missing_ok=True)
                printed = log.size(directory.process_log)
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(str(path))
                    path.chmod(0o600)
                    listener.listen()
                    child = _spawn(directory, configuration, listener)
                undo.callback(_killed, child)
                _configure(child, configuration)
            try:
                process = cls._connected(directory, configuration.session, START_SECONDS, child)
            except WorkerLost as error:
                # Its sockets close a little before it has ended.
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_END_SECONDS)
                if child.returncode == -signal.SIGKILL:
                    raise WorkerLost("the device process was killed while it started") from error
                raise WorkerUnavailable(
                    f"the device process of session {configuration.session} ended before it was ready",
                    detail=log.tail(directory.process_log, _LOG_LINES, since=printed)) from error
            undo.pop_all()
        return process

    @classmethod
    def adopt(cls, directory: RuntimeDirectory, session: str) -> DeviceProcess:
        """Take over the process of a session that an earlier daemon started.

        Raises
        ------
        WorkerLost
            If there is none.
        """
        return cls._connected(directory, session, ADOPT_SECONDS, None)

    @classmethod
    def _connected(cls, directory: RuntimeDirectory, session: str, seconds: float,
                   child: subprocess.Popen[bytes] | None) -> DeviceProcess:
        with ExitStack() as undo:
            control, registration = _controlled(directory, session, seconds)
            undo.callback(control.close)
            with system_call(f"the end of the device process of session {session}", WorkerLost):
                pidfd = os.pidfd_open(registration.pid)
            undo.pop_all()
        return cls(directory, registration, control, pidfd, child)

    def reconnect(self) -> None:
        """Connect again to the process, which lives and has closed the connection.

        Raises
        ------
        WorkerLost
            If it did not close it, or does not answer.
        """
        with self._lock:
            if self._control is not self._broken:
                return      # another thread did it
            closed = select.poll()
            closed.register(self._control.socket, 0)
            if not closed.poll(0):
                raise WorkerLost("the device process does not answer")
            control, registration = _controlled(self._directory, self.registration.session, ADOPT_SECONDS)
            if registration.epoch != self.registration.epoch:
                control.close()
                raise WorkerLost("the device process has a successor")
            self._control.close()
            self._control = control

    def hand_over(self, message: HandOver, client: socket.socket, seconds: float = HAND_OVER_SECONDS) -> int:
        """Pass a client's connection to the process with a message, which is numbered here; return the number of the
        process's clients.

        Raises
        ------
        WorkerLost
            If the process has ended or does not answer within ``seconds``.
        OutOfMemory, OutOfResources
            If this process or that one has no room for it; it does not have the connection.
        """
        with self._lock:
            self._broken = self._control
            number = next(self._numbers)
            self._control.socket.settimeout(seconds)
            self._control.send(replace(message, number=number), HandOver, [client.fileno()])
            while True:
                reply, _ = self._control.receive(Taken, cap=64)
                # Lower numbers are late answers to those who no longer waited.
                if reply.number == number and reply.clients == NOT_TAKEN:
                    raise refused(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "a connection to a device process")
                if reply.number == number:
                    self._broken = None
                    return reply.clients

    def ended(self, seconds: float = 0.0) -> bool:
        """Return whether the process has ended, or does so within ``seconds``."""
        return has_ended(self.pidfd, seconds)

    def exit_status(self) -> Death:
        """Return the death of an ended process: its signal, and the failure that its crash record names."""
        status = self._child.wait() if self._child is not None else 0
        died_of = -status if status < 0 else 0
        box = crash_record.read(self._directory.session_crash_record(self.registration.session), died_of)
        is_own = box is not None and box.epoch == self.registration.epoch
        return Death(False, died_of, box.failure if box is not None and is_own else None)

    def terminate(self) -> None:
        """Ask the process to end, and end it when it does not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            if self.ended(GRACE_SECONDS):
                return
        _log.error("process %d does not end", self.registration.pid)

    def kill(self) -> None:
        """End the process at once, without waiting for it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.ended():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)


def _controlled(directory: RuntimeDirectory, session: str, seconds: float) -> tuple[Connection, Registration]:
    """Return a connection to a session's process, and the process's registration.

    Raises as :meth:`DeviceProcess.adopt`.
    """
    with ExitStack() as undo, system_call(f"session {session} has no device process", WorkerLost):
        sock = undo.enter_context(socket.socket(socket.AF_UNIX))
        sock.settimeout(seconds)
        sock.connect(str(directory.session_socket(session)))
        check_peer(sock, f"the device process of session {session}")
        registration, _ = Connection(sock).receive(Registration)
        undo.pop_all()
    return Connection(sock), registration


def _killed(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        child.stdin.close()
    child.kill()
    child.wait()


def _spawn(directory: RuntimeDirectory, configuration: Configuration,
           listener: socket.socket) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "gpu_worker.server.device_process", str(listener.fileno()),
               configuration.session, str(configuration.epoch)]
    output = log.open_for_output(directory.process_log)
    variables = environment(directory)
    if configuration.options.scheduled:
        # Addresses are of the whole machine, in nvidia-smi's order; the daemon's mask is that of whoever started it.
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        return subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=output,
                                stderr=output, env=variables, start_new_session=True)
    finally:
        os.close(output)


def _configure(child: subprocess.Popen[bytes], configuration: Configuration) -> None:
    # It reads its secret here, for arguments are everybody's to see. A pipe holds more than a configuration.
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(encode(configuration, Configuration))
