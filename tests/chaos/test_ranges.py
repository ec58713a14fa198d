"""A process is killed between two ranges of a grid's planes, or of the keys of a partition larger than the device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.chaos.arena import Arena, opened
from tests.system.test_larger_than_gpu import spread
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact
from vispark import Grid

pytestmark = pytest.mark.chaos


def killed_in_ranges(arena: Arena) -> None:
    """Check kills during a loop on a grid, one that ends where cells say, a sort into one partition that is larger than
    the device, and a join of whose pairs it has room for a part.
    """
    cells = np.random.default_rng(2).normal(size=(160, 48, 48))
    blocks = Grid(cells.shape, splits=(2, 1, 1), halo=2).scatter(arena.sc, cells).persist("GPU_AND_HOST")
    pairs = arena.sc.parallelize(range(4), 4).mapPartitionsWithIndex(
        lambda index, _: np.random.default_rng(index).normal(size=(4096, 64))).persist("GPU_AND_HOST").vmap(
        lambda x: (int(x[0] * 1000), x))

    def ended() -> tuple:
        field = blocks.iterate(spread, steps=30, until=0.8, every=2)
        return Grid.gather(field).tobytes(), field.iterated

    def joined() -> bytes:
        few = pairs.vmap(lambda kv: (kv[0] // 10, kv[1][1]))
        return exact(few.join(few, 1).vmap(lambda kv: kv[1][0] * kv[1][1]).sum())

    for point, work in (("wave-done", lambda: Grid.gather(blocks.iterate(spread, steps=9)).tobytes()),
                        ("wave-done", ended),
                        ("wave-ranges", lambda: exact(pairs.sortByKey(numPartitions=1).collect())),
                        ("join-part", joined)):
        expected = work()
        passed = arena.arm(point)
        assert work() == expected, point
        assert not passed.exists(), point


def test_a_process_that_is_killed_in_a_range_of_planes_or_of_keys_leaves_the_same_bits(local: Topology):
    with opened(local, {"spark.vispark.memory": "4m"}) as arena:
        killed_in_ranges(arena)
        arena.check_empty()
