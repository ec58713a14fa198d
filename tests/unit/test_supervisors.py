"""The loops that serve others outlive a defect at each of their calls, and what they serve hears of it."""

from __future__ import annotations

import ast
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_worker.client.connection import Lease
from gpu_worker.exchange.mpi import cluster as cluster_module
from gpu_worker.exchange.mpi.cluster import Cluster
from gpu_worker.exchange.mpi.supervise import own_folder
from gpu_worker.execution.scheduling.in_flight import InFlightQueue, Submission
from gpu_worker.protocol.control import Configuration, HandOver, Registration, Taken
from gpu_worker.protocol.errors import OptionError, OutOfMemory, OutOfResources, Place, VisparkError, WorkerLost
from gpu_worker.protocol.messages import (
    VERSION,
    Chunk,
    Greeting,
    Hello,
    Release,
    Reply,
    Report,
    Reported,
    Request,
    SessionOptions,
    StartPrted,
    Welcome,
)
from gpu_worker.protocol.wire import Connection, CutOff, error_of
from gpu_worker.server import chunk_reader, device_process
from gpu_worker.server.chunk_reader import ChunkReader
from gpu_worker.server.device_process import Service
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.server.plan_runs import PlanRuns
from gpu_worker.server.snapshots import ProcessSnapshots
from gpu_worker.system import crash_record, stopped_processes
from gpu_worker.system.crash_record import CrashRecorder
from gpu_worker.system.paths import locate
from gpu_worker.system.stopped_processes import LOOK_SECONDS, STOPPED_SECONDS, StoppedProcesses, is_stopped
from gpu_worker.system.watcher import Watcher
from tests.policy import rules
from tests.system.worker_tools import eventually
from vispark.runtime.driver import garbage_collector
from vispark.runtime.driver.garbage_collector import GarbageCollector
from vispark.runtime.driver.release_queue import Released

DEFECTS = [KeyError("a defect"), OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENOSPC, "No space left"),
           MemoryError(), RuntimeError("can't start new thread")]
SECONDS = 20.0


def named(error: Exception) -> str:
    return f"{type(error).__name__}-{getattr(error, 'errno', '')}".strip("-")


defects = pytest.mark.parametrize("defect", DEFECTS, ids=named)


def fail_once(monkeypatch: pytest.MonkeyPatch, where: object, name: str, error: Exception) -> list[Exception]:
    """Let the next call of a function raise an error; what was raised so far."""
    raised: list[Exception] = []
    call = getattr(where, name)

    def failing(*arguments, **named_arguments):
        if not raised:
            raised.append(error)
            raise type(error)(*error.args)      # its traceback must not outlive the test
        return call(*arguments, **named_arguments)

    monkeypatch.setattr(where, name, failing)
    return raised


def test_every_supervisor_that_may_catch_everything_is_there_and_does():
    root = Path(__file__).parents[2]
    for path, names in rules._SUPERVISORS.items():
        catching = {function.name for function in rules.nodes((root / path).read_text())
                    if isinstance(function, ast.FunctionDef)
                    for node in ast.walk(function)
                    if isinstance(node, ast.ExceptHandler) and rules.last_name(node.type) == "Exception"}
        assert names == catching, path


# -- the loop of daemons and device processes -------------------------------------------------------------------------

@defects
def test_a_callback_that_fails_is_logged_and_others_are_called(caplog, defect):
    def fail() -> None:
        os.eventfd_read(first)
        raise type(defect)(*defect.args)

    called: list[int] = []
    first, second = os.eventfd(1), os.eventfd(1)
    with contextlib.closing(Watcher()) as watcher:
        watcher.watch(first, fail)
        watcher.watch(second, lambda: called.append(os.eventfd_read(second)))
        assert watcher.wait(1) and called == [1]
        assert "a callback failed" in caplog.text and "Traceback" in caplog.text
        os.eventfd_write(second, 2)
        assert watcher.wait(1) and called == [1, 2]
    os.close(first)
    os.close(second)


