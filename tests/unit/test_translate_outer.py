"""Sums of outer products: recognised by what is computed, and added up as NumPy's matrix product of the factors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.products import softmax
from gpu_worker.device.base import Device
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_GPU, AS_ON_HOPPER, launch, record_of
from vispark.translate import Folding, TracedCall, fuse, trace
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.kernels.matrix_fold import is_matrix_fold

ADDED = Folding((FieldFold("", "add"),))


def rows(count: int, width: int, dtype: str = "float32", seed: int = 1) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, width))
    return (drawn * 100).astype(dtype) if np.dtype(dtype).kind in "iu" else drawn.astype(dtype)


def totals(fn: Callable[..., Any], data: Any, *args: Any, staged: bool = False, matrix: bool = True,
           folding: Folding = ADDED, on: Device | None = None,
           options: tuple[str, ...] = AS_ON_GPU) -> list[np.ndarray]:
    """Return the totals of all elements that a kernel leaves, joined, for each output."""
    calls = (TracedCall(trace(fn, args), args),)
    kernel = fuse(calls, record_of(data), folding=folding)
    assert is_matrix_fold(kernel.source) == matrix
    works = launch(kernel, calls, (data,), options=options if staged else (), tiles=2, on=on)
    totals = []
    for output in kernel.outputs:
        parts = [work[output.name] for work in works]
        parts = [part["sum"] + part["lost"] if part.dtype.names else part for part in parts]
        totals.append(np.sum(parts, axis=0).reshape(output.shape))
    return totals


def close(sums: np.ndarray, wanted: np.ndarray, rtol: float = 2e-6) -> None:
    np.testing.assert_allclose(sums, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


SPELLINGS = {
    "outer": lambda p: np.outer(p, p),
    "axes": lambda p: p[:, None] * p[None, :],
    "broadcast": lambda p: p[:, np.newaxis] * p,
    "einsum": lambda p: np.einsum("i,j->ij", p, p),
    "product": lambda p: p[:, None] @ p[None, :],
    "reshaped": lambda p: p.reshape(-1, 1) * p.reshape(1, -1),
}


@pytest.mark.parametrize("fn", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_spellings_are_recognised(fn: Callable[..., Any]):
    data = rows(70, 20)
    close(totals(fn, data)[0], data.T.astype("f8") @ data)


@pytest.mark.parametrize("width", [16, 17, 33, 64, 131, 600])
def test_a_row_by_itself(width: int):
    data = rows(150, width)
    gram, = totals(lambda p: np.outer(p, p), data)
    close(gram, data.T.astype("f8") @ data)
    assert np.array_equal(gram, gram.T)


@pytest.mark.parametrize("width", [17, 33, 64, 131])
@pytest.mark.parametrize("count", [1, 129, 300])
def test_a_row_by_itself_on_a_gpus_way(width: int, count: int):
    data = rows(count, width)
    close(totals(lambda p: np.outer(p, p), data, staged=True)[0], data.T.astype("f8") @ data)


def _dtype(dtype: str, **where: Any) -> None:
    data = rows(133, 23, dtype)
    sums, = totals(lambda p: np.outer(p[:20], p[2:]), data, **where)
    with np.errstate(over="ignore"):
        wanted = sum((np.outer(p[:20], p[2:]) for p in data[1:]), np.outer(data[0, :20], data[0, 2:]))
    if np.dtype(dtype).kind in "iu":
        np.testing.assert_array_equal(sums.astype(dtype), wanted.astype(dtype))
    else:
        exact = data[:, :20].T.astype("f8") @ data[:, 2:]
        close(sums, exact, 2e-6 if dtype == "float32" else 1e-14)


def _beside_numbers_and_rows(**where: Any) -> None:
    data = rows(200, 18)

    def statistics(p, w):
        c = np.exp(p[0])
        return c, c * p, c * np.outer(p, p), (np.outer(p[1:], p + w), np.float32(1))

    w = rows(1, 18, seed=5)[0]
    c = np.exp(data[:, 0].astype("f8"))[:, None]
    weight, mean, gram, other, count = totals(statistics, data, w, **where)
    close(weight, c.sum())
    close(mean, (c * data).sum(axis=0))
    close(gram, (c * data).T @ data)
    close(other, data[:, 1:].T.astype("f8") @ (data + w))
    assert count == 200


def _sums_and_differences(**where: Any) -> None:
    data = rows(90, 36)

    def fn(p):
        a, b = p[:18], p[18:]
        return np.outer(a, b) - 2 * np.outer(b, a) / 3 + -np.outer(a, a)

    a, b = data[:, :18].astype("f8"), data[:, 18:]
    close(totals(fn, data, **where)[0], a.T @ b - 2 * b.T @ a / 3 - a.T @ a)


@pytest.mark.parametrize("staged", [False, True])
def test_softmax_gradient(staged: bool):
    data, w = rows(140, 41), rows(40, 10, seed=3)
    data[:, 0] = np.arange(140) % 10
    wanted = sum(softmax(p.astype("f8"), w.astype("f8")) for p in data)
    close(totals(softmax, data, w, staged=staged)[0], wanted, 1e-5)


def network_and_loss(p, w1, w2):
    x = p[1:]
    h = np.tanh(x @ w1)
    scores = h @ w2
    e = np.exp(scores - scores.max())
    q = e / e.sum()
    q[int(p[0])] -= 1
    back = (w2 @ q) * (1 - h * h)
    return np.outer(x, back), np.outer(h, q), -np.log(e[int(p[0])] / e.sum())


@pytest.mark.parametrize("staged", [False, True])
def test_two_layers(staged: bool):
    data, w1, w2 = rows(70, 41), rows(40, 32, seed=3) / 6, rows(32, 10, seed=4) / 6
    data[:, 0] = np.arange(70) % 10
    for sums, *wanted in zip(totals(network_and_loss, data, w1, w2, staged=staged),
                             *[network_and_loss(p.astype("f8"), w1.astype("f8"), w2.astype("f8")) for p in data],
                             strict=True):
        close(sums, np.sum(wanted, axis=0), 1e-5)


def test_what_a_layer_left_is_not_computed_again():
    args = rows(32, 32, seed=3), rows(32, 10, seed=4)
    kernel = fuse((TracedCall(trace(network_and_loss, args), args),), record_of(rows(4, 33)), folding=ADDED)
    on_gpu = kernel.source.partition("#else")[2]
    assert on_gpu.count("tanhf(") == 1


def test_a_row_that_changes_behind_its_layer_is_computed_again():
    def changed(p, w1, w2):
        h = np.tanh(p @ w1)
        q = h @ w2
        h[0] = 1
        return np.outer(p, h), np.outer(h, q)

    data, w1, w2 = rows(70, 16), rows(16, 32, seed=3) / 6, rows(32, 10, seed=4) / 6
    for staged in (False, True):
        for sums, *wanted in zip(totals(changed, data, w1, w2, staged=staged),
                                 *[changed(p.astype("f8"), w1.astype("f8"), w2.astype("f8")) for p in data],
                                 strict=True):
            close(sums, np.sum(wanted, axis=0), 1e-5)


def _what_is_not_finite_stays_so(**where: Any) -> None:
    data = rows(40, 20)
    data[3, 4], data[5, 6], data[7, 8] = np.nan, np.inf, 0
    with np.errstate(invalid="ignore"):
        wanted = sum(0 * np.outer(p, p[:17]) for p in data)
        gram = sum(np.outer(p, p) for p in data)
    product, other = totals(lambda p: (np.float32(0) * np.outer(p, p[:17]), np.outer(p, p)), data, **where)
    np.testing.assert_array_equal(np.isnan(product), np.isnan(wanted))
    np.testing.assert_array_equal(np.isnan(other), np.isnan(gram))
    np.testing.assert_array_equal(np.isinf(other), np.isinf(gram))


def test_the_same_bits_each_time():
    data = rows(500, 70)
    one, other = (totals(lambda p: np.outer(p, p), data, staged=True)[0] for _ in range(2))
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("fn", [lambda p: p[:, None] - p, lambda p: np.tril(np.outer(p, p)),
                                lambda p: np.outer(p[:4], p[:4]), lambda p: np.maximum(np.outer(p, p), 0)])
def test_other_matrices_are_summed_as_ever(fn: Callable[..., Any]):
    data = rows(60, 17)
    close(totals(fn, data, matrix=False)[0], sum(fn(p.astype("f8")) for p in data))


def test_other_folds_are_none():
    data = rows(60, 17)
    folding = Folding((FieldFold("", "maximum"),))
    calls = (TracedCall(trace(lambda p: np.outer(p, p)), ()),)
    assert not is_matrix_fold(fuse(calls, record_of(data), folding=folding).source)


def _in_blocks(**where: Any) -> None:
    """Check matrices of more than 128 x 128, of rows of which the last tile has few, and which no thread block ends
    alone.
    """
    data = rows(150, 132)
    gram, = totals(lambda p: np.outer(p, p), data, **where)
    close(gram, data.T.astype("f8") @ data)
    assert np.array_equal(gram, gram.T)
    data = rows(40, 272)
    other, = totals(lambda p: np.outer(p[4:136], p[140:]), data, **where)
    close(other, data[:, 4:136].T.astype("f8") @ data[:, 140:])


def _not_finite_in_blocks(**where: Any) -> None:
    data = rows(40, 132)
    data[3, 4], data[5, 131], data[7, 8] = np.nan, np.inf, 0
    with np.errstate(invalid="ignore"):
        wanted = data.T.astype("f8") @ data
    gram, = totals(lambda p: np.outer(p, p), data, **where)
    np.testing.assert_array_equal(np.isnan(gram), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(gram), np.isinf(wanted))
    close(gram[np.isfinite(wanted)], wanted[np.isfinite(wanted)])


def _in_one_block(**where: Any) -> None:
    """Check matrices of one block, small or not, whose rows end in a tile of few; and numbers of many magnitudes, of
    which each item is as exact as float32's, whichever others there are.
    """
    for width, count in ((128, 300), (112, 70), (64, 500), (60, 65), (60, 3)):
        data = rows(count, width)
        gram, = totals(lambda p: np.outer(p, p), data, **where)
        close(gram, data.T.astype("f8") @ data)
        assert np.array_equal(gram, gram.T)
        magnitudes = 10.0 ** np.random.default_rng(2).integers(-9, 9, width)
        data = (rows(count, width) * rows(count, 1, seed=4) ** 8 * magnitudes).astype("f4")
        gram, = totals(lambda p: np.outer(p, p), data, **where)
        exact, most = (some.T @ some for some in (data.astype("f8"), np.abs(data.astype("f8"))))
        assert (np.abs(gram - exact) <= 2e-6 * most).all()
    data = rows(150, 240)
    gram, = totals(lambda p: np.outer(p[4:124], p[112:]), data, **where)
    close(gram, data[:, 4:124].T.astype("f8") @ data[:, 112:])
    gram, = totals(lambda p: np.outer(p[:64], p[68:132]), data, **where)
    close(gram, data[:, :64].T.astype("f8") @ data[:, 68:132])


def _not_finite_in_one_block(**where: Any) -> None:
    for width in (60, 128):
        data = rows(70, width)
        data[3, 4], data[35, 6], data[66, 59], data[7, 8] = np.nan, np.inf, -np.inf, 3.3e38
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = (data.T.astype("f8") @ data).astype("f4")
        gram, = totals(lambda p: np.outer(p, p), data, **where)
        np.testing.assert_array_equal(np.isnan(gram), np.isnan(wanted))
        np.testing.assert_array_equal(np.isinf(gram), np.isinf(wanted))
        finite = np.isfinite(wanted)
        np.testing.assert_allclose(gram[finite], wanted[finite], rtol=2e-6, atol=1e-4)


def _several_returns(**where: Any) -> None:
    data = rows(120, 20)

    def fn(p):
        if p[0] > 0:
            return np.outer(p, p)
        return 2 * np.outer(p, p)

    c = np.where(data[:, :1] > 0, 1.0, 2.0)
    close(totals(fn, data, **where)[0], (c * data).T @ data)


def _types(**where: Any) -> None:
    for dtype in ("float64", "int32", "int64", "uint8"):
        _dtype(dtype, **where)


check = {"beside": _beside_numbers_and_rows, "sums": _sums_and_differences, "not finite": _what_is_not_finite_stays_so,
         "returns": _several_returns, "types": _types, "blocks": _in_blocks, "blocks not finite": _not_finite_in_blocks,
         "one block": _in_one_block, "one block not finite": _not_finite_in_one_block}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("check_of", check.values(), ids=check.keys())
def test_checks(check_of: Callable[..., Any], staged: bool):
    check_of(staged=staged)


@pytest.mark.parametrize("check_of", [_in_blocks, _not_finite_in_blocks, _in_one_block, _not_finite_in_one_block])
def test_blocks_as_on_hopper(check_of: Callable[..., Any]):
    check_of(staged=True, options=AS_ON_HOPPER)


@pytest.mark.parametrize(("fn", "width", "shared_limit", "ways"), [
    (lambda p: np.outer(p, p), 512, SHARED_LIMIT, ["roles", "warps"]),
    (lambda p: np.outer(p, p), 512, 160 << 10, ["warps"]),
    (lambda p: np.outer(p, p), 128, SHARED_LIMIT, ["roles"]),
    (lambda p: np.outer(p, p), 64, SHARED_LIMIT, ["roles"]),
    (lambda p: np.outer(p, p), 112, SHARED_LIMIT, ["roles"]),
    (lambda p: np.outer(p[:64], p[64:]), 128, SHARED_LIMIT, ["roles"]),
    (lambda p: np.outer(p[:100], p[4:]), 128, SHARED_LIMIT, ["roles", "warps"]),
    (lambda p: np.outer(p, p), 128, 160 << 10, []),
    (lambda p: np.outer(p, p), 32, SHARED_LIMIT, []),
    (lambda p: np.outer(p, p), 126, SHARED_LIMIT, []),
    (lambda p: np.outer(2 * p, p), 128, SHARED_LIMIT, [])])
def test_parts_of_rows_go_by_roles_where_they_gain_and_shared_memory_has_room(fn, width, shared_limit, ways):
    kernel = fuse((TracedCall(trace(fn)),), record_of(rows(1, width)), folding=ADDED, shared_limit=shared_limit)
    assert re.findall(r"rows::fold_by_(\w+)<", kernel.source) == ways
    assert ("#if VISPARK_ONE_PASS" in kernel.source) == ("roles" in ways)
