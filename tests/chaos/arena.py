"""Arena in which tests kill: a Spark context whose workers fail where they are told to, plans, and what is known of
them.

Every plan is run once undisturbed, and its answer kept; every later answer must be the same to the bit.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import operator
import os
import re
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import SessionStatus, Status
from gpu_worker.system.failpoints import NAMES, VARIABLE
from tests import leaks
from tests.system import topology
from tests.system.topology import LocalNode
from tests.system.vrdd_tools import exact
from vispark import IN, OUT, VRDD, Kernels
from vispark.runtime.driver.session import Session

#: Kills at each fail-point; from point to point they are under other plans.
KILLS = int(os.environ.get("VISPARK_CHAOS_KILLS", "1"))
SECONDS = 30.0
WIDTH = 6

#: The points that plans without grids and on little data pass; the others are met in tests/mpi/test_recovery.py,
#: test_loops_nodes.py, test_publications.py, test_waves.py, test_ranges.py, test_keys.py and
#: tests/system/test_keys_nodes.py, and those between pieces of a partition in a test of their own.
POINTS = [name for name in NAMES if not name.startswith((
    "copy-", "halo-", "join-", "piece-", "publication-", "shuffle-", "snapshot-", "table-", "tier-", "wave-",
    "world-"))]
#: Points that a plan passes only over a connection that is new.
CONNECTING = ("accepted", "authenticated", "before-hand-over", "handed-over", "welcomed")
#: Points in a Spark task.
IN_TASKS = ("packed", "sent", "before-unpack")
#: Points in a device process, with which everything it holds is lost.
PROCESS = tuple(name for name, where in NAMES.items() if where.startswith("process"))

SOURCE = r"""
extern "C" __global__ void scale(const double* x, double* y, double factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i] + 1.0 / 3.0;
}
"""


def records(partition: int) -> list[tuple[str, np.ndarray]]:
    """Return a partition's records, always the same: some of them, many of them, none of them."""
    rows = np.random.default_rng(partition).normal(size=((partition * 5) % 7 * 9, WIDTH))
    return [(f"{partition}/{index}", row) for index, row in enumerate(rows)]


@dataclass(frozen=True)
class Loader:
    """Loader of a partition's records, which leaves a file for every time that it was made to."""

    directory: Path
    #: Puts a fail-point's file, made ready beside it, into its place when this partition is loaded first.
    trigger: tuple[int, Path] | None = None

    def __call__(self, partition: int, _: Iterable) -> Iterable:
        if self.trigger and partition == self.trigger[0]:
            with contextlib.suppress(FileNotFoundError):
                self.trigger[1].with_suffix(".new").rename(self.trigger[1])
        (self.directory / f"{partition}-{uuid.uuid4().hex}").touch()
        return records(partition)

    def counts(self) -> Counter[int]:
        """Return the number of times that each partition was loaded."""
        return Counter(int(path.name.partition("-")[0]) for path in self.directory.iterdir())


@dataclass(frozen=True)
class CampaignPlan:
    """A plan of the campaign.

    Attributes
    ----------
    prepare : callable
        Called with the arena and what triggers the kill; gives what ``run`` is called with, and the loader.
    run : callable
        The plan, with a kill under it; gives its answer.
    skips : tuple of str
        Fail-points that it does not pass.
    spark : bool
        Whether it is a Spark job, so that its tasks are what talks to the worker.
    """

    prepare: Callable[[Arena, tuple[int, Path] | None], tuple[Any, Loader]]
    run: Callable[[Any], Any]
    skips: tuple[str, ...]
    spark: bool = False

    def passes(self, point: str) -> bool:
        return point not in self.skips


def plain_record(*arguments, **named) -> logging.LogRecord:
    """Return a log record that is words only: pytest keeps them, and with an error its frames and the VRDDs there."""
    record = logging.LogRecord(*arguments, **named)
    record.msg, record.args = record.getMessage(), ()
    return record


