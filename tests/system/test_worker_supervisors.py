"""A daemon outlives a defect at each call of its loop and its threads: who asked hears of it, and is served next."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.client.connection import administer, connect, finish, open_lease
from gpu_worker.daemon import daemon as daemon_module
from gpu_worker.daemon import device_process, service, supervisor
from gpu_worker.daemon.daemon import Daemon
from gpu_worker.daemon.device_process import DeviceProcess
from gpu_worker.daemon.session_state import SessionStateMachine
from gpu_worker.daemon.snapshot_store import SnapshotStore
from gpu_worker.daemon.supervisor import Supervisor
from gpu_worker.daemon.tcp_listener import TcpListeners
from gpu_worker.protocol.errors import OutOfResources, VisparkError, WorkerLost
from gpu_worker.protocol.messages import Status
from gpu_worker.system import handshake_limiter, log, stopped_processes
from gpu_worker.system.handshake_limiter import HandshakeLimiter
from gpu_worker.system.paths import locate
from gpu_worker.system.watcher import Watcher
from tests.system.worker_tools import SECONDS, ask, eventually, hello
from tests.unit.test_supervisors import DEFECTS, fail_once, named

EMFILE = OSError(errno.EMFILE, "Too many open files")
NO_THREAD = RuntimeError("can't start new thread")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Run a daemon on a thread of this process, the same for all that is done to it here."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("w") / "rt"
        patch.setenv("VISPARK_RUNTIME_DIR", str(path))
        # A captured record keeps the frames of a trace, and what they hold, until the test is over.
        logging.disable()
        try:
            yield from running(path)
        finally:
            logging.disable(logging.NOTSET)     # sets all loggers' caches aside, which an assignment does not
        print((path / "process.log").read_text())


def running(path: Path) -> Iterator[Daemon]:
    directory = locate()
    directory.ensure()
    lock = service._acquire(directory, is_activated=False)
    daemon = Daemon(directory)
    daemon.open()
    thread = threading.Thread(target=daemon.run)
    thread.start()
    serves("bystander")
    yield daemon
    daemon.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()
    closing = threading.Thread(target=daemon.close)
    closing.start()
    closing.join(SECONDS)
    assert not closing.is_alive(), "the daemon's end waits for ever"
    daemon._watcher.close()
    os.close(lock)


numbers = itertools.count()


def end(daemon: Daemon, session: str) -> None:
    finish(hello(session, role="finish", client_pid=0), timeout=SECONDS)
    assert eventually(lambda: session not in daemon._supervisor._endings)


def serves(session: str) -> None:
    with connect(hello(session), start=False, timeout=SECONDS) as client:
        ask(client)


def tried(session: str) -> None:
    """Ask for everything once; whatever is refused is refused with a typed error."""
    for attempt in (lambda: administer(Status(), timeout=SECONDS),
                    lambda: open_lease(hello(session, role="lease", client_pid=0), timeout=SECONDS).close(),
                    lambda: serves(session)):
        with contextlib.suppress(VisparkError):
            attempt()


@pytest.mark.parametrize("where", [
    (Supervisor, "expire"), (Supervisor, "end_stopped"), (HandshakeLimiter, "sweep"),
    (TcpListeners, "sweep"), (HandshakeLimiter, "add"), (HandshakeLimiter, "remove"),
    (daemon_module, "start_thread"), (daemon_module, "check_peer"), (daemon_module, "check"), (Supervisor, "lease"),
    (Supervisor, "lease_closed"), (Supervisor, "hand_over"), (Supervisor, "status"), (Supervisor, "_admit"),
                                   (Supervisor, "_carry_out"),
    (Supervisor, "_watch_client"), (Supervisor, "_handed_over"), (SessionStateMachine, "greet"),
                                   (SessionStateMachine, "expire"), (Watcher, "watch"),
    (supervisor, "_report")], ids=lambda where: where[1])
@pytest.mark.parametrize("defect", [DEFECTS[0], EMFILE], ids=named)
def test_a_daemon_outlives_a_defect(daemon: Daemon, monkeypatch, where, defect):
    serves("bystander")
    with monkeypatch.context() as patch:
        raised = fail_once(patch, *where, defect)
        tried("bystander")
        if not raised:      # where only a new session, or a process that goes, comes by
            tried(f"new-{where[1]}-{named(defect)}")
        assert eventually(lambda: bool(raised))
    serves("bystander")
    end(daemon, f"new-{where[1]}-{named(defect)}")


@pytest.mark.parametrize("where", [
    (device_process, "_spawn"), (device_process, "_configure"), (device_process, "_controlled"),
    (log, "open_for_output"), (os, "pidfd_open"), (Supervisor, "_watch_process"), (DeviceProcess, "start")],
    ids=lambda where: where[1])
@pytest.mark.parametrize("defect", [DEFECTS[0], EMFILE, NO_THREAD], ids=named)
def test_who_waits_for_a_device_process_that_cannot_be_started_hears_why(daemon: Daemon, monkeypatch, where, defect):
    session = f"waits-{next(numbers)}"
    errors: list[Exception] = []

    def client() -> None:
        try:
            serves(session)
        except VisparkError as error:
            errors.append(error)

    with monkeypatch.context() as patch:
        raised = fail_once(patch, *where, defect)
        clients = [threading.Thread(target=client) for _ in range(3)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a client waits for ever"
        assert raised
    if defect is EMFILE and where[1] != "pidfd_open":
        assert all("EMFILE" in str(error) for error in errors)
    serves(session)
    end(daemon, session)


def test_a_device_process_that_is_stopped_is_ended_and_who_waits_for_it_hears_that(daemon: Daemon, monkeypatch):
    """Else a client would wait without end: the watchdog that keeps a plan's deadline is stopped, too."""
    monkeypatch.setattr(stopped_processes, "STOPPED_SECONDS", 0.3)
    session = f"stopped-{next(numbers)}"
    with connect(hello(session), start=False, timeout=SECONDS) as client:
        os.kill(client.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLost):
            ask(client)
    serves(session)
    end(daemon, session)


