"""Process of the daemon: one per runtime directory, in the foreground or detached."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
import time

from gpu_worker.daemon.activation import notify, passed_listener
from gpu_worker.daemon.daemon import Daemon
from gpu_worker.exchange.mpi.cluster import Cluster
from gpu_worker.protocol.errors import VisparkError, WorkerUnavailable
from gpu_worker.protocol.system import system_call
from gpu_worker.system import log
from gpu_worker.system.paths import RuntimeDirectory

_LOCK_SECONDS = 20.0
_LOG_LINES = 20
_SAVED_BYTES = 64 << 10
#: ``M_ARENA_MAX`` of glibc's ``malloc.h``.
_ARENA_MAX = -8


def serve(directory: RuntimeDirectory, idle: float | None, *, cluster: Cluster | None = None, port: int = 0,
          ready: int | None = None) -> bool:
    """Run the daemon of a runtime directory until it is stopped; return ``False`` if one is running already.

    A daemon that was killed leaves its lock file, in which it says what it knew of other nodes. ``ready`` is a
    descriptor that gets a byte once clients can connect. A service manager may pass the socket (``LISTEN_FDS``), and is
    told when clients can connect and when the daemon ends (``NOTIFY_SOCKET``).
    """
    _share_one_arena()
    listener = passed_listener(directory.socket)
    with system_call(f"the lock of the daemon in {directory.path}", WorkerUnavailable):
        lock = _acquire(directory, is_activated=listener is not None)
        if lock is None:
            return False
        cluster = (cluster or Cluster(directory)).or_as(os.pread(lock, _SAVED_BYTES, 0))
        os.ftruncate(lock, 0)
        os.pwrite(lock, cluster.saved(), 0)
    daemon = Daemon(directory, idle=idle, cluster=cluster, port=port, listener=listener)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        with system_call(f"the socket of the daemon in {directory.path}", WorkerUnavailable):
            daemon.open()
        if ready is not None:
            os.write(ready, b"1")
            os.close(ready)
        notify(f"READY=1\nSTATUS=serves {directory.path}")
        daemon.run()
    finally:
        notify("STOPPING=1")
        daemon.close()
        directory.lock.unlink(missing_ok=True)
        os.close(lock)
        daemon.released()
    return True


def detach(directory: RuntimeDirectory, idle: float | None, cluster: Cluster | None = None, port: int = 0) -> bool:
    """Start a daemon in a process of its own and wait until clients can connect; return ``False`` if one is running
    already.

    Raises
    ------
    WorkerUnavailable
        If it ended before that.
    """
    with system_call("a process for the daemon"):
        reader, writer = os.pipe()
        child = os.fork()
    if not child:
        os.close(reader)
        _leave_terminal(directory)
        os._exit(_run_detached(directory, idle, cluster, port, writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        byte = pipe.read(1)
    if byte:
        return True
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return False
    raise WorkerUnavailable(f"the daemon ended with status {status} before it was ready",
                            detail=log.tail(directory.log, _LOG_LINES))


def _share_one_arena() -> None:
    """Have all threads of this process allocate in one arena, where the C library has several (``mallopt(3)``).

    Each greeting has a thread of its own, each thread may get another arena, and each arena keeps what was freed in it.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_ARENA_MAX, 1)


def _run_detached(directory: RuntimeDirectory, idle: float | None, cluster: Cluster | None, port: int,
                  writer: int) -> int:
    try:
        serve(directory, idle, cluster=cluster, port=port, ready=writer)
    except VisparkError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        sys.stderr.flush()
    return 0


def _leave_terminal(directory: RuntimeDirectory) -> None:
    os.setsid()
    os.chdir("/")
    output = log.open_for_output(directory.log)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    os.close(output)
    os.close(nothing)


def _acquire(directory: RuntimeDirectory, *, is_activated: bool) -> int | None:
    """Return the lock of the only daemon, or ``None`` if a daemon answers already.

    A service manager that holds the socket answers for its daemon, which the attempt to connect makes it start; the
    daemon that it started waits for one that ends.
    """
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A daemon that ends removes the file; a lock on a removed file guards nothing.
            if directory.lock.exists() and os.path.samestat(os.fstat(lock), directory.lock.stat()):
                if is_activated or not _answers(directory):
                    return lock
                directory.lock.unlink()
                os.close(lock)
                return None
        except BlockingIOError:
            if not is_activated and _answers(directory):
                os.close(lock)
                return None
        os.close(lock)
        if time.monotonic() > until:
            raise WorkerUnavailable(f"another daemon holds {directory.lock} and does not answer"
                                    f"{' by the socket that the service manager passed' if is_activated else ''}; "
                                    f"see {directory.log}")
        time.sleep(0.05)


def _answers(directory: RuntimeDirectory) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(directory.socket))
        except OSError:
            return False
        return True
