"""Sums of outer products on a real GPU, against NumPy's in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu_worker.device.cuda.device import CudaDevice
from tests.unit import test_translate_sorted_keys as by_key
from tests.unit.test_translate_outer import check, close, network_and_loss, rows, softmax, totals


@pytest.mark.parametrize("width", [16, 17, 33, 64, 100, 128, 131, 257, 512, 600])
@pytest.mark.parametrize("count", [1, 129, 5000])
def test_a_row_by_itself(device: CudaDevice, width: int, count: int):
    data = rows(count, width)
    total, = totals(lambda p: np.outer(p, p), data, on=device)
    close(total, data.T.astype("f8") @ data)
    assert np.array_equal(total, total.T)


@pytest.mark.parametrize("check_of", check.values(), ids=check.keys())
def test_checks_of_the_host(device: CudaDevice, check_of: Callable[..., Any]):
    check_of(on=device)


@pytest.mark.parametrize(("fn", "args"), [(softmax, ((128, 20),)), (network_and_loss, ((128, 64), (64, 20)))])
def test_gradients(device: CudaDevice, fn: Callable[..., Any], args: tuple[Any, ...]):
    data, weights = rows(3000, 129), [rows(*shape, seed=3) / np.float32(8) for shape in args]
    data[:, 0] = np.arange(3000) % 20
    wanted = [fn(p.astype("f8"), *(w.astype("f8") for w in weights)) for p in data]
    wanted = [np.sum(each, axis=0) for each in zip(*wanted, strict=True)] if isinstance(wanted[0], tuple) else \
        [np.sum(wanted, axis=0)]
    for total, exact in zip(totals(fn, data, *weights, on=device), wanted, strict=True):
        close(total, exact, 1e-5)


@pytest.mark.parametrize(("count", "groups", "tiles", "dtype"), [(3000, 1000, 2, "float32"), (1, 1000, 1, "float32"),
                                                                 (60_000, 1000, 40, "float32"),
                                                                 (9000, 600, 3, "float64")])
def test_rows_sorted_by_key(device: CudaDevice, count: int, groups: int, tiles: int, dtype: str):
    by_key.check(by_key.data_of(count, groups, dtype), groups, tiles, on=device)
