"""Folds give on a VRDD what they give on the RDD that was sent, and run in the workers where they say so."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from pyspark import RDD, SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import cost, exact, host_context, in_partitions, multiset
from vispark import VRDD, PlanError
from vispark.api.rdds import local_rdd
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
          "complex64", "complex128")
UFUNCS = (np.add, np.multiply, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
K = 5


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture(scope="module")
def points(sc: SparkContext) -> Iterator[VRDD]:
    """Cache rows of float32 in partitions of different sizes, one of them empty."""
    rows = np.random.default_rng(7).normal(size=(40, 3)).astype("f4")
    yield in_partitions(sc, [list(rows[:25]), [], list(rows[25:39]), list(rows[39:])]).cache("GPU")


def spark_jobs(sc: SparkContext, action: Callable[[], object]) -> int:
    action()        # what is cached is held then
    return cost(sc, action).jobs


def without_jobs(sc: SparkContext, action: Callable[[], object]) -> object:
    """Return the result of an action, which takes no Spark job."""
    answers: list = []
    assert cost(sc, lambda: answers.append(action())).jobs == 0
    return answers[0]


def gradient(p, w):
    y, x = p[0], p[1:]
    return (1 / (1 + np.exp(-y * np.dot(w, x))) - 1) * y * x


def closest(p, centres):
    """Return the index of the centre nearest to a point, and the point's part of the new centre."""
    best, least = 0, math.inf
    for i in range(len(centres)):
        distance = np.sum((p - centres[i]) ** 2)
        if distance < least:
            best, least = i, distance
    return best, (p, 1)


def joined(a, b):
    """Combine two tuples part by part, each with its own operator."""
    (total, low), count = a
    (other, lower), more = b
    return (total + other, low if low < lower else lower), count + more


# -- reduce and its kin -----------------------------------------------------------------------------------------------

NUMBERS = {
    "floats": [[3.0, 1.0, 2.5], [], [1.0, -4.0, 0.5]],
    "ints": [[3, 1, -7], [2], []],
    "bools": [[True, False], [True]],
    "float32": [[np.float32(1.5)], [np.float32(-2), np.float32(4)]],
    "int8": [[np.int8(3), np.int8(-5)], [np.int8(7)]],
    "np.bools": [[np.True_, np.False_], [np.True_]],
    "rows": [[np.float32([1, 2, 3]), np.float32([4, 5, 6])], [], [np.float32([7, 8, 9])]],
    "blocks": [[np.arange(6.0).reshape(3, 2)], [np.ones((3, 2)), np.full((3, 2), 0.25)]],
    "one": [[], [2.0], []],
}
FUNCTIONS: dict[str, Callable] = {
    "a + b": lambda a, b: a + b, "b + a": lambda a, b: b + a, "a * b": lambda a, b: a * b,
    "min": lambda a, b: min(a, b), "choice": lambda a, b: a if a > b else b, "np.maximum": np.maximum,
    "np.add": lambda a, b: np.add(a, b), "&": lambda a, b: a & b,
}


def outcome(action: Callable[[], object]) -> object:
    """Return the result of an action, or that it fails."""
    try:
        return exact(action())
    except (TypeError, ValueError) as error:        # the function's own, in the driver
        return "fails", type(error).__name__
    except SPARK_JOB_FAILED:                        # or in a task
        return "fails", "in a task"


@pytest.mark.parametrize("records", ["floats", "ints", "float32", "int8", "np.bools", "rows", "blocks", "one"])
def test_reduce_gives_what_it_gives_on_an_rdd(sc: SparkContext, records: str):
    rdd = in_partitions(sc, NUMBERS[records]).cache()
    cached = rdd.cache("GPU")
    for name, function in FUNCTIONS.items():
        folded, expected = (outcome(functools.partial(each.reduce, function)) for each in (cached, rdd))
        assert folded == expected, name


@pytest.mark.parametrize("records", ["floats", "ints", "bools", "float32", "int8", "np.bools", "one"])
def test_sums_and_the_like(sc: SparkContext, records: str):
    rdd = in_partitions(sc, NUMBERS[records])
    cached = rdd.cache("GPU")
    for action in ("sum", "min", "max", "count"):
        assert exact(getattr(cached, action)()) == exact(getattr(rdd, action)()), action
    mean, expected = cached.mean(), rdd.mean()
    assert type(mean) is type(expected) and mean == pytest.approx(expected, rel=1e-6)


def test_sums_of_arrays(sc: SparkContext):
    for records in ("rows", "blocks"):
        rdd = in_partitions(sc, NUMBERS[records])
        cached = rdd.cache("GPU")
        assert exact(cached.sum()) == exact(rdd.sum())
        np.testing.assert_allclose(cached.mean(), rdd.mean(), rtol=1e-6)
        assert cached.mean().dtype == rdd.mean().dtype
        assert cached.count() == rdd.count()


