"""Tables that workers hold, when a worker is killed between their definition and use, and when there are two nodes."""

from __future__ import annotations

import operator
import os
import signal

import numpy as np
import pytest

from tests.chaos.arena import Arena, opened
from tests.chaos.test_two_nodes import Slow
from tests.system.topology import Topology

pytestmark = pytest.mark.chaos

ROWS = np.random.default_rng(2).random((200, 3))
CELLS = (ROWS[:, 0] * 6).astype(int)


def kill(arena: Arena) -> None:
    for process in arena.device_processes():
        os.kill(process, signal.SIGKILL)


def by_cell(p):
    return int(p[0] * 6), p


def less(p, t):
    return p - t[int(p[0] * 6)]


def test_a_worker_that_is_killed_takes_time_only(local: Topology):
    with opened(local, {}) as arena:
        held = arena.sc.parallelize(list(ROWS), 3).cache("GPU")
        table = held.vmap(by_cell).reduceByKey(operator.add, numKeys=7)
        means = table.vmap(lambda s: s / s.sum())
        expected = np.array(held.vmap(less, means).collect())
        for _ in range(2):
            kill(arena)
            assert (np.array(held.vmap(less, means).collect()) == expected).all()
        defined = held.vmap(less, held.vmap(by_cell).reduceByKey(operator.add, numKeys=7).vmap(lambda s: s / s.sum()))
        kill(arena)
        assert (np.array(defined.collect()) == expected).all()
        # Of a table that was made of others, and cut from them.
        second = held.vmap(less, means).vmap(lambda p: (int(p[1] > 0), p)).reduceByKey(operator.add, numKeys=2)
        known = second.toNumpy()
        kill(arena)
        assert (second.toNumpy() == known).all()
        assert (np.array(held.vmap(lambda p, t: p[0] + t[1, 0], second).collect()) == ROWS[:, 0] + known[1, 0]).all()


@pytest.mark.parametrize("way", ["tcp", "relay"])
def test_two_nodes_hold_one_table(standalone: Topology, way: str):
    with opened(standalone, {"spark.vispark.transport": way}) as arena:
        held = arena.sc.parallelize(list(ROWS), 4).mapPartitionsWithIndex(Slow(0.3)).cache("GPU")
        assert held.count() == len(ROWS) and len(held._residency.by_home()) == 2
        table = held.vmap(by_cell).reduceByKey(operator.add, numKeys=7)
        sums = np.zeros((7, 3))
        np.add.at(sums, CELLS, ROWS)
        for _ in range(2):
            assert np.allclose(held.vmap(less, table).collect(), ROWS - sums[CELLS])
        means = table.vmap(lambda s: s / s.sum())
        shares = sums[:6] / sums[:6].sum(axis=1, keepdims=True)
        assert np.allclose(held.vmap(less, means).collect(), ROWS - shares[CELLS])
        assert held.vmap(less, means).recv().count() == len(ROWS)
