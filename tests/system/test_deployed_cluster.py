"""A standalone cluster as an administrator sets one up: two workers whose GPUs Spark assigns, and daemons that know
each other. K-means, a heat equation and a grid run across both. The GPUs are devices of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext, TaskContext

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Reported, Status
from tests.grid_reference import applied
from tests.system.gpu_tools import gpu_context, warm_up
from tests.system.topology import Topology, clustered
from vispark import Grid, stencil

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

SHAPE = (16, 12)


@stencil
def heat(u, k):
    return u[0, 0] + k * (u[1, 0] + u[-1, 0] + u[0, 1] + u[0, -1] - 4 * u[0, 0])


@pytest.fixture(scope="module")
def cluster(gpu_cluster: Topology) -> Iterator[Topology]:
    """Start two nodes whose daemons know each other."""
    with clustered(gpu_cluster) as running:
        yield running


@pytest.fixture(scope="module")
def sc(cluster: Topology) -> Iterator[SparkContext]:
    """Start an executor on each node, with two of its eight GPUs."""
    with gpu_context(cluster, 2, **{"spark.task.resource.gpu.amount": 1}) as context:
        warm_up(context)
        yield context


def _devices(cluster: Topology) -> list[list[str]]:
    """Return the devices of each node that hold something."""
    devices: list[list[str]] = []
    for node in cluster.nodes:
        report: Reported = administer(Status(), runtime_dir=str(node.runtime_dir)).sessions[-1].report
        devices.append(sorted({held.device for held in report.vrdds if held.nbytes}))
    return devices


def test_both_nodes_have_the_gpus_that_spark_assigned(sc: SparkContext, cluster: Topology):
    def assigned(_):
        yield TaskContext.get().resources()["gpu"].addresses

    assert {len(each) for each in sc.parallelize(range(8), 8).mapPartitions(assigned).collect()} == {1}
    rows = sc.parallelize(range(8), 8).map(lambda i: np.full(16, float(i))).cache("GPU")
    assert rows.vmap(lambda p: p.sum()).sum() == 16 * sum(range(8))
    assert [bool(devices) for devices in _devices(cluster)] == [True, True]
    rows.unpersist()


def test_k_means_across_both_is_numpys(sc: SparkContext):
    rng = np.random.default_rng(3)
    points = (rng.integers(0, 4, (400, 1)) * 10 + rng.random((400, 3))).astype("f4")
    centres = expected = points[:4].astype("f8") + np.arange(4)[:, None]
    data = sc.parallelize(list(points), 8).cache("GPU")
    for _ in range(4):
        def nearest(p, c=centres):
            k = np.argmin(np.sum((c - p) ** 2, axis=1))
            return (k, (p.astype(np.float64), 1))

        sums = data.vmap(nearest).reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1])).collectAsMap()
        centres = np.array([sums[k][0] / sums[k][1] if k in sums else centres[k] for k in range(4)])
        labels = np.argmin(((expected[None] - points[:, None].astype("f8")) ** 2).sum(axis=2), axis=1)
        expected = np.array([points[labels == k].mean(axis=0, dtype="f8") if (labels == k).any() else expected[k]
                             for k in range(4)])
    np.testing.assert_allclose(centres, expected, rtol=1e-6)
    data.unpersist()


def test_heat_on_a_grid_across_both_is_numpys(sc: SparkContext, cluster: Topology):
    initial = np.random.default_rng(4).random(SHAPE, "f4")
    blocks = Grid(SHAPE, splits=(4, 2)).scatter(sc, initial, partitions=8).cache("GPU")
    after = Grid.gather(blocks.iterate(heat, np.float32(0.1), steps=10))
    expected = initial
    for _ in range(10):
        expected = applied(heat, expected, np.float32(0.1), halo=(1, 1), rules=[(0.0, 0.0)] * 2)
    np.testing.assert_allclose(after, expected, rtol=1e-5)
    sessions = [administer(Status(), runtime_dir=str(node.runtime_dir)).sessions[-1] for node in cluster.nodes]
    assert all(session.report.sent for session in sessions), "halos go between the nodes"