def test_a_connection_that_cannot_be_served_is_closed(tmp_path: Path):
    served: list[socket.socket] = []

    def serve(sock: socket.socket) -> None:
        served.append(sock)
        if len(served) == 1:
            raise KeyError("a defect")

    with socket.socket(socket.AF_UNIX) as listener, contextlib.closing(Watcher()) as watcher:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.setblocking(False)
        watcher.listen(listener, serve, logging.getLogger("test"))
        for place in range(2):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "s"))
                client.settimeout(SECONDS)
                watcher.wait(1)
                if not place:
                    assert client.recv(1) == b""
        assert served[0].fileno() < 0 <= served[1].fileno()
        served[1].close()


# -- the device process -----------------------------------------------------------------------------------------------

class FakeDaemon:
    """A device process's service on threads of this process, and a daemon that hands connections to it."""

    def __init__(self, path: Path):
        self._path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path / "s"))
        self.listener.listen()
        options = SessionOptions("null", 0, 30.0, "", "debug")
        self.service = Service(Configuration("app", b"s" * 32, "a", options, 1, "w", str(path / "box")), self.listener)
        self.control: Connection | None = None
        self._numbers = iter(range(1000))
        self._thread = threading.Thread(target=self.service.run)

    def start(self) -> None:
        self._thread.start()

    def connect(self) -> None:
        if self.control is not None:
            self.control.close()
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(SECONDS)
        sock.connect(str(self._path / "s"))
        self.control = Connection(sock)
        self.control.receive(Registration)

    def hand_over(self, client_pid: int = 0) -> Connection:
        """Hand over a client's connection; over a new connection to the process, where that was closed."""
        left, right = socket.socketpair()
        left.settimeout(SECONDS)
        message = HandOver(next(self._numbers), "driver", client_pid)
        with right:
            for _ in range(3):
                try:
                    if self.control is None:
                        self.connect()
                    self.control.send(message, HandOver, [right.fileno()])
                    self.control.receive(Taken)
                    return Connection(left)
                except WorkerLost:
                    self.connect()
        raise AssertionError("the device process takes no connection")

    def asked(self, client_pid: int = 0) -> Reported:
        """Return the answer to a request of a new client."""
        with self.hand_over(client_pid) as client:
            return self._answer(client)

    def _answer(self, client: Connection) -> Reported:
        welcome, _ = client.receive(Greeting)
        if not isinstance(welcome, Welcome):
            raise error_of(welcome)
        client.send(Report(1), Request)
        reply, _ = client.receive(Reply)
        if not isinstance(reply, Reported):
            raise error_of(reply)
        return reply

    def close(self) -> None:
        self.service.stop()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.control is not None:
            self.control.close()
        self.listener.close()


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    # Without one, the thread that takes connections would wait for ever.
    fake = FakeDaemon(tmp_path)
    monkeypatch.setattr(fake.service, "_take_connections", ended_with(fake.listener, fake.service._take_connections))
    yield fake
    fake.close()


def ended_with(listener: socket.socket, loop: Callable[[], None]) -> Callable[[], None]:
    """Return a loop that ends once its listener is closed; in a device process it ends with the process."""
    class Over(BaseException):
        pass

    class Listener:
        def accept(self):
            try:
                listener.settimeout(0.1)
                sock, address = listener.accept()
            except TimeoutError:
                return self.accept() if listener.fileno() >= 0 else self._over()
            except OSError:
                return self._over() if listener.fileno() < 0 else self.accept()
            sock.settimeout(None)
            return sock, address

        def _over(self):
            raise Over

    def run() -> None:
        loop.__self__._listener = Listener()
        with contextlib.suppress(Over):
            loop()

    return run


@defects
@pytest.mark.parametrize("where", ["_controlled_by", "_registration", "_take", "watch", "_converse", "_welcome",
                                   "_set_daemon"])
def test_a_device_process_outlives_a_defect_at_each_call_of_its_threads(process: FakeDaemon, monkeypatch, where,
                                                                        defect):
    process.start()
    assert process.asked().memory
    service = process.service
    raised = fail_once(monkeypatch, service._client_processes if where == "watch" else service, where, defect)
    if where in ("_controlled_by", "_registration", "_set_daemon"):
        process.control.close()
        process.control = None
    with contextlib.suppress(VisparkError):
        process.asked(client_pid=os.getpid())
    assert eventually(lambda: bool(raised))
    assert process.asked(client_pid=os.getpid()).memory


