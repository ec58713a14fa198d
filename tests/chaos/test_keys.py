"""A process is killed while it exchanges records by their keys, and after it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.chaos.arena import Arena, eventually, opened
from tests.system.topology import Topology

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def exchanges(arena: Arena) -> list:
    """Return the results of each operation by key, of data that is loaded anew."""
    held = arena.sc.parallelize([float(x * 7919 % 1009) for x in range(600)], 3).cache("GPU")
    pairs = held.vmap(lambda x: (int(x // 10), x))
    tuples = held.vmap(lambda x: ((int(x // 100), x // 50), x))
    first = pairs.partitionBy(4)
    behind = first.vmap(lambda kv: kv[1] * 2).cache()
    joined = pairs.join(held.vmap(lambda x: (int(x // 20), 1)), 3)
    return [first.collect(), behind.collect(), pairs.sortByKey(False, 3).collect(),
            sorted(pairs.reduceByKey(max).collect()), sorted(joined.collect()),
            [(key, list(values)) for key, values in tuples.groupByKey(3).collect()]]


def test_what_is_killed_in_an_exchange_or_beside_it_leaves_the_same_records(local: Topology):
    """Kill the device process, whose two devices exchange; its daemon; a task that loads, and one that takes groups."""
    with opened(local, {"spark.vispark.device": "host:2"}) as arena:
        expected = exchanges(arena)
        for point in ("shuffle-counted", "shuffle-moved", "computed", "bound"):
            passed = arena.arm(point)
            assert exchanges(arena) == expected, point
            assert not passed.exists()
        passed = arena.arm("shuffle-counted", "delay 1")
        killer = threading.Thread(target=lambda: eventually(lambda: not passed.exists(), 60) and arena.kill_daemon())
        killer.start()
        assert exchanges(arena) == expected, "daemon"
        killer.join()
        assert not passed.exists()
        for point in ("packed", "before-unpack"):
            passed = arena.arm(point)
            assert exchanges(arena) == expected, point
            assert not passed.exists(), point
        arena.check_empty()


def test_what_was_exchanged_and_lost_is_exchanged_again(local: Topology):
    with opened(local, {}) as arena:
        held = arena.sc.parallelize([float(x) for x in range(300)], 3).cache("GPU")
        exchanged = held.vmap(lambda x: (int(x) % 17, x)).partitionBy(5)
        joined = exchanged.join(held.vmap(lambda x: (int(x) % 13, x)), 4)
        expected, both = exchanged.collect(), sorted(joined.collect())
        for _ in range(2):
            for process in arena.device_processes():
                os.kill(process, signal.SIGKILL)
            assert exchanged.collect() == expected and sorted(joined.collect()) == both
            held = None
