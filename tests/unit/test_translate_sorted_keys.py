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
         on: Device | None = None) -> list[dict[str, np.ndarray]]:
    """Return the accumulators that works leave; each of some tiles of rows."""
    folding = Folding((FieldFold("", "add"),), "0", groups)
    calls = (TracedCall(trace(fn)),)
    kernel = fuse(calls, record_of(data), folding=folding)
    assert "rows::SortedRows" in kernel.source
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


def test_more_rows_than_are_sorted_at_once():
    check(data_of(34_000, 600), 600, 40)


def test_doubles():
    check(data_of(2000, 500, "float64"), 500, 1)


def test_the_same_bits_each_time():
    one, other = (left(keyed, data_of(3000, 600), 600, 3) for _ in range(2))
    assert all(a[name].tobytes() == b[name].tobytes() for a, b in zip(one, other, strict=True) for name in a)
