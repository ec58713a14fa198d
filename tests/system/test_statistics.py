"""Histograms, quantiles, moments and counts of cached numbers, against PySpark's and NumPy's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import RDD, SparkContext

from tests.system.test_folds import spark_jobs
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context
from vispark import VRDD, PlanError
from vispark.api.actions import order_statistics
from vispark.api.rdds import local_rdd

NUMBERS = [float(x * 7 % 31) / 4 - 2 for x in range(60)]
RECORDS: dict[str, list] = {
    "floats": NUMBERS,
    "ints": [int(4 * x) for x in NUMBERS],
    "float32": [np.float32(x) / 3 for x in NUMBERS],
    "float64": [np.float64(x) / 3 for x in NUMBERS],
    "wide": [x * 10.0 ** (int(4 * x) * 12) for x in NUMBERS],
    "few values": [float(x > 0) for x in NUMBERS],
}
BUCKETS = [3, 1, 7, 1000, [-1.0, 0.5, 3.0], [-2.0, 0.0, 2.0, 4.0], (0, 1), [-7, -3, 11]]


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch):
    """Make few records too many for the driver, and ranges small."""
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 10)
    monkeypatch.setattr(order_statistics, "_FEW", 4)
    monkeypatch.setattr(order_statistics, "_RANGES", 32)


def without_a_job(sc: SparkContext, action) -> object:
    answers: list = []
    assert spark_jobs(sc, lambda: answers.append(action())) == 0
    return answers[0]


def held(plain: RDD) -> VRDD:
    cached = plain.cache("GPU")
    assert cached.count() == len(NUMBERS)
    return cached


@pytest.mark.parametrize("records", RECORDS)
def test_histograms_are_those_of_spark(sc: SparkContext, records: str):
    plain = sc.parallelize(RECORDS[records], 4)
    cached, local = held(plain), local_rdd.LocalRDD(sc, plain.glom().collect())
    for buckets in BUCKETS:
        histogram = without_a_job(sc, lambda buckets=buckets: cached.histogram(buckets))
        assert exact(histogram) == exact(local.histogram(buckets))
    assert "histogram: in the workers, by passes" in cached.explanation()


def test_numbers_at_bounds_and_nan_are_counted_as_by_spark(sc: SparkContext):
    records = [0.1 * n for n in range(40)] + [float("nan"), float("-inf"), -0.0] * 4 + [float("inf")] * 8
    plain = sc.parallelize(records, 3)
    cached = held(plain)
    for buckets in ([0.1 * n for n in range(12)], [0.0, 0.30000000000000004, 0.7, 2.0], [-1, 0, 1]):
        assert cached.histogram(buckets) == plain.histogram(buckets)
    with pytest.raises(ValueError, match="infinite"):
        cached.histogram(3)
    for wrong in (0, [1.0], [2.0, 1.0], [1.0, 1.0], [0.0, float("nan")], "ab"):
        with pytest.raises((ValueError, TypeError)):
            cached.histogram(wrong)


@pytest.mark.parametrize("records", RECORDS)
def test_quantiles_are_those_of_numpy(sc: SparkContext, records: str):
    cached = held(sc.parallelize(RECORDS[records], 4))
    numbers = np.array(RECORDS[records], np.float64)
    shares = [0.0, 0.1, 0.25, 0.5, 1 / 3, 0.77, 0.999, 1.0]
    assert exact(without_a_job(sc, lambda: cached.quantile(shares))) == exact(np.quantile(numbers, shares))
    assert exact(cached.quantile(0.5)) == exact(np.median(numbers))


def test_quantiles_of_infinities_and_nan(sc: SparkContext):
    numbers = [float("-inf")] * 10 + [1.0, 2.0, 5.0] * 10 + [float("inf")] * 20
    cached = held(sc.parallelize(numbers, 3))
    shares = [0.0, 0.1, 0.2, 0.4, 0.6, 0.9, 1.0]
    with np.errstate(invalid="ignore"):
        assert exact(cached.quantile(shares)) == exact(np.quantile(numbers, shares))
    assert np.isnan(sc.parallelize([1.0, float("nan")], 1).cache("GPU").quantile([0.0, 1.0])).all()
    with pytest.raises(PlanError, match="shares from 0 to 1"):
        cached.quantile(50)
    with pytest.raises(PlanError, match=r"float64 \(array\)"):
        sc.parallelize([np.ones(2)], 1).cache("GPU").quantile(0.5)
    with pytest.raises(PlanError, match="nothing is cached"):
        sc.parallelize([1.0], 1).send().quantile(0.5)
    with pytest.raises(PlanError, match="no records"):
        sc.parallelize([1.0], 1).cache("GPU").filter(lambda x: x > 2).quantile(0.5)


@pytest.mark.parametrize("records", ["floats", "ints", "float32", "float64", "few values"])
def test_moments_are_those_of_spark(sc: SparkContext, records: str):
    plain = sc.parallelize(RECORDS[records], 4)
    cached = held(plain)
    stats, expected = without_a_job(sc, cached.stats), plain.stats()
    places = 5 if records == "float32" else 12
    for name in ("count", "sum", "mean", "variance", "sampleVariance", "stdev", "max", "min"):
        assert getattr(stats, name)() == pytest.approx(getattr(expected, name)(), rel=10.0 ** -places)
        assert type(getattr(stats, name)()) is type(getattr(expected, name)())
    assert without_a_job(sc, cached.variance) == stats.variance() and cached.sampleStdev() == stats.sampleStdev()


@pytest.mark.parametrize("records", RECORDS)
def test_values_are_counted_as_by_spark(sc: SparkContext, records: str):
    plain = sc.parallelize(RECORDS[records], 4)
    cached = held(plain)
    counts = without_a_job(sc, cached.countByValue)
    assert exact(counts) == exact(dict(plain.countByValue()))


def test_what_is_no_number_is_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 1_000_000)
    pairs = sc.parallelize([(1, 2.0), (3, 4.0), (1, 2.0)], 2)
    assert dict(pairs.cache("GPU").countByValue()) == {(1, 2.0): 2, (3, 4.0): 1}
    rows = sc.parallelize([np.array([1.0, 2.0]), np.array([3.0, 5.0])], 2)
    assert exact(rows.cache("GPU").stats().mean()) == exact(rows.stats().mean())
    large = sc.parallelize([2**60, 2**60 + 1, 5], 2)
    assert large.cache("GPU").histogram(2) == large.histogram(2)
