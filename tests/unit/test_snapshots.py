"""Snapshots: when they are due by what they cost, which of a loop's are of use, and what memory they take."""

from __future__ import annotations

import errno
import math
import random
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.messages import Save, Saved
from tests.unit.plans import bench
from vispark.plan.ops import DatasetId
from vispark.runtime.driver.residency import Released, Residency
from vispark.runtime.driver.snapshot_replicas import holders
from vispark.runtime.driver.snapshots import Snapshots, SnapshotSchedule
from vispark.runtime.identity import WorkerAddress

GIGABYTE = 10 ** 9


def measured(seconds: float, *, share: float = 0.02, time_to_loss: float = 3600.0) -> SnapshotSchedule:
    """Return a pace that has seen one snapshot of a gigabyte."""
    pace = SnapshotSchedule(share, time_to_loss)
    pace.ended(pace.begin(GIGABYTE), seconds, GIGABYTE)
    return pace


@pytest.mark.parametrize("seconds, expected", [(0.5, math.sqrt(2 * 0.501 * 3600)), (4.0, 4.001 / 0.02)])
def test_the_interval_is_youngs_unless_that_costs_too_much(seconds: float, expected: float):
    assert measured(seconds).interval(GIGABYTE) == pytest.approx(expected)


@pytest.mark.parametrize("step, since, due", [(0.0, 59.9, False), (0.0, 60.1, True), (10.0, 55.1, True),
                                              (10.0, 54.9, False)])
def test_the_step_nearest_to_the_interval_is_taken(step: float, since: float, due: bool):
    pace = measured(0.499)
    assert pace.interval(GIGABYTE) == pytest.approx(60.0)
    assert pace.is_due(1000.0, since, step, GIGABYTE) == due


def test_without_a_share_none_is_due():
    assert not SnapshotSchedule(0.0, 1e-9).is_due(1e9, 1e9, 0.0, 1)


@pytest.mark.parametrize("step", [0.01, 0.3, 20.0])
def test_no_more_than_their_share_is_spent_whatever_they_turn_out_to_cost(step: float):
    pace, choice = SnapshotSchedule(0.02, 1.0), random.Random(3)
    now = last = spent = 0.0
    for _ in range(20_000):
        now += step
        if pace.is_due(now, now - last, step, GIGABYTE):
            last, expected, cost = now, pace.begin(GIGABYTE), choice.uniform(0.01, 0.1)
            now += cost
            spent += cost
            pace.ended(expected, cost, GIGABYTE)
    assert 0 < spent <= 0.02 * now + 0.1                # the last one may have cost more than was expected


class StandInLoader:
    """Stands for the RDD that a loop starts from."""


class Loops:
    """A session's snapshots, all of them due, of VRDDs on two nodes."""

    def __init__(self) -> None:
        self.released = Released()
        self.homes = WorkerAddress("/a", "m"), WorkerAddress("/b", "m")
        self.epochs = dict.fromkeys(self.homes, 1)
        self.snapshots = Snapshots(0.99, 1e-9)
        self.snapshots.pace.spent = -1e9

    def begin(self, loader: StandInLoader, number: int):
        """Begin a snapshot, if one is due; what workers are told."""
        if not self.snapshots.is_due(loader, 1, self.epochs):
            return None
        residency = Residency(self.released, DatasetId(number, "a snapshot"))
        return self.snapshots.begin(loader, residency, number + 100, dict(enumerate(self.homes)), 1, self.epochs)

    def complete(self, number: int, homes=None) -> None:
        for home in homes or self.homes:
            self.snapshots.learn(home, (Saved(number, 1, 0.001),))

    def is_found(self, number: int) -> bool:
        return self.snapshots.find(DatasetId(number, "a snapshot")) is not None


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Loops:
    clock = iter(range(10 ** 6))
    monkeypatch.setattr("vispark.runtime.driver.snapshots.time.monotonic", lambda: float(next(clock)))
    return Loops()


