"""Exchanges by key in the workers, against Spark's own result."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.protocol.errors import KeysRefused
from tests.system.test_fallback import with_fallback
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import VRDD, FallbackWarning, PlanError
from vispark.runtime.driver.session import Session


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def numbers(sc: SparkContext, count: int = 200, parts: int = 4):
    random = np.random.default_rng(3)
    return sc.parallelize([float(x) for x in random.normal(size=count) * 50], parts)


def int_pairs(x):
    return int(x // 7), x


def float_pairs(x):
    return x // 7 / 4, (x, 2.0 * x)


def tuple_pairs(x):
    return (int(x // 40), x // 7 / 4), (x, 2.0 * x)


PAIRS = {"ints": int_pairs, "floats": float_pairs, "tuples": tuple_pairs}


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("parts", [1, 3, 20])
def test_partitions_have_what_sparks_have(sc: SparkContext, pairs: str, parts: int):
    plain = numbers(sc)
    partitioned = plain.cache("GPU").vmap(PAIRS[pairs]).partitionBy(parts)
    expected = plain.map(PAIRS[pairs]).partitionBy(parts)
    assert isinstance(partitioned, VRDD) and partitioned.getNumPartitions() == parts
    assert [sorted(part) for part in partitioned.glom().collect()] \
        == [sorted(part) for part in expected.glom().collect()]
    assert sorted(partitioned.collect()) == sorted(expected.collect()) and partitioned.count() == 200
    assert type(partitioned.first()) is tuple and partitioned.partitionBy(parts) is partitioned


def test_what_comes_behind_stays_in_the_workers(sc: SparkContext):
    held = numbers(sc).cache("GPU")
    pairs = held.vmap(int_pairs).partitionBy(5)
    sums = pairs.vmap(lambda kv: kv[1] * 2).cache()
    assert sums.sum() == pytest.approx(2 * sum(held.collect()))
    assert sc.statusTracker().getActiveJobsIds() == []
    assert pairs.vmap(lambda kv: (kv[0] + 1, kv[1])).partitioner is None
    assert sorted(pairs.mapValues(str).collect()) == sorted(
        numbers(sc).map(int_pairs).mapValues(str).collect())


def test_functions_of_the_keys_and_of_the_values_that_are_kept(sc: SparkContext):
    held, plain = numbers(sc).cache("GPU"), numbers(sc)
    partitioned, expected = held.vmap(float_pairs).partitionBy(3), plain.map(float_pairs).partitionBy(3)
    values, keys = partitioned.values(), partitioned.keys()
    assert sorted(values.vmap(lambda v: v[0] + v[1]).collect()) == sorted(
        expected.values().map(lambda v: v[0] + v[1]).collect())
    assert sorted(keys.vmap(lambda k: k * 2).collect()) == sorted(expected.keys().map(lambda k: k * 2).collect())
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert sorted(keys.filter(lambda k: k > 0).collect()) == sorted(
            expected.keys().filter(lambda k: k > 0).collect())
        for ours, theirs in ((keys, expected.keys()), (values, expected.values())):
            assert sorted(ours.distinct().collect()) == sorted(theirs.distinct().collect())
            records = ours.collect()
            assert sorted(ours.zipWithIndex().collect()) == sorted(zip(records, range(len(records)), strict=True))
            same = sc.parallelize(ours.glom().collect(), ours.getNumPartitions()).flatMap(lambda part: part)
            assert ours.sample(False, 0.5, 3).collect() == same.sample(False, 0.5, 3).collect()
            assert ours.takeSample(False, 5, 3) == same.takeSample(False, 5, 3)
        assert not {"distinct", "sample", "zipWithIndex"} & keys._folds.keys(), "the workers' own"
    # Folded, kept, and followed by others.
    assert values.vmap(lambda v: v[1]).max() == expected.values().map(lambda v: v[1]).max()
    again = values.cache().vmap(lambda v: (v[1], v[0])).values().vmap(lambda x: -x)
    assert sorted(again.collect()) == sorted(plain.map(lambda x: -x).collect())
    rows = held.vmap(int_pairs).rowsByKey(2).values().vmap(lambda row: row.max())
    assert sorted(rows.collect()) == sorted(plain.map(int_pairs).reduceByKey(max).values().collect())
    with pytest.raises(PlanError, match=r"as in \.vmap\(lambda kv: kv\[1\]\).*vreduce add"):
        values.vreduce(operator.add).collect()


@pytest.mark.parametrize("fold", [operator.add, max, min], ids=["add", "max", "min"])
@pytest.mark.parametrize("pairs", PAIRS)
def test_values_are_folded_without_knowing_the_keys(sc: SparkContext, fold, pairs: str):
    def of_floats(x):
        return x // 7 / 4, x

    def of_tuples(x):
        return (int(x // 40), x // 7 / 4), x

    keyed = {"ints": int_pairs, "floats": of_floats, "tuples": of_tuples}[pairs]
    plain = numbers(sc)
    reduced = plain.cache("GPU").vmap(keyed).reduceByKey(fold)
    assert dict(reduced.collect()) == pytest.approx(dict(plain.map(keyed).reduceByKey(fold).collect()))
    assert reduced.count() == len(set(reduced.keys().collect()))
    assert "in the workers" in reduced.explanation()


def test_tuples_are_folded_part_by_part(sc: SparkContext):
    def pairs(x):
        return int(x // 9), (x, 1)

    def both(a, b):
        return a[0] + b[0], a[1] + b[1]

    plain = numbers(sc)
    reduced = dict(plain.cache("GPU").vmap(pairs).reduceByKey(both, 3).collect())
    expected = dict(plain.map(pairs).reduceByKey(both, 3).collect())
    assert reduced.keys() == expected.keys()
    for key, (total, count) in expected.items():
        assert reduced[key] == (pytest.approx(total), count)


def test_keys_are_counted_and_records_made_distinct(sc: SparkContext):
    plain = numbers(sc).map(lambda x: int(x // 9))
    held = plain.cache("GPU")
    assert held.vmap(lambda n: (n, n)).countByKey() == plain.map(lambda n: (n, n)).countByKey()
    with warnings.catch_warnings():
        warnings.simplefilter("error")      # none of it is Spark's
        distinct, expected = held.distinct(3), plain.distinct(3)
    assert isinstance(distinct, VRDD)
    assert distinct.glom().collect() == [sorted(part) for part in expected.glom().collect()]


def test_pairs_whose_keys_are_tuples(sc: SparkContext):
    def others(x):
        return (int(x // 40), x // 7 / 4), 1

    def marks(x):
        return int(x // 60), x > 0

    plain = numbers(sc)
    held = plain.cache("GPU")
    pairs, expected = held.vmap(tuple_pairs), plain.map(tuple_pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")      # none of it is Spark's
        assert {key: list(values) for key, values in pairs.groupByKey(3).collect()} == \
            {key: list(values) for key, values in expected.groupByKey(3).collect()}
        assert pairs.countByKey() == expected.countByKey()
        joined = pairs.join(held.vmap(others), 3)
        assert isinstance(joined, VRDD)
        assert sorted(joined.collect()) == sorted(expected.join(plain.map(others), 3).collect())
        distinct, records = held.vmap(marks).distinct(3), plain.map(marks).distinct(3)
        assert isinstance(distinct, VRDD)
        assert distinct.glom().collect() == [sorted(part) for part in records.glom().collect()]
        rows = {key: row.tolist() for key, row in held.vmap(others).rowsByKey(2).collect()}
        assert rows == {key: list(values) for key, values in plain.map(others).groupByKey(2).collect()}
        assert held.sortBy(lambda x: (int(x // 40), -x)).collect() == \
            sorted(plain.collect(), key=lambda x: (int(x // 40), -x))
    assert pairs.join(held.vmap(lambda x: ((x, 1), 2.0)), 2).count() == 0       # keys of other types are Spark's


def test_tuples_that_have_nan_are_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "warn")
    pairs = sc.parallelize([1.0, float("nan"), 2.0], 2).cache("GPU").vmap(lambda x: ((1, x), x))
    with pytest.warns(FallbackWarning, match="NaN"):
        assert pairs.partitionBy(2).count() == 3


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("pairs", PAIRS)
def test_pairs_are_sorted_stably(sc: SparkContext, ascending: bool, parts: int, pairs: str):
    plain = numbers(sc)
    ordered = plain.cache("GPU").vmap(PAIRS[pairs]).sortByKey(ascending, parts)
    everything = plain.map(PAIRS[pairs]).collect()
    assert ordered.collect() == sorted(everything, key=operator.itemgetter(0), reverse=not ascending)
    assert ordered.getNumPartitions() == parts and max(map(len, ordered.glom().collect())) <= 300 // parts + 40


def test_records_are_sorted_by_a_function(sc: SparkContext):
    plain = numbers(sc)
    ordered = plain.cache("GPU").sortBy(lambda x: (x - 3) * (x - 3), numPartitions=3)
    assert isinstance(ordered, VRDD) and ordered.collect() == sorted(plain.collect(), key=lambda x: (x - 3) * (x - 3))
    rows = sc.parallelize([np.array([x, -x]) for x in (3.0, 1.0, 2.0)], 2)
    assert [row[0] for row in rows.cache("GPU").sortBy(lambda p: p[1], ascending=False).collect()] == [1.0, 2.0, 3.0]


def test_values_are_grouped(sc: SparkContext):
    plain = numbers(sc)
    grouped = plain.cache("GPU").vmap(int_pairs).groupByKey(3)
    expected = plain.map(int_pairs).groupByKey(3)
    assert {key: list(values) for key, values in grouped.collect()} \
        == {key: list(values) for key, values in expected.collect()}
    assert sorted(grouped.mapValues(len).collect()) == sorted(expected.mapValues(len).collect())


@pytest.mark.parametrize("parts", [1, 5])
def test_pairs_are_joined(sc: SparkContext, parts: int):
    def other_pairs(x):
        return int(x // 5), (x, 2)

    left, right = numbers(sc), numbers(sc, 30, 3)
    held = left.cache("GPU").vmap(int_pairs), right.cache("GPU").vmap(other_pairs)
    plain = left.map(int_pairs), right.map(other_pairs)
    joined = held[0].join(held[1], parts)
    assert isinstance(joined, VRDD) and joined.getNumPartitions() == parts
    assert sorted(joined.collect()) == sorted(plain[0].join(plain[1], parts).collect())
    total = joined.vmap(lambda kv: kv[1][0]).sum()
    assert total == pytest.approx(sum(value[0] for _, value in plain[0].join(plain[1]).collect()))

    def lists(pairs):
        return sorted((key, *map(list, values)) for key, values in pairs)

    assert lists(held[0].cogroup(held[1], parts).collect()) == lists(plain[0].cogroup(plain[1], parts).collect())
    assert held[0].cogroup(held[1]).getNumPartitions() == plain[0].cogroup(plain[1]).getNumPartitions()


def test_joins_with_others_are_sparks(sc: SparkContext):
    held, plain = numbers(sc).cache("GPU").vmap(int_pairs), sc.parallelize([(0, "zero"), (1, "one")])
    assert sorted(held.join(plain).collect()) == sorted(numbers(sc).map(int_pairs).join(plain).collect())
    assert "the other RDD is not cached" in held.explanation()


def test_partitions_without_records(sc: SparkContext):
    held = sc.parallelize([1.0, 2.0], 5).cache("GPU").vmap(int_pairs)
    assert [len(part) for part in held.partitionBy(4).glom().collect()] == [2, 0, 0, 0]
    assert held.sortByKey(numPartitions=6).collect() == [(0, 1.0), (0, 2.0)]
    assert held.countByKey() == {0: 2}
    assert held.partitionBy(4).vmap(lambda kv: kv[1]).sum() == 3.0


def test_zeros_of_both_signs_are_one_key(sc: SparkContext):
    held = sc.parallelize([1.0, -1.0, 2.0], 2).cache("GPU").vmap(lambda x: (0.0 * x, x))
    assert held.reduceByKey(operator.add).collect() == [(0.0, 2.0)]
    assert [value for _, value in held.sortByKey().collect()] == [1.0, -1.0, 2.0]
    assert held.countByKey() == {0.0: 3}


def test_keys_that_are_nan_are_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "warn")
    held = sc.parallelize([1.0, 0.0], 2).cache("GPU").vmap(lambda x: (x if x > 0.5 else np.nan, x))
    with pytest.warns(FallbackWarning, match=r"1 of the keys are NaN"):
        pairs = held.partitionBy(3).collect()
    assert sorted(value for _, value in pairs) == [0.0, 1.0]


def test_integers_that_overflow_are_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "warn")
    held = sc.parallelize([2**62, 2**62, 2**62], 2).cache("GPU").vmap(lambda n: (1, n))
    with pytest.warns(FallbackWarning, match="an integer may overflow"):
        assert held.reduceByKey(operator.add).collect() == [(1, 3 * 2**62)]


def test_keys_that_are_objects_stay_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "warn")
    held = sc.parallelize([("a", 1.0), ("b", 2.0), ("a", 3.0)], 2).cache("GPU")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        partitioned = held.partitionBy(2)
        assert not isinstance(partitioned, VRDD) and len(partitioned.collect()) == 3
    assert "keys are objects" in held.explanation()


@pytest.mark.parametrize("key", [int, float, np.int32], ids=["int", "float", "int32"])
def test_keys_that_were_sent_as_numbers(sc: SparkContext, key: type):
    plain = numbers(sc).map(lambda x: (key(x // 7), x))
    held = plain.cache("GPU")
    partitioned = held.partitionBy(3)
    assert isinstance(partitioned, VRDD)
    assert [sorted(part) for part in partitioned.glom().collect()] \
        == [sorted(part) for part in plain.partitionBy(3, hash).glom().collect()]
    assert {type(each) for each, _ in partitioned.collect()} == {key}
    assert held.mapValues(abs).collect() == plain.mapValues(abs).collect()
    assert held.countByKey() == plain.countByKey()
    sums = dict(held.vmap(lambda x: 2 * x, of="value").reduceByKey(operator.add).collect())
    assert sums == pytest.approx({each: 2 * total for each, total in plain.reduceByKey(operator.add).collect()})
    assert sorted(held.join(held.vmap(lambda x: 2 * x, of="value"), 2).collect()) == sorted(
        plain.join(plain.mapValues(lambda x: 2 * x), 2).collect())


def test_keys_beyond_64_bits_stay_objects(sc: SparkContext):
    plain = sc.parallelize([(2**70, 1.0), (3, 2.0), (2**70, 3.0)], 2)
    assert sorted(plain.cache("GPU").reduceByKey(operator.add).collect()) == [(3, 2.0), (2**70, 4.0)]
    assert plain.cache("GPU").partitionBy(2).count() == 3


@pytest.mark.parametrize("key, ascending", [
    (lambda x: int(x) % 50 - 25, True), (lambda x: x * x % 17 - 8.0, False), (lambda x: (int(x) % 5, -x), False)],
    ids=["int", "float", "tuple"])
def test_spark_sorts_by_the_ranges_that_workers_drew(sc: SparkContext, monkeypatch: pytest.MonkeyPatch,
                                                     key: Callable[[float], object], ascending: bool):
    # Partitions of a sort that were lost, and cannot be exchanged again, fit what is left, in the same order.
    with_fallback(monkeypatch, sc, "silent")
    calls = []

    def refused(*_: object) -> None:
        calls.append(1)
        raise KeysRefused("the devices do not reach each other")

    ordered = numbers(sc).cache("GPU").vmap(lambda x: (key(x), x)).sortByKey(ascending, 4)
    expected = ordered.glom().collect()
    with monkeypatch.context() as patch:
        patch.setattr(Session, "exchanged", refused)
        ordered._residency.lose([1, 3])
        assert ordered.collect() == [pair for part in expected for pair in part] and calls
        assert ordered.glom().collect() == expected
