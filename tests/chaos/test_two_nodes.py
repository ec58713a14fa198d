"""Two nodes on one machine: twins and retries of tasks leave one copy, and only what a node lost is rebuilt."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyspark import RDD, SparkContext, TaskContext

from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.grids import place_name
from tests.chaos.arena import Arena, Loader, eventually, opened, records
from tests.system import topology
from tests.system.vrdd_tools import exact
from vispark import VRDD, Grid, OptionError, stencil
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.worker import Worker

pytestmark = pytest.mark.chaos

PARTITIONS = 4


@stencil
def drifting(u):
    return (u[-1, 0] + u[1, 0]) / 2


RECORDS = [record for partition in range(PARTITIONS) for record in records(partition)]
EXPECTED = exact(RECORDS)
SUM = np.sum([row for _, row in RECORDS], axis=0)


@dataclass(frozen=True)
class Slow:
    """Loader that takes its time over a partition, so that the next task goes to the other node."""

    seconds: float

    def __call__(self, _: int, records: Iterable) -> Iterable:
        time.sleep(self.seconds)
        return records


@dataclass(frozen=True)
class Gate:
    """Loader that lets a stage's other tasks end only when partition 0's first attempt has run, so that its twin is the
    second.
    """

    attempts: Path

    def __call__(self, partition: int, records: Iterable) -> Iterable:
        until = time.monotonic() + 20
        while partition and not list(self.attempts.glob("0-0-*")) and time.monotonic() < until:
            time.sleep(0.01)
        return records


@dataclass(frozen=True)
class LateLoader:
    """Loader that makes the first attempt of a partition's task wait for a file, or a while, after its twin has
    started.
    """

    partition: int
    signal: Path

    def __call__(self, partition: int, records: Iterable) -> Iterable:
        if partition == self.partition and TaskContext.get().attemptNumber() == 0:
            until = time.monotonic() + 20
            while not self.signal.exists() and time.monotonic() < until:
                time.sleep(0.01)
        return records


#: Contexts of the tests: with twins of tasks, and over both ways from a driver to workers on other nodes.
CONTEXTS = {
    "twins": topology.SPECULATION | {"spark.locality.wait": "0"},
    "tcp": {"spark.vispark.transport": "tcp"},
    "relay": {"spark.vispark.transport": "relay"},
}

with_twins = pytest.mark.parametrize("arena", ["twins"], indirect=True)
both_ways = pytest.mark.parametrize("arena", ["tcp", "relay"], indirect=True)


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest, standalone: topology.Topology) -> Iterator[Arena]:
    """Yield a context on two nodes."""
    with opened(standalone, CONTEXTS[request.param]) as arena:
        yield arena


@pytest.fixture
def no_leaks() -> None:
    """Leave connections and leases to the context's end, since tests here have it for themselves only in part."""


def copies(arena: Arena, name: str) -> list[int]:
    """Return the number of partitions that each node holds of a VRDD."""
    counts = []
    for node in arena.nodes:
        session = arena.status(node)
        lines = session.report.vrdds if session and session.report else ()
        counts.append(sum(line.partitions for line in lines if line.name == name))
    return counts


def numbers(arena: Arena) -> RDD:
    """Return an RDD of four partitions."""
    return arena.sc.parallelize(range(PARTITIONS), PARTITIONS)


def spread(arena: Arena, name: str) -> tuple[VRDD, Loader]:
    """Return a VRDD with partitions on both nodes, materialised."""
    loader = arena.loader()
    sent = numbers(arena).mapPartitionsWithIndex(Slow(0.3)).mapPartitionsWithIndex(loader).send().htod()
    vrdd = sent.setName(name).cache()
    vrdd.count()
    assert min(copies(arena, name)) > 0 and sum(copies(arena, name)) == PARTITIONS
    return vrdd, loader


@pytest.mark.mpi
@pytest.mark.parametrize("arena", ["relay"], indirect=True)
def test_a_grid_over_nodes_whose_daemons_do_not_know_each_other_fails_before_a_task_waits(arena: Arena):
    grid = Grid((8, 6), splits=(PARTITIONS, 1)).scatter(arena.sc, np.zeros((8, 6)), partitions=PARTITIONS)
    blocks, session = grid.mapPartitionsWithIndex(Slow(0.3)).setName("grid").cache("GPU"), Session.of(arena.sc)
    assert blocks.count() == PARTITIONS and len(set(blocks._residency.by_home())) == 2
    names = [place_name(home.machine, home.runtime_dir) for home in blocks._residency.by_home()]
    for _ in range(2):
        jobs = session.relay.count
        with pytest.raises(OptionError, match=r"start --hosts', or set spark\.vispark\.exchange=ucx") as failed:
            blocks.iterate(drifting, steps=2).collect()
        assert session.relay.count == jobs + 1         # which asked one daemon
        assert any(f"is worker {name};" in str(failed.value) for name in names)
    assert blocks.count() == PARTITIONS