def test_folds_need_no_spark_job(sc: SparkContext):
    cached = sc.parallelize([float(x) for x in range(100)], 3).cache("GPU")
    mapped = cached.vmap(lambda x: (x, (x * x, 1)))
    for action in (cached.sum, cached.min, cached.max, cached.mean, mapped.count,
                   lambda: cached.reduce(lambda a, b: a + b),
                   lambda: mapped.reduce(lambda p, q: (p[0] + q[0], (max(p[1][0], q[1][0]), p[1][1] + q[1][1])))):
        assert spark_jobs(sc, action) == 0
    assert spark_jobs(sc, lambda: cached.max(key=lambda x: -x)) == 0            # in the driver
    assert spark_jobs(sc, lambda: cached.reduce(lambda a, b: a - b)) == 0
    assert spark_jobs(sc, lambda: cached.reduce(lambda a, b: [a, print][0])) > 0


AGGREGATES: dict[str, tuple[object, Callable, Callable]] = {
    "count and sum": ((0, 0), lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "from floats": ((0.0, 0), lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "from one": (1, lambda t, x: t + x, lambda a, b: a + b),
    "squares": (0, lambda t, x: t + x * x, lambda a, b: a + b),
    "inverse": (0, lambda t, x: t + 1 / (x - 100), lambda a, b: a + b),
    "extremes": ((math.inf, -math.inf), lambda t, x: (min(t[0], x), max(t[1], x)),
                 lambda a, b: (min(a[0], b[0]), max(a[1], b[1]))),
}


@pytest.mark.parametrize("records", ["floats", "ints", "float32", "int8", "one"])
def test_aggregates_and_folds_from_a_value(sc: SparkContext, records: str):
    rdd = in_partitions(sc, NUMBERS[records]).cache()
    cached = rdd.cache("GPU")
    for name, (zero, step, combine) in AGGREGATES.items():
        for action in ("aggregate", "treeAggregate"):
            aggregate, expected = (getattr(each, action)(zero, step, combine) for each in (cached, rdd))
            if name == "inverse":       # sums of what does not end in binary
                assert type(aggregate) is type(expected) and aggregate == pytest.approx(expected), action
            else:
                assert exact(aggregate) == exact(expected), (name, action)
    for zero, function in ((0, lambda a, b: a + b), (2.0, operator.mul), (-1, max), (0, lambda a, b: a - b)):
        folded, expected = (outcome(functools.partial(each.fold, zero, function)) for each in (cached, rdd))
        assert folded == expected, (zero, function)


def test_aggregates_that_need_no_spark_job(sc: SparkContext, points: VRDD):
    floats = sc.parallelize([float(x) for x in range(100)], 3).cache("GPU")
    zero, step, combine = AGGREGATES["from floats"]
    assert spark_jobs(sc, lambda: floats.aggregate(zero, step, combine)) == 0
    assert "aggregate: in the workers: add of '0', add of '1'" in floats.explanation()
    assert spark_jobs(sc, lambda: floats.treeReduce(operator.add)) == 0
    assert spark_jobs(sc, lambda: floats.fold(0.0, operator.add)) == 0
    assert points.count() == 40
    totals = without_jobs(sc, lambda: points.aggregate(
        (np.zeros(3, "f4"), 0), lambda t, p: (t[0] + p * p, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1])))
    rows = np.array(points.collect())
    np.testing.assert_allclose(totals[0], (rows * rows).sum(0), rtol=1e-6)
    assert totals[1] == 40 and type(totals[1]) is int and totals[0].dtype == np.float32
    # An int may overflow where Python's does not; a division may raise.
    ints = sc.parallelize([*range(10), 1 << 40], 3).cache("GPU")
    assert spark_jobs(sc, lambda: ints.aggregate(*AGGREGATES["squares"])) == 0
    assert spark_jobs(sc, lambda: floats.aggregate(*AGGREGATES["inverse"])) == 0
    assert "aggregate: in the driver" in ints.explanation() and "aggregate: in the workers" in floats.explanation()
    small = sc.parallelize([100.0, 1.0], 1).cache("GPU")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        small.aggregate(*AGGREGATES["inverse"])


def test_records_with_the_least_and_the_greatest_key_are_found_in_one_pass(sc: SparkContext):
    # Of like keys the first record is found; a NaN among the keys is PySpark's to judge.
    x = np.random.default_rng(1).integers(-40, 40, (5000, 2)).astype(float)
    cached = sc.parallelize(list(x), 3).cache("GPU")
    keys = np.abs(x[:, 0]) + x[:, 1]
    for action, place in ((cached.min, keys.argmin()), (cached.max, keys.argmax())):
        assert spark_jobs(sc, lambda action=action: action(key=lambda p: abs(p[0]) + p[1])) == 0
        np.testing.assert_array_equal(action(key=lambda p: abs(p[0]) + p[1]), x[place])
    assert "min: in the workers, which join neighbouring records" in cached.explanation()
    x[4000, 0] = np.nan
    rdd = sc.parallelize(list(x), 3)
    np.testing.assert_array_equal(rdd.cache("GPU").min(key=lambda p: p[0]), rdd.min(key=lambda p: p[0]))


def test_what_is_not_lowered_is_a_spark_job_with_the_same_answer(sc: SparkContext):
    rdd = in_partitions(sc, NUMBERS["floats"])
    cached = rdd.cache("GPU")
    assert cached.max(key=abs) == rdd.max(key=abs)
    assert cached.min(key=abs) == rdd.min(key=abs)
    assert cached.reduce(lambda a, b: math.hypot(a, b)) == pytest.approx(rdd.reduce(lambda a, b: math.hypot(a, b)))


def test_no_records(sc: SparkContext):
    cached = sc.parallelize([1.0], 2).filter(lambda x: x > 1).cache("GPU")
    assert (cached.sum(), cached.mean(), cached.count()) == (0, 0.0, 0)
    with pytest.raises(ValueError, match="empty"):
        cached.min()


@pytest.mark.parametrize("values", [[2**62, 2**62, 1], [2**40] * 3])
def test_python_ints_do_not_overflow(sc: SparkContext, values: list[int]):
    rdd = sc.parallelize(values, 2)
    cached = rdd.cache("GPU")
    assert cached.sum() == sum(values)
    assert cached.reduce(lambda a, b: a * b) == math.prod(values)
    tuples = cached.vmap(lambda x: (x, x, x))
    assert tuples.reduce(lambda p, q: (p[0] + q[0], p[1] * q[1], max(p[2], q[2]))) \
        == (sum(values), math.prod(values), max(values))


def test_nan_and_infinities(sc: SparkContext):
    for values in ([1.0, math.nan, 0.5], [math.nan, 1.0], [math.inf, 1.0], [math.inf, -math.inf], [1e308, 1e308]):
        rdd = sc.parallelize(values, 1)
        cached = rdd.cache("GPU")
        for action in ("min", "max", "sum", "mean"):
            assert exact(getattr(cached, action)()) == exact(getattr(rdd, action)()), (action, values)


def test_tuples_that_a_map_made(points: VRDD):
    pairs = points.vmap(lambda p: ((p, p[0]), 1))
    total, count = pairs.reduce(joined)
    rows = np.array(points.collect())
    assert count == 40 and type(count) is int
    np.testing.assert_allclose(total[0], rows.sum(axis=0, dtype="f8"), rtol=1e-6)
    assert exact(total[1]) == exact(rows[:, 0].min())


def test_a_single_record(sc: SparkContext):
    pairs = sc.parallelize([2.0], 3).cache("GPU").vmap(lambda x: (x, 1))
    assert exact(pairs.reduce(lambda p, q: (p[0] + q[0], p[1] * q[1]))) == exact((2.0, 1))


def test_float_sums_are_exact_to_rounding_and_repeat(sc: SparkContext):
    for dtype in ("f4", "f8"):
        numbers = np.random.default_rng(3).normal(size=20_000).astype(dtype) * np.logspace(-8, 8, 20_000).astype(dtype)
        cached = in_partitions(sc, [list(part) for part in np.array_split(numbers, 3)]).cache("GPU")
        total = cached.sum()
        assert all(cached.sum() == total for _ in range(3))
        assert total == numbers.dtype.type(math.fsum(numbers))


# -- vreduce ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
def test_vreduce_folds_along_the_leading_axis(sc: SparkContext, dtype: str):
    rng = np.random.default_rng(1)
    blocks = [rng.integers(0, 3, shape).astype(dtype) for shape in ((7, 3), (1, 3), (70, 1))]
    cubes = [rng.integers(0, 3, (4, 2, 3)).astype(dtype)]
    rows = [rng.integers(0, 3, 40).astype(dtype) for _ in range(5)]
    another = UFUNCS[DTYPES.index(dtype) % len(UFUNCS)]
    for records, ufuncs in ((blocks, UFUNCS), (cubes, [another]), (rows, [another])):
        cached = sc.parallelize(records, 3).cache("GPU")
        for ufunc in ufuncs:
            if has_no_kernel(dtype, ufunc):
                with pytest.raises(PlanError, match="has no"):
                    cached.vreduce(ufunc).collect()
                continue
            folded = cached.vreduce(ufunc).collect()
            with np.errstate(all="ignore"):
                expected = [functools.reduce(ufunc, record) for record in records]
            assert [type(each) for each in folded] == [type(each) for each in expected]
            for one, other in zip(folded, expected, strict=True):
                assert one.dtype == other.dtype and one.shape == other.shape
                np.testing.assert_allclose(one, other, rtol=1e-6)


def has_no_kernel(dtype: str, ufunc: np.ufunc) -> bool:
    kind = np.dtype(dtype).kind
    return (kind == "c" and ufunc is not np.add) or (kind == "f" and ufunc.__name__.startswith("bitwise"))


def test_long_blocks_are_folded_exactly(sc: SparkContext):
    block = np.random.default_rng(2).normal(size=(30_000, 3))
    total, = sc.parallelize([block], 1).cache("GPU").vreduce(operator.add).collect()
    assert total.tolist() == [math.fsum(column) for column in block.T]
    least, = sc.parallelize([block], 1).cache("GPU").vreduce(lambda a, b: min(a, b)).collect()
    assert exact(least) == exact(block.min(axis=0))


def test_logistic_regression_as_the_design_has_it(sc: SparkContext):
    rng = np.random.default_rng(5)
    blocks = [(f"file {i}", np.where(rng.random((n, 1)) < 0.5, -1, rng.normal(size=(n, 5))).astype("f4"))
              for i, n in enumerate((30, 1, 12))]
    weights = rng.normal(size=4).astype("f4")
    expected = sum(np.sum([gradient(p, weights) for p in block], axis=0) for _, block in blocks)
    add = operator.add
    for rdd in (sc.parallelize(blocks, 4), sc.parallelize(blocks, 4).cache("GPU"),
                sc.parallelize(blocks, 2).send().htod().cache()):
        total = rdd.vmap(gradient, weights, of="row").vreduce(add).values().reduce(add)
        assert total.dtype == np.float32 and total.shape == (4,)
        np.testing.assert_allclose(total, expected, rtol=1e-4)
        pairs = rdd.vmap(gradient, weights, of="row").vreduce(add).collect()
        assert [key for key, _ in pairs] == [key for key, _ in blocks]
    cached = sc.parallelize(blocks, 4).cache("GPU")
    assert spark_jobs(sc, lambda: cached.vmap(gradient, weights, of="row").vreduce(add).values().reduce(add)) == 0
    assert cached.vmap(gradient, weights, of="row").vreduce(add).recv().mapValues(len).collectAsMap() \
        == {key: 4 for key, _ in blocks}


def test_vreduce_of_fields_and_of_tuples(sc: SparkContext):
    record = {"a": np.arange(6.0).reshape(3, 2), "b": np.int32([[4], [5], [-1]])}
    folded, = sc.parallelize([record]).cache("GPU").vreduce(lambda a, b: a + b).collect()
    assert exact(folded) == exact({"a": np.array([6.0, 9.0]), "b": np.int32([8])})
    blocks = sc.parallelize([np.arange(6.0).reshape(3, 2)]).cache("GPU").vmap(lambda p: (p[0], (p, 1)), of="row")
    folded, = blocks.vreduce(lambda p, q: (max(p[0], q[0]), (p[1][0] + q[1][0], p[1][1] + q[1][1]))).collect()
    assert exact(folded) == exact((np.float64(4), (np.array([6.0, 9.0]), np.int64(3))))


def test_vreduce_of_tuples_of_numbers_gives_pythons(sc: SparkContext):
    records = [(1, 2, 3), (4, 5, 6)]
    assert exact(sc.parallelize(records).vreduce(max).collect()) == exact([3, 6])
    assert exact(sc.parallelize([(1.5, 2, 3)]).vreduce(operator.add).collect()) == exact([6.5])


def test_a_block_without_rows_adds_nothing(sc: SparkContext):
    empty = sc.parallelize([np.empty((0, 2), "f4")], 1)
    assert exact(empty.vreduce(operator.add).collect()) == exact([np.zeros(2, "f4")])
    with pytest.raises(PlanError, match="nothing to take the minimum of"):
        empty.vreduce(min).collect()


def test_vreduce_says_at_the_call_what_it_cannot_do(sc: SparkContext):
    numbers = sc.parallelize([1.0, 2.0])
    for function in (lambda a, b: a - b, print, lambda a: a, math.fsum):
        with pytest.raises(PlanError, match=r"vreduce\(\) cannot run on the device: .*What can: "):
            numbers.vreduce(function)
    with pytest.raises(PlanError, match=r"a record is a number: reduce\(\) folds records with each other"):
        numbers.vreduce(operator.add).collect()
    with pytest.raises(PlanError, match="name their parts"):
        sc.parallelize([np.ones((2, 2))]).cache("GPU").vmap(lambda p: (p, 1), of="row").vreduce(operator.add).collect()
    with pytest.raises(PlanError, match="joins the parts '0', '1' of a record, which has a single part"):
        sc.parallelize([np.ones((2, 2))]).vreduce(lambda p, q: (p[0] + q[0], p[1] + q[1])).collect()


def test_vreduce_of_rows_that_a_vmap_made(sc: SparkContext):
    rows = [(key, np.arange(3, dtype="f4") + key) for key in range(5)]
    sums = sc.parallelize(rows, 2).cache("GPU").vmap(lambda p: 2 * p, of="value").vreduce(operator.add)
    assert exact(sums.collect()) == exact([(key, np.float32(2 * row.sum())) for key, row in rows])
    assert sums.values().sum() == 90 and "FoldInside" not in sums.explanation()


def test_explain_shows_the_kernel_of_a_fold_that_ran(sc: SparkContext):
    doubled = sc.parallelize([1.0, 2.0], 2).cache("GPU").vmap(lambda x: 2 * x)
    assert doubled.sum() == 6.0
    _, fold = doubled.explanation(sources=True).split("== Kernels of sum() ==")
    assert "lambda_fold (" in fold and 'extern "C" __global__ void' in fold


def test_a_cached_vreduce_is_folded_on(sc: SparkContext):
    sums = sc.parallelize([np.full((4, 2), 2.0), np.ones((3, 2))], 2).cache("GPU").vreduce(operator.add).cache()
    assert exact(sums.collect()) == exact([np.array([8.0, 8.0]), np.array([3.0, 3.0])])
    assert sums.vreduce(operator.add).sum() == 22.0
    assert "vreduce add" in sums.explanation()
    single = sc.parallelize([np.ones((3, 2))], 1).cache("GPU").vmap(lambda row: 2 * row)
    assert single.count() == 1 and " device for 1 block, " in single.explanation()


# -- reduceByKey ------------------------------------------------------------------------------------------------------

def test_kmeans_as_spark_has_it(sc: SparkContext, points: VRDD):
    centres = np.array(points.take(K))
    plain = sc.parallelize(points.collect(), 3).map(lambda p: closest(p, centres))
    expected = plain.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1])).collectAsMap()

    def step() -> dict:
        near = points.vmap(closest, centres)
        return near.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=K).collectAsMap()

    sums = step()
    assert list(sums) == sorted(expected)
    for key, (total, count) in sums.items():
        assert type(key) is int and type(count) is int and count == expected[key][1]
        assert total.dtype == np.float32
        np.testing.assert_allclose(total, expected[key][0], rtol=1e-5, atol=1e-6)
    assert exact(step()) == exact(sums)
    assert spark_jobs(sc, step) == 0


