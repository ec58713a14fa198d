"""Scheduled GPUs of executors, processes and tasks that go, on a standalone cluster of two nodes, and of executors that
dynamic allocation gives back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import leaks
from tests.system import topology
from tests.system.gpu_tools import blocks, check_dealt, copies, gpu_context, held, warm_up
from tests.system.worker_tools import eventually
from vispark.runtime.driver.executor_gpus import assigned

TOTAL = 1024 * sum(range(8))
LEASE = 2.0
PATIENCE = 60.0


@pytest.fixture(scope="module")
def sc(gpu_cluster):
    """Start two executors on each node with a GPU each, on which two tasks run at once; slow tasks have twins."""
    conf = topology.SPECULATION | {"spark.task.resource.gpu.amount": 0.5, "spark.vispark.lease": LEASE,
                                   "spark.executor.cores": 2}
    with gpu_context(gpu_cluster, 4, gpus=1, **conf) as context:
        warm_up(context)
        yield context


def _executors(sc) -> dict[str, tuple[str, ...]]:
    return {name: gpus for name, gpus in assigned(sc).by_executor.items() if name != "driver"}


def _jvms(sc, node: topology.LocalNode) -> list[leaks.Process]:
    """Return the executors of an application on a node."""
    return leaks.processes(lambda process, environment: f"SPARK_LOCAL_IP={node.host}" in environment
                           and f"--app-id {sc.applicationId}" in process.command)


def _total(points) -> float:
    return points.vmap(lambda p: p.sum()).sum()


def test_twins_leave_one_copy_of_each_partition(sc, gpu_cluster, tmp_path):
    twins = topology.Twins(tmp_path, 0)
    points = sc.parallelize(range(8), 8).mapPartitionsWithIndex(twins.hold).map(float).cache("GPU")
    assert points.count() == 8
    twins.check()
    assert eventually(lambda: copies(sc, gpu_cluster) == 8, PATIENCE)
    assert points.sum() == sum(range(8))
    points.unpersist()


def test_another_application_has_other_gpus(sc, gpu_cluster, tmp_path):
    points = blocks(sc, tmp_path).cache("GPU")
    assert _total(points) == TOTAL
    arguments = json.dumps([gpu_cluster.master, [(node.host, str(node.runtime_dir)) for node in gpu_cluster.nodes]])
    with subprocess.Popen([sys.executable, "-m", "tests.system.second_application", arguments], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as other:
        theirs, ours = json.loads(other.stdout.readline()), held(sc, gpu_cluster)
        (host, devices), = ((host, devices) for host, devices in theirs.items() if devices)
        assert len(devices) == 3 and not devices.keys() & ours[host].keys()
        assert sum(sum(devices.values()) for devices in theirs.values()) == 8
        other.stdin.close()
        assert other.wait(PATIENCE) == 0
    assert _total(points) == TOTAL
    points.unpersist()


def test_a_process_that_is_lost_comes_back_with_the_same_gpus(sc, gpu_cluster, tmp_path):
    points = blocks(sc, tmp_path).cache("GPU")
    assert _total(points) == TOTAL
    before = held(sc, gpu_cluster)
    node = gpu_cluster.nodes[0]
    for process in leaks.processes_of(node.runtime_dir):
        if "gpu_worker.server.device_process" in process.command:
            os.kill(process.pid, signal.SIGKILL)
    assert _total(points) == TOTAL
    assert held(sc, gpu_cluster)[node.host].keys() <= before[node.host].keys()
    points.unpersist()


def test_gpus_of_executors_that_ended_are_given_back(sc, gpu_cluster, tmp_path):
    points = blocks(sc, tmp_path).cache("GPU")
    assert _total(points) == TOTAL
    node = gpu_cluster.nodes[0]
    known = set(_executors(sc))
    for process in _jvms(sc, node):
        os.kill(process.pid, signal.SIGKILL)
    assert _total(points) == TOTAL      # the data outlives the executors, for the lease
    assert eventually(lambda: not held(sc, gpu_cluster)[node.host], PATIENCE)
    assert eventually(lambda: len(_executors(sc)) == 4 and known != set(_executors(sc)), PATIENCE)
    assert _total(points) == TOTAL
    assert eventually(lambda: copies(sc, gpu_cluster) == 8, PATIENCE)
    points.unpersist()


DYNAMIC = {"spark.dynamicAllocation.enabled": True, "spark.dynamicAllocation.minExecutors": 0,
           "spark.dynamicAllocation.initialExecutors": 2, "spark.dynamicAllocation.maxExecutors": 2,
           "spark.dynamicAllocation.executorIdleTimeout": "1s", "spark.dynamicAllocation.shuffleTracking.enabled": True,
           "spark.dynamicAllocation.cachedExecutorIdleTimeout": "8s", "spark.cores.max": 4,
           "spark.vispark.lease": LEASE}


def test_executors_and_gpus_go_with_what_they_hold(sc, gpu_cluster, tmp_path):
    sc.stop()       # the last test that uses it: one context lives at a time
    with gpu_context(gpu_cluster, 0, **DYNAMIC) as other:
        points = blocks(other, tmp_path).cache("GPU")
        assert _total(points) == TOTAL
        check_dealt(other, gpu_cluster, tmp_path)
        assert not eventually(lambda: len(_executors(other)) == 0, 3.0)     # the data keeps them for a while
        _check_gone(other, gpu_cluster)
        assert _total(points) == TOTAL      # made again, with executors that come again
        points.unpersist()
        _check_gone(other, gpu_cluster)


def _check_gone(sc, cluster) -> None:
    """Fail unless the executors are taken away, and their GPUs are given back."""
    assert eventually(lambda: len(_executors(sc)) == 0, PATIENCE)
    assert eventually(lambda: not any(held(sc, cluster).values()), PATIENCE)
