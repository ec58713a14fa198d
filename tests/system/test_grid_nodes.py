"""A grid over two nodes of a Spark cluster, whose workers exchange halos by MPI."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from tests.grid_reference import applied
from tests.system.topology import Topology
from vispark import Grid, stencil

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

SHAPE, SPLITS = (12, 10, 8), (2, 2, 1)


@stencil
def heat(u, k):
    return u[0, 0, 0] + k * (u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0]
                             + u[0, 0, 1] + u[0, 0, -1] - 6 * u[0, 0, 0])


def expected(initial: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        initial = applied(heat, initial, np.float32(0.1), halo=(1, 1, 1), rules=[(0.0, 0.0)] * 3)
    return initial


directly = pytest.mark.parametrize("sc", ["unix"], indirect=True)
relayed = pytest.mark.parametrize("sc", ["relay"], indirect=True)
both_ways = pytest.mark.parametrize("sc", ["unix", "relay"], indirect=True)
over_ucx = pytest.mark.parametrize("sc", [
    pytest.param(way, marks=pytest.mark.skipif(find_spec("libucx") is None, reason="needs the extra ucx"))
    for way in ("unix, ucx", "relay, ucx")], indirect=True)


@pytest.fixture(scope="module")
def sc(request: pytest.FixtureRequest, cluster: Topology) -> Iterator[SparkContext]:
    """Start a context whose session is up, with all that it keeps open to its end, by a way to the workers and an
    exchange.
    """
    transport, _, exchange = request.param.partition(", ")
    with cluster.context({"spark.vispark.device": "host", "spark.vispark.transport": transport,
                          "spark.vispark.exchange": exchange or "mpi"}) as context:
        blocks = Grid(SHAPE, splits=SPLITS).scatter(context, np.zeros(SHAPE, "f4"), partitions=4).cache("GPU")
        Grid.gather(blocks.iterate(heat, 0.1, steps=2))
        del blocks
        yield context


def sessions(cluster: Topology) -> list:
    """Return the reports of the nodes' workers on the application's session."""
    by_node = [administer(Status(), runtime_dir=str(node.runtime_dir)).sessions for node in cluster.nodes]
    return [each[-1] for each in by_node if each]


@directly
def test_a_loop_over_two_nodes(sc: SparkContext, cluster: Topology):
    initial = np.random.default_rng(7).random(SHAPE, "f4")
    blocks = Grid(SHAPE, splits=SPLITS).scatter(sc, initial, partitions=4).cache("GPU")
    blocks.count()
    held = sessions(cluster)
    assert len(held) == 2 and all(each.report.vrdds for each in held), "each node is to have some blocks"
    np.testing.assert_allclose(Grid.gather(blocks.iterate(heat, 0.1, steps=25)), expected(initial, 25), rtol=1e-5)
    assert all(each.report.sent and each.report.exchange == "mpi" for each in sessions(cluster))
    assert "cells to other nodes: by mpi; gpu-worker status" in blocks.iterate(heat, 0.1, steps=2).explanation()
    assert "cells to other nodes" not in blocks.explanation()


@relayed
def test_the_listing_over_two_nodes(sc: SparkContext):
    initial = np.random.default_rng(8).random(SHAPE, "f4")
    grids = Grid(SHAPE, splits=SPLITS).scatter(sc, initial, partitions=4).cache("GPU")
    for _ in range(4):
        grids.halo_extract().halo_shuffle()
        grids = grids.halo_append()
        grids = grids.vmap(heat, 0.1).cache()
    np.testing.assert_allclose(Grid.gather(grids), expected(initial, 4), rtol=1e-5)


@both_ways
def test_a_node_that_loses_its_process_costs_time_only(sc: SparkContext, cluster: Topology):
    initial = np.random.default_rng(9).random(SHAPE, "f4")
    grids = Grid(SHAPE, splits=SPLITS).scatter(sc, initial, partitions=4).cache("GPU")
    before = grids.iterate(heat, 0.1, steps=10)
    np.testing.assert_allclose(Grid.gather(before), expected(initial, 10), rtol=1e-5)
    os.kill(sessions(cluster)[0].pid, signal.SIGKILL)
    # Tasks start the next process, which is in no world with the other.
    assert Grid(SHAPE, splits=SPLITS).scatter(sc, initial, partitions=4).cache("GPU").count() == 4
    np.testing.assert_allclose(Grid.gather(before.iterate(heat, 0.1, steps=10)), expected(initial, 20), rtol=1e-5)


@over_ucx
def test_a_loop_over_ucx_goes_on_after_a_loss(sc: SparkContext, cluster: Topology):
    test_a_node_that_loses_its_process_costs_time_only(sc, cluster)
    assert all(each.report.sent and each.report.exchange.startswith("ucx over ") for each in sessions(cluster))
