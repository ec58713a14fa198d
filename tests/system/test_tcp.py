"""Drivers on other nodes: who is let in over TCP, what is refused, and what a broken connection looks like."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpu_worker.client.connection import Client, administer, connect, finish, open_lease
from gpu_worker.client.tcp import connect_to_session
from gpu_worker.protocol.errors import ProtocolError, Unauthorized, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import VERSION, AdminReply, AdminRequest, GetExitStatus, Hello, Reach, Status
from gpu_worker.protocol.tcp_auth import MAX_LINE
from gpu_worker.protocol.wire import MAX_FRAME
from gpu_worker.system.handshake_limiter import MAX_UNGREETED
from tests.leaks import is_alive
from tests.system.worker_tools import SECONDS, ask, eventually, hello, new_runtime

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Connect a client to a worker that drivers elsewhere reach; it must not notice anything."""
    with new_runtime(tmp_path_factory.mktemp("w")) as runtime, runtime.client(reach=HOST) as executor:
        yield executor


@pytest.fixture
def reach(executor: Client) -> Iterator[Reach]:
    """Return the address of its session, which goes on after the test."""
    yield executor.reach
    ask(executor)
    with connect(hello(reach=HOST), runtime_dir=executor.runtime_dir) as again:
        assert (again.pid, again.reach) == (executor.pid, executor.reach)


def visiting(reach: Reach, **changes) -> Client:
    return connect(hello(role="driver", client_pid=0, **changes), reach=reach, timeout=SECONDS)


def knocking(reach: Reach, data: bytes) -> socket.socket:
    """Open a connection, and send data on it in the clear."""
    sock = socket.create_connection((reach.host, reach.port), SECONDS)
    sock.sendall(data)
    return sock


def rest(sock: socket.socket) -> bytes:
    """Receive until the connection is closed."""
    received = bytearray()
    with sock, contextlib.suppress(ConnectionResetError):
        while data := sock.recv(4096):
            received += data
    return bytes(received)


def knock(session: str = "app") -> bytes:
    return f"vispark {VERSION} {session}\n".encode()


# -- who is let in ----------------------------------------------------------------------------------------------------

def test_a_port_is_open_only_where_it_was_asked_for(executor: Client):
    local = hello("local"), executor.runtime_dir
    with connect(local[0], runtime_dir=local[1]) as client:
        assert client.reach is None
        with pytest.raises(WorkerUnavailable, match="no session of this name"):
            visiting(executor.reach, session="local")
        finish(local[0], runtime_dir=local[1])


def test_a_driver_leases_asks_and_ends_its_session(executor: Client):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(connect(hello("other", reach=HOST), runtime_dir=executor.runtime_dir))
        assert other.reach.certificate != executor.reach.certificate
        driver = stack.enter_context(visiting(other.reach, session="other"))
        assert driver.pid == other.pid != executor.pid
        lease = stack.enter_context(open_lease(hello("other", role="lease", client_pid=0), reach=other.reach))
        sessions = administer(Status(), runtime_dir=executor.runtime_dir).sessions
        assert [session.lease for session in sessions if session.session == "other"] == ["driver"]
        os.kill(driver.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            ask(driver)
        death = driver.exit_status()
        assert (death.alive, death.signal) == (False, signal.SIGKILL)
        with visiting(other.reach, session="other") as again:
            assert again.epoch > driver.epoch
        lease.close()
        finish(hello("other", role="finish", client_pid=0), reach=other.reach)
        with pytest.raises(WorkerUnavailable, match="no session of this name"):
            visiting(other.reach, session="other")


def test_another_certificate_is_refused_before_anything_is_said(reach: Reach):
    with pytest.raises(Unauthorized, match="another certificate"):
        visiting(replace(reach, certificate=b"another"))


def test_another_secret_is_refused(reach: Reach):
    with pytest.raises(Unauthorized, match="session app has another secret"):
        visiting(reach, secret=b"t" * 32)


def test_a_worker_that_does_not_know_the_secret_is_refused(reach: Reach, monkeypatch: pytest.MonkeyPatch):
    def proof(secret, side, *named):
        return secret if side == "worker" else genuine(secret, side, *named)

    genuine = connect_to_session.__globals__["proof"]
    monkeypatch.setitem(connect_to_session.__globals__, "proof", proof)
    with pytest.raises(Unauthorized, match="did not show that it has the secret"):
        visiting(reach)


def test_a_closed_port():
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(WorkerUnavailable, match=f"nobody answers over TCP at {HOST}, port {port}"):
        visiting(Reach(HOST, port, b""))


# -- peers without the secret -----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("data", "says"), [
    (b"GET / HTTP/1.1\r\n\r\n", b"refused ProtocolError"),
    (b"x" * MAX_LINE, b"refused ProtocolError"),
    (f"vispark {VERSION + 1} app\n".encode(), b"refused ProtocolError"),
    (knock("nobody"), b"refused WorkerUnavailable"),
    (knock("../app"), b"refused WorkerUnavailable"),
    (knock() + b"\0" * 300, b"ready\n"),
    (knock() + b"\x16\x03\x01\xff\xff" + b"\1" * 300, b"ready\n"),
], ids=["http", "long", "version", "nobody", "path", "no-tls", "broken-tls"])
def test_what_is_not_ours_is_refused(reach: Reach, data: bytes, says: bytes):
    # A peer that does not wait for the answer may get what the device process says of it before that.
    assert says in rest(knocking(reach, data))


