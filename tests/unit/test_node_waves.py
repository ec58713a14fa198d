"""Rows that nodes exchange by their keys where these do not fit a node's device: each goes its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, VisparkError, WorldLost
from gpu_worker.protocol.grids import World
from gpu_worker.protocol.messages import FieldFold, Step, ToDeviceStep
from gpu_worker.protocol.plans import DISK_TIERS, FoldRunsStep, KeepKeyedStep, PartitionByKeyStep, SortByKeyStep
from tests.unit.plans import Bench
from tests.unit.thread_worlds import Meeting, ThreadWorld, nodes

__all__ = ["nodes"]

ROWS, PARTITIONS = 1024, 4
#: A device with room for one of the partitions, each of 80 KiB.
SMALL = {"memory": 160 << 10, "stream": 16 << 10}


def records(index: int) -> dict[str, np.ndarray]:
    """Return pairs, whose values are rows of 8 numbers."""
    rng = np.random.default_rng(index)
    return {"0": rng.integers(-40, 40, ROWS), "1": rng.normal(size=(ROWS, 8)),
            "2": np.where(np.arange(ROWS) == index * ROWS // 2, np.nan, 1.0)}


class LateHearing(Meeting):
    """Meeting point of whose end one node hears before it has heard that nodes have no room."""

    def __init__(self, size: int, late: int):
        super().__init__(size)
        self._late = late

    def wait_for_ranks(self, rank: int, brought: Any) -> list[Any]:
        answers = super().wait_for_ranks(rank, brought)
        if rank == self._late and any(isinstance(each, bytes) and b"are free" in each for each in answers):
            raise WorldLost("a node is gone")
        return answers


def exchanged(workers: Sequence[Bench], steps: Sequence[Step], places: Sequence[str],
              meeting: Callable[[int], Meeting] = Meeting) -> list[Any]:
    """Return the bytes of all new partitions, in order, that all workers make of the records, of which each has some.

    As in a driver, what one lost is repeated on all, and an error of another kind ends it for all.
    """
    meetings = {bytes([attempt]): meeting(len(workers)) for attempt in range(8)}
    failed: list[VisparkError] = []
    shares = np.array_split(np.arange(PARTITIONS), len(workers))

    def run(rank: int) -> list[Any]:
        worker, own = workers[rank], shares[rank].tolist()
        worker.first = own[0]
        worker.put(1, [[records(index)] for index in own], places[rank])
        worker.process._grids._join = lambda wanted, _: ThreadWorld(meetings[wanted.key], wanted, len(workers))
        plan = worker.plan(1, (ToDeviceStep(), *steps, KeepKeyedStep(1, "y")), (), "")
        for key in meetings:
            if failed:
                raise WorldLost("another node has failed")
            request = replace(worker.request(plan, (1, 2)), world=World(key, rank, ("",) * len(workers)))
            try:
                worker.process.handle(request, [])
                break
            except WorldLost:
                continue
            except VisparkError as error:
                failed.append(error)
                for point in meetings.values():
                    point.end()
                raise
        return [[{name: array.tobytes() for name, array in block.items()} for block in blocks]
                for blocks in worker.fetched(2)]

    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(run, rank) for rank in range(len(workers))]
        wait(futures)
        for error in failed[:1]:
            raise error
        parts = [part for future in futures for part in future.result()]
    for worker in workers:
        worker.process._grids.leave()
    return parts


def steps_of(how: str) -> list[Step]:
    """Return the steps of a fold by key, or of a sort."""
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


@pytest.mark.parametrize("late", [0, 1])
def test_a_node_that_hears_of_an_end_before_its_reason_takes_less_memory_too(nodes: Callable[..., list[Bench]],
                                                                            late: int):
    """Give two nodes no room, and one of them no reason for which the other left: it is to go on in waves as well, or
    it has no room again and again, and the other goes to ever smaller waves until there are none.
    """
    expected = exchanged(nodes({}), steps_of("descending"), ["device"])
    crowded = {"memory": 320 << 10, "stream": 16 << 10}
    meeting = partial(LateHearing, late=late)
    for other in ({}, crowded):
        both = nodes(crowded, other) if late else nodes(other, crowded)
        assert exchanged(both, steps_of("descending"), ["device", "device"], meeting) == expected


@pytest.mark.parametrize("other", ["device", DISK_TIERS])
def test_what_finds_no_host_memory_goes_through_files(nodes: Callable[..., list[Bench]], other: str):
    """Refuse host memory to what is sent, what comes and what is made of it, each in one run or another."""
    expected = exchanged(nodes({}), steps_of("hash"), ["device"])
    for limit in (0, 40 << 10, 160 << 10):
        options = {**SMALL, "host_memory": limit}
        workers = nodes(options, {} if other == "device" else options)
        assert exchanged(workers, steps_of("hash"), [DISK_TIERS, other]) == expected


def test_keys_that_one_node_refuses_are_refused_by_all(nodes: Callable[..., list[Bench]]):
    workers = nodes(SMALL, {})
    with pytest.raises(KeysRefused, match="NaN"):
        exchanged(workers, [PartitionByKeyStep("keys", "2", 3, "hash", b"", b"")], ["tiers", "device"])


def test_a_node_without_host_memory_is_said(nodes: Callable[..., list[Bench]]):
    with pytest.raises(OutOfMemory, match=r"spark\.vispark\.hostMemory"):
        exchanged(nodes({**SMALL, "host_memory": 160 << 10}, {}), steps_of("ascending"), ["tiers", "device"])