def test_a_snapshot_counts_once_all_nodes_have_it_and_the_one_before_is_released(loops: Loops):
    loader = StandInLoader()
    assert not loops.begin(loader, 1)                    # a loop has just begun
    assert loops.begin(loader, 2).needed == ()
    assert not loops.begin(loader, 3), "one at a time"
    loops.complete(2, loops.homes[:1])
    assert not loops.is_found(2)
    loops.complete(2, loops.homes[1:])
    assert loops.is_found(2) and loops.released.take() == ()
    assert loops.begin(loader, 4).needed == (2,)
    loops.complete(4)
    assert loops.is_found(4) and not loops.is_found(2) and loops.released.take() == (2,)


def test_a_snapshot_whose_process_is_gone_is_given_up(loops: Loops):
    loader = StandInLoader()
    loops.begin(loader, 1)
    assert loops.begin(loader, 2)
    loops.epochs[loops.homes[0]] = 2
    assert loops.begin(loader, 3)
    loops.complete(2)
    assert not loops.is_found(2) and 2 in loops.released.take()


def test_a_snapshot_that_failed_is_given_up_at_once_and_its_reason_is_told_once(loops: Loops, caplog):
    loader = StandInLoader()
    loops.begin(loader, 1)
    for number in (2, 3):
        assert loops.begin(loader, number)
        loops.snapshots.learn(loops.homes[0], (Saved(number, 0, 0.1, failed="no space left"),))
        loops.snapshots.learn(loops.homes[0], (Saved(number, 0, 0.1, failed="no space left"),))
        loops.complete(number, loops.homes[1:])
        assert not loops.is_found(number) and not loops.snapshots.is_taking()
    assert loops.released.take() == (2, 3)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == \
        ["after a loss it would go back to its start: no space left"]
    assert loops.begin(loader, 4)
    loops.complete(4)
    assert loops.is_found(4) and loops.begin(loader, 5)
    loops.snapshots.learn(loops.homes[0], (Saved(5, 0, 0.1, failed="no space left"),))
    assert "back to its snapshot of" in caplog.text and loops.is_found(4)


def test_a_failed_snapshot_is_not_repeated_with_each_plan_where_a_copy_may_be_lost(loops: Loops):
    one, other = loops.homes
    loader = StandInLoader()
    loops.begin(loader, 1)
    for number, saved in ((2, Saved(2, 1, 0.001, True)), (3, Saved(3, 0, 0.001, failed="no space left"))):
        residency = Residency(loops.released, DatasetId(number, "a snapshot"))
        loops.snapshots.begin(loader, residency, 1, {0: one}, 1, loops.epochs, {one: other})
        loops.snapshots.learn(one, (saved,))
    loops.snapshots.pace.share = 0.0                     # none is due
    assert not loops.snapshots.is_due(loader, 1, {one: 1}), "its holder is gone"


@pytest.mark.parametrize("error, reason", [
    (OutOfMemory("no room"), "no room"), (OSError(errno.ENOSPC, "No space left on device"), "No space left"),
    (KeyError("a defect"), "defect")])
def test_a_worker_says_that_a_snapshot_failed_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error, reason):
    def fails(*_) -> None:
        raise error

    with bench(tmp_path, "host") as worker:
        worker.put(1, [[{"": np.arange(1000, dtype=np.float32)}]])
        taken = worker.process._snapshots
        with monkeypatch.context() as patch:
            patch.setattr(type(taken), "_snapshot_memory", fails)
            taken.begin(Save(1, 10, ()))
            taken._thread.submit(lambda: None).result()
        assert [each.snapshot for each in taken.saved] == [10] and reason in taken.saved[0].failed
        taken.begin(Save(1, 11, ()))
        taken._thread.submit(lambda: None).result()
        assert [each.failed for each in taken.saved[1:]] == [""]


