"""Sums by key that threads add up together, on a GPU where they do so in any order."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gpu_worker.device.cuda.device import CudaDevice
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import launch, record_of
from vispark.translate import Folding, TracedCall, fuse, trace

RECORDS = 400_000


def _pair(k, v):
    return k, v


def _values(spread: str, dtype: str) -> np.ndarray:
    random = np.random.default_rng(11)
    values = random.standard_normal(RECORDS)
    if spread == "wide":
        values *= 10.0 ** random.integers(-30, 30, RECORDS)
    return values.astype(dtype)


@pytest.mark.parametrize("spread", ["close", "wide"])
@pytest.mark.parametrize("keys", ["random", "one"])
@pytest.mark.parametrize("groups", [50, 1000, 5000, 20_000, 100_000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_exact_and_the_same_each_time(device: CudaDevice, dtype: str, groups: int, keys: str, spread: str):
    random = np.random.default_rng(groups)
    numbers = random.integers(0, groups, RECORDS) if keys == "random" else np.full(RECORDS, groups - 1)
    data = {"k": numbers.astype("int32"), "v": _values(spread, dtype)}
    calls = (TracedCall(trace(_pair)),)
    kernel = fuse(calls, record_of(data), folding=Folding((FieldFold("1", "add"),), "0", groups))
    runs = [launch(kernel, calls, (data,), tiles=tiles, on=device) for tiles in (1, 1, 4)]
    order, ends = np.argsort(numbers, kind="stable"), np.searchsorted(np.sort(numbers), np.arange(groups + 1))
    exact = np.array([math.fsum(data["v"][order[first:last]]) for first, last in itertools.pairwise(ends)])
    sizes = np.bincount(numbers, np.abs(data["v"].astype("f8")), groups)
    totals = []
    for left in runs:
        assert (sum(one["0"] for one in left) == np.bincount(numbers, minlength=groups)).all()
        parts = [one["1"]["sum"] + one["1"]["lost"] if one["1"].dtype.names else one["1"] for one in left]
        totals.append(sum(parts))
        assert (np.abs(totals[-1] - exact) <= 2e-15 * sizes).all()
    assert (totals[0] == totals[1]).all()


def test_a_key_that_no_record_has_is_not_counted_where_no_element_is_read(device: CudaDevice):
    """Expect accumulators to begin where the range of the keys is brought together."""
    data = np.zeros(5000, "float32")
    calls = (TracedCall(trace(lambda _: (2, 1))),)
    kernel = fuse(calls, record_of(data), folding=Folding((FieldFold("1", "add"),), "0", 7))
    left = launch(kernel, calls, (data,), tiles=3, on=device)
    assert sum(one["0"] for one in left).tolist() == [0, 0, 5000, 0, 0, 0, 0]
