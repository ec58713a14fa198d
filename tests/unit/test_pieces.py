"""A partition comes to its device in pieces, ahead of the plan that starts from it, and nobody's until then."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.connection import Client
from gpu_worker.device.host.device import HostDevice
from gpu_worker.protocol.errors import KernelFault, OutOfMemory, PlanError, ProtocolError, WorkerLost
from gpu_worker.protocol.messages import (
    Chunk,
    FoldStep,
    Input,
    KeepStep,
    Plan,
    PutStep,
    Report,
    Request,
    Run,
    ToDeviceStep,
    Variant,
    Welcome,
)
from gpu_worker.protocol.payload import MARK_BYTES, Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.wire import Connection
from gpu_worker.server import chunk_reader
from gpu_worker.server.chunk_reader import ChunkReader, ReceivedRequest
from gpu_worker.server.device_process import UnansweredPlans, _answer
from gpu_worker.server.handlers import SessionWorker
from tests.system.worker_tools import eventually
from tests.unit.plans import Bench, bench
from vispark.data.records import Packed, pack
from vispark.runtime.executor import chunked_upload
from vispark.runtime.executor.chunked_upload import Pieces, chunk_space

PIECE = 4096


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_upload, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(chunked_upload, "_PART_BYTES", 100)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "host") as worker:
        yield worker


@pytest.fixture
def null(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "null") as worker:
        yield worker


@pytest.fixture
def arriving() -> Iterator[ChunkReader]:
    with contextlib.closing(ChunkReader()) as reader:
        yield reader


@contextlib.contextmanager
def connected(worker: SessionWorker, arriving: ChunkReader) -> Iterator[Client]:
    """Connect a client, whose requests a thread answers as that of a device process does."""
    left, right = socket.socketpair()

    def serve() -> None:
        with Connection(right) as connection, contextlib.closing(worker.payloads()) as kept, \
                UnansweredPlans(connection, worker) as ahead, contextlib.suppress(WorkerLost):
            def served(request: ReceivedRequest) -> bool:
                _answer(connection, request, worker, kept, ahead)
                return kept.in_pieces_aside

            while True:
                request = connection.receive(Request)
                while request is not None:
                    request = arriving.follow(connection, served, lambda: None) if served(request) else None

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with Client(Connection(left), Welcome(2, "w", 1, 1, (), 0), "") as client:
            yield client
    finally:
        thread.join()


def plan_for(packed: Packed) -> Plan:
    """Return a plan that puts a partition on the device and keeps it there."""
    variants = tuple(Variant(each, (), (b"",), (-1,)) for each in packed.signatures)
    item = Input(0, packed.count, len(packed.keys), 0, b"", tuple(range(len(variants))))
    return Plan((PutStep(), ToDeviceStep(), KeepStep(0, "x", "device")), (), variants, (item,), ())


def request_for(packed: Packed, vrdd: int = 1) -> Run:
    return Run(1, 1, 30.0, *sealed(plan_for(packed)), (vrdd,), (), pieces=True)


def used(worker: Bench) -> int:
    return worker.process.report().memory[0].used


RECORDS = [{"u": np.arange(3000, dtype="f4").reshape(30, 100), "v": np.arange(7, dtype="i8")},
           {"u": np.arange(6000.0, dtype="f4").reshape(60, 100)[::2].T, "v": np.empty(0, "i8")},
           {"u": np.ones((1, 1), "f4"), "v": np.arange(4096, dtype="i8")[::-1]},
           {"u": np.empty((0, 5), "f4"), "v": np.arange(2 * PIECE // 8, dtype="i8")}]


@pytest.mark.parametrize("aside", [False, True])
def test_it_is_what_was_packed(host: Bench, arriving: ChunkReader, monkeypatch: pytest.MonkeyPatch, aside: bool):
    monkeypatch.setattr(HostDevice, "asynchronous", aside)
    packed = pack(RECORDS, seal=bytes)
    assert packed.block_bytes > 10 * PIECE
    with connected(host.process, arriving) as client:
        for vrdd in (1, 2):
            start, whole = chunk_space(packed.key_bytes)
            memory = client.payload(whole)
            packed.write_keys(memory, 0)
            request = request_for(packed, vrdd)
            sink = Pieces(client, request, memory, start)
            packed.write_blocks(sink, 0)
            sink.finish(packed.block_bytes)
            reply, _ = client.request(replace(request, plan=b""), [memory.descriptor])
            assert not reply.retained and used(host) >= vrdd * packed.block_bytes // 2
            client.recycle(memory)
    for vrdd in (1, 2):
        blocks, = host.fetched(vrdd)
        for block, record in zip(blocks, RECORDS, strict=True):
            assert all(np.array_equal(block[name], record[name]) for name in ("u", "v"))


def test_a_client_that_goes_or_is_refused_leaves_the_pieces_of_others_alone(null: Bench, arriving: ChunkReader):
    packed = pack([np.zeros((3 * PIECE // 8, 1))], seal=bytes)
    request = request_for(packed)
    first = Chunk(1, 1, request.key, request.plan, 0, PIECE, 0, 2 * PIECE)
    second, third = (replace(first, number=number, plan=b"", offset=offset)
                     for number, offset in ((2, PIECE), (3, 2 * PIECE)))
    with Payload.create(chunk_space(0)[1]) as memory, connected(null.process, arriving) as staying:
        staying.send(first, [memory.descriptor])
        with connected(null.process, arriving) as refused, connected(null.process, arriving) as going:
            for client in (refused, going):
                client.send(first, [memory.descriptor])
                client.send(second)
            staying.send(second)
            refused.send(second)
            with pytest.raises(ProtocolError, match="of which 8192 have come"):
                refused.receive(2)
            refused.request(Report(4))
        # Nobody has answered the one that stays, whose thread may be late.
        assert eventually(lambda: used(null) == 3 * PIECE + MARK_BYTES)
        staying.send(third)
        staying.request(replace(request, number=5, plan=b""), [memory.descriptor])
    assert used(null) == 3 * PIECE


def test_a_connection_that_is_silent_is_looked_after(arriving: ChunkReader, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunk_reader, "KEPT_SECONDS", 0.001)

    def rest() -> None:
        raise KernelFault("the device is gone")

    left, right = socket.socketpair()
    with left, Connection(right) as connection, pytest.raises(KernelFault):
        arriving.follow(connection, bool, rest)


class Sender:
    """Sender of pieces one by one, over a connection of its own."""

    def __init__(self, worker: Bench, packed: Packed):
        self.process = worker.process
        self.kept = self.process.payloads()
        self.request = request_for(packed)
        self.memory = Payload.create(2 * PIECE + MARK_BYTES)

    def send(self, offset: int, **changes) -> None:
        piece = Chunk(1, 1, self.request.key, self.request.plan, offset, PIECE, 0, 2 * PIECE)
        self.process.take(replace(piece, **changes), [] if offset else [os.dup(self.memory.descriptor)], self.kept)

    def run(self) -> None:
        self.process.handle(self.request, [os.dup(self.memory.descriptor)], self.kept)


@pytest.fixture
def sender(null: Bench) -> Iterator[Sender]:
    pieces = Sender(null, pack([np.zeros((3 * PIECE // 8, 1))], seal=bytes))
    yield pieces
    pieces.kept.close()
    pieces.memory.close()


@pytest.mark.parametrize(("offset", "changes"), [
    (PIECE, {}), (2 * PIECE, {"plan": b""}), (PIECE, {"nbytes": 2 * PIECE + 1}), (PIECE, {"nbytes": 0}),
    (PIECE, {"place": PIECE + MARK_BYTES + 1}), (PIECE, {"mark": 2 * PIECE + 1}), (PIECE, {"nbytes": -1}),
    (PIECE, {"key": b"another"})])
def test_a_piece_that_is_not_the_next_is_refused_and_those_before_it_go(null: Bench, sender: Sender, offset: int,
                                                                        changes: dict):
    if changes:
        sender.send(0)
        assert used(null) == 3 * PIECE + MARK_BYTES
    with pytest.raises(ProtocolError):
        sender.send(offset, **changes)
    assert not used(null)


def test_a_plan_needs_all_pieces_and_takes_them(null: Bench, sender: Sender):
    sender.send(0)
    sender.send(PIECE)
    with pytest.raises(ProtocolError, match="without all pieces"):
        sender.run()
    assert not used(null)
    for offset in range(0, 3 * PIECE, PIECE):
        sender.send(offset)
    sender.run()
    assert used(null) == 3 * PIECE
    with pytest.raises(ProtocolError, match="without all pieces"):
        sender.run()
    assert null.process._names.describe(1, ())[1]


def test_what_has_no_plan_goes_with_its_connection_or_when_another_partition_comes(null: Bench, sender: Sender):
    sender.send(0)
    sender.send(0)
    assert used(null) == 3 * PIECE + MARK_BYTES
    sender.kept.rest()
    sender.send(PIECE)
    sender.process.handle(replace(sender.request, pieces=False), [Payload.create(3 * PIECE).release()], sender.kept)
    assert used(null) == 3 * PIECE and null.process._names.describe(1, ())[1]
    null.process._names.close()
    sender.send(0)
    sender.kept.close()
    assert not used(null)


def test_blocks_that_have_no_room_leave_it_to_others(null: Bench, monkeypatch: pytest.MonkeyPatch):
    sender = Sender(null, pack([np.zeros((n, PIECE // 8)) for n in (1, 2)], seal=bytes))
    device = null.process._pool.devices[0]
    monkeypatch.setattr(device, "_total", 2 * PIECE)
    with pytest.raises(OutOfMemory):
        sender.send(0)
    assert not used(null)
    sender.kept.close()
    sender.memory.close()


def test_pieces_are_of_one_partition_that_a_plan_brings(null: Bench, sender: Sender):
    plan = plan_for(pack([1.0], seal=bytes))
    two = (*plan.inputs, replace(plan.inputs[0], partition=1))
    for wrong in (replace(plan, steps=(ToDeviceStep(),)), replace(plan, inputs=()), replace(plan, inputs=two),
                  replace(plan, steps=(FoldStep((), "rows"),))):
        key, encoded = sealed(wrong)
        with pytest.raises(PlanError, match="in pieces"):
            sender.send(0, key=key, plan=encoded)
