"""Generated functions on generated data: the kernel on the host device against Python with NumPy scalars.

A function is drawn as source text, written to a module of its own and imported, as a user's would be.
``VISPARK_TRANSLATE_EXAMPLES`` says how many are drawn (a few by default).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.golden.harness import difference, plain, record_of, translated
from vispark.translate import TranslationError, specialise, trace

EXAMPLES = int(os.environ.get("VISPARK_TRANSLATE_EXAMPLES", "12"))
FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, "float16", *INTEGERS, "bool")
COUNT = 24
_numbers = itertools.count()


def _write(source: str, folder: Path) -> Callable[..., Any]:
    name = f"drawn_{next(_numbers)}"
    file = folder / f"{name}.py"
    file.write_text(f"import math\nimport numpy as np\n\n\n{source}")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.f


# -- expressions ------------------------------------------------------------------------------------------------------

_FLOAT_CONSTANTS = st.sampled_from(["0.1", "2.0", "-1.5", "1e-3", "3", "-2", "7"])
_INT_CONSTANTS = st.sampled_from(["0", "1", "2", "3", "-1", "5", "-7", "13"])


def floats_of(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Return expressions of floats that NumPy's rounding decides exactly."""
    leaf = st.sampled_from(names) | _FLOAT_CONSTANTS
    return st.recursive(leaf, lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("({} {} {})".format, st.sampled_from(names), st.sampled_from(["/", "//", "%"]), inner),
        st.builds("abs({})".format, inner), st.builds("(-{})".format, inner),
        # Of one type on both ways: a way of another type is promoted, and then it computes in the wider one.
        st.builds("({0} if {1} else ({0} * 2))".format, st.sampled_from(names), conditions_of(names)),
        st.builds("np.{}({}, {})".format, st.sampled_from(["maximum", "minimum", "fmax", "copysign"]),
                  st.sampled_from(names), inner),
        st.builds("np.{}({})".format, st.sampled_from(["floor", "sqrt", "sign", "square", "rint"]),
                  st.sampled_from(names))), max_leaves=6)


def ints_of(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Return expressions of integers; each operation has a variable at its left, so that Python's own ints stay small.
    """
    leaf = st.sampled_from(names)
    return st.recursive(leaf, lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^"]), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["//", "%", ">>", "<<", "**"]),
                  st.sampled_from(["1", "2", "3", "5"])),
        st.builds("abs({})".format, inner), st.builds("(~{})".format, inner), st.builds("(-{})".format, inner),
        st.builds("np.{}({}, {})".format, st.sampled_from(["maximum", "minimum", "fmod"]), inner, inner),
        st.builds("({0} if {1} else ({0} ^ 1))".format, leaf, conditions_of(names))), max_leaves=6)


def conditions_of(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Return conditions."""
    one = st.builds("({} {} {})".format, st.sampled_from(names), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
                    st.sampled_from(names) | _INT_CONSTANTS.filter(lambda text: "-" not in text))
    return st.recursive(one, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
                        | st.builds("(not {})".format, inner), max_leaves=3)


# -- data -------------------------------------------------------------------------------------------------------------


def values_of(dtype: str) -> st.SearchStrategy[Any]:
    """Return one number of a dtype: extremes, zeros, NaN and infinities are frequent."""
    if dtype == "bool":
        return st.booleans()
    if dtype.startswith("float"):
        width = int(dtype[5:])
        special = [0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf")]
        return st.sampled_from(special) | st.floats(width=width)
    limits = np.iinfo(dtype)
    return st.sampled_from([0, 1, 2, limits.min, limits.max]) | st.integers(int(limits.min), int(limits.max))


def arrays_of(dtype: str, count: int = COUNT) -> st.SearchStrategy[np.ndarray]:
    """Return an array of a dtype."""
    return st.lists(values_of(dtype), min_size=count, max_size=count).map(lambda values: np.array(values, dtype))


@st.composite
def straight(draw: st.DrawFn, dtypes: tuple[str, ...], expressions: Callable) -> tuple[str, dict[str, np.ndarray]]:
    """Return a function of straight lines, and data for it."""
    data = {name: draw(arrays_of(draw(st.sampled_from(dtypes)))) for name in ("a", "b")}
    lines = ["def f(a, b):", f"    c = {draw(expressions(('a', 'b')))}",
             f"    d = {draw(expressions(('a', 'b', 'c')))}", f"    return c, d, {draw(conditions_of(('a', 'b')))}"]
    return "\n".join(lines) + "\n", data


@st.composite
def looping(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray]]:
    """Return a function with loops, branches, break and continue over float64, whose variables keep their type."""
    names = ("a", "b", "s", "t")
    turn, stop = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    body = [f"        t = {draw(floats_of(names))} + a"]
    for way in draw(st.lists(st.sampled_from(["break", "continue", "if", "else", "swap", "while"]), max_size=4)):
        test = draw(conditions_of(names))
        body += {"break": [f"        if {test}:", "            break"],
                 "continue": [f"        if {test}:", "            s = s + i", "            continue"],
                 "if": [f"        if {test}:", f"            s = {draw(floats_of(names))} + a"],
                 "else": [f"        if {test}:", "            s = s * 2", "        else:", "            t = t - s"],
                 "swap": ["        s, t = t, s"],
                 "while": ["        k = 0", f"        while k < {stop} and s < 100:", "            s = s + 1.5",
                           "            k += 1"]}[way]
    lines = ["def f(a, b):", "    s, t = a * 0, b * 1.0", f"    for i in range({turn}):", *body, "        s = s + t",
             "    else:", "        s = s - 1", f"    if {draw(conditions_of(names))}:", "        return t, s",
             "    return s, t"]
    data = {name: draw(arrays_of("float64")) for name in ("a", "b")}
    return "\n".join(lines) + "\n", data


@st.composite
def on_rows(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray]]:
    """Return a function of rows: slices, row expressions and reductions that do not depend on the order."""
    dtype, length = draw(st.sampled_from((*FLOATS, *INTEGERS))), draw(st.integers(2, 5))
    rows = st.sampled_from(["p", "p[::-1]", "q", "(p + q)", "(p * 2)", "np.maximum(p, q)", "(q - p[0])",
                            "np.where(p > q, p, q)"])
    reductions = st.sampled_from(["np.max({})", "np.min({})", "np.argmin({})", "np.argmax({})", "np.any({} > 1)",
                                  "np.all({} > 1)", "({})[-1]", "({})[1:]", "max({})", "len({})"])
    parts = [draw(reductions).format(draw(rows)) for _ in range(3)]
    lines = ["def f(p, q):", f"    r = {draw(rows)}", "    s = p[0]", "    for v in q:", "        if v > s:",
             "            s = v", f"    return r, s, {', '.join(parts)}"]
    flat = {name: draw(arrays_of(dtype, 6 * length)).reshape(6, length) for name in ("p", "q")}
    return "\n".join(lines) + "\n", flat