def tasks(sc: SparkContext, action) -> tuple[object, list[int]]:
    """Return an action's result, and the number of tasks that each of its Spark jobs had."""
    group = f"counted {time.monotonic()}"
    sc.setJobGroup(group, "")
    try:
        result = action()
    finally:
        sc.setLocalProperty("spark.jobGroup.id", None)
    tracker = sc.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds]
    return result, [tracker.getStageInfo(stage).numTasks for stage in stages]


@with_twins
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_twins_leave_one_copy(arena: Arena, tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch):
    """Also where the driver does not know of the node that has the other one, and has not told it anything."""
    if not known:
        monkeypatch.setattr(Worker, "retain", lambda *_: None)
    twins, loader = topology.Twins(tmp_path, 0), arena.loader()
    held = numbers(arena).mapPartitionsWithIndex(twins.hold).mapPartitionsWithIndex(Gate(twins.directory))
    vrdd = held.mapPartitionsWithIndex(loader).send().htod().setName("twins").cache()
    assert exact(vrdd.collect()) == EXPECTED
    twins.check()
    assert eventually(lambda: sum(copies(arena, "twins")) == PARTITIONS, 60.0)
    assert exact(vrdd.collect()) == EXPECTED


@with_twins
def test_a_twin_that_comes_late_leaves_one_copy(arena: Arena, tmp_path: Path):
    loader = arena.loader()
    (tmp_path / "attempts").mkdir()
    twins = topology.Twins(tmp_path / "attempts", 0)
    held = numbers(arena).mapPartitionsWithIndex(twins.hold).mapPartitionsWithIndex(Gate(twins.directory))
    late = held.mapPartitionsWithIndex(LateLoader(0, tmp_path / "go")).mapPartitionsWithIndex(loader)
    vrdd = late.send().htod().setName("late").cache()
    assert exact(vrdd.collect()) == EXPECTED
    (tmp_path / "go").touch()
    twins.check()
    time.sleep(1.0)
    assert exact(vrdd.collect()) == EXPECTED
    assert eventually(lambda: sum(copies(arena, "late")) == PARTITIONS, 60.0), loader.counts()


@both_ways
def test_a_task_that_dies_after_it_has_sent_is_repeated_without_effect(arena: Arena):
    loader = arena.loader()
    vrdd = arena.points(loader).setName("repeated").cache()
    armed = arena.arm("before-unpack")
    assert exact(vrdd.collect()) == EXPECTED
    assert eventually(lambda: not armed.exists())
    assert loader.counts().total() == PARTITIONS + 1
    if arena.session().options.transport == "tcp":
        assert sum(copies(arena, "repeated")) == PARTITIONS


@both_ways
def test_one_request_for_each_worker(arena: Arena):
    vrdd, _ = spread(arena, "asked")
    relayed = arena.session().options.transport == "relay"
    for action, check in ((vrdd.collect, lambda found: exact(found) == EXPECTED),
                          (lambda: vrdd.values().reduce(operator.add), lambda found: np.allclose(found, SUM))):
        action()
        plans = [worker.plans for worker in arena.session().workers.known()]
        answer, counts = tasks(arena.sc, action)
        assert [worker.plans for worker in arena.session().workers.known()] == [each + 1 for each in plans]
        assert counts == ([1, 1] if relayed else [])
        assert check(answer)


@both_ways
@pytest.mark.parametrize("daemon", [True, False])
def test_what_one_node_loses_is_all_that_is_rebuilt(arena: Arena, daemon: bool):
    vrdd, loader = spread(arena, f"lost {daemon}")
    lost, kept = copies(arena, f"lost {daemon}")
    if daemon:
        arena.kill_daemon(arena.nodes[0])
    arena.kill_process(arena.nodes[0])
    assert exact(vrdd.collect()) == EXPECTED
    assert sorted(loader.counts().values()) == [1] * kept + [2] * lost
    assert np.allclose(vrdd.values().reduce(operator.add), SUM)
    assert loader.counts().total() == PARTITIONS + lost


@both_ways
def test_an_error_leaves_the_data_of_both_nodes(arena: Arena):
    vrdd, loader = spread(arena, "kept")
    with pytest.raises(VisparkError):
        vrdd.exec(arena.kernels.scale, grid=1, block=1).collect()
    assert exact(vrdd.collect()) == EXPECTED and loader.counts().total() == PARTITIONS