class Arena:
    """A context, its nodes, and what was loaded through it."""

    def __init__(self, sc: SparkContext, nodes: tuple[LocalNode, ...], failpoints: Path, base: Path):
        self.sc = sc
        self.nodes = nodes
        self.failpoints = failpoints
        self.base = base
        self.kernels = Kernels(SOURCE)

    # -- data ---------------------------------------------------------------------------------------------------------

    def loader(self, trigger: tuple[int, Path] | None = None) -> Loader:
        directory = self.base / uuid.uuid4().hex
        directory.mkdir()
        return Loader(directory, trigger)

    def points(self, loader: Loader, partitions: int = 4) -> VRDD:
        """Return a VRDD that is not cached."""
        return self.sc.parallelize(range(partitions), partitions).mapPartitionsWithIndex(loader).send().htod()

    def scaled(self, points: VRDD, factor: float = 1.5) -> VRDD:
        """Return a kernel's results."""
        return points.exec(self.kernels.scale, IN, OUT, np.float64(factor), lambda b: np.int32(b.shape[0] * WIDTH),
                           out=None, grid=lambda b: -(-b.shape[0] * WIDTH // 64), block=64)

    def answer(self, name: str) -> object:
        """Return a plan's answer, its data loaded before."""
        subject, _ = PLANS[name].prepare(self, None)
        return exact(PLANS[name].run(subject))

    # -- faults -------------------------------------------------------------------------------------------------------

    def arm(self, point: str, action: str = "kill") -> Path:
        """Make whoever passes a point next fail there, once; the file is gone when it did."""
        path = self.ready(point, action)
        return path.with_suffix(".new").rename(path)

    def ready(self, point: str, action: str = "kill") -> Path:
        """Make a fail-point's file ready, for a loader to put it into its place."""
        assert point in NAMES
        path = self.failpoints / point
        path.with_suffix(".new").write_text(action)
        return path

    def session(self) -> Session:
        return Session.of(self.sc)

    def disconnect(self) -> None:
        """Close the driver's connections and leases, so that its next plan makes new ones; the session stays."""
        for worker in self.session().workers.known():
            lanes, worker.connections._idle = [*worker.connections._idle, *worker.connections._busy.values()], []
            worker.connections._busy.clear()
            lease, worker.connections._lease = worker.connections._lease, None
            for lane in lanes:
                with lane.lock:
                    while not lane.idle:
                        lane._take()
                lane.close()
            if lease:
                lease.close()

    def status(self, node: LocalNode | None = None) -> SessionStatus | None:
        """Return the status of this context's session, as the daemon of a node says it."""
        report = administer(Status(), runtime_dir=str((node or self.nodes[0]).runtime_dir))
        ours = self.session().credentials.session
        return next((session for session in report.sessions if session.session == ours), None)

    def daemons(self, node: LocalNode | None = None) -> list[int]:
        return self._processes(r"gpu[_-]worker start", node)

    def device_processes(self, node: LocalNode | None = None) -> list[int]:
        return self._processes(r"gpu_worker\.server\.device_process ", node)

    def ranks(self, node: LocalNode) -> list[int]:
        """Return a node's MPI processes; mpirun, which names them too, is none of them."""
        return self._processes(r"^\S*python\S* -P -m gpu_worker\.exchange\.mpi\.rank( |$)", node)

    def _processes(self, pattern: str, node: LocalNode | None) -> list[int]:
        directory = (node or self.nodes[0]).runtime_dir
        return [process.pid for process in leaks.processes_of(directory) if re.search(pattern, process.command)]

    def kill_process(self, node: LocalNode | None = None) -> None:
        processes = self.device_processes(node)
        assert processes, "there is no device process to kill"
        kill(processes)

    def kill_daemon(self, node: LocalNode | None = None) -> None:
        kill(self.daemons(node))

    def settle(self) -> None:
        """Wait until the workers have forgotten what was dropped, so that a plan is all that goes on."""
        gc.collect()
        wanted = self.session().residencies

        def settled() -> bool:
            session = self.status()
            report = session.report if session else None
            return report is None or {vrdd.vrdd for vrdd in report.vrdds} <= set(wanted)

        assert eventually(settled), "a dropped VRDD is still held"

    # -- what is left -------------------------------------------------------------------------------------------------

    def check_empty(self) -> None:
        """Fail unless, with all VRDDs dropped, the workers hold nothing, and no process or file is too many.

        The driver's connections are closed, so that what a test leaves of them can be compared.
        """
        gc.collect()
        for node in self.nodes:
            assert eventually(lambda node=node: not self._held(node)), f"left in the worker: {self._held(node)}"
            # Of two that began at once, one ends as the other has the lock.
            assert eventually(lambda node=node: len(self.daemons(node)) == 1), self.daemons(node)
            assert eventually(lambda node=node: len(self.device_processes(node)) <= 1), self.device_processes(node)
            assert {path.name for path in node.runtime_dir.iterdir()} <= {
                "daemon.log", "process.log", "daemon.sock", "daemon.lock", "sessions"}, list(node.runtime_dir.iterdir())
            assert len(list((node.runtime_dir / "sessions").iterdir())) <= 2
        assert not list(self.failpoints.iterdir()), f"not passed: {list(self.failpoints.iterdir())}"
        assert eventually(self.is_quiet), "the driver keeps connecting"

    def is_quiet(self) -> bool:
        """Close the driver's connections; whether nothing that was still to be said opened one again."""
        self.disconnect()
        time.sleep(0.1)
        return not [thread for thread in threading.enumerate() if thread.name == "vispark-lease"]

    def _held(self, node: LocalNode) -> str:
        with contextlib.suppress(vispark.VisparkError):
            session = self.status(node)
            if session is None or not session.pid:
                return ""
            report = session.report
            memfds = _memfds(session.pid)
            empty = report and not report.vrdds and not report.host_bytes and not any(
                each.used for each in report.memory)
            if not empty or memfds:
                return f"{report}, memfds {memfds}"
            return ""
        return "no answer"


@dataclass(frozen=True)
class Strike:
    """Outcome of a kill: whether all answers were right, how long the longer plan took, what was loaded again."""

    right: bool
    seconds: float
    loads: Counter[int]
    needed: Counter[int]
    spare: int

    @property
    def frugal(self) -> bool:
        """Whether what was lost was loaded, and nothing else."""
        more = self.loads - self.needed
        return self.needed <= self.loads and more.total() <= self.spare and max(more.values(), default=0) <= 1


# -- plans ------------------------------------------------------------------------------------------------------------

def _fresh(arena: Arena, trigger: tuple[int, Path] | None) -> tuple[VRDD, Loader]:
    loader = arena.loader(trigger)
    return arena.scaled(arena.points(loader)).cache(), loader


def _cached(arena: Arena) -> tuple[VRDD, Loader]:
    loader = arena.loader()
    points = arena.points(loader).cache()
    assert points.count() == sum(len(records(partition)) for partition in range(4))
    return points, loader


def _chain(arena: Arena, _: object) -> tuple[VRDD, Loader]:
    points, loader = _cached(arena)
    return arena.scaled(arena.scaled(points), 0.7), loader


def _kept_chain(arena: Arena, _: object) -> tuple[VRDD, Loader]:
    """Return a chain with cached results on the way, the first of them held."""
    points, loader = _cached(arena)
    middle = arena.scaled(points).cache()
    return arena.scaled(middle, 0.7).cache(), loader


def _sum(vrdd: VRDD) -> np.ndarray:
    return vrdd.values().reduce(operator.add)


#: Materialising is a Spark job, and so is ``recv``; the others go from the driver to the worker.
PLANS = {
    "materialise": CampaignPlan(_fresh, VRDD.collect, (), spark=True),
    "collect": CampaignPlan(_chain, VRDD.collect, IN_TASKS),
    "keep": CampaignPlan(_kept_chain, VRDD.collect, IN_TASKS),
    "reduce": CampaignPlan(_chain, _sum, (*IN_TASKS, "fetched")),
    "recv": CampaignPlan(_chain, lambda vrdd: vrdd.recv().values().reduce(operator.add), (), spark=True),
}


def plans_through(point: str) -> list[str]:
    """Return the names of the plans that pass a point."""
    return [name for name, plan in PLANS.items() if plan.passes(point)]


def expected_of(arena: Arena) -> dict[str, object]:
    """Return each plan's answer, undisturbed."""
    answers = {}
    for name, plan in PLANS.items():
        subject, loader = plan.prepare(arena, None)
        answers[name] = exact(plan.run(subject))
        assert loader.counts() == dict.fromkeys(range(4), 1), f"{name} loaded {loader.counts()}"
    return answers


def strike(arena: Arena, point: str, name: str, expected: object, number: int) -> Strike:
    """Run a plan with a kill at a point under it, and once more after that.

    A plan that loads is killed when ``number`` modulo 4 of its partitions have been loaded.
    """
    plan, path = PLANS[name], arena.failpoints / point
    fresh = name == "materialise" and point not in CONNECTING
    subject, loader = plan.prepare(arena, (number % 4, path) if fresh else None)
    arena.settle()
    before = loader.counts()
    in_task = plan.spark or arena.session().relays
    if point in CONNECTING:
        arena.kill_process() if in_task else arena.disconnect()
    armed = arena.ready(point) if fresh else arena.arm(point)
    seconds, right = [], True
    for _ in range(2):
        started = time.monotonic()
        right &= exact(plan.run(subject)) == expected
        seconds.append(time.monotonic() - started)
        assert eventually(lambda: not armed.exists() and not armed.with_suffix(".new").exists()), \
            f"{name} did not pass {point}"
    return Strike(right, max(seconds), loader.counts() - before, *_loads(point, name, number, in_task))


def _loads(point: str, name: str, number: int, in_task: bool) -> tuple[Counter[int], int]:
    """Return the number of times that each partition must be loaded with a kill, and the number of loads that there may
    be beside them.

    ``in_task`` says whether a Spark task, and not the driver, talks to the worker.
    """
    once = Counter(range(4))
    if name == "materialise" and point not in CONNECTING:
        # Those before the one that triggers the kill, and those in the two slots; in a task's process, only the latter.
        return once, 2 if point in IN_TASKS else min(number % 4 + 2, 4)
    if name == "materialise":
        return once, 0
    lost = point in PROCESS or (point in CONNECTING and in_task)
    return once if lost else Counter(), 0


# -- tools ------------------------------------------------------------------------------------------------------------

def kill(pids: Iterable[int]) -> None:
    """End processes at once, and wait until they have."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not any(map(leaks.is_alive, pids)))


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Return whether ``holds()`` becomes true within ``seconds``."""
    until = time.monotonic() + seconds
    while not (is_so := holds()) and time.monotonic() < until:
        time.sleep(0.02)
    return is_so


def _memfds(pid: int) -> list[str]:
    names = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(descriptor))
    return [name for name in names if name.startswith("/memfd:")]


@contextlib.contextmanager
def opened(running: topology.Topology, conf: Mapping[str, object] | None = None) -> Iterator[Arena]:
    """Yield a context on a topology whose workers have fail-points."""
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory(prefix="vc-") as name, \
            pytest.MonkeyPatch.context() as patch:
        base = Path(name)
        failpoints, loads = base / "failpoints", base / "loads"
        failpoints.mkdir()
        loads.mkdir()
        # Workers that the driver starts anew have them too; the driver itself has not, it read the variable before.
        patch.setenv(VARIABLE, str(failpoints))
        patch.setenv("VISPARK_RUNTIME_DIR", str(running.nodes[0].runtime_dir))
        stack.callback(logging.setLogRecordFactory, logging.getLogRecordFactory())
        logging.setLogRecordFactory(plain_record)
        # The lease is long, since disconnecting lets go of it for a while.
        settings = {f"spark.executorEnv.{VARIABLE}": failpoints, "spark.vispark.device": "host",
                    "spark.vispark.lease": 60} | dict(conf or {})
        with running.context(settings) as sc:
            arena = Arena(sc, running.nodes, failpoints, loads)
            # It starts what a session keeps open to its end.
            assert len(arena.points(arena.loader(), 2).cache().map(len).collect()) == len(records(1))
            arena.disconnect()
            yield arena


@pytest.fixture(scope="module")
def arena(local: topology.Topology) -> Iterator[Arena]:
    """Yield a context on ``local[2]``, shared by the tests of a module."""
    with opened(local) as arena:
        yield arena