def by_key(rdd: RDD | VRDD, function: Callable, numKeys: int = K) -> RDD:
    return rdd.reduceByKey(function, numKeys=numKeys) if isinstance(rdd, VRDD) else rdd.reduceByKey(function)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64", "uint16", "uint64", "float32", "float64"])
def test_values_of_all_types(sc: SparkContext, dtype: str):
    values = np.random.default_rng(4).integers(0, 4, 60).astype(dtype)
    cached = in_partitions(sc, [list(values[:50]), [], list(values[50:])]).cache("GPU")
    pairs = cached.vmap(lambda x: (np.int32(x) % 3, x))
    plain = sc.parallelize(pairs.collect(), 2)
    for function in (operator.add, max, operator.mul, *([] if dtype.startswith("float") else [lambda a, b: a & b])):
        records = without_jobs(sc, by_key(pairs, function).collect)
        with np.errstate(all="ignore"):
            assert multiset(records) == multiset(plain.reduceByKey(function).collect())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_keys_of_all_types(sc: SparkContext, dtype: str):
    keys = [np.dtype(dtype).type(x % 3 + 1) for x in range(20)]
    pairs = sc.parallelize(keys, 2).cache("GPU").vmap(lambda k: (k, 1))
    reduced = pairs.reduceByKey(operator.add, numKeys=K)
    assert exact(reduced.collect()) == exact([(np.dtype(dtype).type(k), keys.count(k)) for k in (1, 2, 3)])


