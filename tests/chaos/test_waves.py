"""A process is killed between two waves of a plan over more data than its device holds."""

from __future__ import annotations

import pytest

from tests.chaos.arena import opened
from tests.system.test_larger_than_gpu import PARTITIONS, ROWS, rows
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact

pytestmark = pytest.mark.chaos


def test_a_process_that_is_killed_in_a_wave_leaves_the_same_bits(local: Topology):
    with opened(local, {"spark.vispark.memory": "64m"}) as arena:
        host = rows(arena.sc).send().cache()
        assert host.count() == PARTITIONS * ROWS
        squares = host.vmap(lambda x: (x * x).sum())
        expected = exact(squares.sum())
        passed = arena.arm("wave-done")
        assert exact(squares.sum()) == expected
        assert not passed.exists()
        del host, squares
        arena.check_empty()