@defects
@pytest.mark.parametrize("where", ["begin", "payloads", "rest", "finish", "is_done", "take"])
def test_a_client_hears_of_a_defect_and_the_next_is_served(process: FakeDaemon, monkeypatch, where, defect):
    monkeypatch.setattr(device_process, "KEPT_SECONDS", 0.01)
    process.start()
    assert process.asked().memory
    raised = fail_once(monkeypatch, SessionWorker, where, defect)
    with process.hand_over() as client:
        message, _ = client.receive(Greeting)
        if where == "payloads":
            message, _ = client.receive(Reply)
        if where in ("begin", "take"):
            client.send(Report(7) if where == "begin" else Chunk(7, 1, b"k", b"", 1, 1, 0, 1), Request)
            message, _ = client.receive(Reply)
            assert message.number == 7
        if raised:
            known_error = error_of(message)
            assert isinstance(known_error, VisparkError) and "Traceback" in known_error.detail
            if isinstance(defect, OSError | MemoryError | RuntimeError):
                assert "defect" not in known_error.message
    assert process.asked().memory


def test_a_client_for_whom_there_is_no_thread_hears_that(process: FakeDaemon, monkeypatch):
    process.start()
    process.asked()
    start = threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if thread.name == "driver":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        with pytest.raises(OutOfResources, match=r"can't start new thread.*ulimit -u"):
            process.asked()
    assert eventually(lambda: not process.service._clients) and process.asked().memory


def test_a_client_for_whom_there_is_no_descriptor_is_not_taken_and_the_process_stays(process: FakeDaemon, monkeypatch):
    process.start()
    process.asked()
    receive = Connection.receive
    cut: list[int] = []

    def cut_off(connection: Connection, of, *more):
        message, descriptors = receive(connection, of, *more)
        if of is HandOver and message.number == 77:
            cut.append(message.number)
            for descriptor in descriptors:
                os.close(descriptor)
            error = CutOff("no room")
            error.cut = message
            raise error
        return message, descriptors

    monkeypatch.setattr(Connection, "receive", cut_off)
    process.asked()     # the process may still wait in what was called before
    left, right = socket.socketpair()
    with left, right:
        process.control.send(HandOver(77, "driver", 0), HandOver, [right.fileno()])
        taken, _ = receive(process.control, Taken)
    assert (cut, taken) == ([77], Taken(77, -1)) and process.asked().memory


@defects
def test_where_no_device_can_be_had_clients_hear_why(process: FakeDaemon, monkeypatch, defect):
    monkeypatch.setattr(device_process, "_REFUSAL_SECONDS", 2.0)
    fail_once(monkeypatch, device_process, "CrashRecorder", defect)
    process.start()
    with pytest.raises(VisparkError):
        process.asked()


# -- deadlines --------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def watched(path: Path, late: Callable[[], Place | None]) -> Iterator[None]:
    """Watch a kernel past its deadline; the thread that looks after it has ended before ``os.kill`` is the real one
    again.
    """
    others = threading.enumerate()
    box = CrashRecorder(path, epoch=1)
    box.watch()
    watching = [thread for thread in threading.enumerate() if thread not in others]
    slot = box.begin(Place("7", 0, "kernel", ""), time.monotonic(), 1, late)
    try:
        yield
    finally:
        box.end(slot)
        box.close()
        for thread in watching:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in watching)


@defects
def test_deadlines_are_kept_after_a_defect(tmp_path: Path, monkeypatch, caplog, defect):
    killed: list[int] = []
    monkeypatch.setattr(crash_record.os, "kill", lambda _, number: killed.append(number))
    looked: list[int] = []

    def late() -> Place | None:
        looked.append(1)
        if len(looked) == 1:
            raise type(defect)(*defect.args)
        return Place("8", 1, "late", "") if len(looked) > 2 else None

    with watched(tmp_path / "box", late):
        assert eventually(lambda: bool(killed)) and killed[0] == signal.SIGKILL and "Traceback" in caplog.text
        assert crash_record.read(tmp_path / "box").failure.operation == "late"