def test_passes_ask_the_jvm_nothing(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    numbers = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
    numbers.count()
    if Session.of(sc).relays:
        pytest.skip("a relayed plan is a Spark job, which the JVM is asked for")
    commands: list[str] = []
    ask = sc._gateway._gateway_client.send_command

    def listening(command: str, *arguments: Any, **named: Any) -> Any:
        commands.append(command)
        return ask(command, *arguments, **named)

    monkeypatch.setattr(sc._gateway._gateway_client, "send_command", listening)
    for k, sums in ((1.0, [(0, 1.0), (1, 5.0)]), (2.0, [(0, 3.0), (1, 3.0)])):
        pairs = numbers.vmap(lambda x, k: (1 if x > k else 0, x), k)
        assert pairs.reduceByKey(operator.add, numKeys=2).collect() == sums
        assert numbers.vmap(lambda x, k: k * x, k).reduce(operator.add) == 6 * k
    assert [command for command in commands if not command.startswith("m\n")] == []      # but for what Python let go of


def test_large_arguments_are_those_of_their_call_however_long_it_is_kept(sc: SparkContext):
    rows = [np.arange(10_000.0) * number for number in range(4)]
    held = in_partitions(sc, [rows[:3], rows[3:]]).cache("GPU")
    w = np.zeros(10_000)
    kept, shared = [], set()

    def step(number: int) -> None:
        w[:] = number
        scaled = held.vmap(lambda p, w: p * w, w)
        w[:] = np.nan
        total = scaled.reduce(np.add)
        shared.add(type(scaled._op.spec.arguments[0].data).__name__)
        if number % 3 == 0:
            kept.append((number, scaled, total))
        assert (total == number * sum(rows)).all()

    for number in range(12):
        step(number)
    workers = [worker for worker in Session.of(sc).workers.known() if worker.transport == "unix"]
    assert shared == {"bytes", "Shared"} if workers else {"bytes"}      # some are in memory that a worker has
    # Two threads bring the same arguments at the same time, and what came before is as it was.
    with ThreadPoolExecutor(2) as pool:
        again = list(pool.map(lambda each: each[1].reduce(np.add), kept * 3))
    for (number, _, total), repeated in zip(kept * 3, again, strict=True):
        assert (total == number * sum(rows)).all() and (repeated == total).all()
    for worker in workers:
        while worker.connections._idle:         # connections have their memory for the next request
            worker.connections._idle.pop().close()


def test_a_bool_is_a_key(sc: SparkContext):
    pairs = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU").vmap(lambda x: (x > 1.5, x))
    assert exact(pairs.reduceByKey(operator.add, numKeys=2).collect()) == exact([(False, 1.0), (True, 5.0)])


def test_functions_that_do_not_read_their_element_count_it(points: VRDD):
    # Their kernels have no array that tells how many rows there are.
    assert points.vmap(lambda p: 1).sum() == points.vmap(lambda p: (3, 1)).values().reduce(operator.add) == 40
    assert points.vmap(lambda p: (2, 1)).reduceByKey(operator.add, numKeys=7).collect() == [(2, 40)]


def test_many_keys_and_wide_rows(sc: SparkContext):
    """More than shared memory holds."""
    rows = np.random.default_rng(6).normal(size=(500, 70))
    pairs = sc.parallelize(list(rows), 2).cache("GPU").vmap(lambda p: (int(np.abs(p[0]) * 1000) % 900, (p, 1)))
    sums = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=900).collectAsMap()
    keys = (np.abs(rows[:, 0]) * 1000).astype(int) % 900
    assert list(sums) == sorted(set(keys.tolist()))
    for key, (total, count) in sums.items():
        assert count == (keys == key).sum()
        np.testing.assert_allclose(total, rows[keys == key].sum(axis=0), rtol=1e-12, atol=1e-14)


