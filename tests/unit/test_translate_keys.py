"""Folds by many keys: cells that threads fold into in any order, whose sums are exact."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_GPU, launch, record_of
from vispark.translate import Folding, TableKernel, TracedCall, fuse, trace

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
    return fuse((TracedCall(trace(_pair)),), record_of(data), folding=_folding(groups))


def _left(data: dict[str, np.ndarray], groups: int, tiles: int) -> list[dict[str, np.ndarray]]:
    return launch(_kernel(data, groups), (TracedCall(trace(_pair)),), (data,), options=AS_ON_GPU, tiles=tiles)


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
            rows = data["k"] == key
            values, numbers = data["v"][rows].astype("f8"), data["n"][rows]
            exact = math.fsum(values)
            assert joined["1.0"][key] == pytest.approx(exact, rel=1e-15, abs=0 if place == "device" else 1e22)
            assert joined["0"][key] == rows.sum() and joined["1.1"][key] == np.sum(numbers)
            assert joined["1.1 overflow"][key] == pytest.approx(np.abs(numbers).astype("f8").sum())
            assert joined["1.2"][key] == numbers.min()
        assert joined["0"].sum() == len(data["k"])
        assert min(one["0 least"] for one in left) == 0


def _two(k, v):
    return k, v


def _number(sums: np.ndarray) -> np.ndarray:
    """Return sums with what rounding took from them, which has no meaning where they are no number."""
    return np.where(np.isfinite(sums["sum"]), sums["sum"] + sums["lost"], sums["sum"]) if sums.dtype.names else sums


def _exact_sums(data: dict[str, np.ndarray], kernel: TableKernel, tiles: int, allowed: float = 1e-15) -> None:
    """Check that each key's numbers are counted, and that their sum is that of whole numbers, rounded once."""
    left = launch(kernel, (TracedCall(trace(_two)),), (data,), options=AS_ON_GPU, tiles=tiles)
    counts, sums = sum(one["0"] for one in left), sum(_number(one["1"]) for one in left)
    assert counts.sum() == len(data["k"])
    for key in np.unique(data["k"]):
        rows = data["k"] == key
        assert counts[key] == rows.sum() and sums[key] == pytest.approx(math.fsum(data["v"][rows]), rel=allowed)


def _two_kernel(data: dict[str, np.ndarray], groups: int) -> TableKernel:
    return fuse((TracedCall(trace(_two)),), record_of(data), folding=Folding((FieldFold("1", "add"),), "0", groups))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("groups", "parts", "moves"), [(50, False, False), (5000, False, True), (20_000, True, True)])
def test_a_block_has_all_digits_of_sums_or_some_that_its_numbers_go_into(dtype: str, groups: int, parts: bool,
                                                                         moves: bool):
    random = np.random.default_rng(7)
    keys = random.integers(0, groups, 20_000) // 50 * 50 + 49 % groups
    close, far = random.standard_normal((2, 20_000)).astype(dtype)
    far *= 10.0 ** random.integers(-30, 30, 20_000)
    kernel = _two_kernel(data := {"k": keys.astype("int32"), "v": close}, groups)
    assert ("part += " in kernel.source, "InBoth" in kernel.source) == (parts, moves)
    for data["v"] in (close, far, np.abs(close), np.full_like(close, -3.0)):
        _exact_sums(data, kernel, 1 if data["v"] is far else 3, 1e-14 if data["v"] is close else 1e-15)


def test_the_least_and_the_greatest_numbers_add_up_exactly():
    tiny, huge = np.finfo("f8").smallest_subnormal, np.finfo("f8").max
    values = np.float64([tiny, tiny, -tiny, huge, -huge, tiny, huge / 2, huge / 4, 0.0, -0.0, -huge, -tiny])
    data = {"k": np.int32([1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5]), "v": values}
    for groups in (100, 3000):
        _exact_sums(data, _two_kernel(data, groups), 1, 0.0)
    data = data | {"v": np.float64([huge, huge, huge, np.inf, -np.inf, 1, np.nan, 1, -np.inf, 1, np.inf, 1])}
    left, = launch(_two_kernel(data, 3000), (TracedCall(trace(_two)),), (data,), options=AS_ON_GPU)
    sums = _number(left["1"])
    assert sums[1] == np.inf and np.isnan(sums[2:4]).all() and sums[4] == -np.inf and sums[5] == np.inf


def test_what_is_no_number_stays_none():
    data = _data(9000) | {"k": np.int32([1, 1, 2, 2, 3, 3, 4]), "n": np.zeros(7, "i8"),
                          "v": np.float32([np.inf, 1, np.inf, -np.inf, np.nan, 1, -np.inf])}
    left = _left(data, 9000, 1)
    sums = sum(one["1.0"] for one in left)
    assert sums[1] == np.inf and np.isnan(sums[2]) and np.isnan(sums[3]) and sums[4] == -np.inf and sums[5] == 0
