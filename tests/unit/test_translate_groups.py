"""Gradients of rows that are multiplied with matrices, by groups of four warps whose rows are in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.products import network, softmax
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_HOPPER, CaseData, launch, record_of
from vispark.translate import Folding, TracedCall, fuse, trace
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT, TableKernel
from vispark.translate.kernels.lane_arrays import in_registers

ADDED = Folding((FieldFold("", "add"),))
CLASSES, WIDTH, HIDDEN = 9, 35, 32


def turned(p, w):
    scores = p[1:] @ w
    e = np.exp(scores - scores.max())
    return np.outer(e / e.sum(), p[1:])


def labelled(p, y, w):
    q = np.tanh(p @ w) - y
    return np.outer(p, q)


def weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(shape[0]).normal(size=shape) / np.sqrt(shape[0])).astype("f4")


W, W1, W2 = weights(WIDTH - 1, CLASSES), weights(WIDTH - 1, HIDDEN), weights(HIDDEN, CLASSES)


def rows(count: int, width: int = WIDTH) -> np.ndarray:
    data = np.random.default_rng(1).normal(size=(count, width)).astype("f4")
    data[:, 0] = np.arange(count) % CLASSES
    return data


def kernel_of(fn: Callable[..., Any], data: CaseData, *args: Any, shared_limit: int = SHARED_LIMIT) -> TableKernel:
    return fuse((TracedCall(trace(fn, args), args),), record_of(data), folding=ADDED, shared_limit=shared_limit)


def totals(fn: Callable[..., Any], data: CaseData, *args: Any, tiles: int = 2) -> list[np.ndarray]:
    """Return the totals of all rows that a kernel leaves as on Hopper, joined, for each output."""
    calls, kernel = (TracedCall(trace(fn, args), args),), kernel_of(fn, data, *args)
    assert "rows::GroupOuter<" in kernel.source
    works = launch(kernel, calls, (data,), options=AS_ON_HOPPER, tiles=tiles)
    return [np.sum([work[output.name] for work in works], axis=0).reshape(output.shape) for output in kernel.outputs]


def wanted(fn: Callable[..., Any], data: np.ndarray, *args: np.ndarray) -> list[np.ndarray]:
    """Return the sums of float64."""
    results = [fn(row, *(arg.astype("f8") for arg in args)) for row in data.astype("f8")]
    return [np.sum(part, axis=0) for part in zip(*results, strict=True)] if isinstance(results[0], tuple) \
        else [np.sum(results, axis=0)]


def close(sums: list[np.ndarray], exact: list[np.ndarray]) -> None:
    assert len(sums) == len(exact)
    for one, other in zip(sums, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6 * np.abs(other).max())


@pytest.mark.parametrize(("fn", "matrices"), [(softmax, (W,)), (turned, (W,)), (network, (W1, W2))])
@pytest.mark.parametrize(("count", "tiles"), [(1, 1), (203, 3), (320, 9)])
def test_gradients(fn: Callable[..., Any], matrices: tuple[np.ndarray, ...], count: int, tiles: int):
    data = rows(count)
    close(totals(fn, data, *matrices, tiles=tiles), wanted(fn, data, *matrices))


@pytest.mark.parametrize("width", [36, 40])
def test_rows_of_whole_chunks(width: int):
    data, w = rows(203, width), weights(width - 1, CLASSES)
    close(totals(softmax, data, w, tiles=3), wanted(softmax, data, w))


def test_more_rows_than_are_summed_in_floats():
    data = rows(64 * 16 * 3 * 2 + 5)
    close(totals(softmax, data, W, tiles=1000), wanted(softmax, data, W))


def test_a_number_beside_the_row_is_read_where_it_is():
    data = {"p": rows(130)[:, :33].copy(), "y": np.arange(130, dtype="f4") / 130}
    w = weights(33, CLASSES)
    exact = data["p"].T.astype("f8") @ (np.tanh(data["p"].astype("f8") @ w) - data["y"][:, None])
    close(totals(labelled, data, w), [exact])


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.2e38])
def test_works_that_are_not_finite_go_by_tiles(value: float):
    data = rows(150)
    data[77, 3] = value
    with np.errstate(all="ignore"):
        exact = wanted(softmax, data, W)[0].astype("f4")
        sums, = totals(softmax, data, W)
    np.testing.assert_array_equal(np.isnan(sums), np.isnan(exact))
    finite = np.isfinite(exact)
    np.testing.assert_allclose(sums[finite], exact[finite], rtol=1e-4, atol=1e-4)


def sort(p, w):
    return np.outer(p[1:], np.sort(p[1:] @ w))


def neighbours(p, w):
    q = np.tanh(p[1:] @ w)
    return np.outer(p[1:], q + q[::-1])


def beside(p, w):
    return p.sum(), np.outer(p[1:], np.tanh(p[1:] @ w))


@pytest.mark.parametrize(("fn", "width", "dtype", "shared_limit", "by_groups"), [
    (softmax, WIDTH, "f4", SHARED_LIMIT, True),
    (softmax, 36, "f4", SHARED_LIMIT, True),
    (softmax, 40, "f4", SHARED_LIMIT, True),
    (softmax, 38, "f4", SHARED_LIMIT, False),
    (softmax, WIDTH, "f8", SHARED_LIMIT, False),
    (softmax, WIDTH, "f4", 24 << 10, False),
    (sort, WIDTH, "f4", SHARED_LIMIT, False),
    (neighbours, WIDTH, "f4", SHARED_LIMIT, False),
    (beside, WIDTH, "f4", SHARED_LIMIT, False)])
def test_what_registers_have_goes_by_groups(fn, width, dtype, shared_limit, by_groups):
    kernel = kernel_of(fn, rows(1, width).astype(dtype), weights(width - 1, CLASSES).astype(dtype),
                       shared_limit=shared_limit)
    assert ("rows::GroupOuter<" in kernel.source) == by_groups


@pytest.mark.parametrize("line", [
    "    const float found = q[p[i]];", "        found += q[j + 1];", "        found += q[i];", "    q[i] = 1.0f;",
    "    sort(q, 3);", "    for (int slot = 0; slot < 5; ++slot) {"])
def test_numbers_of_other_lanes_stay_in_shared_memory(line: str):
    assert in_registers(["        const int j = slot * 4 + lane;", line], frozenset("q"), 0) is None


def test_own_arrays_become_registers():
    lines = ["    float* const e = (float*)(scratch + 16);", "    rows::settle<4>();", "    VISPARK_UNROLL",
             "    for (int slot = 0; slot < 5; ++slot) {", "        const int j = slot * 4 + lane;",
             "        e[j] = q[j];", "    }"]
    assert in_registers(lines, frozenset("q"), 96) == ["    rows::LanesArray<float, 20> e;", *lines[2:]]
    assert in_registers(["    float* const e = (float*)(scratch + 16) + 1;"], frozenset("q"), 96) is None
