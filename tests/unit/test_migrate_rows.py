"""Functions of blocks as functions of rows: what is taken gives what the block's gives, all else is refused."""

from __future__ import annotations

import ast
import functools
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import pytest

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.port.ported_program import port
from vispark.migrate.record.live_rows import live_row_function
from vispark.migrate.rules.typed_verdicts import typed_verdict
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.source.row_functions import axes_around, row_function, rows_of
from vispark.migrate.source.row_shapes import NotRows

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python"
RANDOM = np.random.default_rng(1)
BLOCK = RANDOM.normal(size=(7, 5))
AROUND = {"w": RANDOM.normal(size=4), "W": RANDOM.normal(size=(4, 3)), "C": RANDOM.normal(size=(2, 5)), "k": 0.3}
RANKS = {name: np.ndim(value) for name, value in AROUND.items()}

TAKEN = [
    "lambda m: m[:, 1:].T.dot(m[:, 1:].dot(w) - m[:, 0])",
    "lambda m: k * m[:, 1:].T.dot(m[:, 1:].dot(w) - m[:, 0])",
    "lambda m: np.dot(m.T, m)",
    "lambda m: (m[:, 1:] @ W).T @ m[:, 1:] / k",
    "lambda m: ((m[:, None, :] - C) ** 2).sum(axis=2).argmin(axis=1)",
    "lambda m: np.sum(m[:, 0][:, None] * m[:, 1:], axis=0)",
    "lambda m: np.maximum(0, 1 - m[:, 0] * (m[:, 1:] @ w)).sum()",
    "lambda m: (m - C[0]).sum(0)",
    "lambda m: np.exp(m[:, 1:] @ W)",
    "lambda m: (np.exp(m[:, 1:] @ W) / np.exp(m[:, 1:] @ W).sum(axis=1)[:, None]).sum(axis=0)",
    "lambda m: -(m * m).sum(axis=0) + m.sum(0)",
    "lambda m: (W.T @ m[:, 1:].T).sum(axis=1)",
    "lambda m: (m[:, 1:] * m.shape[1]).sum()",
    "lambda m: (m[:, 0] > 0).sum()",
    "lambda m: (m[:, 0] * m[:, 1], m[:, 2])",
    "lambda m: (m.sum(0), (len(m), (m * m).sum()))",
    "lambda m: np.where(m[:, 0] > 0, m[:, 1], -m[:, 1]).sum()",
    "lambda m: m[:, -1][:, None].ravel() * 2",
    "lambda m: m.mean(axis=1)",
    "lambda m: abs(m).max(1)",
    "def f(m):\n    y, x = m[:, 0], m[:, 1:]\n    x, y = y, x\n    return y.T @ (y @ w - x)\nf",
    "lambda m, w=w: m[:, 1:].T @ (m[:, 1:] @ w - m[:, 0])",
    "def gradient(m, k=k):\n    return k * m[:, 1:].T @ (m[:, 1:] @ w - m[:, 0])\ngradient",
    "def gradient(m, v, k=2.0):\n    return k * m[:, 1:].T @ (m[:, 1:] @ v - m[:, 0])\nlambda m, w=w: gradient(m, w)",
]

REFUSED = {
    "lambda m: m.mean(0)": "mean over the rows",
    "lambda m: m[:, 1:].T @ (m[:, 1:] @ w) + 0.1 * w": "would be added for each row",
    "lambda m: m[:, 0][:, None] - C": "meets the axis along the rows",
    "lambda m: m[:, 0] - w": "meets the axis along the rows",
    "lambda m: m[:, 0][:, None] - m[:, 1]": "do not meet",
    "lambda m: m @ m.T": "each row meets each other one",
    "lambda m: w @ m": "sums over the rows with something that has none",
    "lambda m: m[1:].sum(0)": "takes some of the rows",
    "lambda m: m[m[:, 0] > 0].sum(0)": "takes some of the rows",
    "lambda m: m.T": "neither a sum over the rows",
    "lambda m: m.sum(0) / len(m)": "before it is complete",
    "lambda m: m.sum(0) ** 2": "before it is complete",
    "lambda m: np.exp(m.sum(0))": "of a sum over the rows",
    "lambda m: m.sum(0)[1:]": "a part of a sum",
    "lambda m: unknown * m.sum(0)": "how many axes unknown has is not known",
    "lambda m: np.cov(m)": "np.cov",
    "lambda m: m.std(0)": "std over the rows",
    "lambda m: m[:, 0][:, None].argmin(1)": "argmin of a column",
    "lambda m: ((m[:, 0] > 0) + (m[:, 1] > 0)).sum()": "two arrays of bools",
    "lambda m: (m.sum(0), m[:, 0])": "neither a sum over the rows",
    "lambda m: m.cumsum(0)": "m.cumsum",
    "lambda m, w=w * 2: m[:, 1:] @ w": "the default w \\* 2 is computed",
    "lambda m, v=v: m[:, 1:] @ v": "the default of v has is not known",
    "lambda m, *, w=w: m[:, 1:] @ w": "called with others than its parameters",
    "def f(m):\n    y, (x, z) = m[:, 0], (m[:, 1], m[:, 2])\n    return x + y\nf": "a tuple as a variable",
    "def f(m, v):\n    return m[:, 1:] @ v\nf": "called with others than its parameters",
}