def test_a_deadline_holds_where_nobody_can_say_which_kernel_is_late(tmp_path: Path, monkeypatch):
    def late() -> Place | None:
        raise KeyError("a defect")

    killed: list[int] = []
    monkeypatch.setattr(crash_record.os, "kill", lambda _, number: killed.append(number))
    monkeypatch.setattr(crash_record, "_PATIENCE_SECONDS", 0.2)
    with watched(tmp_path / "box", late):
        assert eventually(lambda: bool(killed))
        assert crash_record.read(tmp_path / "box").failure.operation == "kernel"


# -- plans under way --------------------------------------------------------------------------------------------------

@defects
def test_a_plan_whose_results_cannot_be_kept_is_complete_and_its_client_hears_of_it(tmp_path: Path, defect):
    def fail() -> None:
        raise type(defect)(*defect.args)

    completed: list[int] = []
    box = CrashRecorder(tmp_path / "box", epoch=1)
    line = InFlightQueue(box)
    flights = [Submission(Place(), 10.0, number, (), [], done)
               for number, done in ((1, fail), (2, lambda: completed.append(2)))]
    for flight in flights:
        line.push(flight)
    line.drain()
    with pytest.raises(VisparkError):
        line.finish(flights[0])
    line.finish(flights[1])
    assert completed == [2]
    box.close()


# -- pieces of partitions ---------------------------------------------------------------------------------------------

@contextlib.contextmanager
def bringing(arrivals: ChunkReader, take: Callable = bool, rest: Callable[[], None] = lambda: None):
    """Return a client whose pieces are taken, and what becomes of following it."""
    left, right = socket.socketpair()
    result: Future = Future()

    def follow() -> None:
        try:
            result.set_result(arrivals.follow(Connection(right), take, rest))
        except VisparkError as error:
            result.set_exception(error)

    thread = threading.Thread(target=follow)
    thread.start()
    with left, right:
        yield Connection(left), result
    thread.join(SECONDS)
    assert not thread.is_alive()


def works(arrivals: ChunkReader) -> None:
    with bringing(arrivals) as (client, result):
        client.send(Report(5), Request)
        assert result.result(SECONDS) == (Report(5), [])


@pytest.fixture
def arrivals() -> Iterator[ChunkReader]:
    with contextlib.closing(ChunkReader()) as reader:
        yield reader


@defects
def test_a_defect_in_taking_a_piece_is_told_and_others_go_on(arrivals: ChunkReader, defect):
    def take(_) -> bool:
        raise type(defect)(*defect.args)

    with bringing(arrivals, take) as (client, result), bringing(arrivals) as (other, others):
        client.send(Chunk(1, 1, b"", b"", 8, 8, 0, 0), Request)
        with pytest.raises(VisparkError):
            result.result(SECONDS)
        other.send(Release(2, ()), Request)
        assert others.result(SECONDS)[0] == Release(2, ())
    works(arrivals)


def test_what_a_piece_that_fails_held_goes_with_the_error(arrivals: ChunkReader):
    """Let a piece fail whose taking holds something, as that of a block holds its memory, with no collector to help."""
    held: list[weakref.ref] = []

    def take(_) -> bool:
        memory = threading.Event()
        held.append(weakref.ref(memory))
        raise OutOfMemory("no room")

    def fail() -> None:
        left, right = socket.socketpair()
        with Connection(left) as client, right:
            client.send(Chunk(1, 1, b"", b"", 8, 8, 0, 0), Request)
            with contextlib.suppress(OutOfMemory):
                arrivals.follow(Connection(right), take, lambda: None)

    gc.disable()
    try:
        fail()
        assert held and eventually(lambda: held[0]() is None, seconds=2.0)
    finally:
        gc.enable()


def test_what_a_plan_without_room_held_goes_with_the_error():
    """Let a plan find no room twice, beside others and alone, with no collector to help."""
    held: list[weakref.ref] = []

    def fail(*_, **__) -> None:
        memory = threading.Event()
        held.append(weakref.ref(memory))
        raise OutOfMemory("no room within spark.vispark.memory")

    runs: Any = SimpleNamespace(
        _promoted=lambda *_: None, _replay_or_run=fail, _run_anew=fail, _has_tried_patches=lambda *_: False,
        _may_stream=lambda *_: False, plans=SimpleNamespace(forget=lambda: True),
        moves=SimpleNamespace(demote=lambda _: False), admission=SimpleNamespace(
            among_others=contextlib.nullcontext, alone=contextlib.nullcontext, is_crowded=False))
    request: Any = SimpleNamespace(world=None, seconds=1.0, pieces=False)
    gc.disable()
    try:
        with contextlib.suppress(OutOfMemory):
            PlanRuns.run(runs, request, SimpleNamespace(), None, None)
        assert len(held) == 2 and not any(each() for each in held)
    finally:
        gc.enable()


