"""K-means by matrix work gives what Spark gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark import VRDD


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def nearest_within(bound: float) -> Callable:
    def nearest(p, centres):
        best, least = 0, bound
        for i in range(len(centres)):
            distance = np.sum((p - centres[i]) ** 2)
            if distance < least:
                least = distance
                best = i
        return best
    return nearest


def cached(sc: SparkContext, columns: int, dtype: str = "float32") -> tuple[np.ndarray, VRDD]:
    rows = np.random.default_rng(3).normal(size=(90, columns)).astype(dtype)
    return rows, in_partitions(sc, [list(rows[:50]), [], list(rows[50:])]).cache("GPU")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_of_kmeans(sc: SparkContext, dtype: str):
    centres = 20
    rows, points = cached(sc, 48, dtype)
    nearest = nearest_within(math.inf)
    around = rows[:centres].copy()
    for _ in range(2):
        pairs = points.vmap(lambda p, c: (nearest(p, c), (p, 1)), around)
        stats = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=centres)
        sums = stats.collectAsMap()
        plain = sc.parallelize(list(rows), 2).map(lambda p, c=around: (nearest(p, c), (p, 1)))
        expected = plain.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1])).collectAsMap()
        assert list(sums) == sorted(expected)
        for key, (total, count) in sums.items():
            assert type(key) is int and type(count) is int and count == expected[key][1]
            np.testing.assert_allclose(total, expected[key][0], rtol=1e-5, atol=1e-6)
            around[key] = total / count
        assert exact(stats.collectAsMap()) == exact(sums)
    text = stats.explanation(sources=True)
    for line in ("MapFold(vmap lambda, key)", "nearest_fold (vmap-lambda.cu, matrix work): one launch",
                 "== Plan ==\nvmap lambda", 'extern "C" __global__',
                 "reduceByKey: in the workers, over 20 keys from field '0'",
                 f"each worker sends {20 * (8 + 48 * rows.itemsize + 8)} bytes"):
        assert line in text
    assert "nearest_labels" in points.vmap(nearest, around).explanation()


def test_rows_of_other_types_are_told(sc: SparkContext):
    whole = sc.parallelize([np.zeros(48, "int64")]).cache("GPU").vmap(nearest_within(math.inf), np.ones((20, 48)))
    assert "row by row: matrix work is for rows of float32 or float64, and these are int64" in whole.explanation(
        schema=((48,), "int64"))


def test_a_captured_bound_counts_each_time(sc: SparkContext):
    rows, points = cached(sc, 48)
    centres = rows[:20].copy()
    for bound in (math.inf, 60.0, 0.0, math.inf):
        nearest = nearest_within(bound)
        assert points.vmap(nearest, centres).collect() == [nearest(row, centres) for row in rows]
