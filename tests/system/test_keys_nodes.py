"""Records that two nodes of a Spark cluster exchange by their keys."""

from __future__ import annotations

import math
import operator
import os
import signal
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
from pyspark import RDD, SparkContext

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from tests.system.test_grid_nodes import sessions
from tests.system.topology import Topology
from vispark import PlanError
from vispark.runtime.driver.session import Session

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

NUMBERS = np.random.default_rng(11).integers(-40, 40, 4000).tolist()


@pytest.fixture(scope="module")
def sc(cluster: Topology) -> Iterator[SparkContext]:
    """Start a context whose driver reaches the workers, and whose session is up, with the threads of an exchange."""
    with cluster.context({"spark.vispark.device": "host", "spark.vispark.transport": "unix"}) as context:
        pairs = context.parallelize(range(8), 4).cache("GPU").vmap(lambda n: (n, n))
        assert len(pairs.join(pairs).collect()) == 8 and len(pairs.countByKey()) == 8
        del pairs
        yield context



def spread(sc: SparkContext, records: list, slices: int = 4) -> RDD:
    """Cached records, of which each node has some partitions."""
    cached = sc.parallelize(records, slices).mapPartitions(slowly).cache("GPU")
    cached.count()
    assert len(cached._residency.by_home()) == 2, "each node is to have some partitions"
    return cached


def slowly(records):
    time.sleep(0.3)
    return records


def test_rows_that_do_not_fit_the_nodes_devices_are_exchanged_in_waves(cluster: Topology, failpoints: Path):
    # The new partitions of a node are larger than its device; and a node's process is killed at each of its marks.
    options = {"device": "host", "transport": "unix", "memory": "1m", "fallback": "error"}

    def exchanged(context: SparkContext) -> RDD:
        """Exchange rows of both nodes by key; those of a killed process may all be loaded on the other node."""
        rows = context.parallelize(range(4), 4).mapPartitionsWithIndex(
            lambda index, _: np.random.default_rng(index).normal(size=(2048, 32))).mapPartitions(slowly)
        rows = rows.persist("GPU_AND_HOST")
        rows.count()
        assert len(rows._residency.by_home()) == 2, "each node is to have some partitions"
        return rows.vmap(lambda x: (int(x[0] * 50), x)).partitionBy(3)

    with cluster.context({f"spark.vispark.{name}": value for name, value in options.items()}) as context:
        put = exchanged(context)
        generated = np.concatenate([np.random.default_rng(index).normal(size=(2048, 32)) for index in range(4)])
        parts = put.glom().collect()
        assert len(put._residency.by_home()) == 2
        bits = [[(key, value.tobytes()) for key, value in pairs] for pairs in parts]
        for point in ("wave-done", "shuffle-counted", "shuffle-scattered", "shuffle-moved"):
            del put
            put = exchanged(context)
            (failpoints / point).write_text("kill")
            assert [[(key, value.tobytes()) for key, value in pairs] for pairs in put.glom().collect()] == bits, point
            assert not (failpoints / point).exists(), point
    for part, pairs in enumerate(parts):
        expected = [row for row in generated if hash(int(row[0] * 50)) % 3 == part]
        assert np.array([value for _, value in pairs]).tobytes() == np.array(expected).tobytes()


class TestKeys:
    """Exchanges of records by their keys."""

    @pytest.fixture(autouse=True)
    def no_leaks(self) -> None:
        """Leave connections to the context's end: the thread that releases takes another where one is in use."""

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

    def test_keys_that_one_node_cannot_place_are_sparks_and_the_next_exchange_goes_on(self, sc: SparkContext):
        floats = spread(sc, [1.0, 2.0, 3.0, math.nan, 5.0, 6.0, 7.0, 8.0]).vmap(lambda x: (x, x))
        put = floats.partitionBy(2)
        assert put._residency.exchange is not None
        assert len(put.collect()) == 8 and put._residency.exchange is None
        pairs = spread(sc, NUMBERS).vmap(lambda n: (n, 1))
        assert pairs.sortByKey(numPartitions=2).keys().collect() == sorted(NUMBERS)

    def test_a_node_that_loses_its_process_takes_its_partitions_back(self, sc: SparkContext, cluster: Topology):
        put = spread(sc, NUMBERS).vmap(lambda n: (n, n * n)).partitionBy(5)
        parts = put.glom().collect()
        os.kill(sessions(cluster)[0].pid, signal.SIGKILL)
        assert put.glom().collect() == parts

    @pytest.mark.parametrize("point", ["shuffle-counted", "shuffle-scattered", "shuffle-moved"])
    def test_a_node_whose_process_is_killed_in_an_exchange_leaves_the_same_records(
            self, sc: SparkContext, failpoints: Path, point: str):
        pairs, squares = spread(sc, NUMBERS).vmap(lambda n: (n, n * n)), [(n, n * n) for n in NUMBERS]
        (failpoints / point).write_text("kill")
        assert pairs.sortByKey(numPartitions=3).collect() == sorted(squares, key=itemgetter(0))
        assert not (failpoints / point).exists()
        assert sorted(pairs.reduceByKey(operator.add).collect()) == \
            sorted(sc.parallelize(squares, 4).reduceByKey(operator.add).collect())

    def test_a_node_whose_daemon_is_killed_in_an_exchange_leaves_the_same_records(
            self, sc: SparkContext, failpoints: Path, cluster: Topology):
        pairs, squares = spread(sc, NUMBERS).vmap(lambda n: ((n % 3, n), n)), [((n % 3, n), n) for n in NUMBERS]
        (failpoints / "shuffle-counted").write_text("delay 1")
        status = administer(Status(), runtime_dir=str(cluster.nodes[1].runtime_dir))

        def strike() -> None:
            while (failpoints / "shuffle-counted").exists():
                time.sleep(0.02)
            os.kill(status.pid, signal.SIGKILL)

        with ThreadPoolExecutor(1) as pool:
            struck = pool.submit(strike)
            assert pairs.sortByKey(numPartitions=3).collect() == sorted(squares, key=itemgetter(0))
            struck.result()
        assert pairs.partitionBy(2).count() == len(NUMBERS)