@defects
def test_a_defect_in_looking_after_the_silent_is_told_and_others_go_on(arrivals: ChunkReader, monkeypatch, defect):
    def rest() -> None:
        raise type(defect)(*defect.args)

    monkeypatch.setattr(chunk_reader, "KEPT_SECONDS", 0.01)
    with bringing(arrivals, rest=rest) as (_, result), pytest.raises(VisparkError):
        result.result(SECONDS)
    works(arrivals)


@pytest.mark.parametrize("where", ["watch", "forget"])
@defects
def test_a_defect_in_following_is_told_and_others_go_on(arrivals: ChunkReader, monkeypatch, where, defect):
    works(arrivals)
    fail_once(monkeypatch, arrivals._watcher, where, defect)
    left, right = socket.socketpair()
    with Connection(left) as client, right:
        client.send(Report(1), Request)
        if where == "forget":
            assert arrivals.follow(Connection(right), bool, lambda: None)
            arrivals._watcher.forget(right)
        else:
            with pytest.raises((VisparkError, type(defect))):
                arrivals.follow(Connection(right), bool, lambda: None)
    works(arrivals)


def test_where_there_is_no_thread_for_pieces_that_is_told_and_tried_again(arrivals: ChunkReader, monkeypatch):
    left, right = socket.socketpair()
    with left, Connection(right) as connection, monkeypatch.context() as patch:
        fail_once(patch, threading.Thread, "start", RuntimeError("can't start new thread"))
        with pytest.raises(OutOfResources):
            arrivals.follow(connection, bool, lambda: None)
    works(arrivals)


# -- snapshots --------------------------------------------------------------------------------------------------------

@defects
def test_the_thread_of_snapshots_logs_a_defect_and_goes_on(caplog, defect):
    def fail() -> None:
        raise type(defect)(*defect.args)

    snapshots = ProcessSnapshots("s", b"", SessionOptions("null", 0, 1.0, "", "info"), SimpleNamespace(),
                                 SimpleNamespace())
    done = threading.Event()
    snapshots._later(fail)
    snapshots._later(done.set)
    assert done.wait(SECONDS) and "Traceback" in caplog.text
    snapshots._thread.shutdown()


def test_a_snapshot_for_which_there_is_no_thread_is_taken_later(monkeypatch):
    snapshots = ProcessSnapshots("s", b"", SessionOptions("null", 0, 1.0, "", "info"), SimpleNamespace(),
                                 SimpleNamespace())
    first, second = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        fail_once(patch, threading.Thread, "start", RuntimeError("can't start new thread"))
        snapshots._later(first.set)
    snapshots._later(second.set)
    assert first.wait(SECONDS) and second.wait(SECONDS)
    snapshots._thread.shutdown()


@contextlib.contextmanager
def stopped_child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "100"]) as child:
        try:
            child.send_signal(signal.SIGSTOP)
            assert eventually(lambda: is_stopped(child.pid))
            yield child
        finally:
            child.kill()


def test_a_process_is_overdue_when_it_was_stopped_for_long_without_a_break():
    now = [0.0]
    stops = StoppedProcesses(lambda: now[0])
    with stopped_child() as child:
        assert stops.overdue([child.pid, os.getpid(), 2**22]) == []
        now[0] = STOPPED_SECONDS - 1
        child.send_signal(signal.SIGCONT)
        assert eventually(lambda: not is_stopped(child.pid)) and stops.overdue([child.pid]) == []
        child.send_signal(signal.SIGSTOP)
        assert eventually(lambda: is_stopped(child.pid)) and stops.overdue([child.pid]) == []
        while now[0] < 2 * STOPPED_SECONDS - 1 - LOOK_SECONDS:
            now[0] += LOOK_SECONDS
            assert stops.overdue([child.pid]) == []
        now[0] += LOOK_SECONDS
        assert stops.overdue([child.pid]) == [child.pid]
        # It may have run while nobody looked.
        now[0] += 60
        assert stops.overdue([child.pid]) == []