def test_numbers_by_many_keys_are_added_up_exactly(sc: SparkContext):
    values = (np.random.default_rng(6).normal(size=4000) * 1e6).astype("float32")
    pairs = sc.parallelize(list(values), 3).cache("GPU").vmap(lambda x: (int(abs(x)) % 7 * 3000, (x, 1)))
    reduced = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=20000)
    keys = np.abs(values).astype(int) % 7 * 3000
    for _ in range(2):
        assert reduced.collectAsMap() == {
            key: (np.float32(math.fsum(values[keys == key])), (keys == key).sum()) for key in np.unique(keys)}
    assert pairs.values().reduce(lambda a, b: (a[0] + b[0], a[1] + b[1])) == (
        np.float32(math.fsum(values)), len(values))
    assert pairs.keys().sum() == keys.sum()


def test_overflow_and_nan_by_key_are_pythons(sc: SparkContext):
    ints = sc.parallelize([2**62, 2**62, 5], 2).cache("GPU").vmap(lambda x: (0, x))
    assert ints.reduceByKey(operator.add, numKeys=1).collect() == [(0, 2**63 + 5)]
    floats = sc.parallelize([1.0, math.nan, 0.5], 1).cache("GPU").vmap(lambda x: (0, x))
    plain = sc.parallelize(floats.collect(), 1)
    assert exact(floats.reduceByKey(min, numKeys=1).collect()) == exact(plain.reduceByKey(min).collect())