@pytest.mark.parametrize("where", [(SnapshotStore, "drop"), (Supervisor, "_remove_files"),
                                   (Supervisor, "_process_ended")],
                         ids=lambda where: where[1])
def test_a_session_ends_whatever_fails_of_it(daemon: Daemon, monkeypatch, where):
    with monkeypatch.context() as patch:
        serves("first")
        raised = fail_once(patch, *where, KeyError("a defect"))
        end(daemon, "first")
        assert raised
    serves("first")
    end(daemon, "first")


def test_a_session_for_whose_end_there_is_no_thread_ends_later(daemon: Daemon, monkeypatch):
    monkeypatch.setattr(supervisor, "_END_AGAIN_SECONDS", 0.1)
    serves("first")
    with monkeypatch.context() as patch:
        raised = fail_once(patch, supervisor, "start_thread", OutOfResources("no thread"))
        finish(hello("first", role="finish", client_pid=0), timeout=SECONDS)
        assert raised and eventually(lambda: not daemon._supervisor._endings) and not daemon._supervisor._unended


@pytest.mark.parametrize("where", [(Watcher, "forget"), (SessionStateMachine, "process_ended")],
                         ids=lambda where: where[1])
@pytest.mark.parametrize("defect", [DEFECTS[0], EMFILE], ids=named)
def test_the_death_of_a_process_is_recorded_whatever_fails_of_it(daemon: Daemon, monkeypatch, where, defect):
    session = f"dies-{where[1]}-{named(defect)}"
    serves(session)
    process = daemon._supervisor._processes[session].result()
    with monkeypatch.context() as patch:
        raised = fail_once(patch, *where, defect)
        process.kill()
        assert eventually(lambda: bool(raised) and process.reaped)
    assert eventually(lambda: answered(session))
    assert daemon._supervisor._processes[session].result().registration.pid != process.registration.pid
    end(daemon, session)


def answered(session: str) -> bool:
    with contextlib.suppress(VisparkError):
        serves(session)
        return True
    return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning",
                            "ignore::pytest.PytestUnraisableExceptionWarning")      # of the socket that no thread has
def test_a_client_whose_connection_has_no_thread_reads_its_end(daemon: Daemon, monkeypatch):
    monkeypatch.setattr(handshake_limiter, "GREETING_SECONDS", 0.5)
    with monkeypatch.context() as patch:
        raised = fail_once(patch, Daemon, "_serve", DEFECTS[0])
        began = time.monotonic()
        with contextlib.suppress(VisparkError):
            administer(Status(), timeout=SECONDS)
        assert raised and time.monotonic() - began < SECONDS / 2
    serves("bystander")


def test_a_process_that_closed_its_connection_to_the_daemon_is_connected_to_anew(daemon: Daemon):
    serves("app")
    process = daemon._supervisor._processes["app"].result()
    pid = process.registration.pid
    process._control.socket.shutdown(socket.SHUT_RDWR)
    serves("app")
    assert daemon._supervisor._processes["app"].result().registration.pid == pid and not process.ended()
    end(daemon, "app")
