"""Tables of values by key that stay in the workers, as arguments of functions, against NumPy and plain Spark."""

from __future__ import annotations

import gc
import operator
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import cost, exact, host_context, used
from vispark import PlanError, TranslationError, VisparkError


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


KEYS = 9
ROWS = np.random.default_rng(5).random((300, 3))
CELLS = (ROWS[:, 0] * 8).astype(int)        # of which key 8 is none


def rows(sc: SparkContext, parts: int = 3, dtype: str = "f8"):
    return sc.parallelize(list(ROWS.astype(dtype)), parts).cache("GPU")


def by_cell(p):
    return int(p[0] * 8), p


def sums(dtype: str = "f8") -> np.ndarray:
    totals = np.zeros((KEYS, 3))
    np.add.at(totals, CELLS, ROWS)
    return totals.astype(dtype)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_an_argument_is_the_value_of_a_key_and_stays_in_the_worker(sc: SparkContext, parts: int, dtype: str):
    held = rows(sc, parts, dtype)
    held.count()
    table = held.vmap(by_cell).reduceByKey(operator.add, numKeys=KEYS)
    behind = held.vmap(lambda p, t: p[1] / t[int(p[0] * 8), 1] + t[8].sum() + len(t), table)
    spent = cost(sc, behind.count)
    assert spent.jobs == 0 and spent.fetched_bytes < 100
    expected = ROWS[:, 1] / sums()[CELLS, 1] + KEYS
    assert np.allclose(behind.collect(), expected, rtol=1e-5)
    assert np.allclose(held.vmap(lambda p: table[int(p[0] * 8)]).collect(), sums()[CELLS], rtol=1e-5)
    assert table.toNumpy().dtype == dtype and np.allclose(table.toNumpy(), sums(), rtol=1e-5)
    assert "a table of" in behind.explanation() and "by reference" in behind.explanation()


def test_it_is_what_reduce_by_key_gives(sc: SparkContext):
    plain = sc.parallelize(range(40), 3)
    table = plain.cache("GPU").vmap(lambda n: (n % 7, n)).reduceByKey(operator.add, numKeys=8).table
    expected = sorted(plain.map(lambda n: (n % 7, n)).reduceByKey(operator.add).collect())
    assert exact(table.collect()) == exact(expected) and exact(table.collectAsMap()) == exact(dict(expected))
    assert table.count() == 7 and table.first() == expected[0] and table.take(2) == expected[:2]
    assert sorted(table.keys().collect()) == list(range(7)) and table.getNumPartitions() == 1
    assert table.mapValues(str).collect() == [(key, str(value)) for key, value in expected]
    doubled = table.vmap(lambda total, k: k * total + 1, 2)
    assert exact(doubled.collect()) == exact([(key, 2 * value + 1) for key, value in expected])
    assert doubled.toNumpy().tolist() == [*[2 * value + 1 for _, value in expected], 0]


def test_tuples_become_an_array_by_a_function_of_the_table(sc: SparkContext):
    held = rows(sc)
    table = held.vmap(lambda p: (int(p[0] * 8), (p, 1))).reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]),
                                                                     numKeys=KEYS)
    with pytest.raises(TranslationError, match="a table of tuples is no array"):
        held.vmap(lambda p, t: t[0], table)
    means = table.vmap(lambda s: s[0] / s[1])
    expected = sums()[:8] / np.bincount(CELLS)[:, np.newaxis]
    assert np.allclose([value for _, value in means.collect()], expected)
    assert np.allclose(means.toNumpy()[:8], expected) and not means.toNumpy()[8].any()
    assert np.allclose(held.vmap(lambda p, m: p - m[int(p[0] * 8)], means).sum(), 0)


def test_solves_by_key(sc: SparkContext):
    held = rows(sc)
    table = held.vmap(lambda p: (int(p[0] * 8), np.outer(p, p))).reduceByKey(operator.add, numKeys=KEYS)
    solved = table.vmap(lambda m, b: np.linalg.solve(m + np.eye(3), b), np.ones(3))
    for key, value in solved.collect():
        gram = ROWS[key == CELLS].T @ ROWS[key == CELLS]
        assert np.allclose(value, np.linalg.solve(gram + np.eye(3), np.ones(3)))


def test_a_plain_fold_stays_too(sc: SparkContext):
    held = rows(sc, dtype="f4")
    total = held.reduced(operator.add, np.float64)
    assert total.toNumpy().dtype == np.float64 and np.allclose(total.toNumpy()[0], ROWS.sum(axis=0))
    assert np.allclose(held.vmap(lambda p, t: p / t[0], total).reduce(operator.add), 1, rtol=1e-5)
    most = sc.parallelize([3.0, -1.0], 2).cache("GPU").reduced(max)
    assert exact(most.collect()) == exact([(0, 3.0)])


