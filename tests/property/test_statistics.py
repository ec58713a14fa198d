"""Statistics, samples and numbers of drawn records are PySpark's, and quantiles NumPy's.

``VISPARK_EXAMPLES`` sets how many data sets are tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark.api.actions import order_statistics
from vispark.api.rdds import local_rdd
from vispark.errors import TaskError

EXAMPLES = int(os.environ.get("VISPARK_EXAMPLES", "15"))

FLOATS = st.floats(-1e9, 1e9) | st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5, -1.0, float("nan"), float("inf")])
NUMBERS: dict[str, st.SearchStrategy] = {
    "float": FLOATS, "int": st.integers(-2**40, 2**40) | st.integers(-3, 3),
    "float32": FLOATS.map(np.float32),
}
BOUNDS = st.lists(st.floats(-100, 100, width=16) | st.integers(-5, 5), min_size=2, max_size=5, unique=True).map(sorted)


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context, pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_rdd, "MOST_RECORDS", 0)
        patch.setattr(order_statistics, "_FEW", 2)
        patch.setattr(order_statistics, "_RANGES", 64)
        yield context


@st.composite
def partitions(draw) -> list[list[Any]]:
    number = NUMBERS[draw(st.sampled_from(sorted(NUMBERS)))]
    return draw(st.lists(st.lists(number, max_size=30), min_size=1, max_size=3).filter(any))


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
          suppress_health_check=list(HealthCheck))
@given(partitions(), BOUNDS, st.integers(-2**62, 2**62), st.floats(0, 1.2),
       st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_what_workers_find_is_what_python_finds(sc: SparkContext, data: list[list[Any]], bounds: list[float],
                                                seed: int, share: float, shares: list[float]):
    plain = in_partitions(sc, data)
    held, local = plain.cache("GPU"), local_rdd.LocalRDD(sc, data)
    numbers = [number for part in data for number in part]
    for buckets in (bounds, 4):
        assert outcome(lambda buckets=buckets: held.histogram(buckets)) \
            == outcome(lambda buckets=buckets: local.histogram(buckets))
    for replaces in (False, True):
        assert exact(held.sample(replaces, share, seed).glom().collect()) \
            == exact(local.sample(replaces, share, seed).glom().collect())
    assert exact(held.takeSample(False, 3, seed)) == exact(local.takeSample(False, 3, seed))
    assert exact(held.zipWithIndex().collect()) == exact(local.zipWithIndex().collect())
    with np.errstate(all="ignore"):
        expected = np.quantile(np.array(numbers, np.float64), shares)
        assert exact(held.quantile(shares)) == exact(expected)
    if not any(number != number for number in numbers):
        assert held.countByValue() == local.countByValue()
    if all(map(np.isfinite, numbers)):
        summary, theirs = held.stats(), local.stats()
        assert (summary.count(), summary.max(), summary.min()) == (theirs.count(), theirs.max(), theirs.min())
        size = max(abs(float(each)) for each in numbers) + 1
        assert abs(float(summary.mean()) - float(theirs.mean())) < 1e-5 * size
        assert abs(float(summary.stdev()) - float(theirs.stdev())) < 1e-3 * size


def outcome(action: Any) -> object:
    try:
        return action()
    except (OverflowError, ValueError, TaskError):
        return "raises"
