"""Sessions begin and end with their contexts; what keeps one from beginning is said in one error."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import vispark
from gpu_worker.client.connection import administer
from gpu_worker.execution.plans.plan_cache import RESTING_BYTES
from gpu_worker.protocol.grids import World
from gpu_worker.protocol.messages import Status
from gpu_worker.protocol.payload import Data
from tests.system.test_bad_input import NEVER_ENDS, bystander, refused
from tests.system.topology import DEVICE_NAME, Topology
from tests.system.vrdd_tools import host_context, report, status, used
from tests.system.worker_tools import eventually
from vispark import (
    IN,
    OUT,
    DeadlineExceeded,
    DeviceUnavailable,
    Kernels,
    LaunchError,
    OptionError,
    PlanError,
    RecordError,
    WorkerUnavailable,
)
from vispark.plan.lower.executable import BoundArguments, Executable, Invocation
from vispark.runtime.driver.channel import TokenPlace
from vispark.runtime.driver.session import Session
from vispark.runtime.executor import relay_tasks
from vispark.runtime.executor.client import forget, local_client
from vispark.runtime.executor.relay_tasks import CollectTask, Deferred, Relay
from vispark.runtime.identity import WorkerAddress

ROOT = Path(__file__).resolve().parents[2]


def sessions(topology: Topology) -> int:
    return len(administer(Status(), runtime_dir=str(topology.nodes[0].runtime_dir)).sessions)


def test_contexts_one_after_another(local: Topology):
    for _ in range(2):
        with host_context(local, lease=0.5) as sc:
            cached = sc.parallelize([1.0, 2.0], 2).cache("GPU")
            assert cached.collect() == [1.0, 2.0]
            assert sessions(local) == 1 and report(sc).vrdds
        assert eventually(lambda: sessions(local) == 0), "stopping the context ends the session"
    with pytest.raises(PlanError, match="stopped"):
        cached.collect()


def test_a_profile_of_several_contexts_keeps_them_apart(local: Topology):
    # Their stages have the same numbers.
    with vispark.profile() as profile:
        for device in ("GPU", None):
            with local.context({"spark.vispark.device": "host"}) as sc:
                assert sc.parallelize([1.0, 2.0], 2).cache(device).count() == 2
    tasks = [[task.parts for stage in job.stages for task in stage.tasks] for job in profile.jobs]
    assert [len(parts) for parts in tasks] == [2, 2]
    assert [["parse" in each for each in parts] for parts in tasks] == [[True] * 2, [False] * 2]


def slow(x: float) -> float:
    time.sleep(60)
    return x


def test_a_context_is_stopped_under_loops_and_loads_of_other_threads(local: Topology):
    with host_context(local) as sc, ThreadPoolExecutor(2) as pool:
        x, begun = sc.parallelize([1.0, 2.0], 2).cache("GPU"), threading.Event()
        assert x.count() == 2

        def loop() -> None:
            y = x
            while True:
                y = y.vmap(lambda a: a * 0.5).cache()
                x.vmap(lambda a: a + 1).sum()
                begun.set()

        looping = pool.submit(loop)
        loading = pool.submit(lambda: sc.parallelize([1.0], 1).map(slow).cache("GPU").count())
        jobs = Session.of(sc).jobs
        assert begun.wait(30) and eventually(lambda: bool(sc.statusTracker().getActiveJobsIds()))
        Session.end(sc)
        # What Spark would drop while it stops has ended, and nothing comes behind.
        with pytest.raises(PlanError, match="stopped"):
            loading.result(10)
        with pytest.raises(PlanError, match="stopped"):
            jobs.once(sc.parallelize([1], 1), [0])
        sc.stop()
        with pytest.raises(PlanError, match="stopped"):
            looping.result(30)


def test_errors_are_ours_where_sql_is_used_too(local: Topology):
    with host_context(local) as sc:
        assert SparkSession(sc).range(3).count() == 3     # from here on PySpark raises Spark's errors as its own
        with pytest.raises(RecordError, match="record 0"):
            sc.parallelize([object()], 1).cache("GPU").collect()


def test_what_one_load_brings_is_there_for_tasks_too(local: Topology):
    with host_context(local, transport="relay") as sc:
        first = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
        second = first.vmap(lambda x: x + 1).cache()
        assert second.collect() == [2.0, 3.0, 4.0]
        jobs = Session.of(sc).relay.count
        assert first.sum() == 6.0 and first.collect() == [1.0, 2.0, 3.0] == first.map(float).collect()
        assert Session.of(sc).relay.count == jobs + 2


@dataclass(frozen=True)
class Astray:
    """A task that comes to another node than its worker's the first time that it is run."""

    home: WorkerAddress
    came: Path

    def __call__(self, _: int, tokens: Iterator) -> Iterator:
        list(tokens)
        yield (1, "there", b"") if self.came.exists() else self.came.touch()


