"""Peers that are silent, slow, many, or claim much: others are served meanwhile, and what they take is counted."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.client.connection import Client
from gpu_worker.client.tcp import connect_to_session
from gpu_worker.protocol.codec import encode
from gpu_worker.protocol.messages import (
    VERSION,
    AdminReply,
    AdminRequest,
    Greeting,
    Hello,
    Reply,
    Report,
    Request,
    Status,
)
from gpu_worker.protocol.wire import MAX_FRAME, Connection
from gpu_worker.system.handshake_limiter import MAX_UNGREETED
from tests.system.test_tcp import HOST, knocking, visiting
from tests.system.worker_tools import Runtime, ask, eventually, hello, runtime

__all__ = ["runtime"]

MEBIBYTE = 1 << 20


@pytest.fixture
def bystander(runtime: Runtime) -> Iterator[Client]:
    """Whoever has to be served meanwhile."""
    with runtime.client(reach=HOST) as client:
        yield client
        ask(client)


def others_are_served(runtime: Runtime, bystander: Client) -> None:
    """Over the Unix socket and over TCP: a client that was there, those that come, and an administrator."""
    ask(bystander)
    with runtime.client(reach=HOST) as client, visiting(bystander.reach) as driver:
        assert ask(client).requests and ask(driver).requests
        assert client.pid == driver.pid == bystander.pid
    assert runtime.status().sessions


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has, shared memory included."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) << 10


def test_clients_that_say_nothing(runtime: Runtime, bystander: Client):
    daemon = runtime.daemon()
    before = descriptors(daemon), threads(daemon)
    with contextlib.ExitStack() as stack:
        for number in range(4 * MAX_UNGREETED):
            stack.enter_context(runtime.socket())
            if number % MAX_UNGREETED == 0:
                others_are_served(runtime, bystander)
        others_are_served(runtime, bystander)
        assert eventually(lambda: descriptors(daemon) <= before[0] + MAX_UNGREETED + 2)
        assert eventually(lambda: threads(daemon) <= before[1] + MAX_UNGREETED + 2)
    assert eventually(lambda: descriptors(daemon) <= before[0] and threads(daemon) <= before[1])


def test_peers_that_say_nothing_over_tcp(runtime: Runtime, bystander: Client):
    line = f"vispark {VERSION} app\n".encode()
    pids = runtime.daemon(), bystander.pid
    before = [descriptors(pid) for pid in pids]
    with contextlib.ExitStack() as stack:
        for number in range(3 * MAX_UNGREETED):
            stack.enter_context(knocking(bystander.reach, (b"", b"vispark", line)[number % 3]))
            if number % MAX_UNGREETED == 0:
                others_are_served(runtime, bystander)
        others_are_served(runtime, bystander)
        assert all(eventually(lambda pid=pid, was=was: descriptors(pid) <= was + 2 * MAX_UNGREETED + 2)
                   for pid, was in zip(pids, before, strict=True))
    assert eventually(lambda: all(descriptors(pid) <= was for pid, was in zip(pids, before, strict=True)), 20.0)


@pytest.mark.parametrize("role", ["admin", "executor"])
def test_clients_that_greet_and_say_nothing_then(runtime: Runtime, bystander: Client, role: str):
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(runtime.socket())
            Connection(sock).send(hello("app", role=role), Hello)
        others_are_served(runtime, bystander)


def test_frames_that_claim_a_large_length_take_no_memory(runtime: Runtime, bystander: Client):
    daemon, claim = runtime.daemon(), struct.pack("!I", MAX_FRAME)
    others_are_served(runtime, bystander)
    before = resident(daemon), resident(bystander.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(32):
            client = stack.enter_context(runtime.client())
            client._connection.socket.sendall(claim + b"\0" * 100)
            early = stack.enter_context(runtime.socket())       # that has not greeted
            early.sendall(claim)
        others_are_served(runtime, bystander)
        # The threads that serve them have stacks; the frames would be 256 MiB.
        assert resident(bystander.pid) - before[1] < 32 * MEBIBYTE
        assert resident(daemon) - before[0] < 16 * MEBIBYTE


def test_payloads_that_are_claimed_over_tcp_take_no_memory(runtime: Runtime, bystander: Client):
    others_are_served(runtime, bystander)
    before = resident(bystander.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            driver = stack.enter_context(visiting(bystander.reach))
            body = encode(Report(1), Request)
            announced = 256 * MEBIBYTE
            driver._connection.socket.sendall(struct.pack("!IQ", len(body), announced) + body + b"\0" * 100)
        others_are_served(runtime, bystander)
        assert resident(bystander.pid) - before < 64 * MEBIBYTE


def test_a_client_that_sends_byte_by_byte(runtime: Runtime, bystander: Client):
    # It is served, too, where it comes within its time, and the others are between any two of its bytes.
    with runtime.socket() as slow, runtime.client() as other:
        connection = Connection(slow)
        greeting = encode(hello(), Hello)
        for byte in struct.pack("!I", len(greeting)) + greeting:
            slow.sendall(bytes([byte]))
            ask(other)
        assert connection.receive(Greeting)[0].pid == other.pid
        request = encode(Report(5), Request)
        for byte in struct.pack("!I", len(request)) + request:
            slow.sendall(bytes([byte]))
            ask(other)
            others_are_served(runtime, bystander)
        assert connection.receive(Reply)[0].number == 5


def test_an_administrator_that_sends_byte_by_byte(runtime: Runtime, bystander: Client):
    with runtime.socket() as slow:
        connection = Connection(slow)
        connection.send(hello("", role="admin"), Hello)
        request = encode(Status(), AdminRequest)
        for byte in struct.pack("!I", len(request)) + request:
            slow.sendall(bytes([byte]))
            others_are_served(runtime, bystander)
        assert connection.receive(AdminReply)[0].sessions


def test_a_driver_that_sends_byte_by_byte_over_tcp(runtime: Runtime, bystander: Client):
    line = f"vispark {VERSION} app\n".encode()
    with knocking(bystander.reach, b"") as slow:
        for byte in line:
            slow.sendall(bytes([byte]))
            ask(bystander)
        assert slow.recv(64) == b"ready\n"
        others_are_served(runtime, bystander)
    with connect_to_session(bystander.reach, hello(role="driver", client_pid=0), 30.0) as connection:
        greeting = encode(hello(role="driver", client_pid=0), Hello)
        for byte in struct.pack("!IQ", len(greeting), 0) + greeting:
            connection.socket.sendall(bytes([byte]))
            ask(bystander)
        assert connection.receive(Greeting)[0].pid == bystander.pid