def _row(text: str) -> Any:
    program = SourceProgram("job.py", text)
    *_, last = program.tree.body
    assert isinstance(last, ast.Expr)
    return row_function(program, last.value, RANKS)


def _compared(text: str) -> None:
    rewritten = _row(text)
    names: dict[str, Any] = {"np": np, **AROUND}
    body, _, last = text.rpartition("\n")
    exec(body, names)
    wanted = eval(last, names)(BLOCK)
    for source in rewritten.definitions.values():
        exec(source, names)
    rows = [eval(rewritten.text, names)(row) for row in BLOCK]
    if rewritten.fold:
        _same(functools.reduce(eval(rewritten.fold), rows), wanted)
    elif isinstance(wanted, tuple):
        _same(tuple(map(np.array, zip(*rows, strict=True))), wanted)
    else:
        _same(np.array(rows), wanted)


def _same(one: Any, other: Any) -> None:
    if isinstance(other, tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            _same(first, second)
    else:
        assert np.shape(one) == np.shape(other)
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("text", TAKEN)
def test_rows_give_what_their_block_gives(text: str):
    _compared(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_provably_the_same_is_refused(text: str):
    with pytest.raises(NotRows, match=REFUSED[text]):
        _row(text)


def test_functions_that_are_called():
    text = textwrap.dedent("""\
        def sigmoid(z):
            return 1 / (1 + np.exp(-z))

        def residual(m):
            '''Difference from the label.'''
            return sigmoid(m[:, 1:] @ w) - m[:, 0]

        def both(m):
            r = residual(m)
            return m[:, 1:].T @ r, (r * r).sum()

        both""")
    _compared(text)
    rewritten = _row(text)
    # What goes element by element is called as it is.
    assert [function.name for function in rewritten.definitions] == ["residual", "both"]
    assert rewritten.text == "both_row"
    with pytest.raises(NotRows, match="for in a function of blocks"):
        _row("def f(m):\n    for i in range(2):\n        pass\n    return m.sum(0)\nf")
    with pytest.raises(NotRows, match="f_row is there already"):
        _row("def f(m):\n    return m.sum(0)\ndef f_row(m):\n    return m\nf")
    with pytest.raises(NotRows, match="calls itself"):
        _row("def f(m):\n    return f(m)\nf")


def test_axes_of_what_is_around():
    w, k = np.zeros((3, 2)), 2.0

    def inner(m):
        return m @ w

    assert axes_around(lambda m: inner(m) * k) == {"k": 0, "w": 2}
    # One name of two values has none that is known.
    assert axes_around(lambda m, w=k: inner(m) * w) == {}
    assert axes_around(lambda m, v=k: inner(m) * v) == {"v": 0, "w": 2}


def test_types_that_numpy_sums_in_wider_ones_are_refused():
    program = SourceProgram("job.py", "sc.parallelize(a).map(lambda m: m.sum(0)).reduce(f)\n")
    call = next(each for each in program.calls if each.method == "map")
    assert rows_of(program, call, {}, [np.ones((2, 2), "int32")]) == "NumPy sums int32 in a wider type"
    assert rows_of(program, call, {}, [np.ones(2)]) == "its records are no arrays of two axes"
    assert "record a run" in str(rows_of(program, call, {}, []))


def test_stock_logistic_regression():
    file = EXAMPLES / "logistic_regression.py"
    program = SourceProgram(str(file), file.read_text())
    arrays: dict[str, np.ndarray] = {}
    ends = {each.method: (each.node.end_lineno or 0, each.node.end_col_offset or 0) for each in program.calls
            if each.line > 60}
    calls = [CapturedCall(number, str(file), line, line, column, method, times=3, is_read=True, reason="add")
             for number, (method, (line, column)) in enumerate(ends.items())]
    for call in calls:
        if call.method == "cache":
            call.sample = encoded([BLOCK, BLOCK], arrays)
        call.ranks = {"w": 1}
    ported = port(program, RunCapture(str(file), [], digest_of(program.source), calls=calls, arrays=arrays))
    assert ported.refused == ()
    assert "points.vmap(lambda m: gradient_row(m, w)).vreduce(lambda a, b: a + b).reduce(add)" in ported.text
    assert "-> np.ndarray:\n        Y = matrix[0]\n        X = matrix[1:]\n        return" in ported.text


def _gradient(m: np.ndarray, w: np.ndarray) -> np.ndarray:
    return (m[:, 1:] * (m[:, 1:] @ w - m[:, 0])[:, None]).sum(0)


def test_the_row_function_of_a_running_programs_function_is_one_that_a_probe_can_run():
    source = Path(__file__).read_text(encoding="utf-8")
    program, w = SourceProgram(__file__, source), AROUND["w"]
    row = row_function(program, ast.parse("lambda m: _gradient(m, w)").body[0].value, {"w": 1})
    function, fold = live_row_function(lambda m: _gradient(m, w), row)
    total = functools.reduce(fold, map(function, BLOCK))
    assert np.allclose(total, _gradient(BLOCK, w), rtol=1e-14)
    row = row_function(program, ast.parse("lambda m, v=w: _gradient(m, v)").body[0].value, {"v": 1})
    bound, fold = live_row_function(lambda m, v=w: _gradient(m, v), row)
    assert np.array_equal(functools.reduce(fold, map(bound, BLOCK)), total)
    assert typed_verdict([(function, "")], list(BLOCK)).is_read and typed_verdict([(_gradient, "")], list(BLOCK)).reason
