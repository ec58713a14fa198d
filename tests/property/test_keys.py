"""Operations by key on cached pairs give what Spark gives of the same pairs: multisets, partitions, order of a sort.

``VISPARK_EXAMPLES`` sets how many pairs are tried by each operation; more than a few try keys of all types.
"""

from __future__ import annotations

import math
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark import RDD, SparkContext

from tests.system.test_fallback import with_fallback
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import VRDD

EXAMPLES = int(os.environ.get("VISPARK_EXAMPLES", "3"))


def integers(bits: int) -> st.SearchStrategy[int]:
    """Return integers of some bits: few, so that keys repeat, and the extremes."""
    extremes = [-2**(bits - 1), 2**(bits - 1) - 1, -1, 0, 2**(bits - 2)]
    return st.integers(-3, 3) | st.sampled_from(extremes) | st.integers(extremes[0], extremes[1])


def floats(width: int) -> st.SearchStrategy[float]:
    """Return floats of some bits: few, zeros of both signs, the extremes, subnormals and infinities; NaN at times."""
    limits = np.finfo(f"float{width}")
    extremes = [0.0, -0.0, math.inf, -math.inf, *map(float, [limits.max, limits.min, limits.smallest_subnormal])]
    return st.sampled_from([-1.5, 0.5, 2.0]) | st.sampled_from(extremes) | st.floats(width=width, allow_nan=False)


#: The type of a key that is sent, as Python has it, and its values.
FEW: dict[str, tuple[Callable[[Any], Any], st.SearchStrategy[Any]]] = {
    "int": (int, integers(64)), "float": (float, floats(64))}
KINDS = FEW if EXAMPLES < 20 else FEW | {
    "int8": (np.int8, integers(8)), "int32": (np.int32, integers(32)), "float32": (np.float32, floats(32))}
kinds = st.sampled_from(list(KINDS))


def pairs_of(kind: str) -> st.SearchStrategy[list[Any]]:
    """Return pairs of keys of a kind and their own numbers; float keys at times NaN."""
    make, values = KINDS[kind]
    if "float" in kind:
        values = st.sampled_from([values] * 7 + [values | st.just(math.nan)]).flatmap(lambda each: each)
    return st.lists(values, max_size=24).map(lambda keys: [(make(key), at) for at, key in enumerate(keys)])


tables = kinds.flatmap(lambda kind: st.tuples(pairs_of(kind), pairs_of(kind)))


def counted(records: Iterable[Any]) -> Counter[Any]:
    """Return a multiset of records, in which -0.0 is 0.0, as in Python, and NaN a word, as nothing equals it."""
    return Counter(map(comparable, records))


def comparable(record: Any) -> Any:
    if isinstance(record, tuple | list):
        return tuple(map(comparable, record))
    return "nan" if record != record else record


def grouped(rdd: RDD) -> RDD:
    return rdd.mapValues(sorted)


#: What is done with pairs and other pairs.
OPERATIONS: dict[str, Callable[[RDD, RDD], RDD]] = {
    "partitionBy": lambda pairs, _: pairs.partitionBy(3),
    "reduceByKey": lambda pairs, _: pairs.reduceByKey(operator.add, 3),
    "groupByKey": lambda pairs, _: grouped(pairs.groupByKey(3)),
    "distinct": lambda pairs, _: pairs.keys().distinct(3),
    "join": lambda pairs, others: pairs.join(others, 3),
    "cogroup": lambda pairs, others: pairs.cogroup(others, 3).mapValues(lambda sides: tuple(map(sorted, sides))),
}
#: Partitions are compared one by one where a key says in which one it is.
PLACED = {"partitionBy", "reduceByKey"}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="silent") as context:
        yield context


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@example(([(0.0, 1), (-0.0, 2), (math.inf, 3), (0.0, 4)], [(-0.0, 5), (0.5, 6)]))
@example(([(2**63 - 1, 1), (-2**63, 2), (-1, 3), (-2, 4), (2**61 - 1, 5), (2**63 - 1, 6)], [(-1, 7), (-2, 8), (0, 9)]))
@given(tables)
def test_records_are_those_of_spark(sc: SparkContext, name: str, table: tuple[list[Any], list[Any]]):
    plain = [sc.parallelize(pairs, 2) for pairs in table]
    held = [rdd.cache("GPU") for rdd in plain]
    result, expected = OPERATIONS[name](*held), OPERATIONS[name](*plain)
    has_nan = any(key != key for pairs in table for key, _ in pairs)
    if name in PLACED and not has_nan:
        assert list(map(counted, result.glom().collect())) == list(map(counted, expected.glom().collect()))
    else:
        assert counted(result.collect()) == counted(expected.collect())
    for cached in held:
        cached.uncache()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@example(([(0.0, 1), (-0.0, 2), (-math.inf, 3), (math.inf, 4), (5e-324, 5), (0.0, 6)], []), True)
@given(tables, st.booleans())
def test_a_sort_has_the_order_of_spark(sc: SparkContext, table: tuple[list[Any], list[Any]], ascending: bool):
    plain = sc.parallelize(table[0], 2)
    held = plain.cache("GPU")
    result, expected = [rdd.sortByKey(ascending, 3).collect() for rdd in (held, plain)]
    assert counted(result) == counted(expected)
    if not any(key != key for key, _ in table[0]):      # NaN has no place in an order
        assert result == expected
    assert held.countByKey() == plain.countByKey() or any(key != key for key, _ in table[0])
    held.uncache()


def test_what_is_compared_is_the_workers(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    with_fallback(monkeypatch, sc, "error")
    for keys in ([0, 1, 2], [0.5, -0.0, math.inf]):
        pairs = sc.parallelize([(key, at) for at, key in enumerate(3 * keys)], 2).cache("GPU")
        for operation in OPERATIONS.values():
            assert operation(pairs, pairs).count()
        assert isinstance(pairs.sortByKey(), VRDD)