def test_a_relayed_task_that_came_to_another_node_is_run_on_an_executor_of_the_right_one(local: Topology,
                                                                                          tmp_path: Path):
    # It comes there as the tokens of partitions that were lost and loaded elsewhere still lie where they were.
    with host_context(local, transport="relay") as sc:
        points, session = sc.parallelize([1.0, 2.0], 2).cache("GPU"), Session.of(sc)
        assert points.count() == 2
        worker, = session.workers.known()
        token = TokenPlace(points._residency, 0)
        assert session.relay.run(Astray(worker.home, tmp_path / "came"), token) == (1, "there", b"")
        elsewhere = WorkerAddress("/elsewhere", worker.home.machine)
        assert session.relay.run(Astray(elsewhere, tmp_path / "never"), token) is None


def test_a_relayed_plan_of_a_world_finds_the_process_that_came_behind_one_that_ended(
        local: Topology, monkeypatch: pytest.MonkeyPatch):
    # A Python worker's connection from before led to the one that ended, and other workers wait for the plan.
    with host_context(local) as sc:
        points = sc.parallelize([1.0, 2.0], 2).cache("GPU")
        assert points.count() == 2
        worker, = Session.of(sc).workers.known()
        credentials, home, before = Session.of(sc).credentials, worker.home, worker.epoch
        kept = local_client(credentials, home.runtime_dir)
        pid, = [each.pid for each in status(sc).sessions if each.session == credentials.session]
        os.kill(pid, signal.SIGKILL)
        assert points.sum() == 3.0 and worker.epoch > before == kept.epoch
        monkeypatch.setattr(relay_tasks, "run", lambda *_, **named: (
            local_client(credentials, home.runtime_dir), "a reply", Data(np.zeros(0, np.uint8))))
        plan = Invocation(Executable(b"k" * 16, b"", (), (), (), {}, (), -1), (), BoundArguments(()),
                          world=World(b"k" * 16, 0, (), 1), epoch=worker.epoch)
        (epoch, reply, _), = Relay(credentials, home, plan, Deferred((), {}))(0, iter(()))
        forget(local_client(credentials, home.runtime_dir))
        assert (epoch, reply) == (worker.epoch, "a reply")


def test_a_kernel_that_never_ends(local: Topology):
    with host_context(local, deadline=2) as sc:
        other = bystander(sc)
        points = sc.parallelize([np.float32(1)], 1).cache("GPU").setName("points")
        points.count()
        for vrdd, words in ((points, ("points",)), (sc.parallelize([np.float32(1)], 1).send(), ())):
            refused(vrdd.exec(NEVER_ENDS.never_ends, IN, OUT, grid=1, block=1).collect, DeadlineExceeded,
                    "exec never_ends", "partition 0", DEVICE_NAME, *words)
        assert points.count() == 1 == len(points.collect())
        assert len(other.vrdd.collect()) == 4


