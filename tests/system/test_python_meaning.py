"""``filter``, ``sortBy`` and the like of cached Python numbers: workers give Python's records, or leave it to Spark."""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.test_fallback import with_fallback
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context
from vispark import VRDD, FallbackWarning
from vispark.api.keys import keyed_operations
from vispark.api.operations import python_meaning
from vispark.api.operations.python_meaning import _folded
from vispark.api.rdds import fallback, local_rdd


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture(autouse=True)
def warned(sc: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fallback(monkeypatch, sc, "warn")
    fallback._warned.clear()


#: Records and functions of which NumPy's numbers give something else.
OTHERS: list[tuple[list, Callable]] = [
    ([1, 2, 3, 2 ** 62], lambda x: x * 4 > 10), ([3037000500, 2], lambda x: x * x > 0),
    ([2 ** 63 - 1, 3], lambda x: x + 1 > 0), ([2 ** 53 + 1], lambda x: x > float(2 ** 53)),
    ([2 ** 63 - 1], lambda x: x < 2.0 ** 63), ([True, False], lambda b: ~b), ([64, 3], lambda x: 2 ** x > 0),
    ([-8.0, 8.0], lambda x: abs(x ** (1 / 3)) > 1), ([-2 ** 63, 3], lambda x: abs(x) > 0),
    ([-2 ** 63, 3], lambda x: -x > 0), ([5, 1, -3], lambda x: (x > 0) + (x < 6) == 2)]
RAISING: list[tuple[list, Callable, str]] = [
    ([0, 3], lambda x: 10 // x >= 0, "ZeroDivisionError"), ([0.0, 3.0], lambda x: 1 / x > 0, "ZeroDivisionError"),
    ([math.nan, 3.0], lambda x: int(x) == 3, "ValueError"), ([-1.0, 3.0], lambda x: math.sqrt(x) >= 0, "ValueError"),
    ([1000.0, 3.0], lambda x: math.exp(x) > 0, "OverflowError")]
#: The same functions, of records of which they are exact.
ALIKE: list[tuple[list, Callable]] = [
    ([1, 2, 3], OTHERS[0][1]), ([30370005, 2], OTHERS[1][1]), ([6, 3], OTHERS[6][1]), ([-2 ** 60, 3], OTHERS[8][1]),
    ([1, 3, 20], RAISING[0][1]), ([2.0, 9.0], RAISING[3][1]), ([2 ** 62, -7, 4], lambda x: x % 2 == 0 and x > 3),
    ([True, False], lambda b: not b)]


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_where_numpy_would_choose_others_filter_is_sparks_and_told(sc: SparkContext, number: int):
    records, function = OTHERS[number]
    with pytest.warns(FallbackWarning, match=r"filter\(\) of VRDD htod .*: line \d+ of lambda: ") as caught:
        filtered = sc.parallelize(records, 2).cache("GPU").filter(function)
    assert [each.filename for each in caught] == [__file__]
    assert exact(filtered.collect()) == exact([each for each in records if function(each)])


@pytest.mark.parametrize("number", range(len(RAISING)))
def test_what_raises_in_python_raises(sc: SparkContext, number: int):
    records, function, error = RAISING[number]
    with pytest.warns(FallbackWarning, match=r"raises in Python|no int of 64 bits"):
        filtered = sc.parallelize(records, 2).cache("GPU").filter(function)
    with pytest.raises(Exception, match=error):
        filtered.collect()


@pytest.mark.parametrize("number", range(len(ALIKE)))
def test_of_numbers_of_which_it_is_exact_filter_stays_in_the_workers(sc: SparkContext, number: int):
    records, function = ALIKE[number]
    with warnings.catch_warnings(action="error"):
        filtered = sc.parallelize(records, 2).cache("GPU").filter(function)
    assert isinstance(filtered, VRDD)
    assert exact(filtered.collect()) == exact([each for each in records if function(each)])


def test_tuples_that_a_vmap_made_have_ranges_for_each_item(sc: SparkContext):
    pairs = sc.parallelize([3, -4, 5], 2).cache("GPU").vmap(lambda x: (x, (x / 2, x > 0)), of="record").cache()
    expected = [(x, (x / 2, x > 0)) for x in (3, -4, 5)]
    for choose in (lambda t: t[0] * t[1][0] > 5, lambda t: t[0] * t[0] > 9 and t[1][1]):
        filtered = pairs.filter(choose)
        assert isinstance(filtered, VRDD) and exact(filtered.collect()) == exact([*filter(choose, expected)])


def test_keys_of_sorts_are_those_of_python(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 1)
    for records, key in (([2 ** 62, 3, 2 ** 40, -5], lambda x: x * x), ([-2 ** 63, 5, -7], lambda x: -x)):
        held = sc.parallelize(records, 2).cache("GPU")
        fallback._warned.clear()
        with pytest.warns(FallbackWarning, match=r"sortBy\(\) .* may leave 64 bits"):
            assert held.sortBy(key).collect() == sorted(records, key=key)
        with pytest.warns(FallbackWarning, match=r"\(\) .* may leave 64 bits"):
            assert held.takeOrdered(2, key) == sorted(records, key=key)[:2]
            assert held.top(2, key) == sorted(records, key=key, reverse=True)[:2]
    ordered = sc.parallelize([2 ** 20, 3, -5], 2).cache("GPU").sortBy(lambda x: x * x)
    assert isinstance(ordered, VRDD) and ordered.collect() == [3, -5, 2 ** 20]


#: Records beyond 2 ** 53, of which NumPy's comparisons with floats say otherwise.
HUGE = [2 ** 53 + 1, 2 ** 53, 2 ** 53 + 2, 2 ** 62, -2 ** 63, 2 ** 63 - 1, 7]
EDGE = 2.0 ** 53


def first_above(a, b):
    return a if a > EDGE or b <= EDGE else b


def both_signs(a, b):
    """Truth values are added, which are ints in Python; associative."""
    return a if (a > 0) + (a < 6) >= (b > 0) + (b < 6) else b


#: Records, and what is folded of them otherwise by NumPy's numbers.
FOLDS: list[tuple[list, Callable]] = [
    (HUGE, lambda rdd: rdd.reduce(first_above)), ([3.5, -2.5, 8.0], lambda rdd: rdd.reduce(both_signs)),
    (HUGE, lambda rdd: rdd.aggregate(0, lambda t, x: t + (1 if x > EDGE else 0), operator.add)),
    (HUGE, lambda rdd: rdd.max(key=lambda x: x > EDGE)),
    ([2 ** 62, 3, -2 ** 62], lambda rdd: rdd.min(key=lambda x: x * x)),
    ([-1.0, -2.0], lambda rdd: rdd.aggregate(0, lambda t, x: t + (x if x > 0 else 0), operator.add)),
    ([1.0, 4.0], lambda rdd: rdd.aggregate(0.0, lambda t, x: t + np.sqrt(x), operator.add))]
#: Those of which they are exact.
FOLDED: list[tuple[list, Callable]] = [
    ([3, -7, 5], lambda rdd: rdd.reduce(first_above)), ([3, -7, 5], lambda rdd: rdd.max(key=lambda x: x * x)),
    ([3, -7, 5], lambda rdd: rdd.aggregate((0, 1), lambda t, x: (t[0] + x * x, max(t[1], x)),
                                           lambda a, b: (a[0] + b[0], max(a[1], b[1])))),
    ([4.0, 0.5], lambda rdd: rdd.aggregate(0.0, lambda t, x: t + 1 / x, operator.add)),
    ([3, -7, 5], lambda rdd: rdd.reduce(lambda a, b: a if abs(a) >= abs(b) else b))]


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is few is folded in the workers, too, where it can be."""
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 0)
    monkeypatch.setattr(keyed_operations, "_LOOKED_AT", 0)


@pytest.mark.parametrize("number", range(len(FOLDS)))
def test_where_numpy_would_fold_otherwise_folds_are_sparks_and_told(sc: SparkContext, in_workers, number: int):
    records, fold = FOLDS[number]
    with pytest.warns(FallbackWarning, match=r": line \d+ of |line \d+ of \w+: "):
        folded = fold(sc.parallelize(records, 2).cache("GPU"))
    assert exact(folded) == exact(fold(sc.parallelize(records, 2)))


@pytest.mark.parametrize("number", range(len(FOLDED)))
def test_of_numbers_of_which_they_are_exact_folds_stay_in_the_workers(
        sc: SparkContext, monkeypatch: pytest.MonkeyPatch, in_workers, number: int):
    with_fallback(monkeypatch, sc, "error")
    records, fold = FOLDED[number]
    assert exact(fold(sc.parallelize(records, 2).cache("GPU"))) == exact(fold(sc.parallelize(records, 2)))


def test_values_of_keys_are_joined_as_python_does(sc: SparkContext):
    for records, warns in ((HUGE, True), ([3, -7, 5], False)):
        pairs = sc.parallelize(records, 2).cache("GPU").vmap(lambda x: (1, x)).cache()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert pairs.reduceByKey(first_above).collect() == [(1, functools.reduce(first_above, records))]
        assert [each.category for each in caught] == [FallbackWarning] * warns


def test_the_ends_of_what_is_kept_are_looked_for_once(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    held, plans = sc.parallelize([1, 2, 3], 2).cache("GPU"), []
    monkeypatch.setattr(python_meaning, "_folded", lambda *given: plans.append(given) or _folded(*given))
    for most in (2, 5):
        assert held.filter(lambda x, most=most: x * 4 > most).count() == 3 - (most > 4)
    assert len(plans) == 1
