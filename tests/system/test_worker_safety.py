"""Whatever is not ours, not well-formed or not in time is refused with a typed error, and the worker lives on."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time
from dataclasses import dataclass

import pytest

from gpu_worker.client.connection import administer, connect, exit_status
from gpu_worker.protocol.errors import ProtocolError, Unauthorized, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import (
    VERSION,
    AdminReply,
    AdminRequest,
    Done,
    Failure,
    Greeting,
    Hello,
    Reply,
    Report,
    Request,
    Status,
    Stop,
)
from gpu_worker.protocol.wire import MAX_DESCRIPTORS, MAX_GREETING, Connection
from gpu_worker.system.handshake_limiter import GREETING_SECONDS, MAX_UNGREETED
from tests.system.worker_tools import SECONDS, Runtime, ask, eventually, hello, runtime

__all__ = ["runtime"]


@pytest.fixture
def worker(runtime: Runtime):
    """Start a worker with a client that must not notice anything."""
    with runtime.client("bystander") as bystander:
        daemon = runtime.daemons()
        yield runtime
        ask(bystander)
        assert runtime.daemons() == daemon
        with runtime.client("bystander") as client:
            assert client.pid == bystander.pid
            ask(client)


@dataclass
class OtherGreeting:
    """A greeting of another version."""

    version: int
    role: str
    more: str


def answer(sock: socket.socket, of=Greeting):
    message, _ = Connection(sock).receive(of)
    return message


# -- wrong greetings --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("changes", "error", "says"), [
    ({"secret": b"t" * 32}, Unauthorized, "another secret"),
    ({"version": VERSION + 1}, ProtocolError, f"version {VERSION + 1} of the protocol and this worker {VERSION}"),
    ({"role": "root"}, ProtocolError, "driver, executor"),
    ({"client_pid": -5}, ProtocolError, "client's process"),
])
def test_wrong_greetings(worker: Runtime, changes, error, says):
    with pytest.raises(error, match=says):
        connect(hello("bystander", **changes), timeout=5)


@pytest.mark.parametrize(("role", "of"), [("driver", Greeting), ("lease", AdminReply), ("admin", AdminReply)])
def test_a_client_of_another_version_whose_greeting_has_other_fields(worker: Runtime, role: str, of):
    with worker.socket() as sock:
        Connection(sock).send(OtherGreeting(VERSION + 1, role, "more"), OtherGreeting)
        if role == "admin":
            Connection(sock).send(Status(), AdminRequest)
        failure = answer(sock, of)
    assert failure.kind == "ProtocolError"
    assert f"speaks version {VERSION + 1} of the protocol and this worker {VERSION};" in failure.message


def test_a_client_of_another_version_stops_the_daemon(runtime: Runtime):
    with runtime.client(), runtime.socket() as sock:
        Connection(sock).send(OtherGreeting(VERSION - 1, "admin", "more"), OtherGreeting)
        Connection(sock).send(Stop(), AdminRequest)
        assert answer(sock, AdminReply) == Done(0)
    assert not (runtime.path / "daemon.lock").exists()


def test_wrong_secret_for_a_lease(worker: Runtime):
    with pytest.raises(Unauthorized):
        worker.lease("bystander", secret=b"t" * 32)


@pytest.mark.parametrize("session", ["../../etc/passwd", "a/b", "", "x" * 65, "a\0b"])
def test_a_session_name_that_is_no_file_name(worker: Runtime, session):
    with worker.socket() as sock:
        Connection(sock).send(hello(session), Hello)
        failure = answer(sock)
    assert (failure.kind, "named by" in failure.message) == ("ProtocolError", True)


@pytest.mark.parametrize("data", [
    struct.pack("!I", MAX_GREETING + 1),
    struct.pack("!I", 0xFFFFFFFF),
    struct.pack("!I", 0),
    struct.pack("!I", 5) + b"\xdd\xff\xff\xff\xff",
    struct.pack("!I", 4000) + b"\x91" * 4000,
    struct.pack("!I", 3) + b"\xc1\xc1\xc1",
    b"GET / HTTP/1.1\r\n\r\n",
], ids=["over-the-cap", "huge", "empty", "length-bomb", "deep", "no-msgpack", "http"])
def test_malformed_greetings_get_a_typed_failure(worker: Runtime, data):
    with worker.socket() as sock:
        sock.sendall(data)
        failure = answer(sock)
        assert isinstance(failure, Failure) and failure.kind == "ProtocolError"
        assert f"version {VERSION}" in failure.message
        with contextlib.suppress(ConnectionResetError):
            assert not sock.recv(1)


def test_random_bytes(worker: Runtime):
    source = random.Random(7)
    for _ in range(200):
        with worker.socket() as sock:
            try:
                sock.sendall(source.randbytes(source.randint(0, 300)))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass
            except OSError:
                continue


def test_random_bytes_after_the_welcome(worker: Runtime):
    source = random.Random(8)
    for _ in range(50):
        with worker.socket() as sock:
            connection = Connection(sock)
            connection.send(hello("bystander"), Hello)
            connection.receive(Greeting)
            body = source.randbytes(source.randint(1, 200))
            sock.sendall(struct.pack("!I", len(body)) + body)
            assert answer(sock, Reply).kind == "ProtocolError"


def test_too_many_descriptors_after_the_welcome(worker: Runtime):
    with worker.client("bystander") as client:
        client.send(Report(1), [0] * (MAX_DESCRIPTORS + 6))
        with pytest.raises(ProtocolError, match="descriptors"):
            client.receive(1)


def test_descriptors_in_a_greeting_are_closed(worker: Runtime):
    daemon = worker.daemon()
    before = len(os.listdir(f"/proc/{daemon}/fd"))
    for _ in range(20):
        with worker.socket() as sock:
            Connection(sock).send(hello(role="root"), Hello, [0, 1])
            assert answer(sock).kind == "ProtocolError"
    assert eventually(lambda: len(os.listdir(f"/proc/{daemon}/fd")) == before)


def test_garbage_from_an_administrator(worker: Runtime):
    with worker.socket() as sock:
        connection = Connection(sock)
        connection.send(hello("", role="admin"), Hello)
        sock.sendall(struct.pack("!I", 1) + b"\xc1")
        with pytest.raises(ProtocolError):
            connection.receive(AdminRequest)


# -- slow and silent peers --------------------------------------------------------------------------------------------

def test_a_greeting_must_come_in_time_even_if_bytes_keep_coming(worker: Runtime):
    with worker.socket() as slow, worker.socket() as silent:
        began = time.monotonic()
        slow.sendall(struct.pack("!I", 1000))
        while not (arrived := time.monotonic() - began > GREETING_SECONDS + 5):
            slow.sendall(b"\x91")
            time.sleep(0.2)
            with worker.client("bystander") as client:
                ask(client)
            slow.setblocking(False)
            try:
                slow.recv(1, socket.MSG_PEEK)
                break
            except BlockingIOError:
                slow.setblocking(True)
        assert not arrived
        for sock in (slow, silent):
            sock.settimeout(SECONDS)
            assert "no greeting came within 5 s" in answer(sock).message


def test_silent_peers_do_not_keep_others_out(worker: Runtime):
    silent = [worker.socket() for _ in range(MAX_UNGREETED + 20)]
    try:
        with worker.client("bystander") as client:
            ask(client)
        assert f"more than {MAX_UNGREETED}" in answer(silent[0]).message
    finally:
        for sock in silent:
            sock.close()


def test_a_peer_that_never_reads_holds_up_nobody(worker: Runtime):
    with worker.client("bystander") as deaf:
        for number in range(2000):
            deaf._connection.socket.setblocking(False)
            try:
                deaf.send(Report(number))
            except WorkerLost:
                break
        with worker.client("bystander") as client:
            ask(client)


# -- the runtime directory --------------------------------------------------------------------------------------------

def test_a_path_that_no_socket_can_have(runtime: Runtime, monkeypatch):
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", "/tmp/" + "x" * 100)
    for attempt in (lambda: connect(hello(), timeout=5), lambda: administer(Status()), lambda: exit_status("app", 1)):
        with pytest.raises(WorkerUnavailable, match="the system takes 107; set VISPARK_RUNTIME_DIR"):
            attempt()


def test_a_session_whose_path_no_socket_can_have(runtime: Runtime, monkeypatch):
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", "/tmp/" + "x" * 80)
    with pytest.raises(WorkerUnavailable, match="the system takes 107"):
        connect(hello("application_1700000000000_0001"), timeout=5)


def test_a_directory_that_cannot_be_made(runtime: Runtime, monkeypatch):
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", "/proc/vispark")
    with pytest.raises(WorkerUnavailable, match="/proc/vispark cannot be made"):
        connect(hello(), timeout=5)


def test_requests_and_replies_stay_in_step(worker: Runtime):
    with worker.socket() as sock:
        connection = Connection(sock)
        connection.send(hello("bystander"), Hello)
        connection.receive(Greeting)
        for number in (7, 8, 9):
            connection.send(Report(number), Request)
        assert [answer(sock, Reply).number for _ in range(3)] == [7, 8, 9]