def test_a_prted_that_is_stopped_is_ended(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(stopped_processes, "STOPPED_SECONDS", 0.1)
    monkeypatch.setattr(cluster_module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(cluster_module, "_GRACE_SECONDS", 0.1)
    with stopped_child() as child, monkeypatch.context() as patch:
        patch.setattr(subprocess, "time", None)     # a wait with a timeout sleeps again and again
        folder = own_folder()
        Cluster(locate(str(tmp_path)))._reap(child, os.pidfd_open(child.pid), folder)
        assert child.returncode == -signal.SIGKILL and not Path(folder.name).exists()
    with stopped_child() as child:
        cluster_module._end(child)
        assert child.returncode == -signal.SIGKILL


# -- other daemons, leases, the driver --------------------------------------------------------------------------------

@defects
@pytest.mark.parametrize("where", ["start", "_signed", "_checked", "accept", "start_thread"])
def test_a_daemon_hears_others_after_a_defect(tmp_path: Path, monkeypatch, where, defect):
    key = tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(cluster_module, "_SECONDS", 2.0)
    heard, asking = Cluster(locate(str(tmp_path)), listen=address, key=key), \
        Cluster(locate(str(tmp_path / "other")), [address], key=key)
    heard.open()
    asks = StartPrted("nobody", (), asks=True)
    (tmp_path / "other").mkdir()
    try:
        with monkeypatch.context() as patch:
            target = {"accept": socket.socket, "start_thread": cluster_module}.get(where, heard)
            raised = fail_once(patch, target, where, defect)
            with pytest.raises(VisparkError):
                asking.start(asks)
            if where == "accept":       # the call that was under way came back
                with pytest.raises(VisparkError):
                    asking.start(asks)
            assert raised
        with pytest.raises(OptionError, match="no daemon that this one knows"):
            asking.start(asks)
    finally:
        heard.close()


@defects
def test_a_lease_is_taken_anew_after_a_defect(monkeypatch, defect):
    monkeypatch.setattr("gpu_worker.client.connection._RENEWAL_SECONDS", 0.01)
    pairs = [socket.socketpair() for _ in range(2)]
    taken = iter(pairs)
    monkeypatch.setattr(Lease, "_acquire", lambda _: (Connection(next(taken)[0]), "w"))
    hello = Hello(VERSION, "lease", "app", b"s" * 32, "a", 0, SessionOptions("null", 0, 1.0, "", "info"))
    lease = Lease(hello, SimpleNamespace())
    raised = fail_once(monkeypatch, Lease, "_acquire", defect)
    pairs[0][1].close()
    assert eventually(lambda: lease._connection.socket is pairs[1][0]) and raised
    lease.close()
    assert eventually(lambda: pairs[1][0].fileno() < 0)
    pairs[1][1].close()


class FakeWorkers:
    """Workers that note what they are to forget."""

    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self, numbers: tuple[int, ...]) -> None:
        self.released.extend(numbers)

    def known(self) -> list:
        return []


@defects
@pytest.mark.parametrize("where", ["_run", "_pause", "_places_to_keep", "release", "known", "take"])
def test_the_collector_goes_on_after_a_defect(monkeypatch, caplog, where, defect):
    monkeypatch.setattr(garbage_collector, "_AGAIN", 0.001)
    released, workers = Released(), FakeWorkers()
    context = SimpleNamespace(getConf=lambda: SimpleNamespace(get=lambda *_: "false"), _jsc=object())
    target = {"release": workers, "known": workers, "take": released}.get(where)
    if target is not None:
        raised = fail_once(monkeypatch, target, where, defect)
    else:
        raised = fail_once(monkeypatch, GarbageCollector, where, type(defect)(*defect.args))
    collector = GarbageCollector(context, None, workers, released, {})
    released.put(1, 2)
    assert eventually(lambda: workers.released == [1, 2]) and eventually(lambda: bool(raised))
    released.put(3)
    assert eventually(lambda: workers.released == [1, 2, 3]) and eventually(lambda: collector.idle)
    assert "Traceback" in caplog.text
    released.close()
    collector.join()
    assert not collector._thread.is_alive()