def test_a_key_out_of_range_is_named(sc: SparkContext):
    for value, shown in ((7, "7"), (-2, "-2")):
        pairs = sc.parallelize([0, 1, value, 2], 1).cache("GPU").vmap(lambda x: (x, 1.0))
        with pytest.raises(PlanError, match=rf"0 has the key {shown}, and numKeys=5 promises keys in \[0, 5\)"):
            pairs.reduceByKey(operator.add, numKeys=5).collect()
    assert pairs.count() == 4       # the session lives on
    for wrong in (0, -1, 2.5, "3"):
        with pytest.raises(PlanError, match="numKeys= is the number of keys"):
            pairs.reduceByKey(operator.add, numKeys=wrong)


def test_the_result_is_an_rdd(sc: SparkContext, points: VRDD):
    pairs = points.vmap(lambda p: (int(np.abs(p[0])), 1))
    reduced, plain = (by_key(rdd, operator.add) for rdd in (pairs, sc.parallelize(pairs.collect(), 3)))
    assert isinstance(reduced, RDD)
    for action in (reduced.collect, reduced.collectAsMap, reduced.count, reduced.first, lambda: reduced.take(2),
                   reduced.isEmpty, reduced.keys().collect, reduced.values().collect, reduced.keys().count):
        assert spark_jobs(sc, action) == 0
    records = plain.collect()
    assert multiset(reduced.collect()) == multiset(records) and reduced.count() == len(records)
    assert multiset(reduced.keys().collect()) == multiset(plain.keys().collect())
    assert multiset(reduced.values().map(lambda x: x + 1).collect()) == multiset(x + 1 for _, x in records)
    assert reduced.collectAsMap() == plain.collectAsMap()
    assert reduced.getNumPartitions() == sc.parallelize([], 4).map(lambda x: (x, x)).reduceByKey(max).getNumPartitions()
    for use in (lambda rdd: rdd.map(lambda pair: (pair[1], pair[0])), lambda rdd: rdd.mapValues(lambda x: 2 * x),
                lambda rdd: rdd.join(sc.parallelize([(0, "a"), (1, "b")])), lambda rdd: rdd.union(rdd),
                lambda rdd: rdd.filter(lambda pair: pair[0] > 0), lambda rdd: rdd.sortByKey(ascending=False)):
        assert multiset(use(reduced).collect()) == multiset(use(plain).collect())
    assert reduced.values().sum() == plain.values().sum() == 40
    placed = by_key(pairs, operator.add).partitionBy(4).glom().collect()
    assert placed == plain.partitionBy(4).glom().collect()


