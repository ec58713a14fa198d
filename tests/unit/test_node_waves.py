"""Rows that nodes exchange by their keys where these do not fit a node's device: each goes its own way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, WorldLost
from gpu_worker.protocol.grids import World
from gpu_worker.protocol.messages import FieldFold, Step, ToDeviceStep
from gpu_worker.protocol.plans import DISK_TIERS, FoldRunsStep, KeepKeyedStep, PartitionByKeyStep, SortByKeyStep
from gpu_worker.worlds.base import JoinedWorld, MessageMemory, MessageSpec, Staged
from tests.unit.plans import Bench, bench

DEVICE = os.environ.get("VISPARK_TEST_DEVICE", "host")
ROWS, PARTITIONS = 1024, 4
#: A device with room for one of the partitions, each of 80 KiB.
SMALL = {"memory": 160 << 10, "stream": 16 << 10}


def records(index: int) -> dict[str, np.ndarray]:
    """Pairs, whose values are rows of 8 numbers."""
    rng = np.random.default_rng(index)
    return {"0": rng.integers(-40, 40, ROWS), "1": rng.normal(size=(ROWS, 8)),
            "2": np.where(np.arange(ROWS) == index * ROWS // 2, np.nan, 1.0)}


class Meeting:
    """Where the nodes of a world meet: what each brought, once all have."""

    def __init__(self, size: int):
        self._barrier = threading.Barrier(size, timeout=20)
        self._brought: dict[int, Any] = {}

    def meet(self, rank: int, brought: Any) -> list[Any]:
        """Bring something, and return what all brought."""
        try:
            self._brought[rank] = brought
            self._barrier.wait()
            found = [self._brought[each] for each in sorted(self._brought)]
            self._barrier.wait()
        except threading.BrokenBarrierError as error:
            raise WorldLost("a node is gone") from error
        return found

    def end(self) -> None:
        """Let nobody wait."""
        self._barrier.abort()


class ThreadWorld(JoinedWorld):
    """World of nodes that are threads of one process."""

    def __init__(self, meeting: Meeting, wanted: World, size: int):
        super().__init__(wanted.key, wanted.rank, size)
        self._meeting = meeting
        self._peers: dict[int, int] = {}

    def interrupt(self) -> None:
        self._meeting.end()

    def _disconnect(self) -> None:
        pass

    def _stage(self, number: int, sends: tuple[MessageSpec, ...], receives: tuple[MessageSpec, ...]) -> Staged:
        memory = [tuple([MessageMemory(None, np.empty(spec.nbytes, np.uint8)) for spec in specs])
                  for specs in (sends, receives)]
        for specs, kept in zip((sends, receives), memory, strict=True):
            self._peers |= {id(each): spec.peer for spec, each in zip(specs, kept, strict=True)}
        return Staged(number, memory[0], memory[1], lambda: None)

    def _gather(self, data: bytes) -> tuple[bytes, ...]:
        return tuple(self._meeting.meet(self.rank, data))

    def _go(self, staged: Staged, ready: Callable[[], None]) -> None:
        ready()
        given = {self._peers[id(each)]: each.host.copy() for each in staged.sends}
        found = self._meeting.meet(self.rank, given)
        for each in staged.receives:
            each.host[:] = found[self._peers[id(each)]][self.rank]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., list[Bench]]]:
    """Makes workers, each with options and a place of its own."""
    with ExitStack() as stack:
        def make(*options: dict[str, Any]) -> list[Bench]:
            found = []
            for each in options:
                path = tmp_path / str(len(list(tmp_path.iterdir())))
                path.mkdir()
                found.append(stack.enter_context(bench(path, DEVICE, **each)))
            return found
        yield make


def exchanged(workers: Sequence[Bench], steps: Sequence[Step], places: Sequence[str]) -> list[Any]:
    """What all workers make of the records, of which each has some: the bytes of all new partitions, in order."""
    meetings = {bytes([attempt]): Meeting(len(workers)) for attempt in range(4)}
    shares = np.array_split(np.arange(PARTITIONS), len(workers))

    def run(rank: int) -> list[Any]:
        worker, own = workers[rank], shares[rank].tolist()
        worker.first = own[0]
        worker.put(1, [[records(index)] for index in own], places[rank])
        worker.process._grids._join = lambda wanted, _: ThreadWorld(meetings[wanted.key], wanted, len(workers))
        plan = worker.plan(1, (ToDeviceStep(), *steps, KeepKeyedStep(1, "y")), (), "")
        for key in meetings:
            request = replace(worker.request(plan, (1, 2)), world=World(key, rank, ("",) * len(workers)))
            try:
                worker.process.handle(request, [])
                break
            except WorldLost:
                continue
        return [[{name: array.tobytes() for name, array in block.items()} for block in blocks]
                for blocks in worker.fetched(2)]

    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(run, rank) for rank in range(len(workers))]
        found = [part for future in futures for part in future.result()]
    for worker in workers:
        worker.process._grids.leave()
    return found


def steps_of(how: str) -> list[Step]:
    """The steps of a fold by key, or of a sort."""
    partition = PartitionByKeyStep("keys", "0", 5, how, b"", b"")
    if how == "hash":
        return [partition, SortByKeyStep("keys", "0", False),
                FoldRunsStep("keys", ("0",), (FieldFold("1", "add"),), "", b"")]
    return [partition, SortByKeyStep("keys", "0", how == "descending")]


@pytest.mark.parametrize("how", ["hash", "descending"])
def test_nodes_whose_devices_are_too_small_make_the_same_partitions(nodes: Callable[..., list[Bench]], how: str):
    """Both in waves, what one streams from the start and the other finds out; and one beside a node that need not."""
    expected = exchanged(nodes({}), steps_of(how), ["device"])
    assert sum(len(block["0"]) for blocks in expected for block in blocks) > 0
    assert exchanged(nodes(SMALL, SMALL), steps_of(how), ["tiers", "tiers"]) == expected
    assert exchanged(nodes(SMALL, {}), steps_of(how), ["tiers", "device"]) == expected
    crowded = {"memory": 320 << 10, "stream": 16 << 10}
    assert exchanged(nodes(crowded, crowded), steps_of(how), ["device", "device"]) == expected


@pytest.mark.parametrize("other", ["device", DISK_TIERS])
def test_what_finds_no_host_memory_goes_through_files(nodes: Callable[..., list[Bench]], other: str):
    """What is sent, what comes and what is made of it: each of them finds no room in one run or another."""
    expected = exchanged(nodes({}), steps_of("hash"), ["device"])
    for limit in (0, 40 << 10, 160 << 10):
        options = {**SMALL, "host_memory": limit}
        workers = nodes(options, {} if other == "device" else options)
        assert exchanged(workers, steps_of("hash"), [DISK_TIERS, other]) == expected


def test_keys_that_one_node_refuses_are_refused_by_all(nodes: Callable[..., list[Bench]]):
    workers = nodes(SMALL, {})
    with pytest.raises(KeysRefused, match="NaN"):
        exchanged(workers, [PartitionByKeyStep("keys", "2", 3, "hash", b"", b"")], ["tiers", "device"])


def test_a_node_without_host_memory_is_said_by_all(nodes: Callable[..., list[Bench]]):
    with pytest.raises(OutOfMemory, match=r"spark\.vispark\.hostMemory"):
        exchanged(nodes({**SMALL, "host_memory": 160 << 10}, {}), steps_of("ascending"), ["tiers", "device"])
