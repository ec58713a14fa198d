"""A process is killed between two waves of a plan, or while a partition goes to a lower tier of memory."""

from __future__ import annotations

from pathlib import Path

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


def test_a_process_that_is_killed_while_it_spills_loses_nothing(local: Topology, tmp_path: Path):
    options = {"memory": "64m", "hostMemory": "32m", "spillDir": str(tmp_path)}
    with opened(local, {f"spark.vispark.{name}": value for name, value in options.items()}) as arena:
        plain = rows(arena.sc).send().cache()
        expected = exact(plain.sum())
        del plain
        passed = arena.arm("tier-copied")
        held = rows(arena.sc).persist("GPU_HOST_AND_DISK")
        assert exact(held.sum()) == expected
        assert not passed.exists()
        arena.kill_process()
        assert exact(held.sum()) == expected
        assert not list(tmp_path.iterdir())
        del held
        arena.check_empty()
