"""Both sides use the memory of one request's payload again for the next."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.connection import Client
from gpu_worker.device.null import NullDevice
from gpu_worker.protocol.errors import PlanUnknown
from gpu_worker.protocol.messages import (
    Field,
    Input,
    KeepStep,
    Plan,
    PutStep,
    Run,
    Signature,
    ToDeviceStep,
    Variant,
    Welcome,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.wire import Connection
from gpu_worker.server import payload_cache
from tests.unit.plans import Bench, bench

LARGE = payload_cache.PIN_FROM


class Pinning(NullDevice):
    """A device that knows what is pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned: list[int] = []

    def pin(self, memory: np.ndarray) -> None:
        self.pinned.append(memory.ctypes.data)

    def unpin(self, memory: np.ndarray) -> None:
        self.pinned.remove(memory.ctypes.data)


@pytest.fixture
def client() -> Iterator[Client]:
    left, right = socket.socketpair()
    with right, Client(Connection(left), Welcome(2, "w", 1, 1, (), 0), "") as client:
        yield client


def test_memory_that_comes_again_stays_mapped_and_pinned():
    device = Pinning()
    kept = payload_cache.Payloads(device)
    with Payload.create(LARGE) as one, Payload.create(LARGE + 1) as other, Payload.create(10) as small:
        first = kept.receive(os.dup(one.descriptor))
        kept.done(again=True)
        assert kept.receive(os.dup(one.descriptor)) is first and device.pinned == [first.array.ctypes.data]
        one.array[7] = 42
        assert first.array[7] == 42
        kept.done(again=True)
        retained = kept.receive(os.dup(other.descriptor))
        kept.done(again=False)
        assert retained.descriptor == -1 and device.pinned == [first.array.ctypes.data]
        second = kept.receive(os.dup(other.descriptor))
        kept.done(again=True)
        assert second.size == LARGE + 1 and first.descriptor == -1 and device.pinned == [second.array.ctypes.data]
        kept.receive(os.dup(other.descriptor))
        kept.done(again=False)
        assert not device.pinned
        kept.receive(os.dup(small.descriptor))
        kept.done(again=True)
        assert not device.pinned
        kept.close()


def test_two_memories_with_numbers_stay_mapped_and_are_found_by_these():
    device = Pinning()
    kept = payload_cache.Payloads(device)
    with Payload.create(10) as one, Payload.create(10) as other, Payload.create(LARGE) as third:
        def received(payload: Payload, number: int) -> Payload:
            mapped = kept.receive(os.dup(payload.descriptor), number)
            kept.done(again=True)
            return mapped

        first, second = received(one, 7), received(other, 8)
        assert kept.find(7) is first and device.pinned == [first.array.ctypes.data]
        kept.done(again=True)
        assert received(other, 8) is second and kept.find(9) is None
        received(third, 9)                                          # 7 was used before 8
        assert kept.find(7) is None and first.descriptor == -1 and kept.find(8) is second
        kept.done(again=False)
        assert kept.find(8) is None and second.descriptor == -1
        instead = received(one, 9)                                  # a number says nothing against a descriptor
        assert instead.identity == one.identity and kept.find(9) is instead
        kept.done(again=True)
        kept.rest()
        assert kept.find(9) is None and not kept.any and not device.pinned


def test_memory_beyond_the_bound_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(payload_cache, "RECYCLED_BYTES", 100)
    kept = payload_cache.Payloads(Pinning())
    with Payload.create(101) as payload:
        received = kept.receive(os.dup(payload.descriptor))
        kept.done(again=True)
        assert received.descriptor == -1


def test_a_client_fills_the_same_memory_again(client: Client):
    first = client.payload(1000)
    assert not first.used
    first.put(0, np.arange(100, dtype="i4"))
    client.recycle(first)
    again = client.payload(900)
    assert again is first and again.used
    again.put(4, np.arange(12, dtype="f8").reshape(3, 4).T)
    assert again.view(4, 96).view("f8").tolist() == np.arange(12.0).reshape(3, 4).T.reshape(-1).tolist()
    client.recycle(again)
    larger = client.payload(1001)
    assert larger is not first and first.descriptor == -1
    assert client.payload(10) is not larger
    larger.close()


def test_memory_that_is_populated_has_all_its_pages():
    with Payload.create(1 << 20) as payload:
        assert not os.fstat(payload.descriptor).st_blocks
        payload.populate()
        assert os.fstat(payload.descriptor).st_blocks * 512 == payload.size and not payload.array.any()


def test_a_closed_client_keeps_nothing(client: Client):
    payload = client.payload(10)
    client.close()
    client.recycle(payload)
    assert payload.descriptor == -1


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "host") as worker:
        yield worker


def put(place: str, vrdd: int, index: int) -> Run:
    variant = Variant(Signature((Field("", "<f8", (8,)),)), (), (b"",), (-1,))
    steps = (PutStep(), ToDeviceStep(), KeepStep(0, "x", place)) if place == "device" else (PutStep(),
                                                                                            KeepStep(0, "x", place))
    return Run(1, 1, 30.0, *sealed(Plan(steps, (), (variant,), (Input(index, 8, 0, 0, b"", (0,)),), ())), (vrdd,), ())


def test_a_request_whose_memory_is_not_there_does_nothing_but_let_go(host: Bench):
    host.process.handle(put("device", 1, 0), [Payload.create(64).release()])
    kept = host.process.payloads()
    with Payload.create(64) as payload:
        payload.put(0, np.arange(8.0))
        request = replace(put("device", 2, 0), memory=5, released=(1,))
        with pytest.raises(PlanUnknown, match="sent again"):
            host.process.handle(request, [], kept)
        assert host.fetched(2) == host.fetched(1) == []
        host.process.handle(request, [os.dup(payload.descriptor)], kept)
        payload.put(0, np.arange(8.0) + 1)
        host.process.handle(replace(request, vrdds=(3,)), [], kept)
    kept.close()
    assert [host.fetched(vrdd)[0][0][""][0] for vrdd in (2, 3)] == [0, 1]


def test_records_are_those_that_the_memory_held_when_they_came(host: Bench):
    with Payload.create(64) as payload:
        kept = host.process.payloads()
        for index in range(3):
            payload.put(0, np.arange(8.0) + index)
            reply, _ = host.process.handle(put("device", 1, index), [os.dup(payload.descriptor)], kept)
            assert not reply.retained
        payload.put(0, np.arange(8.0) * 2)
        reply, _ = host.process.handle(put("host", 2, 0), [os.dup(payload.descriptor)], kept)
        assert reply.retained
        kept.close()
    gc.collect()
    for index, (block,) in enumerate(host.fetched(1)):
        assert block[""].tolist() == (np.arange(8.0) + index).tolist()
    assert host.fetched(2)[0][0][""].tolist() == (np.arange(8.0) * 2).tolist()