def test_its_records_are_its_own(points: VRDD):
    reduced = points.vmap(lambda p: (0, p)).reduceByKey(operator.add, numKeys=1)
    (_, total), = reduced.collect()
    total[:] = 0
    assert reduced.first()[1].any()


def test_without_a_promise_or_a_kernel_it_is_sparks(sc: SparkContext, points: VRDD, capsys: pytest.CaptureFixture):
    pairs = points.vmap(lambda p: (int(np.abs(p[0])), p[1]))
    plain = sc.parallelize(pairs.collect(), 2)
    uncached = sc.parallelize(points.collect(), 2).vmap(lambda p: (int(np.abs(p[0])), p[1]))
    sent = sc.parallelize([(1, 2.0), (1, 3.0), (0, 4.0)], 2).cache("GPU")
    assert sent.count() == 3        # what explain() says depends on what the records look like
    for reduced, expected, why in (
            (pairs.reduceByKey(lambda a, b: a if a == b else a + b),
             plain.reduceByKey(lambda a, b: a if a == b else a + b), "rowsByKey"),
            (pairs.reduceByKey(lambda a, b: a if a == b else [b][0] + a, numKeys=K),
             plain.reduceByKey(lambda a, b: a if a == b else a + b), "rowsByKey"),
            (pairs.reduceByKey(lambda a, b: a + print(end="") if a == 1e9 else a + b, numKeys=K),
             plain.reduceByKey(lambda a, b: a + b), "print"),
            (uncached.reduceByKey(max, numKeys=K), plain.reduceByKey(max), "nothing is cached"),
            (sent.reduceByKey(operator.add, numKeys=2), sc.parallelize([(1, 5.0), (0, 4.0)]), "stay on the host")):
        reduced.explain()
        assert why in capsys.readouterr().out
        assert {key: float(value) for key, value in reduced.collect()} \
            == pytest.approx({key: float(value) for key, value in expected.collect()}, rel=1e-5)
    assert "in the workers, over 5 keys" in pairs.reduceByKey(max, numKeys=K).explanation()


def test_no_pairs_and_few_partitions(sc: SparkContext):
    none = sc.parallelize([1.0, 2.0], 2).filter(lambda x: x > 5).cache("GPU").vmap(lambda x: (0, x))
    assert none.reduceByKey(operator.add, numKeys=3).collect() == []
    one = sc.parallelize([2.5], 3).cache("GPU").vmap(lambda x: (2, x))
    assert one.reduceByKey(operator.add, 2, numKeys=3).glom().map(len).collect() == [1, 0]