def test_an_exact_integer_is_python_s(sc: SparkContext):
    numbers = sc.parallelize([2**62, 2**62, 5], 2).cache("GPU")
    table = numbers.vmap(lambda n: (n % 2, n)).reduceByKey(operator.add, numKeys=2)
    with pytest.raises(VisparkError, match="too large"):
        table.table.collect()       # 2**63, which is right, and no worker holds it


def test_errors(sc: SparkContext):
    held = rows(sc)
    with pytest.raises(TranslationError, match="was not given"):
        held.vmap(lambda p, t: t[0], held.vmap(by_cell).reduceByKey(operator.add))
    table = held.vmap(by_cell).reduceByKey(operator.add, numKeys=4)
    with pytest.raises(PlanError, match="numKeys=4 promises keys in"):
        held.vmap(lambda p, t: t[0, 0], table).collect()
    with pytest.raises(PlanError, match="up to 3"):
        table.vmap(lambda v, a, b, c, d: v, 1, 2, 3, 4)
    empty = sc.parallelize([], 2).cache("GPU").vmap(lambda x: (0, x)).reduceByKey(operator.add, numKeys=2)
    with pytest.raises(TranslationError, match="nothing was folded"):
        held.vmap(lambda p, t: t[0], empty)
    assert empty.table.collect() == []


def test_arrays_without_elements_are_folded(sc: SparkContext):
    pairs = sc.parallelize([np.zeros(0)] * 3, 2).cache("GPU").vmap(lambda x: (1, (x * 2, 1)))
    sums = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=2)
    assert [(key, x.shape, n) for key, (x, n) in sums.collect()] == [(1, (0,), 3)]
    table = pairs.vmap(lambda kv: (kv[0], kv[1][0])).reduceByKey(operator.add, numKeys=2)
    assert table.toNumpy().shape == (2, 0)
    assert pairs.vmap(lambda kv: kv[1][0]).reduce(operator.add).shape == (0,)


def test_a_table_of_nothing_has_functions(sc: SparkContext):
    numbers = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    for none in (sc.parallelize([], 2).cache("GPU"), numbers.filter(lambda x: x > 2)):
        table = none.vmap(lambda x: (int(x), x)).reduceByKey(operator.add, numKeys=3)
        after = table.vmap(lambda x, s: x / s[0], numbers.reduced(operator.add)).vmap(lambda x: x + 1)
        assert after.collect() == after.keys().collect() == after.values().collect() == []
        with pytest.raises(PlanError, match="nothing was folded"):
            after.toNumpy()


def larger(a, b):
    return sorted({a: 1, b: 1})[-1]      # what no kernel does


def test_what_has_no_kernel_is_a_table_of_python_s(sc: SparkContext):
    held = rows(sc)
    table = held.vmap(lambda p: (int(p[0] * 8), p[1])).reduceByKey(larger, numKeys=KEYS)
    expected = dict(held.map(lambda p: (int(p[0] * 8), p[1])).reduceByKey(max).collect())
    assert np.allclose(held.vmap(lambda p, t: t[int(p[0] * 8)], table).collect(), [expected[cell] for cell in CELLS])


def clustered(held, centres, times: int):
    for _ in range(times):
        pairs = held.vmap(lambda p, c: (np.argmin(((c - p)**2).sum(axis=1)), (p, 1)), centres)
        centres = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=4).vmap(lambda s: s[0] / s[1])
    return centres


def test_a_loop_does_not_grow(sc: SparkContext):
    held = rows(sc)
    expected = ROWS[:4]
    for _ in range(100):
        nearest = ((ROWS[:, None] - expected)**2).sum(axis=-1).argmin(axis=1)
        expected = np.array([ROWS[nearest == each].mean(axis=0) for each in range(4)])
    held.count()
    centres = clustered(held, ROWS[:4].copy(), 10)
    centres.collect()
    gc.collect()
    before, objects = used(sc), len(gc.get_objects())
    spent = cost(sc, lambda: clustered(held, centres, 90).collect())
    assert spent.jobs == 0
    again = clustered(held, centres, 90)
    assert np.allclose(again.toNumpy(), expected)
    gc.collect()
    assert used(sc) - before < 10_000 and len(gc.get_objects()) - objects < 20_000
