"""Random numbers of records that are split, and lost, in several ways."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.vrdd_tools import connect_threads, host_context
from vispark import random
from vispark.runtime.driver.session import Session

COUNT = 1000
EXPECTED = [(random.uniform(5, i), random.integers(10, 5, i, 3)) for i in range(COUNT)]


@pytest.fixture(scope="module")
def sc(local):
    with host_context(local) as context:
        yield context


def both(r):
    return random.uniform(5, r["i"]), random.integers(10, 5, r["i"], 3)


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_numbers_do_not_depend_on_partitions(sc, partitions):
    records = sc.parallelize(range(COUNT), partitions).zipWithIndex().map(lambda p: {"x": float(p[0]), "i": p[1]})
    held = records.cache("GPU")
    numbers = held.vmap(both).cache()
    assert numbers.collect() == EXPECTED == records.map(both).collect()
    worker, = Session.of(sc).workers.known()
    with worker.connections._borrowed() as lane:
        os.kill(lane.client.pid, signal.SIGKILL)
    assert numbers.collect() == EXPECTED
    connect_threads(worker)


def test_a_step_of_a_loop_has_numbers_of_its_own(sc):
    held = sc.parallelize(range(COUNT), 4).cache("GPU")
    steps = [held.vmap(lambda i, step: random.uniform(5, i, step), step).collect() for step in range(3)]
    assert steps == [[random.uniform(5, i, step) for i in range(COUNT)] for step in range(3)]