def test_loops_have_their_own_snapshots_until_they_are_forgotten(loops: Loops):
    one, other = StandInLoader(), StandInLoader()
    for loader in (one, other):
        loops.begin(loader, 1)
    assert loops.begin(one, 2).needed == ()
    assert loops.begin(other, 3).needed == (2,)
    loops.complete(2)
    loops.complete(3)
    assert loops.is_found(2) and loops.is_found(3)
    del one
    loader = other
    assert not loops.is_found(2) and loops.is_found(3) and loops.released.take() == (2,)


@pytest.mark.parametrize("known, walls, expected", [
    ("a1 b1 c1", "", "a1-b1 b1-c1 c1-a1"),
    ("a1 a2 b1", "", "a1-b1 a2-b1 b1-a1"),               # on another machine, where there is one
    ("a1 a2", "", "a1-a2 a2-a1"),
    ("a1 b1 c1", "b1", "a1-c1 b1-c1 c1-a1"),             # nobody reaches it
    ("a1", "", ""),
    ("a1 b1", "a1 b1", ""),
])
def test_the_next_node_that_can_be_reached_holds_the_copy(known: str, walls: str, expected: str):
    homes = {name: WorkerAddress(name, name[0]) for name in known.split()}
    copies = holders(homes.values(), [], lambda home, other: other.runtime_dir not in walls.split())
    assert {f"{home.runtime_dir}-{holder.runtime_dir}" for home, holder in copies.items()} == set(expected.split())


def test_a_snapshot_is_taken_at_once_where_a_copy_may_be_lost(loops: Loops):
    one, other = loops.homes
    loader = StandInLoader()
    loops.begin(loader, 1)
    loops.snapshots.begin(loader, Residency(loops.released, DatasetId(2, "a snapshot")), 1, {0: one}, 1, loops.epochs,
                          {one: other})
    loops.snapshots.learn(one, (Saved(2, 1, 0.001, True),))
    loops.snapshots.pace.share = 0.0                     # none is due
    assert not loops.snapshots.is_due(loader, 1, loops.epochs)
    assert loops.snapshots.is_due(loader, 1, loops.epochs | {other: 2}), "its holder has another process"
    assert loops.snapshots.is_due(loader, 1, {one: 1}), "its holder is gone"


def test_a_snapshot_is_copied_where_every_node_has_given_its_part_to_another(loops: Loops):
    one, other = loops.homes
    loader = StandInLoader()
    for number, copied in ((2, True), (3, False)):
        loops.begin(loader, 1)
        residency = Residency(loops.released, DatasetId(number, "a snapshot"))
        loops.snapshots.begin(loader, residency, 1, dict(enumerate(loops.homes)), 1, loops.epochs,
                              {one: other, other: one})
        loops.snapshots.learn(one, (Saved(number, 1, 0.001, True),))
        loops.snapshots.learn(other, (Saved(number, 1, 0.001, copied),))
        snapshot = loops.snapshots.find(DatasetId(number, "a snapshot"))
        assert snapshot.is_copied == copied and snapshot.holders[one] == other


def test_memory_of_two_snapshots_serves_a_loop_and_none_is_left_behind_it(tmp_path: Path,
                                                                                monkeypatch: pytest.MonkeyPatch):
    with bench(tmp_path, "host") as worker:
        worker.put(1, [[{"": np.arange(1000, dtype=np.float32)}]])
        taken, device = worker.process._snapshots, worker.process._pool.devices[0]
        pinned: list[str] = []
        monkeypatch.setattr(device, "pin", lambda _: pinned.append("pin"))
        monkeypatch.setattr(device, "unpin", lambda _: pinned.append("unpin"))
        for number in range(10, 15):
            taken.begin(Save(1, number, (number - 1,)))
            taken._thread.submit(lambda: None).result()
            taken.forget((number - 1,))
        taken._thread.submit(lambda: None).result()
        assert pinned == ["pin", "pin"]
        taken.forget((14,))
        taken._thread.submit(lambda: None).result()
        assert pinned == ["pin", "pin", "unpin", "unpin"]
