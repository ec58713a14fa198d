"""Folds by functions that are no operators run in the workers, in the order of the records, and give Spark's result."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.test_fallback import with_fallback
from tests.system.test_folds import spark_jobs
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark import FallbackWarning, PlanError
from vispark.api.rdds import local_rdd

SCALE = np.float32(0.5)


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def furthest(a, b):
    return a if abs(a) >= abs(b) else b


def first_least(a, b):
    """Return the pair with the least first item, of equal ones the first."""
    return a if a[0] <= b[0] else b


def merged(a, b):
    """Number, mean and sum of squares of two parts (Chan, Golub and LeVeque, 1979)."""
    n = a["n"] + b["n"]
    d = b["mean"] - a["mean"]
    return {"n": n, "mean": a["mean"] + d * b["n"] / n, "m2": a["m2"] + b["m2"] + d * d * a["n"] * b["n"] / n}


#: Of numbers: what is mapped first, and the function; it is associative, and need not commute.
FOLDS: dict[str, tuple[Callable, Callable]] = {
    "furthest": (lambda x: x, furthest),
    "first": (lambda x: (x, 1), lambda a, b: (a[0], a[1])),
    "first least": (lambda x: (x * x, (x, -x)), first_least),
    "affine": (lambda x: (np.float32(0.5), x), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])),
    "captured": (lambda x: x, lambda a, b: a + b + SCALE * a * b),
    "matrices": (lambda x: np.array([[1.0, x], [0.0, 1.0]]), lambda a, b: a @ b),
}
SIZES = ([1], [0, 2, 1], [65, 0, 700], [3000])


@pytest.mark.parametrize("name", FOLDS)
def test_the_result_is_that_of_spark(sc: SparkContext, monkeypatch: pytest.MonkeyPatch, name: str):
    with_fallback(monkeypatch, sc, "error")
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 0)
    mapped, fold = FOLDS[name]
    for seed, sizes in enumerate(SIZES):
        numbers = [list(np.random.default_rng(seed).uniform(-0.01, 0.01, size).astype("f4")) for size in sizes]
        held = in_partitions(sc, numbers).cache("GPU").vmap(mapped)
        with np.errstate(all="ignore"):
            expected = functools.reduce(fold, held.collect())
        folded = held.reduce(fold)
        if name in ("affine", "captured", "matrices"):
            for one, other in zip(np.atleast_1d(folded), np.atleast_1d(expected), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        else:
            assert exact(folded) == exact(expected), sizes
    assert "reduce: in the workers, which join neighbouring records" in held.explanation()


#: Of pairs: what is mapped first, and the function.
BY_KEY: dict[str, tuple[Callable, Callable]] = {
    "furthest": (lambda x: (int(abs(x) * 400), x), furthest),
    "furthest of NumPy's": (lambda x: (int(abs(x) * 400), x), furthest),
    "first least": (lambda x: (int(abs(x) * 400), (x * x, x)), first_least),
    "with a number": (lambda x: (abs(x) * 400 // 1, (abs(x), x, int(x * 1e6))), first_least),
    "keys of two": (lambda x: ((int(abs(x) * 200), x > 0), (x, x * 2, x * 3, x * 4)), first_least),
    "length": (lambda x: (int(abs(x) * 400), np.float64(x)), lambda a, b: np.sqrt(a * a + b * b))}


@pytest.mark.parametrize("keys", [None, 5], ids=["", "numKeys"])
@pytest.mark.parametrize("name", BY_KEY)
def test_values_of_a_key_are_joined_without_a_job(sc: SparkContext, monkeypatch: pytest.MonkeyPatch, name: str,
                                                  keys: int | None):
    with_fallback(monkeypatch, sc, "error")
    mapped, fold = BY_KEY[name]
    for sizes in SIZES:
        numbers = [np.random.default_rng(3).uniform(-0.01, 0.01, size) for size in sizes]
        numbers = [list(each) if "NumPy's" in name else each.tolist() for each in numbers]
        expected = sorted(in_partitions(sc, numbers).map(mapped).reduceByKey(fold).collect(), key=lambda pair: pair[0])
        held = in_partitions(sc, numbers).cache("GPU").vmap(mapped)
        held.count()
        answers: list = []
        assert spark_jobs(sc, lambda held=held, answers=answers: answers.append(
            held.reduceByKey(fold, numKeys=keys).collect())) == 0
        pairs = sorted(answers[-1], key=lambda pair: pair[0])
        if name == "length":
            assert [key for key, _ in pairs] == [key for key, _ in expected]
            np.testing.assert_allclose([value for _, value in pairs], [value for _, value in expected], rtol=1e-9)
        else:
            assert exact(pairs) == exact(expected), sizes


#: Of pairs that Spark folds: what is mapped first, the function, and the reason.
NOT_BY_KEY: dict[str, tuple[Callable, Callable, str]] = {
    "not associative": (lambda x: (int(x > 0), x), lambda a, b: a - b * 0.5, "not associative"),
    "ints": (lambda x: (int(x > 0), int(x)), lambda a, b: a * b + 1, "64 bits"),
    "rows": (lambda x: (int(x > 0), np.array([x, 1.0])), lambda a, b: a if a[0] > b[0] else b, "no numbers"),
    "another type": (lambda x: (int(x > 0), np.float32(x)), lambda a, b: np.float64(a) + b * 0.5, "another type")}


@pytest.mark.parametrize("name", NOT_BY_KEY)
def test_values_of_a_key_that_spark_joins_are_told(sc: SparkContext, monkeypatch: pytest.MonkeyPatch, name: str):
    mapped, fold, reason = NOT_BY_KEY[name]
    held = sc.parallelize([1.0, -2.0, 3.0, 4.0, 5.0], 2).cache("GPU").vmap(mapped)
    held.count()
    with_fallback(monkeypatch, sc, "error")
    for keys in (None, 2):
        with pytest.raises(PlanError, match=reason):
            held.reduceByKey(fold, numKeys=keys).collect()


def test_records_of_fields_are_joined_without_a_job(sc: SparkContext):
    numbers = np.random.default_rng(3).normal(5, 2, 1000)
    parts = sc.parallelize(numbers.tolist(), 3).cache("GPU").vmap(lambda x: {"n": 1.0, "mean": x, "m2": 0.0})
    assert spark_jobs(sc, lambda: parts.vmap(lambda n, mean, m2: {
        "n": np.float64(n), "mean": np.float64(mean), "m2": np.float64(m2)}).reduce(merged)) == 0
    moments = parts.reduce(merged)
    assert moments["n"] == 1000 and moments["mean"] == pytest.approx(numbers.mean(), rel=1e-12)
    assert moments["m2"] / 1000 == pytest.approx(numbers.var(), rel=1e-9)


def test_what_is_not_associative_or_may_overflow_is_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 0)
    with_fallback(monkeypatch, sc, "warn")
    floats = sc.parallelize([1.0, 2.0, 4.0, 8.0], 2).cache("GPU")
    with pytest.warns(FallbackWarning, match="f is not associative"):
        assert floats.reduce(lambda a, b: a - b) == sc.parallelize([1.0, 2.0, 4.0, 8.0], 2).reduce(lambda a, b: a - b)
    huge = [2**62, 3, 2**62]
    with pytest.warns(FallbackWarning, match="may leave 64 bits"):
        assert sc.parallelize(huge, 1).cache("GPU").reduce(lambda a, b: a + b + 0) == sum(huge)
    with pytest.warns(FallbackWarning, match="gives what it takes"):
        sc.parallelize(np.float32([1, 2]), 1).cache("GPU").reduce(lambda a, b: np.float64(a) if a > b else b)
    with_fallback(monkeypatch, sc, "error")
    with pytest.raises(PlanError, match="f is not associative"):
        floats.reduce(lambda a, b: a - b)


def test_fold_from_a_neutral_value_is_in_the_workers_and_from_another_one_sparks(
        sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 0)
    plain = sc.parallelize([3.0, -7.0, 2.0, 5.0], 3)
    held = plain.cache("GPU")
    with_fallback(monkeypatch, sc, "error")
    assert held.fold(0.0, furthest) == plain.fold(0.0, furthest) == -7.0
    with pytest.raises(PlanError, match="fold"):
        held.fold(4.0, lambda a, b: a + b + a * b)


@pytest.mark.parametrize("shape", [(7,), (1,), (300,), (5, 2), (130, 3)])
def test_rows_inside_of_records_are_joined(sc: SparkContext, shape: tuple[int, ...]):
    rows = [np.random.default_rng(seed).uniform(-1, 1, shape) for seed in range(9)]
    folded = sc.parallelize(rows, 2).cache("GPU").vreduce(lambda a, b: a + b + a * b).collect()
    for one, row in zip(folded, rows, strict=True):
        np.testing.assert_allclose(one, functools.reduce(lambda a, b: a + b + a * b, row), rtol=1e-9, atol=1e-12)
        assert type(one) is (np.float64 if len(shape) == 1 else np.ndarray)


def test_what_rows_are_joined_to_goes_on(sc: SparkContext):
    blocks = [np.random.default_rng(seed).uniform(-1, 1, (rows, 2)) for seed, rows in enumerate((1, 40, 9))]
    joined = sc.parallelize(blocks, 2).cache("GPU").vmap(lambda p: 2 * p, of="row").vreduce(
        lambda a, b: a if a[0] < b[0] else b)
    expected = [2 * min(block, key=lambda row: row[0]) for block in blocks]
    np.testing.assert_array_equal(joined.collect(), expected)
    np.testing.assert_array_equal(joined.vmap(lambda x: -x, of="row").collect(), [-each for each in expected])
    with pytest.raises(PlanError, match=r"vreduce\(\) cannot run on the device: .*not associative"):
        sc.parallelize(blocks, 2).cache("GPU").vreduce(lambda a, b: a - b)


def test_tables_of_many_keys_and_the_least_tuple_are_no_spark_jobs_without_a_word(
        sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 0)
    with_fallback(monkeypatch, sc, "error")
    numbers = np.random.default_rng(5).normal(size=20_000).round(2)
    held = sc.parallelize(numbers.tolist(), 2).cache("GPU")
    keyed = held.vmap(lambda x: (int(abs(x) * 25_000), 1)).reduceByKey(operator.add, numKeys=2**17)
    assert spark_jobs(sc, lambda: keyed.collect()) == 0
    keys, counts = np.unique((np.abs(numbers) * 25_000).astype(int), return_counts=True)
    assert keyed.collect() == list(zip(keys.tolist(), counts.tolist(), strict=True))

    few = sc.parallelize(numbers[:4000].tolist(), 2).cache("GPU").vmap(lambda x: (int(abs(x) * 25_000), 1))
    keys, counts = np.unique((np.abs(numbers[:4000]) * 25_000).astype(int), return_counts=True)
    for number in (2**17, 2**40):       # where no table pays, values are sorted
        assert sorted(few.reduceByKey(operator.add, numKeys=number).collect()) == list(
            zip(keys.tolist(), counts.tolist(), strict=True))
    with pytest.raises(PlanError, match="numKeys=131072 is many more than the 4000 records"):
        few.reduceByKey(operator.add, numKeys=2**17).toNumpy()
    distance = held.vmap(lambda x: (abs(x - 1.5), x))
    with pytest.raises(PlanError, match="tuples are joined"):
        distance.reduce(min)
    with_fallback(monkeypatch, sc, "warn")
    with pytest.warns(FallbackWarning, match="tuples are joined"):
        assert distance.reduce(min) == min((abs(x - 1.5), x) for x in numbers.tolist())
