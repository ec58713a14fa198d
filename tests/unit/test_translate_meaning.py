"""Meaning of functions: the same of rows as of their array, or of a pair that they take apart."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from vispark.translate.frontend.meaning import same_by_rows, takes_pair_apart
from vispark.translate.frontend.python_numbers import meaning_of_numbers
from vispark.translate.frontend.reader import trace_call

W = np.arange(6.0).reshape(3, 2)
V = np.arange(3.0)
M = np.arange(12.0).reshape(4, 3)


def _helper(kv):
    key, value = kv
    return key * value


def _renamed(t):
    pair = t
    return pair[0] + pair[1]


def _scaled(p, k=2.0):
    q = p * k
    q += 1
    return q


def _turns(p):
    total = 0.0
    for x in p:
        total += x
    return total


@pytest.mark.parametrize("function", [
    lambda kv: (kv[0], kv[1] * 2), lambda t: t[0] * t[1], lambda t: t[-1], _helper, lambda kv: _helper(kv), _renamed,
    lambda kv: 2 * kv[1] if kv[0] > 0 else kv[1], lambda kv: kv == kv])
def test_a_function_that_takes_a_pair_apart_is_known(function):
    assert takes_pair_apart(trace_call(function, ())[0].definition)


@pytest.mark.parametrize("function", [
    lambda p: p.sum(), lambda p: p[0] * p[1:].sum(), lambda p: p[2] + p[0], lambda p: len(p) * p[0], lambda p: 1.0,
    lambda p: sum(x * 2 for x in p), lambda p: p[0:1]])
def test_a_function_of_the_value_is_no_function_of_a_pair(function):
    assert not takes_pair_apart(trace_call(function, ())[0].definition)


_SAME = [lambda m: 2 * m + 1, lambda m: np.exp(-m) > 0.5, lambda m: m @ W, lambda m: m @ V, lambda m: np.dot(m, W),
         lambda m: m.astype("f4") * V, lambda m: np.where(m > 1, m, 0), lambda m: (m, -m), lambda m: {"a": abs(m)},
         lambda m: np.maximum(m, W[1, 0]), _scaled, lambda m: _scaled(m, k=3.0), lambda m: m.clip(0, 1) ** 2,
         lambda m: operator.add(m, V), lambda m: (m * V) @ W]
_DOUBTFUL = [lambda m: m.sum(), lambda m: m.mean(axis=0), lambda m: m.shape[0], lambda m: m[0], lambda m: len(m),
             lambda m: m * (m @ V), lambda m: m + M, lambda m: M @ m, lambda m: 1.0, lambda m: (m, 1.0), _turns,
             lambda m: m.T, lambda m: m.max(), lambda m: m if m[0] > 0 else -m, lambda m: np.sort(m),
             lambda m: m.reshape(-1), lambda m: np.array([x * 2 for x in m]), lambda m: m.dot(V).sum()]


@pytest.mark.parametrize("function", _SAME)
def test_what_goes_number_by_number_means_the_same_of_rows(function):
    assert same_by_rows(trace_call(function, ())[0], (), {"": 1})
    of_all, of_rows = function(M), [function(row) for row in M]
    for name in of_all if isinstance(of_all, dict) else range(len(of_all)) if isinstance(of_all, tuple) else [...]:
        assert np.allclose(of_all[name], [row[name] for row in of_rows])


@pytest.mark.parametrize("function", _DOUBTFUL)
def test_all_else_is_doubtful(function):
    assert not same_by_rows(trace_call(function, ())[0], (), {"": 1})


def test_arguments_and_fields_count_by_their_axes():
    add = lambda m, w: m + w        # noqa: E731 - the reader finds the lambda
    for array, same in ((V, True), (M, False), (np.float64(2), True)):
        function, arguments = trace_call(add, (array,))
        assert same_by_rows(function, arguments, {"": 1}) is same
    fields = trace_call(lambda x, y: x * y, ())[0]
    assert same_by_rows(fields, (), {"x": 1, "y": 1, "z": 0}) and not same_by_rows(fields, (), {"x": 1, "y": 0})
    pairs = trace_call(lambda t: (t[1], t[0] * 2), ())[0]
    assert same_by_rows(pairs, (), {"0": 1, "1": 0}) and not same_by_rows(fields, (), {"0": 1, "1": 1})


HALF = np.float16(0.5)
NARROW = np.ones(3, np.float32)


def _both_signs(x):
    low, high = x > 0, x < 6
    return low + high


def _counted(x):
    count = 0
    count += helped(x)
    return count


def helped(y):
    return (y > 0) - (y > 5)


@pytest.mark.parametrize(("function", "words"), [
    (lambda x: (x > 0) + (x < 6), "adds truth values"), (_both_signs, "adds truth values"),
    (_counted, "adds truth values"), (lambda x: 2 ** x, "has ** of ints"), (lambda x: 1 << x, "has << of ints"),
    (lambda x: math.comb(x, 2), "has math.comb of ints"), (lambda x: x * HALF, "HALF, which is float16"),
    (lambda x: NARROW / x + 1, "NARROW.astype(np.float64)")])
def test_what_python_numbers_mean_otherwise_is_seen(function, words):
    assert words in meaning_of_numbers(trace_call(function, ())[0], {"": "int"})


@pytest.mark.parametrize("function", [
    lambda x: x * x - 1, lambda x: x ** 2, lambda x: float(2) ** x, lambda x: np.int64(2) ** x, lambda x: x << 3,
    lambda x: int(x > 0) + int(x < 6), lambda x: np.float16(x) * HALF, lambda x: x * W[0, 0], lambda x: (x > 0) & True,
    lambda x: x / 3 if x > 1 else 1 / x])
def test_what_means_the_same_of_python_numbers_is_not(function):
    assert not meaning_of_numbers(trace_call(function, ())[0], {"": "int"})


def test_of_fields_only_those_of_python_numbers_count():
    function = trace_call(lambda x, y: (x > 0) + (y > 0), ())[0]
    assert meaning_of_numbers(function, {"x": "int", "y": "float"}) and not meaning_of_numbers(function, {"x": "int"})
