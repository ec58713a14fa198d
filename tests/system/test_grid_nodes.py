"""A grid over two nodes of a Spark cluster, whose workers exchange halos by MPI, and records by their keys."""

from __future__ import annotations

import math
import operator
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from operator import itemgetter

import numpy as np
import pytest
from pyspark import RDD, SparkContext

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from tests.grid_reference import applied
from tests.system.topology import Node, Topology
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


def gpu_worker(node: Node, *arguments: str) -> None:
    """Run a command of a node's worker."""
    subprocess.run([sys.executable, "-m", "gpu_worker", *arguments], check=True, timeout=60, capture_output=True,
                   env=os.environ | {"VISPARK_RUNTIME_DIR": str(node.runtime_dir)})


@pytest.fixture(scope="module")
def cluster(standalone: Topology) -> Iterator[Topology]:
    """Two nodes whose daemons know each other."""
    for node in standalone.nodes:
        others = ",".join(str(other.runtime_dir) for other in standalone.nodes if other is not node)
        gpu_worker(node, "start", "--hosts", others)
    yield standalone
    for node in standalone.nodes:
        gpu_worker(node, "stop")


@pytest.fixture(scope="module")
def sc(request: pytest.FixtureRequest, cluster: Topology) -> Iterator[SparkContext]:
    """A context whose session is up, with all that it keeps open to its end, by one of the ways to the workers, and of
    the exchanges.
    """
    transport, _, exchange = request.param.partition(", ")
    with cluster.context({"spark.vispark.device": "host", "spark.vispark.transport": transport,
                          "spark.vispark.exchange": exchange or "mpi"}) as context:
        blocks = Grid(SHAPE, splits=SPLITS).scatter(context, np.zeros(SHAPE, "f4"), partitions=4).cache("GPU")
        Grid.gather(blocks.iterate(heat, 0.1, steps=2))
        pairs = context.parallelize(range(8), 4).cache("GPU").vmap(lambda n: (n, n))
        assert len(pairs.join(pairs).collect()) == 8 and len(pairs.countByKey()) == 8
        del pairs
        del blocks
        yield context


def sessions(cluster: Topology) -> list:
    """What the nodes' workers say of the application's session."""
    found = [administer(Status(), runtime_dir=str(node.runtime_dir)).sessions for node in cluster.nodes]
    return [each[-1] for each in found if each]


NUMBERS = np.random.default_rng(11).integers(-40, 40, 4000).tolist()


def spread(sc: SparkContext, records: list, slices: int = 4) -> RDD:
    """Cached records, of which each node has some partitions."""
    made = sc.parallelize(records, slices).mapPartitions(slowly).cache("GPU")
    made.count()
    assert len(made._residency.by_home()) == 2, "each node is to have some partitions"
    return made


def slowly(records):
    time.sleep(0.3)
    return records


class TestKeys:
    """Exchanges of records by their keys."""

    @pytest.fixture(autouse=True)
    def no_leaks(self) -> None:
        """Leave connections to the context's end: the thread that releases takes another where one is in use."""

    @directly
    def test_records_go_to_the_partitions_of_their_keys_on_two_nodes(self, sc: SparkContext):
        pairs, squares = spread(sc, NUMBERS).vmap(lambda n: (n, n * n)), [(n, n * n) for n in NUMBERS]
        expected = sc.parallelize(squares, 4)
        names = spread(sc, list(range(-5, 5))).vmap(lambda k: (k, 100 + k))
        with warnings.catch_warnings():
            warnings.simplefilter("error")      # none of it is Spark's
            put = pairs.partitionBy(5)
            # In the order of the records, which Spark's own shuffle among nodes does not keep.
            assert put.glom().collect() == [[pair for pair in squares if hash(pair[0]) % 5 == at] for at in range(5)]
            assert len(put._residency.by_home()) == 2
            assert pairs.sortByKey(ascending=False, numPartitions=3).collect() == \
                sorted(squares, key=itemgetter(0), reverse=True)
            assert sorted(pairs.reduceByKey(operator.add).collect()) == \
                sorted(expected.reduceByKey(operator.add).collect())
            assert pairs.countByKey() == expected.countByKey()
            assert sorted(spread(sc, NUMBERS).distinct().collect()) == sorted(set(NUMBERS))
            assert {key: list(found) for key, found in pairs.groupByKey(3).collect()} == \
                {key: list(found) for key, found in expected.groupByKey(3).collect()}
            assert sorted(pairs.join(names, 3).collect()) == \
                sorted((n, (n * n, 100 + n)) for n in NUMBERS if -5 <= n < 5)
            assert spread(sc, NUMBERS).filter(lambda n: n > 3).collect() == [n for n in NUMBERS if n > 3]

    @directly
    def test_keys_that_one_node_cannot_place_are_sparks_and_the_next_exchange_goes_on(self, sc: SparkContext):
        floats = spread(sc, [1.0, 2.0, 3.0, math.nan, 5.0, 6.0, 7.0, 8.0]).vmap(lambda x: (x, x))
        put = floats.partitionBy(2)
        assert put._residency.exchange is not None
        assert len(put.collect()) == 8 and put._residency.exchange is None
        pairs = spread(sc, NUMBERS).vmap(lambda n: (n, 1))
        assert pairs.sortByKey(numPartitions=2).keys().collect() == sorted(NUMBERS)

    @directly
    def test_a_node_that_loses_its_process_takes_its_partitions_back(self, sc: SparkContext, cluster: Topology):
        put = spread(sc, NUMBERS).vmap(lambda n: (n, n * n)).partitionBy(5)
        found = put.glom().collect()
        os.kill(sessions(cluster)[0].pid, signal.SIGKILL)
        assert put.glom().collect() == found


@directly
def test_a_loop_over_two_nodes(sc: SparkContext, cluster: Topology):
    initial = np.random.default_rng(7).random(SHAPE, "f4")
    blocks = Grid(SHAPE, splits=SPLITS).scatter(sc, initial, partitions=4).cache("GPU")
    blocks.count()
    held = sessions(cluster)
    assert len(held) == 2 and all(each.report.vrdds for each in held), "each node is to have some blocks"
    np.testing.assert_allclose(Grid.gather(blocks.iterate(heat, 0.1, steps=25)), expected(initial, 25), rtol=1e-5)
    assert all(each.report.sent for each in sessions(cluster))             # halos went through MPI


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
    assert all(each.report.sent for each in sessions(cluster))
