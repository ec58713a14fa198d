"""Meaning of a function's parameter in `vmap`: with `of=` that of `map`, else never another without a word."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context
from vispark import MeaningWarning, PlanError, TranslationError
from vispark.plan import map_call

W = np.arange(6.0).reshape(3, 2)
V = np.array([1.0, 2.0, 3.0])
ARRAYS = [np.arange(6.0).reshape(2, 3), np.ones((4, 3)), np.eye(3)]

WHOLE = [
    lambda m: m.sum(), lambda m: m.mean(axis=0), lambda m: m.shape[0], lambda m: m[0], lambda m: m.max(),
    lambda m: len(m), lambda m: m[1, 2], lambda m: m @ W, lambda m: m @ V, lambda m: m[1:, :2], lambda m: m.reshape(-1),
    lambda m: m.T @ m, lambda m: 2 * m + 1, lambda m: (m.sum(), m.mean(axis=1)), lambda m: {"a": m.sum(), "b": m[0]},
    lambda m: np.exp(m - m.max()) / np.exp(m - m.max()).sum(), lambda m: float(m[0, 0])]


def alike(one, other) -> bool:
    if isinstance(one, tuple | dict):
        keys = range(len(one)) if isinstance(one, tuple) else one
        return type(one) is type(other) and len(one) == len(other) and all(alike(one[key], other[key]) for key in keys)
    return type(one) is type(other) and np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-14)


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture
def arrays(sc: SparkContext):
    return sc.parallelize(ARRAYS, 2).cache("GPU")


@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_of_a_whole_record_vmap_gives_what_map_gives(arrays, number):
    records, wanted = arrays.vmap(WHOLE[number], of="record").collect(), [WHOLE[number](each) for each in ARRAYS]
    assert len(records) == len(wanted) and all(map(alike, records, wanted)), (records, wanted)


def test_what_whole_records_become_is_mapped_folded_and_counted(arrays):
    sums, rows = arrays.vmap(lambda m: m.sum(), of="record"), arrays.vmap(lambda m: m.mean(axis=0), of="record")
    assert sums.sum() == 30 and sums.count() == 3 and sums.max() == 15
    assert sums.vmap(lambda x: 2 * x).collect() == [30, 24, 6] and sums.map(lambda x: x + 1).collect() == [16, 13, 4]
    assert rows.vmap(lambda r: r.sum(), of="record").collect() == [7.5, 3.0, 1.0]
    assert rows.vmap(lambda x: 2 * x, of="row").vreduce(operator.add).collect() == [15.0, 6.0, 2.0]
    np.testing.assert_allclose(rows.reduce(lambda a, b: a + b), [17 / 6, 23 / 6, 29 / 6])
    pairs = arrays.vmap(lambda m: (m.shape[0] % 2, m.sum()), of="record")
    assert pairs.reduceByKey(operator.add, numKeys=2).collectAsMap() == {0: 27, 1: 3}
    assert rows.cache().vmap(lambda r: r[1], of="record").collect() == [2.5, 1.0, 1 / 3]


def test_without_cache_a_plain_rdd_takes_the_same_words(sc):
    assert sc.parallelize(ARRAYS, 2).vmap(lambda m: m.sum(), of="record").collect() == [15, 12, 3]


def test_of_a_chain_rows_and_whole_records_keep_their_meaning(arrays):
    chain = arrays.vmap(lambda p: 2 * p).vmap(lambda m: (m - m.mean()), of="record").vmap(lambda p: p.max(), of="row")
    for maxima, array in zip(chain.collect(), ARRAYS, strict=True):
        np.testing.assert_allclose(maxima, (2 * array - (2 * array).mean()).max(axis=1))


def test_values_of_pairs_and_fields_are_taken_whole(sc):
    pairs = sc.parallelize([("a", np.ones((2, 3))), ("b", np.ones((4, 3)))], 2).cache("GPU")
    assert pairs.vmap(lambda m: m.sum(), of="value").collect() == [("a", 6), ("b", 12)]
    fields = sc.parallelize([{"x": np.ones((2, 3)), "m": 2.0}, {"x": np.ones((4, 3)), "m": 3.0}], 2).cache("GPU")
    assert fields.vmap(lambda x, m: m * x.sum(), of="record").collect() == [12, 36]
    assert fields.vmap(lambda x, m: {"m": m * x.sum()}, of="record").first()["m"] == 12


def test_an_image_of_any_size_is_taken_whole(sc):
    image = np.random.default_rng(1).random((300, 200)).astype("f4")
    blurred = sc.parallelize([image, image[:100]], 2).cache("GPU").vmap(
        lambda m: (m[:-2] + m[1:-1] + m[2:]) / 3, of="record").collect()
    np.testing.assert_allclose(blurred[0], (image[:-2] + image[1:-1] + image[2:]) / 3, rtol=1e-6)
    assert blurred[1].shape == (98, 200)


def test_what_is_kept_of_a_large_record_is_told(sc):
    images = sc.parallelize([np.ones((400, 400))], 1).cache("GPU")
    with pytest.raises(TranslationError, match=r"1,280,000 bytes; at most 1,048,576 can be"):
        images.vmap(lambda m: np.sort(m.reshape(-1)), of="record").collect()


def warnings_of(run, times: int = 2) -> list[str]:
    map_call._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            run()
    assert all(each.category is MeaningWarning and each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def test_a_function_of_rows_that_may_mean_something_else_is_told_of_once(arrays):
    warning, = warnings_of(lambda: arrays.vmap(lambda m: m.sum()).collect())
    assert 'of="row"' in warning and 'of="record"' in warning and "(2, 3)" in warning
    assert not warnings_of(lambda: arrays.vmap(lambda m: m.sum(), of="row").collect())
    assert not warnings_of(lambda: arrays.vmap(lambda m, w: 2 * m + w, V).collect())
    assert len(warnings_of(lambda: arrays.vmap(lambda m, w: m + w[:, 0], W).collect())) == 1


def test_a_function_that_takes_pairs_apart_is_told_of_once(sc):
    pairs = sc.parallelize([("a", V), ("b", 2 * V)], 2).cache("GPU")
    warning, = warnings_of(lambda: pairs.vmap(lambda kv: (kv[0], kv[1] * 2)).collect())
    assert 'of="value"' in warning and 'of="record"' in warning
    assert not warnings_of(lambda: pairs.vmap(lambda kv: (kv[0], kv[1] * 2), of="value").collect())
    assert not warnings_of(lambda: pairs.vmap(lambda p: p[0] * p.sum()).collect())
    # Pairs that a function made are given whole.
    assert not warnings_of(lambda: pairs.values().vmap(lambda p: (p[0], p[1])).vmap(lambda t: t[0] * t[1]).collect())


TENTH = np.float32(0.1)


def named(x):
    tenth = np.float32(0.1)
    return x * tenth


DIFFERING = [
    (lambda x: (x > 0) + (x < 6), "int(x > 0) + int(y > 0) for 2"),
    (lambda x: 2 ** x, "has ** of ints, which wraps beyond 64 bits"),
    (lambda x: x * TENTH, "np.float32(x) for float32, np.float64(TENTH) for float64"),
    (lambda x: x * np.float32(0.1), "np.float32(x) for float32, np.float64(np.float32(0.1)) for float64"),
    (lambda x: x - -np.float32(-0.1), "with np.float32(-0.1), which is float32: vmap() takes the records as"),
    (named, "with tenth, which is float32: vmap() takes the records as"),
    (lambda x: x > TENTH, "what is compared is float64; in map() it is float32"),
    (lambda x: np.float16(2.5) > x > 0, "what is compared is float64; in map() it is float16")]


@pytest.mark.parametrize("number", range(len(DIFFERING)))
def test_a_function_of_python_numbers_that_gives_others_than_map_is_told_of_once(sc, number: int):
    function, words = DIFFERING[number]
    numbers = sc.parallelize([5, 1, 3], 2).cache("GPU")
    warning, = warnings_of(lambda: numbers.vmap(function).collect())
    assert words in warning and 'of="record"' in warning
    assert not warnings_of(lambda: numbers.vmap(function, of="record").collect())
    # Of NumPy's numbers it means the same.
    assert not warnings_of(lambda: sc.parallelize([np.int64(5), np.int64(1)], 1).cache("GPU").vmap(function).collect())


def test_functions_of_python_numbers_that_mean_the_same_are_not_told_of(sc):
    numbers, dicts = sc.parallelize([5, 1, 3], 2).cache("GPU"), sc.parallelize([{"x": 1, "y": 2.0}], 1).cache("GPU")
    for function in (lambda x: 2 * x + 1, lambda x: x ** 2, lambda x: int(x > 0) + int(x < 6), lambda x: 1 / x,
                     lambda x: np.float32(x) * TENTH, lambda x: np.float32(x) > np.float32(0.1),
                     lambda x: (x > 0) & (x < 6), lambda x: float(x) ** 3):
        assert not warnings_of(lambda function=function: numbers.vmap(function).collect())
    assert not warnings_of(lambda: dicts.vmap(lambda x, y: x * y).collect())
    assert len(warnings_of(lambda: dicts.vmap(lambda x, y: (x > 0) + (y > 0)).collect())) == 1


def test_a_warning_that_is_an_error_is_raised_each_time(arrays):
    map_call._warned.clear()
    for _ in range(2):
        with pytest.raises(MeaningWarning, match="rows of arrays"):
            arrays.vmap(lambda m: m[0] * m.sum()).collect()


def test_words_that_do_not_fit_the_records_are_refused(sc, arrays):
    with pytest.raises(PlanError, match="of='rows'; it is 'record', 'value', 'row', or left out"):
        arrays.vmap(lambda m: m.sum(), of="rows")
    with pytest.raises(PlanError, match='of="value" is of pairs with keys'):
        arrays.vmap(lambda m: m.sum(), of="value").collect()
    pairs = sc.parallelize([("a", V)], 1).cache("GPU")
    with pytest.raises(PlanError, match=r'these keys are others, and stay in Spark. of="value" gives'):
        pairs.vmap(lambda kv: kv[0], of="record").collect()
    mixed = sc.parallelize([(1, 1.0), (2.5, 2.0)], 2).cache("GPU")
    with pytest.raises(PlanError, match=r"here they are of float and int: send all as one, such as float\(key\)"):
        mixed.vmap(lambda kv: kv[0], of="record").collect()


def unpacked(pair):
    key, value = pair
    return (key % 2, (value, key))


PAIRS = [
    ([(n, n / 2) for n in range(5)], [lambda kv: kv[0] * kv[1], lambda kv: kv, unpacked]),
    ([(n / 4, n) for n in range(5)], [lambda kv: (kv[0] + 1, kv[1]), lambda kv: kv[0]]),
    ([(np.float32(n), 0.5) for n in range(1, 4)], [lambda kv: kv[0] * kv[1], lambda kv: {"k": kv[0], "v": kv[1]}]),
    ([(n, V.astype("f4") * n) for n in range(5)],
     [lambda kv: kv[0] * kv[1], lambda kv: (kv[0], kv[1].sum()), lambda kv: len(kv[1]) + kv[0], unpacked]),
    ([(n, np.full((n + 1, 3), n, "f4")) for n in range(4)],
     [lambda kv: kv[0] * kv[1], lambda kv: (kv[0], kv[1].T @ kv[1]), lambda kv: kv, unpacked]),
    ([(n, np.arange(n + 1.0)) for n in range(4)], [lambda kv: kv[0] * kv[1].sum(), lambda kv: kv[0] + len(kv[1])]),
    ([(n, (n, n / 2, n > 1)) for n in range(4)],
     [lambda kv: (kv[0], kv[1]), lambda kv: kv, lambda kv: (kv[0], kv[1][1:]), lambda kv: (kv[1][0], kv[1][2]),
      lambda kv: (kv[0], kv[1][:2] * 2), lambda kv: (kv[1][0] & 1, sum(kv[1])), unpacked]),
    ([(n, tuple(V.astype("f4") * n)) for n in range(4)],
     [lambda kv: (kv[0], kv[1]), lambda kv: np.array(kv[1]) * kv[0]]),
    ([(n, {"x": n / 2, "y": V}) for n in range(4)],
     [lambda kv: kv[0] + kv[1]["x"] * 2, lambda kv: {"a": kv[0], "b": kv[1]["y"]}])]


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_of_a_pair_with_a_number_as_key_vmap_gives_what_map_gives(sc, number: int):
    pairs, functions = PAIRS[number]
    cached = sc.parallelize(pairs, 2).cache("GPU")
    for function in functions:
        assert list(map(exact, cached.vmap(function, of="record").collect())) == \
            [exact(function(pair)) for pair in pairs]
    first = functions[0]
    assert [*map(exact, sc.parallelize(pairs[:1], 2).vmap(first, of="record").collect())] == [exact(first(pairs[0]))]


def test_whole_pairs_go_on_in_a_chain(sc):
    pairs = sc.parallelize([(n, n / 2) for n in range(5)], 2).cache("GPU")
    mapped = pairs.vmap(lambda v: v + 1).vmap(lambda kv: (kv[0] % 2, kv[0] * kv[1]), of="record")
    assert mapped.values().sum() == 25 and mapped.keys().collect() == [0, 1, 0, 1, 0]
    assert mapped.reduceByKey(operator.add, numKeys=2).collectAsMap() == {0: 16, 1: 9}
    kept = mapped.cache()
    assert kept.vmap(lambda kv: kv[0] + kv[1], of="record").sum() == 27 and kept.count() == 5
    assert pairs.vmap(lambda kv: kv[0], of="record").reduce(operator.add) == 10
    assert pairs.vmap(lambda v: 2 * v, of="value").collect() == [(n, float(n)) for n in range(5)]


def test_of_an_error_in_rows_it_is_said_that_they_are_rows(arrays):
    with pytest.raises(TranslationError, match=r'arrays of shape \(2, 3\), and the function gets their rows'):
        arrays.vmap(lambda m: m[0, 1]).collect()


def test_tuples_are_tuples_where_the_record_is_asked_for(sc):
    tuples = [(n, n / 2, n > 1) for n in range(4)]
    cached = sc.parallelize(tuples, 2).cache("GPU")
    for function in (lambda t: t, lambda t: t[1:] + t[:1], lambda t: (t[0] & 1, 2 * t[:2]), lambda t: (t, t[2])):
        assert [*map(exact, cached.vmap(function, of="record").collect())] == [exact(function(each)) for each in tuples]
    keyed = sc.parallelize([("a", tuples[2])], 1).cache("GPU")
    assert exact(keyed.vmap(lambda t: t[1:], of="value").collect()) == exact([("a", (1.0, True))])
    warning, = warnings_of(lambda: cached.vmap(lambda t: t).collect())
    assert 'of="row"' in warning and 'of="record"' in warning and "row of float64" in warning
    assert not warnings_of(lambda: cached.vmap(lambda t: t[1] * t[0]).collect())
