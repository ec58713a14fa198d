"""Answers at the ends of types: the least integers, infinities, sums beyond 64 bits; each is NumPy's."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.golden.harness import difference, plain, translated
from vispark.translate import TranslationError, trace

SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")


def compare(fn: Callable, data, tolerance: float = 4) -> None:
    """Assert that a kernel gives what the function gives."""
    for record, (one, other) in enumerate(zip(plain(fn, data), translated(fn, data), strict=True)):
        assert not difference(one, other, tolerance), record


def ends(dtype: str) -> np.ndarray:
    """Return the least and the greatest numbers of an integer type, what lies beside them, and small ones."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return np.array(sorted({low, low + 1, low // 2, 0, 1, 2, 7, high // 2, high - 1, high}
                           | ({-1, -2, -7} if low else set())), dtype)


# -- quotients of the least integer -----------------------------------------------------------------------------------

def _sevenths(n, m):
    return n // 7, -n // 7, -(n // 7), n % 7, -n % 7, np.fmod(n, 7), np.fmod(-n, 7), divmod(n, 7), divmod(-n, 7)


def _halves(n, m):
    return n // 2, -n // 2, n % 2, n // -2, -n // -2, n % -2, -n % -2, n >> 1, -n >> 1, n // -1, n % -1


def _by_others(n, m):
    return n // m, -n // m, n // -m, -(n // m), n % m, -n % m, n % -m, np.fmod(n, m), np.fmod(-n, m)


def _sizes(n, m):
    return abs(n), -abs(n), abs(n) // 7, abs(n) < 0, -n > 0, abs(-n) % 5, (0 - n) // 3, n * -1 // 3, n // 3


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("fn", [_sevenths, _halves, _by_others, _sizes])
def test_quotients_of_the_least_integer_are_those_of_numpy(fn: Callable, dtype: str):
    every = ends(dtype)
    n, m = (axis.reshape(-1) for axis in np.meshgrid(every, every))
    compare(fn, {"n": n.copy(), "m": m.copy()})


# -- differences and means of integers --------------------------------------------------------------------------------

def _slopes(p):
    return np.gradient(p), np.gradient(p[:2])


def _means(p):
    return np.nanmean(p), np.mean(p), np.nansum(p), np.nanmean(np.array([p, p]), axis=0), np.median(p), np.var(p)


def _variances(p):
    return np.nanvar(p), np.nanstd(p), np.nanvar(p, ddof=1), np.nanvar(np.array([p, p]), axis=1)


def _areas(p):
    return np.trapezoid(p), np.trapezoid(p, dx=2), np.diff(p), np.ptp(p), np.interp(p, (0, 1, 2), (5, 6, 9))


