"""A connection that is cut while something is on its way leaves no descriptor with a daemon or a device process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpu_worker.client.connection import Client
from gpu_worker.protocol.messages import (
    VERSION,
    AdminRequest,
    Chunk,
    FetchStep,
    Field,
    GetSnapshot,
    Hello,
    HoldCopy,
    Input,
    KeepStep,
    LoadStep,
    Plan,
    PutSnapshot,
    PutStep,
    Run,
    Save,
    Signature,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import INLINE_BYTES, MARK_BYTES, Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.wire import Connection
from tests.system.worker_tools import SECRET, Runtime, ask, eventually, hello, runtime

__all__ = ["runtime"]

NBYTES = 4 * INLINE_BYTES
SIGNATURE = Signature((Field("", "<f8", (NBYTES // 8,)),))
PART = Input(0, NBYTES // 8, 0, 0, b"", (0,))


def request(client: Client, *steps: object, **changes: object) -> Run:
    plan = Plan(tuple(steps), (), (Variant(SIGNATURE, (), (b"",), (-1,)),), (PART,), ())
    return replace(Run(client.next_number(), client.epoch, 30.0, *sealed(plan), (1,), ()), **changes)


def put(client: Client, **changes: object) -> None:
    with Payload.create(NBYTES + MARK_BYTES) as memory:
        memory.put(0, np.zeros(NBYTES // 8))
        message = request(client, PutStep(), ToDeviceStep(), KeepStep(0, "x", "device"), **changes)
        client.send(message, [memory.descriptor])


def load(client: Client) -> None:
    put(client)


def numbered(client: Client) -> None:
    """Put a payload that may come again."""
    put(client, memory=7)


def piece(client: Client) -> None:
    run = request(client, PutStep(), ToDeviceStep(), KeepStep(0, "x", "device"), pieces=True)
    with Payload.create(NBYTES + MARK_BYTES) as memory:
        client.send(Chunk(run.number, client.epoch, run.key, run.plan, 0, NBYTES // 2, 0, NBYTES), [memory.descriptor])


def reply(client: Client) -> None:
    put(client)
    for _ in range(20):
        client.send(request(client, LoadStep(0), FetchStep(-1, "rows")))


def refused(client: Client) -> None:
    with Payload.create(64) as memory:
        client.send(request(client, LoadStep(0), FetchStep(-1, "rows"), epoch=client.epoch - 1), [memory.descriptor])


def copy(client: Client) -> None:
    with Payload.create(64) as memory:
        client.send(HoldCopy(client.next_number(), 5, "another", (), 0, 8), [memory.descriptor])


def snapshot(client: Client) -> None:
    put(client)
    client.send(request(client, LoadStep(0), FetchStep(1, "rows"), save=Save(1, 9, ())))


def admin(runtime: Runtime, *messages: tuple[object, list[int]]) -> None:
    """Ask the daemon, and go before the answer."""
    with runtime.socket() as sock:
        connection = Connection(sock)
        connection.send(Hello(VERSION, "admin", "", b"", "", 0, hello().options), Hello)
        for message, descriptors in messages:
            connection.send(message, AdminRequest, descriptors)


def opened(pid: int) -> list[str]:
    names = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:
            continue
    return sorted(name.partition(":")[0] for name in names)


@pytest.mark.parametrize("begin", [load, numbered, piece, reply, refused, copy, snapshot])
def test_a_client_that_is_cut_leaves_nothing(runtime: Runtime, begin: Callable[[Client], None]):
    with runtime.client() as bystander:
        with runtime.client() as client:    # what is made once is there afterwards
            begin(client)
            ask(bystander)
        settled = settle(bystander.pid)
        daemon = settle(runtime.daemon())
        for _ in range(8):
            with runtime.client() as client:
                begin(client)
        # A snapshot that is taken beside all this, once.
        more = 2 * (begin is snapshot)
        assert eventually(lambda: len(opened(bystander.pid)) <= len(settled) + more), (settled, opened(bystander.pid))
        assert eventually(lambda: len(opened(runtime.daemon())) <= len(daemon) + more), (daemon,
                                                                                         opened(runtime.daemon()))
        ask(bystander)


def settle(pid: int) -> list[str]:
    """Return the descriptors of a process, once they are as many for a while."""
    seen: list[int] = []

    def is_steady() -> bool:
        seen.append(len(opened(pid)))
        return len(seen) > 25 and len(set(seen[-25:])) == 1

    assert eventually(is_steady)
    return opened(pid)


def test_a_daemon_keeps_one_descriptor_of_what_was_left_with_it(runtime: Runtime):
    with runtime.client():
        daemon = settle(runtime.daemon())
        with Payload.create(64) as memory:
            for number in range(8):
                left = PutSnapshot("app", SECRET, number, (), 0, 8)
                admin(runtime, (left, [memory.descriptor]), (GetSnapshot("app", SECRET, number), []))
                admin(runtime, (replace(left, secret=b"x" * 32), [memory.descriptor]))
                admin(runtime, (GetSnapshot("app", SECRET, number), [memory.descriptor]))
        assert eventually(lambda: len(opened(runtime.daemon())) <= len(daemon) + 1), (daemon, opened(runtime.daemon()))
