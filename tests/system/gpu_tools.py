"""Contexts whose executors have scheduled GPUs, and which node, executor and device has which partition; tests of such
GPUs share them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark import RDD, SparkContext, TaskContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Reported, Status
from tests.system.topology import LocalNode, Topology
from tests.system.vrdd_tools import connect_threads
from tests.system.worker_tools import eventually
from vispark.runtime.driver.session import Session
from vispark.runtime.executor.assigned_gpus import AssignedGpus

#: Bytes of each partition's block.
BLOCK = 8 * 1024


@contextlib.contextmanager
def gpu_context(cluster: Topology, executors: int, gpus: int = 2, device: str = "host:8",
                **conf: object) -> Iterator[SparkContext]:
    """Start a context with ``executors``, of two cores and some GPUs each."""
    settings = {"spark.executor.cores": 2, "spark.cores.max": 2 * executors, "spark.executor.resource.gpu.amount": gpus,
                "spark.vispark.device": device}
    with dataclasses.replace(cluster, executors=executors).context(settings | conf) as sc:
        yield sc


def warm_up(sc: SparkContext) -> None:
    """Start what a session keeps open to its end: Python workers, a connection for each thread."""
    # The list that Spark's UI shows follows what has happened later, on a busy machine by seconds.
    assert eventually(lambda: len(_addresses_of_executors(sc)) == _registered_executors(sc), 60.0)
    nodes = {executor.rpartition(":")[0] for executor in _addresses_of_executors(sc)}

    # A barrier's tasks run at once, in all slots, and have no twins. With speculation, tasks of a node that is up would
    # win over the others' each time, and Spark ends the Python workers of those that lost before they are up.
    slots = sc.defaultParallelism

    def is_up() -> bool:
        numbers = sc.parallelize(range(slots), slots).barrier().mapPartitions(lambda records: records).cache("GPU")
        assert numbers.count() == slots and numbers.vmap(lambda x: 2 * x).sum() == 2 * sum(range(slots))
        numbers.unpersist()
        return len(Session.of(sc).workers.known()) == len(nodes)

    assert eventually(is_up, 60.0), (nodes, Session.of(sc).workers.known())
    for worker in Session.of(sc).workers.known():
        connect_threads(worker)


def _addresses_of_executors(sc: SparkContext) -> list[str]:
    listed = sc._jsc.sc().statusStore().executorList(True)
    executors = [listed.apply(place) for place in range(listed.size())]
    return [executor.hostPort() for executor in executors if executor.id() != "driver"]


def _registered_executors(sc: SparkContext) -> int:
    return sc._jsc.sc().getExecutorMemoryStatus().size() - 1    # without the driver


def copies(sc: SparkContext, cluster: Topology) -> int:
    """Return the number of partitions that the workers hold of the newest VRDD."""
    lines = [line for node in cluster.nodes for line in reported(sc, node).vrdds]
    newest = max((line.vrdd for line in lines), default=0)
    return sum(line.partitions for line in lines if line.vrdd == newest)


def task_profile(gpus: float, cpus: int = 1) -> ResourceProfile:
    """Return a profile of tasks with so much of a GPU; without GPUs if it is 0."""
    request = TaskResourceRequests().cpus(cpus)
    return ResourceProfileBuilder().require(request.resource("gpu", gpus) if gpus else request).build


def blocks(sc: SparkContext, directory: Path, partitions: int = 8) -> RDD:
    """Return an RDD of a block of BLOCK bytes in each partition, whose tasks note in a directory where they ran."""
    return sc.parallelize(range(partitions), partitions).mapPartitionsWithIndex(Noted(directory))


@dataclass(frozen=True)
class Noted:
    """Function of a partition that notes the node, and the executor's GPUs, and gives the records."""

    directory: Path

    def __call__(self, partition: int, records: Iterable) -> Iterator[np.ndarray]:
        gpus = ",".join(AssignedGpus().own_addresses())
        stage = TaskContext.get().stageId()
        (self.directory / f"{partition}@{os.environ['SPARK_LOCAL_IP']}@{gpus}@{stage}").touch()
        for record in records:
            yield np.full(BLOCK // 8, float(record))


def ran(directory: Path) -> dict[str, Counter[tuple[str, ...]]]:
    """Count the partitions that executors had, by node and by the executor's GPUs."""
    counts: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for path in directory.iterdir():
        _, host, gpus, _ = path.name.split("@")
        counts[host][tuple(gpus.split(","))] += 1
    return dict(counts)


def profile_of_load(sc: SparkContext, directory: Path) -> int:
    """Return the resource profile of the stage that noted its tasks in a directory."""
    stage, = {int(path.name.rpartition("@")[2]) for path in directory.iterdir()}
    return sc._jsc.sc().statusStore().lastStageAttempt(stage).resourceProfileId()


def reported(sc: SparkContext, node: LocalNode) -> Reported:
    """Return the report of a node's worker on a context's session, an empty one where there is no such session."""
    eventually(lambda: Session.of(sc).loads.collector.idle)
    name = Session.of(sc).credentials.session
    reports = [each.report for each in administer(Status(), runtime_dir=str(node.runtime_dir)).sessions
               if each.session == name and each.report is not None]
    return reports[0] if reports else Reported(0, (), (), 0, 0)


def held(sc: SparkContext, cluster: Topology) -> dict[str, dict[str, int]]:
    """Return, by node, the number of blocks of BLOCK bytes on each device that is open there."""
    return {node.host: {memory.device.partition(":")[2]: memory.used // BLOCK for memory in reported(sc, node).memory}
            for node in cluster.nodes}


def check_dealt(sc: SparkContext, cluster: Topology, directory: Path) -> None:
    """Fail unless each executor's partitions lie on its own GPUs, on each as many as on the others or one more."""
    there = held(sc, cluster)
    for host, executors in ran(directory).items():
        for gpus, partitions in executors.items():
            counts = [there[host].get(gpu, 0) for gpu in gpus]
            assert sum(counts) == partitions and max(counts) - min(counts) <= 1, (host, gpus, partitions, there)
    known = {(host, gpu) for host, executors in ran(directory).items() for gpus in executors for gpu in gpus}
    assert {(host, gpu) for host, devices in there.items() for gpu in devices if devices[gpu]} <= known
