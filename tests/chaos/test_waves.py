"""A process is killed between two waves of a plan, or while a partition goes to a lower tier of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.arena import Arena, opened
from tests.system.test_larger_than_gpu import PARTITIONS, ROWS, rows
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, report

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def arena(local: Topology, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Yield one arena for all tests: a daemon knows the fail-points of the arena that started it."""
    options = {"memory": "64m", "hostMemory": "32m", "spillDir": str(tmp_path_factory.mktemp("files"))}
    with opened(local, {f"spark.vispark.{name}": value for name, value in options.items()}) as arena:
        yield arena


def test_a_process_that_is_killed_in_a_wave_leaves_the_same_bits(arena: Arena):
    host = rows(arena.sc).send().cache()
    assert host.count() == PARTITIONS * ROWS
    squares = host.vmap(lambda x: (x * x).sum())
    expected = exact(squares.sum())
    passed = arena.arm("wave-done")
    assert exact(squares.sum()) == expected
    assert not passed.exists()
    del host, squares
    arena.check_empty()


def test_a_process_that_is_killed_in_an_exchange_by_waves_leaves_the_same_bits(arena: Arena):
    """Between two waves, when rows are counted, and when they lie in host memory and files."""
    held = rows(arena.sc).persist("GPU_HOST_AND_DISK")
    pairs = held.vmap(lambda x: (int(abs(x[0]) * 10) % 17, x[:256]))
    expected = [exact(part[::500]) for part in pairs.partitionBy(5).glom().collect()]
    assert "disk" in {line.device for line in report(arena.sc).vrdds} or report(arena.sc).host_bytes
    for point in ("wave-done", "shuffle-counted", "shuffle-moved"):
        passed = arena.arm(point)
        assert [exact(part[::500]) for part in pairs.partitionBy(5).glom().collect()] == expected, point
        assert not passed.exists(), point
    del held, pairs
    arena.check_empty()


def test_a_process_that_is_killed_while_it_spills_loses_nothing(arena: Arena):
    plain = rows(arena.sc).send().cache()
    expected = exact(plain.sum())
    del plain
    passed = arena.arm("tier-copied")
    held = rows(arena.sc).persist("GPU_HOST_AND_DISK")
    assert exact(held.sum()) == expected
    assert not passed.exists()
    arena.kill_process()
    assert exact(held.sum()) == expected
    del held
    arena.check_empty()
