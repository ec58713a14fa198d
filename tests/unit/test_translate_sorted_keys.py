"""Folds of wide records by key: a thread block sorts its rows, and a warp folds a key's in its registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu_worker.device.base import Device
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_GPU, launch, record_of
from vispark.translate import Folding, TracedCall, fuse, trace


def keyed(p):
    return int(p[0]), (np.outer(p[1:], p[1:]), p[1] * 2, p[1:])


def data_of(count: int, groups: int, dtype: str = "float32") -> np.ndarray:
    drawn = np.random.default_rng(2).normal(size=(count, 11)).astype(dtype)
    drawn[:, 0] = np.arange(count) ** 2 % groups
    return drawn


def left(fn: Callable[..., Any], data: np.ndarray, groups: int, tiles: int, *, staged: bool = True,
         on: Device | None = None, source: str = "SortedRows") -> list[dict[str, np.ndarray]]:
    """Return the accumulators that works leave; each of some tiles of rows."""
    folding = Folding((FieldFold("", "add"),), "0", groups)
    calls = (TracedCall(trace(fn)),)
    kernel = fuse(calls, record_of(data), folding=folding)
    assert f"rows::{source}" in kernel.source
    return launch(kernel, calls, (data,), options=AS_ON_GPU if staged and on is None else (), tiles=tiles, on=on)


def check(data: np.ndarray, groups: int, tiles: int, **where: Any) -> None:
    """Compare the sums of each key with NumPy's in float64."""
    works = left(keyed, data, groups, tiles, **where)
    total = {name: sum(one[name].astype("f8") if not one[name].dtype.names else one[name]["sum"] for one in works)
             for name in ("0", "1.0", "1.1", "1.2")}
    exact, keys = data.astype("f8"), data[:, 0].astype(int)
    assert np.array_equal(total["0"], np.bincount(keys, minlength=groups))
    for key in np.unique(keys)[::7]:
        rows = exact[keys == key, 1:]
        np.testing.assert_allclose(total["1.0"].reshape(groups, 10, 10)[key], rows.T @ rows, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(total["1.2"].reshape(groups, 10)[key], rows.sum(axis=0), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(total["1.1"][key], 2 * rows[:, 0].sum(), rtol=1e-5, atol=1e-4)
    assert min(one["0 least"] for one in works) == keys.min()
    assert max(one["0 greatest"] for one in works) == keys.max()


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("count", "groups", "tiles"), [(3000, 1000, 2), (1, 1000, 1), (900, 700, 1)])
def test_sums_of_each_key(count: int, groups: int, tiles: int, staged: bool):
    check(data_of(count, groups), groups, tiles, staged=staged)


MATRICES = {
    "alike": (11, lambda p: (int(p[0]), np.outer(p[1:], p[1:]))),
    "parts": (12, lambda p: (int(p[0]), np.outer(p[1:8], p[3:12]))),
    "larger": (14, lambda p: (int(p[0]), np.outer(p[1:], p[1:]))),
    "few rows": (13, lambda p: (int(p[0]), np.outer(p[2:5], p[1:]))),
}


def check_matrices(fn: Callable[..., Any], width: int, count: int, tiles: int, **where: Any) -> None:
    """Compare the matrices of each key with NumPy's in float64, and once more with numbers that are not finite."""
    groups, data = 1000, np.random.default_rng(3).normal(size=(count, width)).astype("f4")
    data[:, 0] = np.where(np.arange(count) % 3, np.arange(count) ** 2 % groups, 7)
    for odd in (False, True):
        if odd:
            data[count // 2, 1:] = np.inf
            data[7, 2] = np.nan
        works = left(fn, data, groups, tiles, source="KeyOuter", **where)
        total, keys = sum(one["1"].astype("f8") for one in works), data[:, 0].astype(int)
        with np.errstate(invalid="ignore"):
            items = np.stack([fn(p)[1].reshape(-1) for p in data.astype("f8")])
            wanted = np.stack([np.bincount(keys, item, groups) for item in items.T], axis=1)
            most = np.stack([np.bincount(keys, np.abs(item), groups) for item in items.T], axis=1)
            off = np.abs(total.reshape(groups, -1) - wanted)
        finite = np.isfinite(wanted)
        assert np.all(off[finite] <= 1e-6 * most[finite])
        np.testing.assert_array_equal(total.reshape(groups, -1)[~finite], wanted[~finite])
        assert np.array_equal(sum(one["0"] for one in works), np.bincount(keys, minlength=groups))


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("width", "fn"), MATRICES.values(), ids=MATRICES.keys())
def test_matrices_of_each_key(width: int, fn: Callable[..., Any], staged: bool):
    check_matrices(fn, width, 3000, 2, staged=staged)


def test_matrices_of_more_rows_than_are_sorted_at_once():
    check_matrices(MATRICES["alike"][1], 11, 34_000, 40)


def test_more_rows_than_are_sorted_at_once():
    check(data_of(34_000, 600), 600, 40)


def test_doubles():
    check(data_of(2000, 500, "float64"), 500, 1)


def test_the_same_bits_each_time():
    one, other = (left(keyed, data_of(3000, 600), 600, 3) for _ in range(2))
    assert all(a[name].tobytes() == b[name].tobytes() for a, b in zip(one, other, strict=True) for name in a)