def test_sums_of_float32_come_back_as_they_are_added_up(sc: SparkContext):
    rows = np.random.default_rng(4).normal(size=(4000, 5)).astype(np.float32)
    exact = rows.sum(axis=0, dtype=np.float64)
    cached = sc.parallelize(rows, 3).cache("GPU")
    cached.count()
    total = cached.reduce(operator.add, dtype=np.float64)
    assert total.dtype == np.float64
    np.testing.assert_allclose(total, exact, rtol=1e-9)
    # One that is no kernel's, which Spark folds.
    by_spark = cached.reduce(lambda a, b: np.add(a, b) + 0, dtype=np.float64)
    assert by_spark.dtype == np.float64
    np.testing.assert_allclose(by_spark, exact, rtol=1e-9)
    mapped = cached.vmap(lambda p: (p[0], np.float64(p[1]), np.outer(p, p), int(p[0] > 0)))
    one, two, gram, count = mapped.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]),
                                          dtype=np.float64)
    assert one.dtype == two.dtype == gram.dtype == np.float64 and type(count) is int
    np.testing.assert_allclose(one, exact[0], atol=1e-5)
    np.testing.assert_allclose(gram, rows.astype("f8").T @ rows, rtol=1e-6, atol=1e-3)
    pairs = cached.vmap(lambda p: (int(p[0] > 0), p))
    for numbers in (2, None):
        (_, below), (_, above) = sorted(pairs.reduceByKey(operator.add, 2, numKeys=numbers, dtype=np.float64).collect())
        assert below.dtype == above.dtype == np.float64
        np.testing.assert_allclose(below + above, exact, atol=1e-5)
    with pytest.raises(PlanError, match=r"np\.float64"):
        cached.reduce(operator.add, dtype=np.float32)


def test_matrix_folds_are_told_of(sc: SparkContext):
    cached = sc.parallelize(np.ones((100, 30), np.float32), 2).cache("GPU")
    grams = cached.vmap(lambda p: np.outer(p, p))
    assert np.array_equal(grams.reduce(operator.add), np.full((30, 30), 100))
    assert ", matrix fold)" in grams.explanation()


ZEROS = [[0.0, -0.0], [-0.0, 0.0], [1.0, 0.0, -0.0], [0.0, -0.0, -1.0], [2.0] * 9 + [-0.0] * 7 + [0.0] * 9,
         [np.float32(0.0), np.float32(-0.0)]]


@pytest.mark.parametrize("most", [1_000_000, 1])
def test_of_zeros_of_both_signs_the_one_that_python_keeps_is_left(sc: SparkContext, monkeypatch: pytest.MonkeyPatch,
                                                                  most: int):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", most)
    for records in ZEROS:
        plain = sc.parallelize(records, 3)
        held = plain.cache("GPU")
        for find in (lambda rdd: rdd.min(), lambda rdd: rdd.max(), lambda rdd: rdd.reduce(min),
                     lambda rdd: rdd.treeReduce(max), lambda rdd: rdd.reduce(later), lambda rdd: rdd.min(key=abs)):
            assert exact(find(held)) == exact(find(plain)), records


def later(a, b):
    return a if a < b else b


def test_the_size_of_the_least_int_is_pythons(sc):
    records = [-2**63, *range(2000)]
    held = sc.parallelize(records, 2).cache("GPU")
    assert held.max(key=abs) == held.reduce(lambda a, b: a if abs(a) > abs(b) else b) == -2**63
    assert held.aggregate(0, lambda t, x: max(t, abs(x)), max) == 2**63


PAIRS = [(1, np.float32([1, 2])), (2, np.float32([3, 4]))]


@pytest.mark.parametrize("records", [[1, 2, 3], [True, False], list(np.float32([1, 2])), [value for _, value in PAIRS],
                                     list(np.arange(12, dtype="i2").reshape(2, 2, 3)), []])
def test_records_come_as_one_array(sc: SparkContext, records: list):
    plain = sc.parallelize(records, 2)
    array = plain.cache("GPU").toNumpy()
    assert exact(array) == exact(np.array(records)) == exact(plain.send().toNumpy())


def test_items_of_pairs_come_as_one_array(sc: SparkContext):
    held = sc.parallelize(PAIRS, 2).cache("GPU")
    assert exact(held.keys().toNumpy()) == exact(np.array([1, 2]))
    assert exact(held.values().toNumpy()) == exact(np.float32([[1, 2], [3, 4]]))


@pytest.mark.parametrize("records", [PAIRS, [{"x": 1.0}, {"x": 2.0}], [(1.0, 2.0)], [np.ones((2, 3)), np.ones((4, 3))],
                                     [np.ones(2), np.ones(3)], [("a", 1.0)]])
def test_records_that_are_no_array_are_refused(sc: SparkContext, records: list):
    plain = sc.parallelize(records, 1)
    for vrdd in (plain.send(), plain.cache("GPU")):
        with pytest.raises(PlanError, match="toNumpy"):
            vrdd.toNumpy()