def far(dtype: str) -> np.ndarray:
    """Return rows whose differences and sums leave an integer type."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return np.array([[10, 5, 1, 0], [low, high, low, high], [high] * 4, [low] * 4, [high // 2 + 1] * 4], dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fn", [_slopes, _means, _variances, _areas])
def test_differences_and_means_of_integers_do_not_wrap_where_numpys_do_not(fn: Callable, dtype: str):
    compare(fn, far(dtype))


def test_trapezoids_of_two_axes_are_those_of_each_row():
    compare(lambda m: (np.trapezoid(m), np.trapezoid(m, dx=0.5), np.trapezoid(m, m[::-1])),
            np.arange(24.0).reshape(2, 3, 4) ** 2)


@pytest.mark.parametrize(("fn", "data", "words"), [
    (lambda m: np.gradient(m), np.ones((2, 3, 3)), "np.gradient is of a row here"),
    (lambda p: np.gradient(p > 1), np.ones((2, 3)), "np.gradient of bools is not supported"),
    (lambda p: np.gradient(p[:1]), np.ones((2, 3)), "np.gradient is of two numbers or more")])
def test_gradients_that_are_refused(fn: Callable, data: np.ndarray, words: str):
    with pytest.raises(TranslationError, match=words):
        translated(fn, data)


# -- quantiles --------------------------------------------------------------------------------------------------------

def _ends_of_rows(p):
    return np.quantile(p, 0), np.quantile(p, 1), np.quantile(p, True), np.median(p), np.quantile(p[:1], 1)


def _shares(p):
    return (np.quantile(p, 0.0), np.quantile(p, 1.0), np.percentile(p, 30), np.percentile(p, 100), np.percentile(p, 0),
            np.quantile(p, np.float64(0.7)), np.quantile(p[:1], 0.5), np.percentile(p, np.int8(50)))


def awkward(dtype: str) -> np.ndarray:
    """Return rows with infinities, NaN, zeros of both signs and the greatest numbers."""
    most = float(np.finfo(dtype).max)
    inf, nan = np.inf, np.nan
    return np.array([[10, 5, 1, 0.5, -3], [most, 1, most, -most, 2], [inf, 1, 2, 3, 4], [-inf, inf, 0, 1, 2],
                     [1, 2, 3, 4, inf], [-inf, -inf, 0, 1, most], [inf] * 5, [0.0, -0.0, 0, -0.0, 0],
                     [nan, 1, 2, 3, inf]], dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_quantiles_of_infinities_are_those_of_numpy(dtype: str):
    data = awkward(dtype)
    compare(_ends_of_rows, data)
    # A NaN has the row's type in NumPy, whatever type the share has.
    compare(_shares, data[:-1])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_quantiles_of_integers_are_those_of_numpy(dtype: str):
    compare(_ends_of_rows, far(dtype))
    compare(_shares, far(dtype) if dtype != "int64" else far(dtype)[:1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
def test_several_quantiles_are_an_array(dtype: str):
    p = np.array([[1, 5, 2, 2], [7, 3, 9, 4]], dtype)
    compare(lambda p: np.quantile(p, [0.25, 0.5]) + np.percentile(p, (10, 99.5)), {"p": p})
    compare(lambda p: (np.percentile(p, [0, 100, 30]), np.quantile(p, (0.5,)), np.quantile(p, np.array([0.1, 0.7]))),
            {"p": p})
    compare(lambda p, q: np.quantile(p, q), {"p": p, "q": np.array([[0.2, 0.4], [0.9, 0.0]])})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quantiles_at_shares_from_data(dtype: str):
    p = np.concatenate([awkward("float64")[:-1]] * 3)
    compare(lambda p, q: (np.quantile(p, q), np.percentile(p, q * 100)), {
        "p": p, "q": np.linspace(0, 1, len(p)).astype(dtype)})
    quantiles = translated(lambda p, q: np.quantile(p, q), {"p": p[:3], "q": np.array([-0.5, 1.5, np.nan])})
    assert np.isnan(quantiles).all()


@pytest.mark.parametrize(("fn", "words"), [
    (lambda p: np.quantile(p, 2), r"np.quantile's q is from 0 to 1, and this is 2"),
    (lambda p: np.quantile(p, [0, 1]), r"np.quantile's q is of floats where it is an array"),
    (lambda p: np.quantile(p, [0.5, 2.0]), r"np.quantile's q is from 0 to 1"),
    (lambda p: np.quantile(p, 1.5), r"np.quantile's q is from 0 to 1"),
    (lambda p: np.percentile(p, 101), r"np.percentile's q is from 0 to 100"),
    (lambda p: np.quantile(p, np.int32(p[0])), r"write float\(q\)"),
    (lambda p: np.quantile(p[:0], 0.5), r"np.quantile of an empty array has no value")])
def test_shares_that_are_refused(fn: Callable, words: str):
    with pytest.raises(TranslationError, match=words):
        translated(fn, np.ones((2, 3)))


@pytest.mark.parametrize("fn", [np.sqrt, math.sqrt, abs, float, np.float32, round, np.square])
def test_functions_of_libraries_are_taken_as_they_are(fn: Callable):
    x = np.array([1.0, 4.0, 2.25])
    assert translated(fn, x) == [fn(each) for each in x]


def test_functions_of_libraries_of_more_than_an_element_are_taken_too():
    assert translated(np.hypot, np.array([3.0, 0.0]), 4.0) == [5.0, 4.0]


def test_variances_in_half_precision_are_infinite_where_numpys_are():
    compare(lambda p: (np.var(p), np.std(p), np.var(p, ddof=1), p.mean()), awkward("float16"))


# -- types and indices ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "complex64"])
def test_triangles_have_the_type_of_what_they_are_of(dtype: str):
    data = (np.arange(24).reshape(2, 3, 4) % 3).astype(dtype)
    compare(lambda m: (np.tril(m), np.triu(m), np.tril(m, -1), np.triu(m, 1), np.diag(m[0]), np.diag(m[:, :3])), data)
    compare(lambda m: (np.tril(m[0]), np.triu(m[0], 1)), data)


def test_an_empty_tuple_is_an_index_of_all():
    compare(lambda m: (m[()], m[()][0], m[0][()][1], m[0, 0][()]), np.arange(12.0).reshape(2, 2, 3))


def _chosen(x):
    return y * y if (y := x - 1) > 0 else y


def _in_a_slot(x):
    o = np.zeros(3)
    o[y] = (y := 2) + x
    return o


def test_a_walrus_in_a_test_comes_before_what_is_chosen():
    compare(_chosen, np.arange(-2.0, 4))
    compare(_in_a_slot, np.arange(-2.0, 4))


def _before(x):
    y = 1.0
    return (x if x > 1 else y) + (y := x * 2) + y


def _both(p, s):
    return np.roll(p, s)


def test_what_is_read_before_a_walrus_and_rolls_by_arrays_are_refused():
    with pytest.raises(TranslationError, match="y is read before := gives it a value"):
        trace(_before)
    rolled = {"p": np.ones((2, 3)), "s": np.ones((2, 3), int)}
    with pytest.raises(TranslationError, match=r"np.roll's shift must be known before the kernel runs, and this is "
                                               r"int64 array"):
        translated(_both, rolled)


def _called_property(x):
    return x.real(1)


def _with_a_function(x):
    def same(value):
        return value
    return same(lambda v: v)


@pytest.mark.parametrize(("fn", "words"), [
    (lambda x: divmod(x, 2)[()], r"a tuple has no item \(\)"),
    (lambda x: np.arange(3)[[np.zeros(2)]], "an index is float64 array"),
    (lambda x: round(float("nan")), r"round\(\) of nan is an error in Python"),
    (lambda x: round(1j), r"Python has no round\(\) of Python complex"),
    (lambda x: np.round(x, 10**6), "to -308 to 308 digits, and not to 1000000"),
    (lambda x: x + 3 ** 10**9, r"3 \*\* 1000000000 does not fit 64 bits"),
    (lambda x: x + (1 << 10**12), "1 << 1000000000000 does not fit 64 bits"),
    (_called_property, ".real is not called; write it without parentheses"),
    (_with_a_function, "a result is of numbers and arrays, and this has a function")])
def test_what_the_translator_failed_at_is_refused(fn: Callable, words: str):
    with pytest.raises(TranslationError, match=words):
        translated(fn, np.ones(3))


def _row_in_a_slice(p):
    o = np.zeros((2, 3))
    o[0, :] = p[None]
    o[1:] = p
    o[:, 1:2] = p[:1]
    return o


def _too_short(p):
    o = np.zeros(3)
    o[:] = p[:2]
    return o


def _too_long(p):
    o = np.zeros(3)
    o[:1] = p
    return o


def test_what_is_assigned_to_a_slice_fits_it():
    compare(_row_in_a_slice, np.arange(6.0).reshape(2, 3))
    for fn, shapes in ((_too_short, r"\(2,\) does not fit where one of shape \(3,\)"),
                       (_too_long, r"\(3,\) does not fit where one of shape \(1,\)")):
        with pytest.raises(TranslationError, match=shapes):
            translated(fn, np.ones((2, 3)))


HALVES = """
    import warnings
    warnings.simplefilter("error")
    import numpy as np
    from vispark.translate import TracedCall, fuse, trace
    from tests.golden.harness import record_of
    from {module} import below
    fuse((TracedCall(trace(below)),), record_of(np.ones(3, "float16")))
"""


def test_constants_beyond_half_precision_say_nothing_on_the_terminal(tmp_path: Path):
    (tmp_path / "halves.py").write_text("def below(x):\n    return x < 1e10, x + 70000.0\n")
    path = os.pathsep.join([str(tmp_path), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(HALVES.format(module="halves"))], text=True,
                           capture_output=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert not ended.returncode and not ended.stderr, ended.stderr