def test_silent_peers_keep_nobody_out(reach: Reach):
    with contextlib.ExitStack() as stack:
        for number in range(MAX_UNGREETED + 6):
            stack.enter_context(knocking(reach, (b"", b"vispark", knock())[number % 3]))
        with visiting(reach) as driver:
            ask(driver)


def test_sizes_are_checked_before_anything_is_allocated(reach: Reach):
    for length, nbytes in ((MAX_FRAME + 1, 0), (10, 1 << 60)):
        with visiting(reach) as driver:
            driver._connection.socket.sendall(length.to_bytes(4, "big") + nbytes.to_bytes(8, "big"))
            with pytest.raises(ProtocolError, match="over the cap"):
                driver.receive(0)


def test_a_driver_elsewhere_does_not_administer(reach: Reach):
    for request in (Status(), GetExitStatus("other", 1)):
        with connect_to_session(reach, hello(), SECONDS) as connection:
            connection.send(hello(role="admin", secret=b""), Hello)
            connection.send(request, AdminRequest)
            answer, _ = connection.receive(AdminReply)
            assert (answer.kind, "all that is told" in answer.message) == ("ProtocolError", True)


# -- ports ------------------------------------------------------------------------------------------------------------

def test_a_port_that_somebody_else_has_is_passed_over(tmp_path_factory: pytest.TempPathFactory):
    with new_runtime(tmp_path_factory.mktemp("w")) as runtime, contextlib.ExitStack() as stack:
        taken = stack.enter_context(socket.create_server((HOST, 0))).getsockname()[1]
        assert runtime.run("start", "--tcp-port", str(taken)).returncode == 0
        first = stack.enter_context(runtime.client(reach=HOST))
        driver = stack.enter_context(visiting(first.reach))
        assert first.reach.port != taken and driver.pid == first.pid
        for change in (False, True):
            daemon = runtime.daemon()
            os.kill(daemon, signal.SIGKILL)
            assert eventually(lambda daemon=daemon: not is_alive(daemon))
            if change:
                stack.enter_context(socket.create_server((HOST, first.reach.port)))
            assert eventually(runtime.daemons, 30.0)        # the session's process starts another
            ask(driver)
            executor = stack.enter_context(runtime.client(reach=HOST))
            with visiting(executor.reach) as another:
                assert another.pid == executor.pid == driver.pid
            assert executor.reach.certificate == first.reach.certificate
            assert (executor.reach.port != first.reach.port) == change


# -- broken connections -----------------------------------------------------------------------------------------------

def test_a_connection_that_is_lost_in_the_middle_of_a_reply(reach: Reach):
    with Through(reach) as through, visiting(replace(reach, port=through.port)) as driver:
        through.let_pass(40)
        with pytest.raises(WorkerLost, match="the peer"):
            ask(driver)
        assert driver.fileno() < 0


class Through:
    """A stretch of the way to a worker that breaks after some bytes."""

    def __init__(self, reach: Reach):
        self._reach = reach
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._left = 1 << 30
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Through:
        self._start(self._run)
        return self

    def __exit__(self, *_) -> None:
        self._break()
        for thread in self._threads:
            thread.join()

    def let_pass(self, count: int) -> None:
        """Break after so many more bytes of what the worker says."""
        self._left = count

    def _run(self) -> None:
        with self._listener:
            near, _ = self._listener.accept()
        far = socket.create_connection((self._reach.host, self._reach.port))
        self._sockets += [near, far]
        self._start(self._pump, near, far)
        self._pump(far, near, counted=True)

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data[:self._left] if counted else data)
                self._left -= len(data) if counted else 0
                if self._left <= 0:
                    break
        self._break()

    def _break(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _start(self, target, *arguments) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()
