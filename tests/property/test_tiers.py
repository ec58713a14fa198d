"""Rows that a device has no room for give what Spark gives, whatever lies where."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark import RDD, SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, report

EXAMPLES = int(os.environ.get("VISPARK_EXAMPLES", "20"))

#: Numbers of a row, 4 KB; devices of 2 MB hold 512 of them.
COLUMNS, MEMORY = 512, "2m"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, memory=MEMORY, hostMemory="4m") as context:
        yield context


def rows(sc: SparkContext, counts: list[int], seed: int) -> RDD:
    """Return an RDD of a partition for each count, of rows of whole numbers, of which sums are exact in any order."""
    return sc.parallelize(counts, len(counts)).mapPartitionsWithIndex(lambda index, count: list(
        np.random.default_rng([seed, index]).integers(-99, 100, (next(iter(count)), COLUMNS)).astype(np.float64)))


def answers(rdd: RDD, map_rows: Callable[[Callable], RDD]) -> dict[str, Any]:
    """Compute answers by an RDD's own map, which ``map_rows`` is."""
    keyed = map_rows(lambda x: (int(x[0]) % 7, x[1]))
    return {"rows": exact(map_rows(lambda x: x * 2).collect()), "sum": map_rows(lambda x: x.sum()).sum(),
            "folded": sorted(keyed.reduceByKey(operator.add).collect()),
            "put": [sorted(part) for part in keyed.partitionBy(3).glom().collect()],
            "sorted": map_rows(lambda x: (x[0], 1)).sortByKey().collect(),
            "distinct": sorted(map_rows(lambda x: x[2]).distinct().collect()), "first": exact(rdd.take(2))}


@pytest.mark.timeout(400)
@settings(max_examples=max(1, EXAMPLES // 4), deadline=None, suppress_health_check=list(HealthCheck))
@example([300, 0, 420, 280], 1, "GPU_AND_HOST")
@example([700, 900], 2, "GPU_HOST_AND_DISK")
@given(st.lists(st.integers(0, 400), min_size=1, max_size=4), st.integers(0, 99),
       st.sampled_from(["GPU_AND_HOST", "GPU_HOST_AND_DISK"]))
def test_rows_of_any_tier_give_what_spark_gives(sc: SparkContext, counts: list[int], seed: int, level: str):
    plain = rows(sc, counts, seed)
    held = plain.persist(level)
    ours = answers(held, held.vmap)
    if sum(counts) > 512:
        assert report(sc).host_bytes
    held.unpersist()
    assert ours == answers(plain, plain.map)
