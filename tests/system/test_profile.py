"""A profile of a real program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from tests.unit.test_profiling import trace


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def test_a_program_is_broken_down(sc: SparkContext, tmp_path: Path):
    rows = [np.full(64, i, "f4") for i in range(2000)]
    with vispark.profile(tmp_path / "trace.json") as found:
        x = sc.parallelize(rows, 4).cache("GPU")
        assert x.count() == 2000
        doubled = x.vmap(lambda p: 2 * p).cache()
        total = doubled.reduce(lambda a, b: a + b)
        assert x.map(len).collect() == [64] * 2000
    assert total[0] == 2 * sum(range(2000))
    for kind in ("parse", "transport", "host-to-device", "kernel", "compile", "scheduling", "driver"):
        assert found.seconds[kind] > 0, kind
    assert found.seconds["exchange"] == 0
    assert sum(found.seconds.values()) == pytest.approx(found.total)
    worker, = {event.track for event in found.events} - {"Spark"}
    names = {span["name"] for span in trace(tmp_path / "trace.json", ["vispark", "Spark", worker])}
    assert {"load: parse", "vmap lambda: kernel", "job: scheduling"} <= names
    assert len(found.table().splitlines()) == len(found.seconds) + 1


def test_what_is_profiled_gives_the_same(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
    expected = x.vmap(lambda v: v * v).sum()
    for _ in range(4):
        with vispark.profile() as found:
            assert x.vmap(lambda v: v * v).sum() == expected
        assert found.seconds["kernel"] > 0
    assert x.vmap(lambda v: v * v).sum() == expected


def test_a_job_within_a_job_counts_once(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
    with vispark.profile() as found:
        # No fold that workers know: a Spark job, which first loads what it reads.
        assert x.reduce(lambda a, b: a + b if a < 1e300 else b) == sum(range(100))
    assert found.seconds["scheduling"] > 0
    assert sum(found.seconds.values()) == pytest.approx(found.total)