def test_housekeeping_starts_no_process(local: Topology, monkeypatch: pytest.MonkeyPatch):
    # A session whose process has ended, as where its executors' GPUs were given back, holds nothing to be told of.
    with host_context(local) as sc:
        points = sc.parallelize([1.0, 2.0], 2).cache("GPU")
        assert points.count() == 2
        credentials, node = Session.of(sc).credentials, str(local.nodes[0].runtime_dir)

        def process() -> int:
            return next(each.pid for each in administer(Status(), runtime_dir=node).sessions
                        if each.session == credentials.session)

        os.kill(process(), signal.SIGKILL)
        assert eventually(lambda: not process())
        monkeypatch.setenv("VISPARK_RUNTIME_DIR", node)
        assert len(list(CollectTask(credentials, {}, {1: {}})(0, []))) == 1
        assert not process()
        assert points.sum() == 3.0 and process()


def scaled(p, many):
    return many * p[0]


def test_memory_of_actions_that_do_not_come_again_is_given_back(local: Topology):
    # A worker holds what it works in for plans that come again and again, and these do not.
    with host_context(local) as sc:
        x = sc.parallelize(list(np.ones((200, 4))), 4).cache("GPU")
        assert x.count() == 200
        before = used(sc)
        for length in (100_000, 110_000):
            for k in range(3):
                assert x.vmap(scaled, np.full(length, float(k))).reduce(operator.add)[-1] == 200.0 * k
        assert eventually(lambda: used(sc) <= before + RESTING_BYTES)
        assert x.vmap(scaled, np.full(110_000, 2.0)).reduce(operator.add)[0] == 400.0


def test_kernels_are_made_for_the_shared_memory_there_is(local: Topology):
    def labelled(p):
        return int(p[0]), (p, 1)

    rows = np.random.default_rng(0).normal(size=(40, 784)).astype("f4")
    rows[:, 0] = np.arange(40) % 3
    transposed = Kernels("__global__ void t(const float* x, float* y) { extern __shared__ float tile[]; y[0] = x[0]; }")
    with host_context(local, sharedMemory="48k") as sc:
        points = sc.parallelize(rows, 2).send().vmap(lambda p: 1 * p).cache("GPU")      # made in tasks
        assert np.array_equal(points.collect(), rows)
        assert Session.of(sc).workers.shared_limit == 48 * 1024
        sums = dict(points.vmap(labelled).reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=3).collect())
        for key, (total, count) in sums.items():
            np.testing.assert_allclose(total, rows[rows[:, 0] == key].sum(axis=0), rtol=1e-4, atol=1e-4)
            assert count == np.sum(rows[:, 0] == key)
        refused(points.exec(transposed.t, IN, OUT, grid=1, block=1, shared=64 * 1024).collect, LaunchError,
                "0 to 49152 are possible")


# -- what keeps a session from beginning ------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def idle(local: Topology) -> Iterator[SparkContext]:
    """Start a context in which no session stays."""
    with local.context() as sc:
        yield sc


@contextlib.contextmanager
def set_to(sc: SparkContext, variables: Mapping[str, object] | None = None, **options: object) -> Iterator[None]:
    """Set vispark's options and the environment variables of tasks in a context, as if it had begun with them."""
    conf = SparkConf(loadDefaults=False).setAll(sc.getConf().getAll())
    for name, value in options.items():
        conf.set(f"spark.vispark.{name}", str(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sc, "_conf", conf)
        for name, value in (variables or {}).items():
            patch.setitem(sc.environment, name, str(value))
        try:
            yield
        finally:
            Session.end(sc)
            Session._sessions.pop(sc, None)


@pytest.mark.parametrize(("name", "value", "words"), [
    ("divice", "host", ("there is no option spark.vispark.divice", "spark.vispark.device")),
    ("device", "tpu", ("spark.vispark.device = 'tpu'", "auto, cuda, host, null")),
    ("deadline", "-1", ("spark.vispark.deadline = '-1'", "more than 0")),
    ("memory", "8x", ("spark.vispark.memory = '8x'",)),
    ("attempts", "-2", ("spark.vispark.attempts", "0 or more")),
    ("sharedMemory", "20k", ("spark.vispark.sharedMemory = '20k'", "48k or more")),
])
def test_options(idle: SparkContext, name: str, value: str, words: tuple[str, ...]):
    with set_to(idle, **{name: value}):
        numbers = idle.parallelize([1.0, 2.0], 2)
        refused(lambda: numbers.cache("GPU").count(), OptionError, *words)
        refused(lambda: numbers.send().collect(), OptionError, *words)
        assert numbers.sum() == 3.0 and numbers.cache().count() == 2


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="there is a CUDA device")
def test_a_device_that_is_not_here(idle: SparkContext):
    with set_to(idle, device="cuda"):
        numbers = idle.parallelize([1.0, 2.0], 2)
        refused(lambda: numbers.cache("GPU").count(), DeviceUnavailable, "cuda")
        refused(lambda: numbers.send().collect(), DeviceUnavailable, "cuda")
        assert numbers.sum() == 3.0


