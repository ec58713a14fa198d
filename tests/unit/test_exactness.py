"""Functions of Python numbers that workers compute as Python does, for numbers of known ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vispark.translate import trace
from vispark.translate.frontend.exactness import why_no_exact_join, why_no_exact_number, why_not_exact
from vispark.translate.frontend.python_ranges import OfNumPy, Range

TENTH, LISTED, TABLE = np.float32(0.1), [1, 5, 7], np.arange(3.0)
LARGE = 1 << 62
INTS, FLOATS, BOOLS = Range.of("int"), Range.of("float"), Range.of("bool")
FINITE = Range("float", -8.0, 8.0)


def prime(n):
    if n < 2:
        return False
    for d in range(2, 10):
        if d * d > n:
            break
        if n % d == 0:
            return False
    return True


def newton(x):
    y = 1.0
    for _ in range(5):
        y = y / 2 + x
    return y > 0


def doubling(n):
    power = 1
    for _ in range(80):
        power *= 2
    return power > n


def inner(x):
    def half(y):
        return y + 2
    return half(x) / 2 > half(1)


#: Functions with numbers of which they are exact, and of which they may not be (None where there are none).
CASES: list[tuple[Callable, list[Range], list[Range]]] = [
    (lambda x: x > 3, [INTS, FLOATS, BOOLS], []),
    (lambda x: x % 2 == 0, [INTS], []),
    (lambda x: x * 4 > 10, [Range("int", -5, 5), FLOATS], [INTS, Range("int", 0, LARGE)]),
    (lambda x: x * x > 0, [Range("int", -5, 5)], [Range("int", 0, 3037000500)]),
    (lambda x: x + 1 > 0, [Range("int", -5, 5)], [Range("int", 0, 2 ** 63 - 1)]),
    (lambda x: -x > 0, [Range("int", -5, 5), FLOATS], [INTS, BOOLS]),
    (lambda x: abs(x) > 0, [Range("int", -5, 5), FLOATS], [INTS, BOOLS]),
    (lambda x: ~x > 0, [INTS], [BOOLS]),
    (lambda x: not x, [INTS, FLOATS, BOOLS], []),
    (lambda x: x > 2.5, [INTS, FLOATS], []),
    (lambda x: x > float(2 ** 53), [Range("int", -5, 5), FLOATS], [INTS, Range("int", 0, 2 ** 53 + 1)]),
    (lambda x: x < 2.0 ** 63, [FLOATS], [INTS]),
    (lambda x: x < math.inf, [INTS, FLOATS], []),
    (lambda x: 2 ** x > 0, [Range("int", 0, 62)], [INTS, Range("int", 0, 64), Range("int", -1, 3)]),
    (lambda x: 1 << x > 0, [Range("int", 0, 62)], [INTS, Range("int", 0, 63), Range("int", -1, 3)]),
    (lambda x: x ** 2 > 3, [Range("int", -5, 5), FINITE], [INTS, FLOATS, Range("float", 0.0, 1e200)]),
    (lambda x: x ** 0.5 > 1, [Range("float", 0.0, 8.0)], [FINITE, FLOATS]),
    (lambda x: x ** -1 > 1, [Range("float", 1.0, 8.0)], [FINITE, Range("int", 1, 5)]),
    (lambda x: 10 // x >= 0, [Range("int", 1, 5), Range("int", -5, -1)], [Range("int", 0, 5), FINITE]),
    (lambda x: x // -1 > 0, [Range("int", -5, 5)], [INTS]),
    (lambda x: 1 / x > 0, [Range("int", 1, 5), Range("float", 0.5, 8.0)], [FINITE]),
    (lambda x: x != 0 and 1 / x > 0, [Range("int", -5, 5), FINITE], []),
    (lambda x: 1 / x > 0 if x > 0 else False, [FINITE, Range("int", -5, 5)], []),
    (lambda x: not x or 6 // x > 1, [INTS], []),
    (lambda x: x / 3 > 1, [Range("int", -5, 5), FLOATS], [INTS]),
    (lambda x: int(x) == 0, [FINITE, INTS, BOOLS], [FLOATS, Range("float", 0.0, 1e19)]),
    (lambda x: round(x) % 2 == 0, [FINITE], [FLOATS, BOOLS]),
    (lambda x: round(x, 1) == 0.5, [], [FINITE]),
    (lambda x: math.sqrt(x) > 1, [Range("float", 0.0, 8.0), Range("int", 0, 9)], [FINITE]),
    (lambda x: math.exp(x) > 1, [FINITE], [Range("float", 0.0, 1000.0)]),
    (lambda x: math.log(x) > 1, [Range("float", 0.5, 8.0)], [Range("float", 0.0, 8.0)]),
    (lambda x: x > 0 and math.log(x) > 1, [FINITE, FLOATS], []),
    (lambda x: math.sin(x) > 0, [FINITE], [FLOATS]),
    (lambda x: (x > 0) + (x < 6) == 2, [], [INTS]),
    (lambda x: int(x > 0) + int(x < 6) == 2, [INTS, FLOATS], []),
    (lambda x: (x > 0) & (x < 6), [INTS, FLOATS], []),
    (lambda x: sum((x > 0, x < 6)) == 2, [], [INTS]),
    (lambda x: 0 < x <= 6, [INTS, FLOATS], []),
    (lambda x: x in (1, 5), [INTS, FLOATS], []),
    (lambda x: x in LISTED, [INTS], []),
    (lambda x: LISTED[x] * x > 5, [Range("int", 0, 2)], [INTS]),
    (lambda x: any(x % d == 0 for d in LISTED), [INTS], []),
    (lambda x: x * TENTH > 1, [], [FLOATS, INTS]),
    (lambda x: np.float32(x) * TENTH > 0.5, [FLOATS], []),
    (lambda x: np.float32(0.1) < x, [], [FLOATS]),
    (lambda x: np.sqrt(x) > 0.5, [FLOATS, INTS], []),
    (lambda x: np.int8(x) > 0, [Range("int", -5, 5)], [INTS]),
    (lambda x: np.uint64(x) > 2, [Range("int", 0, 5)], [INTS]),
    (lambda x: x * TABLE[1] > 2, [FLOATS, INTS], []),
    (lambda x: max(x, 3) > 4, [INTS, Range("bool", 0, 1), FINITE], [FLOATS]),
    (lambda x: (x if x > 2 else 0.5) > 1, [Range("int", -5, 5), FLOATS], [INTS]),
    (lambda x: (x if x > 2 else 0.5) * 2 > 1, [FLOATS], [Range("int", -5, 5)]),
    (prime, [INTS], []), (newton, [FLOATS], []), (inner, [Range("int", -5, 5)], [INTS]), (doubling, [], [INTS]),
]


def numbers(of: Range) -> list:
    """Return numbers of a range, its ends among them, as Python has them."""
    kind = {"bool": bool, "int": int, "float": float}[of.kind]
    near = [x for end in (of.low, of.high, 0, 1, 2 ** 53) for x in (end - 1, end, end + 1, end / 2 if end else 0.25)]
    values = [x for x in {*near, -3, 0.5, 2.5} if of.low <= x <= of.high and (of.kind == "float" or x == int(x))]
    return [kind(x) for x in values] + ([math.nan] if of.nan else [])


@pytest.mark.parametrize("number", range(len(CASES)))
def test_of_a_range_a_function_is_exact_or_has_a_reason(number: int):
    function, exact, doubtful = CASES[number]
    for of in exact:
        assert why_not_exact(trace(function), of) == "", of
        as_in_workers = {"bool": np.bool_, "int": np.int64, "float": np.float64}[of.kind]
        for x in numbers(of):
            with np.errstate(all="ignore"):
                assert bool(function(x)) == bool(function(as_in_workers(x))), (of, x)
    for of in doubtful:
        reason = why_not_exact(trace(function), of)
        assert reason.startswith("line ") and ": " in reason, of


#: Functions of two records with ranges of which their folds are exact, and of which they may not be.
JOINS: list[tuple[Callable, list, list]] = [
    (lambda a, b: a if abs(a) > abs(b) else b, [Range("int", -5, 5), FLOATS], [INTS, BOOLS]),
    (lambda a, b: a if a * a > b * b else b, [Range("int", -5, 5), FLOATS], [INTS]),
    (lambda a, b: a if a > 2.0 ** 53 else b, [Range("int", -5, 5), FLOATS], [INTS]),
    (lambda a, b: a + b + 1, [FLOATS], [Range("int", 0, 1)]),
    (lambda a, b: a if (a > 0) + (a < 6) >= (b > 0) + (b < 6) else b, [], [FLOATS, Range("int", 0, 1)]),
    (lambda a, b: a if ~a > ~b else b, [INTS], [BOOLS]),
    (lambda a, b: max(a, b, 0), [INTS], [FINITE, BOOLS]),
    (lambda a, b: np.maximum(np.abs(a), b), [], [FLOATS, INTS]),
    (lambda a, b: math.hypot(a, b), [], [FLOATS]),
    (lambda a, b: a if a[0] <= b[0] else b, [(FLOATS, Range("int", 0, 9))], []),
    (lambda a, b: (a[0] + b[0], a[1]), [(FLOATS, INTS)], [(INTS, FLOATS)]),
    (lambda a, b: (a[0] * b[1], a[1]), [(OfNumPy("float32"), OfNumPy("float32"))], [(OfNumPy("float32"), FLOATS)]),
    (lambda a, b: {"n": a["n"] + b["n"], "x": a["x"]}, [{"n": FLOATS, "x": INTS}], [{"n": INTS, "x": INTS}]),
    (lambda a, b: a[0], [], [(FLOATS, FLOATS)])]


@pytest.mark.parametrize("number", range(len(JOINS)))
def test_of_a_range_a_fold_is_exact_or_has_a_reason(number: int):
    function, exact, doubtful = JOINS[number]
    for of in exact:
        assert why_no_exact_join(trace(function), of) == "", of
    for of in doubtful:
        reason = why_no_exact_join(trace(function), of)
        assert reason.startswith("line ") and ": " in reason, of


def test_a_vmaps_numbers_of_64_bits_are_pythons():
    for length in (lambda a, b: np.sqrt(a * a + b * b), lambda a, b: np.maximum(a, b)):
        assert why_no_exact_join(trace(length), FLOATS, is_mapped=True) == ""
        assert "of NumPy's" in why_no_exact_join(trace(length), FLOATS)
    assert why_no_exact_join(trace(lambda a, b: np.float32(a)), FLOATS, is_mapped=True) != ""


@pytest.mark.parametrize("of", [OfNumPy("float64"), OfNumPy("int64"), (OfNumPy("float64"), Range("int", 0, 9))])
def test_a_vmaps_numbers_of_numpys_stay_numpys(of: Any):
    def farthest(a, b):
        return a if abs(a) > abs(b) else b

    def first(a, b):
        return a if abs(a[0]) > abs(b[0]) else b

    assert why_no_exact_join(trace(first if isinstance(of, tuple) else farthest), of, is_mapped=True) == ""


def test_results_are_of_one_type_of_pythons():
    assert why_no_exact_number(trace(lambda x: (x > 2, x * 2.5)), FLOATS) == ""
    for function in (lambda x: x if x > 0.0 else 0, lambda x: (1, x if x else 0), lambda x: np.sqrt(x)):
        assert why_not_exact(trace(function), FINITE) == ""
        assert ": it gives " in why_no_exact_number(trace(function), FINITE)
    assert why_no_exact_number(trace(lambda x: np.sqrt(x)), OfNumPy("float64")) == ""


def test_of_tuples_and_of_numbers_of_numpy():
    of = (Range("int", 0, 9), (OfNumPy("float64"), Range("float", 0.0, 1.0)))
    assert why_not_exact(trace(lambda t: t[0] * t[1][1] + t[1][0] > 2), of) == ""
    assert "of NumPy" in why_not_exact(trace(lambda t: t[0] * t[1] > 2), (FLOATS, OfNumPy("float32")))
    assert why_not_exact(trace(lambda t: t[0] * t[1] > 2), (OfNumPy("int32"), OfNumPy("float32"))) == ""


def test_the_reason_has_the_users_code():
    reason = why_not_exact(trace(lambda x: 2 + x * 4 > 10), INTS)
    assert reason.endswith(" of lambda: x * 4 may leave 64 bits, which ints of Python do not")
