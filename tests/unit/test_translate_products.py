"""Products of rows with a matrix: however they are written, the kernel multiplies the rows of a tile together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu_worker.protocol.messages import FieldFold
from tests.golden.case import rows
from tests.golden.harness import difference, launch, plain, record_of, translated
from vispark.translate import Folding, TracedCall, fuse, trace

ROWS, MATRIX = rows(70, 12), rows(12, 10, seed=2)
ACROSS = np.ascontiguousarray(MATRIX.T)


def _added(p, m):
    out = np.zeros(len(m), np.float32)
    for i in range(len(m)):
        for j in range(len(p)):
            out[i] += m[i, j] * p[j]
    return out


def _summed(p, m):
    out = np.zeros(len(m), p.dtype)
    for i in range(m.shape[0]):
        s = 0.0
        for j in range(m.shape[1]):
            s += m[i][j] * p[j]
        out[i] = s
    return out


def _assigned(p, m):
    out = np.zeros(len(m), p.dtype)
    for i in range(len(m)):
        out[i] = np.dot(m[i], p)
    return out


#: Spellings with a matrix of 12 x 10, and with one of 10 x 12.
DOWN = {"p @ m": lambda p, m: p @ m, "m.T @ p": lambda p, m: m.T @ p, "dot": lambda p, m: np.dot(p, m),
        "p.dot": lambda p, m: p.dot(m), "matmul": lambda p, m: np.matmul(p, m),
        "einsum": lambda p, m: np.einsum("i,ij->j", p, m),
        "broadcast": lambda p, m: (p[:, None] * m).sum(axis=0),
        "columns": lambda p, m: np.array([p @ m[:, j] for j in range(m.shape[1])])}
OVER = {"m @ p": lambda p, m: m @ p, "inner": lambda p, m: np.inner(m, p),
        "einsum": lambda p, m: np.einsum("ij,j->i", m, p),
        "broadcast": lambda p, m: np.sum(m * p, axis=-1),
        "dots": lambda p, m: np.array([np.dot(row, p) for row in m]),
        "sums": lambda p, m: np.array([sum(a * b for a, b in zip(row, p, strict=True)) for row in m]),
        "indices": lambda p, m: np.array([sum(m[i, j] * p[j] for j in range(12)) for i in range(10)])}
def _loops(p, m):
    return _added(p, m), _summed(p, m)


def _kernel(fn: Callable[..., Any], data: np.ndarray, *args: Any, folding: Folding | None = None) -> Any:
    return fuse((TracedCall(trace(fn, args), args),), record_of(data), folding=folding)


@pytest.mark.parametrize(("spellings", "matrix"), [(DOWN, MATRIX), (OVER, ACROSS)])
def test_expressions_give_one_kernel(spellings: dict[str, Any], matrix: np.ndarray):
    sources = {name: _kernel(fn, ROWS, matrix).source for name, fn in spellings.items()}
    assert all("rows::TensorMultiply" in source for source in sources.values())
    assert len(set(sources.values())) == 1, sources.keys()


@pytest.mark.parametrize("fn", [_added, _summed, _assigned])
def test_loops_are_recognised(fn: Callable[..., Any]):
    assert "rows::TensorMultiply" in _kernel(fn, ROWS, ACROSS).source


def test_a_cpu_adds_terms_in_the_order_of_a_loop():
    for one, other in zip(plain(_loops, ROWS, ACROSS), translated(_loops, ROWS, ACROSS, staged=False), strict=True):
        assert not difference(one, other)


def test_terms_of_split_products_are_as_near_as_float32s():
    exact = plain(_loops, ROWS.astype("f8"), ACROSS.astype("f8"))
    for one, other in zip(exact, translated(_loops, ROWS, ACROSS, staged=True), strict=True):
        for wanted, product in zip(one, other, strict=True):
            assert product.dtype == np.float32
            np.testing.assert_allclose(product, wanted, rtol=3e-6, atol=3e-6 * np.abs(wanted).max())


def _biased(p, m, b):
    return np.maximum(p @ m + b, 0), p[0]


def _mean(p, m):
    scores = p[1:] @ m
    return scores.max(), np.argmax(scores), p.sum()


@pytest.mark.parametrize(("fn", "data", "args", "multiplied"), [
    (_biased, ROWS.astype("f8"), (MATRIX, MATRIX[0]), "rows::Multiply<"),
    (_biased, rows(37, 256), (rows(256, 9, seed=3), MATRIX[0, :9]), "rows::TensorMultiply<"),
    (_mean, rows(21, 785), (rows(784, 40, seed=3),), "rows::Multiply<")], ids=["float64", "lanes", "parts"])
def test_products_are_right_on_both_ways(fn: Callable[..., Any], data: np.ndarray, args: tuple[Any, ...],
                                         multiplied: str):
    assert multiplied in _kernel(fn, data, *args).source
    exact = plain(fn, data.astype("f8"), *(one.astype("f8") for one in args))
    for staged in (False, True):
        for one, other in zip(exact, translated(fn, data, *args, staged=staged), strict=True):
            for wanted, product in zip(one, other, strict=True):
                np.testing.assert_allclose(product, wanted, rtol=1e-4, atol=1e-4)


def _class(p, m):
    return int(np.argmax(p @ m)), (p, 1)


@pytest.mark.parametrize("staged", [False, True])
def test_rows_are_folded_by_the_greatest_item(staged: bool):
    folding = Folding((FieldFold("1.0", "add"), FieldFold("1.1", "add")), "0", 10)
    kernel = _kernel(_class, ROWS, MATRIX, folding=folding)
    assert "rows::TensorMultiply" in kernel.source
    left = launch(kernel, (TracedCall(trace(_class, (MATRIX,)), (MATRIX,)),), (ROWS,),
                  options=("-DVISPARK_ALONE=0",) if staged else ())
    labels = np.argmax(ROWS @ MATRIX, axis=1)
    counts = sum(one["1.1"] for one in left)
    assert np.array_equal(counts, np.bincount(labels, minlength=10))
    sums = sum(one["1.0"] for one in left).reshape(10, 12)
    np.testing.assert_allclose(sums, [ROWS[labels == k].sum(axis=0, dtype="f8") for k in range(10)], atol=1e-5)


SECOND = rows(10, 9, seed=3)


def _layers(p, m, n):
    return np.tanh(p @ m) @ n


def _biased_layers(p, m, n):
    hidden = np.maximum(p @ m + n[:, 0], 0)
    return np.argmax(hidden @ n), hidden, p[0]


def _summed_layers(p, m, n):
    hidden = np.tanh(p @ m)
    return np.array([sum(hidden[i] * n[i, j] for i in range(10)) for j in range(9)])


def _three(p, a, b, c):
    return np.maximum(np.maximum(p @ a, 0) @ b, 0) @ c


WIDE = rows(784, 128, seed=4) * np.float32(0.05), rows(128, 10, seed=5), rows(10, 8, seed=6)


@pytest.mark.parametrize(("fn", "data", "args", "products"), [
    (_biased_layers, ROWS.astype("f8"), (MATRIX, SECOND), 2), (_three, rows(37, 784), WIDE, 3),
    (lambda p, m: ((p - p.mean()) / p.std()) @ m, ROWS, (MATRIX,), 1)], ids=["read again", "three", "normalised"])
def test_rows_that_are_computed_are_multiplied_too(fn: Callable[..., Any], data: np.ndarray, args: tuple[Any, ...],
                                                   products: int):
    assert _kernel(fn, data, *args).source.count("Multiply<rows::Matrix<") == products
    exact = plain(fn, data.astype("f8"), *(one.astype("f8") for one in args))
    for staged in (False, True):
        for one, other in zip(exact, translated(fn, data, *args, staged=staged), strict=True):
            for wanted, product in zip(*(each if isinstance(each, tuple) else (each,) for each in (one, other)),
                                       strict=True):
                np.testing.assert_allclose(product, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", [_layers, _summed_layers, lambda p, m, n: np.dot(n.T, np.tanh(np.dot(p, m))),
                                lambda p, m, n: p[::-1] @ m + 0 * (p[:10] * 2 @ n).sum()])
def test_computed_rows_are_recognised(fn: Callable[..., Any]):
    assert _kernel(fn, ROWS, MATRIX, SECOND).source.count("typedef rows::TensorMultiply") == 2


def _changed(p, m, n):
    hidden = p @ m + 0
    first = hidden @ n
    hidden[0] = 5
    return first, hidden @ n


def test_a_row_is_multiplied_as_it_was():
    assert _kernel(_changed, ROWS, MATRIX, SECOND).source.count("typedef rows::TensorMultiply") == 3
    results = translated(_changed, ROWS, MATRIX, SECOND, staged=True)
    for one, other in zip(plain(_changed, ROWS, MATRIX, SECOND), results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def _searched(p, m):
    scale = p[0]
    while abs(scale) < 1e3 and scale != 0:
        scale *= 2
    return (p * scale) @ m


def _kept(p, m):
    out = np.zeros(len(m), np.float32)
    for i in range(len(m)):
        s = 0.0
        for j in range(len(p)):
            s += m[i, j] * p[j]
        out[i] = s
    return out, s


def _conditional(p, m):
    return np.array([sum(a * b for a, b in zip(row, p, strict=True) if a > 0) for row in m])


@pytest.mark.parametrize(("fn", "data", "matrix"), [
    (_searched, ROWS, MATRIX), (lambda p, m: p @ m, rows(3, 2000), rows(2000, 10)),
    (lambda p, m: p @ m, rows(9, 12, "int32"), rows(12, 10, "int32")), (lambda p, m: p @ m, ROWS, rows(12, 4)),
    (_kept, ROWS, ACROSS), (_conditional, ROWS, ACROSS)],
    ids=["searched", "long", "integers", "narrow", "read after", "conditional"])
def test_other_products_are_written_row_by_row(fn: Callable[..., Any], data: np.ndarray, matrix: np.ndarray):
    assert "Multiply<" not in _kernel(fn, data, matrix).source