# -- no worker can start ----------------------------------------------------------------------------------------------

@pytest.fixture
def place() -> Iterator[Path]:
    """Make a directory whose path is short."""
    with tempfile.TemporaryDirectory(prefix="vt-") as directory:
        yield Path(directory)


def starting_in(sc: SparkContext, runtime_dir: Path, **variables: str) -> contextlib.AbstractContextManager[None]:
    """Set a context's options so that its worker would start in a directory."""
    return set_to(sc, {"VISPARK_RUNTIME_DIR": runtime_dir} | variables, device="host", startTimeout=20)


def test_a_socket_path_that_is_too_long(idle: SparkContext, tmp_path: Path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir(mode=0o700)
    with starting_in(idle, deep):
        numbers = idle.parallelize([1.0, 2.0], 2)
        refused(lambda: numbers.cache("GPU").count(), WorkerUnavailable, "socket path", str(deep), "bytes")
        refused(lambda: numbers.send().collect(), WorkerUnavailable, "socket path")
        assert numbers.sum() == 3.0


def test_a_runtime_directory_that_cannot_be_made(idle: SparkContext, place: Path):
    (place / "file").touch()
    with starting_in(idle, place / "file" / "rt"):
        refused(lambda: idle.parallelize([1.0], 1).cache("GPU").count(), WorkerUnavailable, "cannot be made",
                str(place / "file" / "rt"))


def test_a_runtime_directory_that_others_can_read(idle: SparkContext, place: Path):
    (place / "rt").mkdir()
    (place / "rt").chmod(0o755)
    with starting_in(idle, place / "rt"), pytest.raises(ConnectionError, match="has mode 0755"):
        idle.parallelize([1.0], 1).cache("GPU").count()


def test_no_compiler(idle: SparkContext, place: Path):
    with starting_in(idle, place / "rt", CXX="/nowhere/g++"):
        numbers = idle.parallelize([1.0, 2.0], 2)
        refused(lambda: numbers.cache("GPU").count(), DeviceUnavailable, "compiler", "/nowhere/g++")
        assert numbers.sum() == 3.0
    subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], timeout=30, check=True, capture_output=True,
                   env=os.environ | {"VISPARK_RUNTIME_DIR": str(place / "rt")})


# -- Spark Connect ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("variable", [{"SPARK_REMOTE": "sc://localhost"}, {"SPARK_CONNECT_MODE_ENABLED": "1"},
                                      {"SPARK_API_MODE": "connect"}], ids=lambda variable: next(iter(variable)))
def test_spark_connect(variable: dict[str, str]):
    code = "import vispark"
    result = subprocess.run([sys.executable, "-c", code], env=os.environ | variable, capture_output=True, text=True,
                            timeout=60, cwd=ROOT)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("gpu_worker.protocol.errors.SparkConnectError: vispark works on RDDs"), result.stderr
    assert "SPARK_REMOTE" in last and "classic" in last
