"""Folds by many keys: cells that threads fold into in any order, whose sums are exact."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_GPU, launch, record_of
from vispark.translate import Call, Folding, TableKernel, fuse, trace

FLOATS = np.float32([0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 3e38, 1e-30, 1.5, -2.25e-20, 7e20, -7e20, 1 / 3, -1e-38])


def _pair(k, v, n):
    return k, (v, n, n)


def _folding(groups: int) -> Folding:
    return Folding((FieldFold("1.0", "add"), FieldFold("1.1", "add", "overflow"), FieldFold("1.2", "minimum")), "0",
                   groups)


def _data(keys: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    count = 3000
    return {"k": random.integers(0, keys, count).astype("int32") % 7 * (keys // 7), "v": random.choice(FLOATS, count),
            "n": random.integers(-2**62, 2**62, count)}


def _kernel(data: dict[str, np.ndarray], groups: int) -> TableKernel:
    return fuse((Call(trace(_pair)),), record_of(data), folding=_folding(groups))


def _left(data: dict[str, np.ndarray], groups: int, tiles: int) -> list[dict[str, np.ndarray]]:
    return launch(_kernel(data, groups), (Call(trace(_pair)),), (data,), options=AS_ON_GPU, tiles=tiles)


@pytest.mark.parametrize(("groups", "place"), [(1000, "block"), (9000, "device")])
def test_sums_are_exact_in_any_order(groups: int, place: str):
    data = _data(groups)
    kernel = _kernel(data, groups)
    assert "rows::leave_cells" in kernel.source and (kernel.preparation is not None) == (place == "device")
    for tiles in (1, 3):
        left = _left(data, groups, tiles)
        joined = {name: functools.reduce(np.minimum if name == "1.2" else np.add, [one[name] for one in left])
                  for name in ("0", "1.0", "1.1", "1.1 overflow", "1.2")}
        for key in np.unique(data["k"]):
            mine = data["k"] == key
            values, numbers = data["v"][mine].astype("f8"), data["n"][mine]
            exact = math.fsum(values)
            assert joined["1.0"][key] == pytest.approx(exact, rel=1e-15, abs=0 if place == "device" else 1e22)
            assert joined["0"][key] == mine.sum() and joined["1.1"][key] == np.sum(numbers)
            assert joined["1.1 overflow"][key] == pytest.approx(np.abs(numbers).astype("f8").sum())
            assert joined["1.2"][key] == numbers.min()
        assert joined["0"].sum() == len(data["k"])
        assert min(one["0 least"] for one in left) == 0


def test_what_is_no_number_stays_none():
    data = _data(9000) | {"k": np.int32([1, 1, 2, 2, 3, 3, 4]), "n": np.zeros(7, "i8"),
                          "v": np.float32([np.inf, 1, np.inf, -np.inf, np.nan, 1, -np.inf])}
    left = _left(data, 9000, 1)
    sums = sum(one["1.0"] for one in left)
    assert sums[1] == np.inf and np.isnan(sums[2]) and np.isnan(sums[3]) and sums[4] == -np.inf and sums[5] == 0
