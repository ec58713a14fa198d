"""The topologies are what tests take them for. Plain PySpark: vispark is not imported here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import leaks
from tests.system import topology
from tests.system.worker_tools import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def jvm():
    """Start the driver's JVM before the first test, none of which leaves it behind then."""
    topology.start_jvm()


def _environment(_):
    return [(os.environ["VISPARK_RUNTIME_DIR"], os.environ["SPARK_LOCAL_IP"])]


def _places(sc) -> set[tuple[str, str]]:
    """Runtime directory and host of tasks that keep all executors busy."""
    return set(sc.parallelize(range(16), 16).mapPartitions(_environment).collect())


def _origins(_):
    return [importlib.util.find_spec(name).origin for name in ("gpu_worker", "vispark", "tests.system.topology")]


def _nodes(running: topology.Topology) -> set[tuple[str, str]]:
    return {(str(node.runtime_dir), node.host) for node in running.nodes}


def test_local_tasks_see_the_one_runtime_directory_from_workers_of_the_stock(local):
    with local.context() as sc:
        assert _places(sc) == _nodes(local)
        commands = sc.parallelize(range(2), 2).map(lambda _: Path("/proc/self/cmdline").read_text()).collect()
        assert all("tests.system.stock_daemon" in command for command in commands)


def test_standalone_workers_are_nodes_of_their_own_and_leave_no_process(tmp_path):
    twins = topology.Twins(tmp_path, 0)
    with topology.standalone(2) as running, running.context(topology.SPECULATION) as sc:
        assert len(running.nodes) == 2
        assert eventually(lambda: _places(sc) == _nodes(running), 30.0)     # an executor may take tasks before another
        origins = sc.parallelize([0], 1).mapPartitions(_origins).collect()
        assert origins == [str(ROOT / path) for path in (
            "gpu_worker/__init__.py", "vispark/__init__.py", "tests/system/topology.py")]
        assert sc.parallelize(range(6), 6).mapPartitionsWithIndex(twins.hold).collect() == list(range(6))
        twins.check()
        assert {attempt.host for attempt in twins.attempts()} == {node.host for node in running.nodes}
        started = leaks.processes(lambda process, environment: str(running.logs) in environment)
        assert len(started) >= 6  # Two workers, their executors and Python daemons at least.
    assert not running.logs.exists()
    assert not leaks.wait_until_gone(lambda: [process for process in started if leaks.is_alive(process.pid)])


def test_twins_that_were_not_are_missed(tmp_path):
    for attempt in ("0-0", "1-0"):
        (tmp_path / f"{attempt}-127.0.0.2").touch()
    with pytest.raises(AssertionError, match="partition 0 had no twin"):
        topology.Twins(tmp_path, 0).check()


def test_a_standalone_topology_ends_with_its_test_process(tmp_path):
    code = ("import time\nfrom tests.system import topology\n"
            "with topology.standalone(1) as running, running.context() as sc:\n"
            "    sc.parallelize([1.0], 1).count()\n    print('up', flush=True)\n    time.sleep(60)\n")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as driver:
        assert driver.stdout.readline() == b"up\n"
        started = leaks.processes_with("TMPDIR", str(tmp_path))
        driver.kill()
    assert len(started) >= 5  # The process itself, its JVM, a master, a worker and an executor at least.
    assert leaks.wait_until_gone(lambda: leaks.processes_with("TMPDIR", str(tmp_path)), patience=20) == []


def test_a_part_that_does_not_start_shows_its_log(monkeypatch):
    monkeypatch.setenv("SPARK_MASTER_OPTS", "-XX:+UseParallelGC")  # Beside the collector that the topology names.
    with pytest.raises(topology.TopologyError, match=r"(?s)the Spark master did not start.*collector"), \
            topology.standalone(1):
        pass
