"""Actions that no kernel answers: in the driver where that is cheap, else a Spark job, of which the user is told."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from pyspark import RDD, SparkContext

from tests.system.test_folds import spark_jobs
from tests.system.vrdd_tools import exact
from vispark import VRDD, FallbackWarning, PlanError
from vispark.api.rdds import fallback, local_rdd
from vispark.errors import TaskError
from vispark.runtime.driver.session import Session

NUMBERS = [float(x * 7 % 31) for x in range(60)]
ACTIONS: dict[str, Callable[[RDD], object]] = {
    "takeOrdered": lambda rdd: rdd.takeOrdered(4),
    "takeOrdered by": lambda rdd: rdd.takeOrdered(4, key=lambda x: (x - 5) ** 2),
    "top": lambda rdd: rdd.top(3),
    "top by": lambda rdd: rdd.top(3, key=lambda x: -x),
    "min by": lambda rdd: rdd.min(key=lambda x: abs(x - 9)),
    "max by": lambda rdd: rdd.max(key=abs),
    "histogram": lambda rdd: rdd.histogram(5),
    "histogram between": lambda rdd: rdd.histogram([0, 10, 31]),
    "stats": lambda rdd: rdd.stats().asDict(),
    "stdev": lambda rdd: rdd.stdev(),
    "countByValue": lambda rdd: sorted(rdd.countByValue().items()),
    "reduce": lambda rdd: rdd.reduce(lambda a, b: (a + b) / 2),
    "fold": lambda rdd: rdd.fold(1.0, lambda a, b: a - b),
    "aggregate": lambda rdd: rdd.aggregate(1.0, lambda t, x: t / 2 + x, lambda a, b: a - b),
}


@pytest.fixture(scope="module")
def numbers(sc: SparkContext) -> RDD:
    return sc.parallelize(NUMBERS, 3)


@pytest.fixture(scope="module")
def cached(numbers: RDD) -> VRDD:
    held = numbers.cache("GPU")
    assert held.count() == len(NUMBERS)
    return held


@pytest.mark.parametrize("name", ACTIONS)
def test_few_records_are_answered_in_the_driver(sc: SparkContext, numbers: RDD, cached: VRDD, name: str):
    answers = []
    assert spark_jobs(sc, lambda: answers.append(ACTIONS[name](cached))) == 0
    assert exact(answers[0]) == exact(ACTIONS[name](numbers))


def test_pairs_are_chosen_from_by_any_order(sc: SparkContext, cached: VRDD):
    pairs = cached.vmap(lambda x: (abs(x - 9), x))
    expected = [(abs(x - 9), x) for x in NUMBERS]
    assert spark_jobs(sc, lambda: pairs.reduce(min)) == 0
    assert pairs.reduce(min) == min(expected)
    assert pairs.reduce(lambda a, b: a if a[0] <= b[0] else b) == min(expected, key=operator.itemgetter(0))


@pytest.mark.parametrize("join", [
    lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
    lambda a, b: tuple([x + y for x, y in zip(a, b)]),      # noqa: B905
    lambda a, b: tuple(map(operator.add, a, b)),
])
def test_tuples_are_joined_item_by_item_in_the_workers(sc: SparkContext, cached: VRDD, join: Callable):
    mapped = cached.vmap(lambda x: (x, x * x, 1))
    assert spark_jobs(sc, lambda: mapped.reduce(join)) == 0
    assert mapped.reduce(join) == (sum(NUMBERS), sum(x * x for x in NUMBERS), len(NUMBERS))
    assert "reduce: in the workers: add of '0', add of '1', add of '2'" in mapped.explanation()
    assert mapped.fold((0.0, 0.0, 0), join) == mapped.reduce(join)
    keyed = cached.vmap(lambda x: (1 if x > 9 else 0, (x, 1)))
    large = [x for x in NUMBERS if x > 9]
    assert keyed.reduceByKey(join, numKeys=2).collectAsMap()[1] == (sum(large), len(large))


def with_fallback(monkeypatch: pytest.MonkeyPatch, sc: SparkContext, chosen: str) -> None:
    session = Session.of(sc)
    options = replace(session.options, fallback=chosen)
    monkeypatch.setattr(session, "credentials", replace(session.credentials, options=options))


def test_a_spark_job_is_told_of_once_a_line(sc: SparkContext, cached: VRDD, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "warn")
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 10)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            assert cached.countApproxDistinct() > 0
        cached.reduce(lambda a, b: (a + b) / 2)
        cached.foreach(lambda x: None)
    assert [each.category for each in warned] == [FallbackWarning] * 2 and warned[0].filename == __file__
    assert "countApproxDistinct() of VRDD htod" in str(warned[0].message) and "no kernel" in str(warned[0].message)
    assert "does not join its two values" in str(warned[1].message)


@pytest.mark.parametrize(("records", "fold"), [
    ([1.0, 2.0], operator.add), ([(1, 2 ** 62)] * 3, operator.add), ([(1, 2)] * 3, lambda a, b: int(str(a)))])
def test_a_reduce_by_key_of_sparks_is_told_of_at_the_users_line(sc: SparkContext, monkeypatch: pytest.MonkeyPatch,
                                                                records: list, fold: Callable):
    with_fallback(monkeypatch, sc, "warn")
    fallback._warned.clear()
    reduced = sc.parallelize(records, 2).cache("GPU").reduceByKey(fold)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with suppress(TaskError):       # of records that are no pairs
            reduced.collect()
    assert [(each.category, each.filename) for each in warned] == [(FallbackWarning, __file__)]


def test_one_call_is_told_of_once(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "warn")
    held = sc.parallelize([(1, 2), (3, 1)], 2).cache("GPU")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert held.max(key=lambda pair: str(pair)) == (3, 1)
    assert [str(each.message).partition("(")[0] for each in warned] == ["max"]


def test_a_spark_job_may_be_an_error(sc: SparkContext, cached: VRDD, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "error")
    with pytest.raises(PlanError, match=r"spark\.vispark\.fallback=error"):
        cached.reduce(lambda a, b: [a, print][0])
    with pytest.raises(PlanError, match="str is not among the functions that can be translated"):
        cached.max(key=lambda x: str(x))
    assert cached.top(1) == [30.0] and cached.sum() == sum(NUMBERS)
    with pytest.raises(PlanError, match="does not join its two values"):
        cached.vmap(lambda x: (1, x)).reduceByKey(lambda a, b: (a + b) / 2).collect()


def test_sums_of_float32_are_float64_by_request(sc: SparkContext):
    tenths = [np.float32(0.1)] * 1000
    for rdd in (sc.parallelize(tenths, 2).cache("GPU"), sc.parallelize(tenths, 2).send()):
        assert type(rdd.sum()) is np.float32 and type(rdd.sum(np.float64)) is np.float64
    wanted = 1000 * float(np.float32(0.1))
    assert sc.parallelize(tenths, 2).cache("GPU").sum(np.float64) == pytest.approx(wanted, rel=1e-12)
    rows = sc.parallelize([np.full(2, 0.1, "f4")] * 1000, 2).cache("GPU")
    assert rows.sum(np.float64).dtype == np.float64 and rows.reduce(operator.add).dtype == np.float32


TRANSFORMATIONS: dict[str, Callable[[RDD], RDD]] = {
    "cartesian": lambda rdd: rdd.cartesian(rdd),
    "filter": lambda rdd: rdd.filter(lambda x: str(x) > "3"), "intersection": lambda rdd: rdd.intersection(rdd),
    "randomSplit": lambda rdd: rdd.randomSplit([1, 1], 2**70)[0], "sample": lambda rdd: rdd.sample(False, 0.5, 2**70),
    "subtract": lambda rdd: rdd.subtract(rdd.ctx.parallelize([1.0])), "union": lambda rdd: rdd.union(rdd),
    "zip": lambda rdd: rdd.zip(rdd),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_transformation_that_python_does_is_told_of_once_a_line(sc: SparkContext, numbers: RDD, cached: VRDD,
                                                                  monkeypatch: pytest.MonkeyPatch, name: str):
    with_fallback(monkeypatch, sc, "warn")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            result = TRANSFORMATIONS[name](cached)
    assert [(each.category, each.filename) for each in warned] == [(FallbackWarning, __file__)]
    assert f"{name}() of VRDD htod brings the records back to Python" in str(warned[0].message)
    assert sorted(result.collect()) == sorted(TRANSFORMATIONS[name](numbers).collect())
    with_fallback(monkeypatch, sc, "error")
    with pytest.raises(PlanError, match=r"spark\.vispark\.fallback=error"):
        TRANSFORMATIONS[name](cached)


@pytest.mark.parametrize("fold", [
    lambda rdd: rdd.foldByKey(0, operator.add), lambda rdd: rdd.aggregateByKey(0, operator.add, operator.add),
    lambda rdd: rdd.combineByKey(int, operator.add, operator.add)])
def test_a_fold_by_key_of_sparks_is_told_of_unless_keys_are_objects(sc: SparkContext, monkeypatch: pytest.MonkeyPatch,
                                                                    fold: Callable[[RDD], RDD]):
    with_fallback(monkeypatch, sc, "error")
    numbers = sc.parallelize([(1, 2), (1, 3)], 2).cache("GPU")
    for pairs in (numbers, numbers.vmap(lambda kv: (kv[0], kv[1]), of="record")):
        with pytest.raises(PlanError, match="of the folds by key reduceByKey is the workers'"):
            fold(pairs)
        assert fold(pairs.recv()).collect() == [(1, 5)]
    assert fold(sc.parallelize([("a", 2), ("a", 3)], 2).cache("GPU")).collect() == [("a", 5)]


def test_what_python_is_meant_for_is_not_told_of(sc: SparkContext, numbers: RDD, cached: VRDD,
                                                 monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "error")
    assert cached.map(lambda x: x).filter(lambda x: x > 3).count() == len([x for x in NUMBERS if x > 3])
    assert cached.sortBy(lambda x: x).first() == 0.0        # Spark draws a sample for it
    assert numbers.vmap(lambda x: x + 1).filter(lambda x: x > 4).count() == len([x for x in NUMBERS if x > 3])
    assert cached.vmap(lambda x: x > 3).sum() == len([x for x in NUMBERS if x > 3])