ROWS = np.random.default_rng(2).random((200, 3))
CELLS = (ROWS[:, 0] * 6).astype(int)


def fetched_bytes(sc: SparkContext) -> int:
    return sum(worker.fetched_bytes for worker in Session.of(sc).workers.known())


def by_cell(p):
    return int(p[0] * 6), p


class TestTables:
    """Tables that two nodes fold together, of which each has a copy."""

    @pytest.fixture(autouse=True)
    def no_leaks(self) -> None:
        """Leave connections to the context's end, as above."""

    def sums(self, held: RDD, keys: int = 7):
        return held.vmap(by_cell).reduceByKey(operator.add, numKeys=keys).table

    def test_each_node_has_a_copy_and_the_driver_none(self, sc: SparkContext):
        held, expected = spread(sc, list(ROWS)), np.zeros((7, 3))
        np.add.at(expected, CELLS, ROWS)
        table = self.sums(held, 2000)
        shares = table.vmap(lambda s: s / s.sum())
        behind = held.vmap(lambda p, t: p - t[int(p[0] * 6)], shares)
        before = fetched_bytes(sc)
        assert behind.reduce(operator.add).shape == (3,) and fetched_bytes(sc) - before < 1000
        for kept in (table, shares):
            assert len(kept._held._residency.copies) == 2 and kept._reference._copied is None
        assert np.allclose(table.toNumpy()[:7], expected)
        assert np.allclose(behind.collect(), ROWS - (expected[:6] / expected[:6].sum(axis=1, keepdims=True))[CELLS])
        total = held.reduced(operator.add)
        assert np.allclose(held.vmap(lambda p, t: p / t[0], total).reduce(operator.add), 1)
        assert len(total._held._residency.copies) == 2

    def test_integers_counts_and_nodes_without_records(self, sc: SparkContext):
        numbers = spread(sc, [0] * 3 + [5] * 7, 2)
        table = numbers.filter(lambda n: n > 2).vmap(lambda n: (n, (n * n, 1))).reduceByKey(
            lambda a, b: (max(a[0], b[0]), a[1] + b[1]), numKeys=6)
        assert table.table.collect() == [(5, (25, 7))]
        none = numbers.filter(lambda n: n > 9).vmap(lambda n: (n, n)).reduceByKey(operator.add, numKeys=6)
        assert none.table.collect() == []
        large = numbers.vmap(lambda n: (0, n + 2**62)).reduceByKey(operator.add, numKeys=1)
        assert large.collect() == [(0, 10 * 2**62 + 35)]
        with pytest.raises(PlanError, match="numKeys=4 promises keys in"):
            numbers.vmap(lambda n, t: t[0] + n, numbers.vmap(lambda n: (n, n)).reduceByKey(operator.add, numKeys=4)
                         ).collect()

    def test_a_node_that_is_killed_as_it_folds_or_after_it_takes_time_only(self, sc: SparkContext, failpoints: Path,
                                                                           cluster: Topology):
        held = spread(sc, list(ROWS))
        expected = self.sums(held).toNumpy()
        (failpoints / "table-folded").write_text("kill")
        table = self.sums(held)
        behind = held.vmap(lambda p, t: p - t[int(p[0] * 6)], table)
        values = table.toNumpy()     # of rows that may lie elsewhere now, and are added up in another order
        assert np.allclose(values, expected) and (np.array(behind.collect()) == ROWS - values[CELLS]).all()
        assert not (failpoints / "table-folded").exists()
        os.kill(sessions(cluster)[0].pid, signal.SIGKILL)
        assert (np.array(behind.collect()) == ROWS - values[CELLS]).all()
        assert (table.toNumpy() == values).all()