def check(source: str, data: dict[str, np.ndarray], folder: Path, tolerance: float = 0) -> None:
    """Compare the kernel with the function, element by element."""
    fn = _write(source, folder)
    results = translated(fn, data)
    for number, (one, other) in enumerate(zip(plain(fn, data), results, strict=True)):
        arguments = {name: array[number] for name, array in data.items()}
        wanted = tuple(np.asarray(a).astype(np.asarray(b).dtype) if np.ndim(a) == 0 else a
                       for a, b in zip(one, other, strict=True))
        result = tuple(np.asarray(b) if np.ndim(b) == 0 else b for b in other)
        assert not difference(wanted, result, tolerance), f"{source}\n{arguments}"


# A drawn function costs a compilation, so what fails is reported as it was drawn.
_SETTINGS = settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES < 100, phases=[Phase.generate],
                     suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture,
                                            HealthCheck.data_too_large])
pytestmark = pytest.mark.timeout(0 if EXAMPLES > 100 else 120)


@_SETTINGS
@given(drawn=straight(FLOATS, floats_of))
def test_floats(drawn: tuple[str, dict[str, np.ndarray]], tmp_path: Path):
    check(*drawn, tmp_path)


@_SETTINGS
@given(drawn=straight(INTEGERS, ints_of))
def test_integers(drawn: tuple[str, dict[str, np.ndarray]], tmp_path: Path):
    source, data = drawn
    kinds = {array.dtype.kind for array in data.values()}
    if "uint64" in {array.dtype.name for array in data.values()} and "i" in kinds:
        data = {name: array.astype("uint64") for name, array in data.items()}
    check(source, data, tmp_path)


_ANY = ["a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a < b", "a >= b", "a == b", "a != b", "a & b", "a | b",
        "a ^ b", "-a", "~a", "abs(a)", "np.maximum(a, b)", "np.minimum(b, a)", "np.where(a > b, a, b)", "np.sign(a)",
        "np.logical_and(a, b)", "a + 1", "a * 2.5", "3 - a", "a + True", "np.float32(a)", "float(a)", "a and b",
        "not b", "np.add(a, 1)", "np.square(a)", "np.floor(b)", "np.isnan(a)", "(a, b)"]


@_SETTINGS
@given(a=st.sampled_from(DTYPES).flatmap(arrays_of), b=st.sampled_from(DTYPES).flatmap(arrays_of),
       parts=st.lists(st.sampled_from(_ANY), min_size=4, max_size=8))
def test_promotion(a: np.ndarray, b: np.ndarray, parts: list[str], tmp_path: Path):
    kept, data = [], {"a": a, "b": b}
    for part in parts:
        fn = _write(f"def f(a, b):\n    return {part}\n", tmp_path)
        try:
            plain(fn, data)
        except TypeError:
            # What NumPy refuses is refused here.
            with pytest.raises(TranslationError):
                specialise(trace(fn), record_of(data))
        else:
            kept.append(part)
    if a.dtype != b.dtype:
        kept = [part for part in kept if part != "a and b"]     # of either type
    if kept:
        source = f"def f(a, b):\n    return {', '.join(kept)}, 0\n"
        fn = _write(source, tmp_path)
        for one, other in zip(plain(fn, data), translated(fn, data), strict=True):
            # NumPy divides half precision in single precision before it rounds down.
            wanted = [np.asarray(part) if np.ndim(part) == 0 and isinstance(part, np.ndarray) else part for part in one]
            result = [np.asarray(found) if isinstance(part, np.ndarray) else found
                      for part, found in zip(wanted, other, strict=True)]
            assert not difference(tuple(wanted), tuple(result)), f"{source}\n{a.dtype} {b.dtype}"


@_SETTINGS
@given(drawn=looping())
def test_loops(drawn: tuple[str, dict[str, np.ndarray]], tmp_path: Path):
    check(*drawn, tmp_path)


@_SETTINGS
@given(drawn=on_rows())
def test_rows(drawn: tuple[str, dict[str, np.ndarray]], tmp_path: Path):
    check(*drawn, tmp_path)
