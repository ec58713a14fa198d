"""Quotients by a number that all cells have in common are IEEE's, bit for bit, whatever is divided by whatever."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.golden import grids
from tests.golden.cases_stencils import awkward
from tests.golden.harness import AS_ON_GPU
from vispark.translate import coordinate, extent, stencil, trace


@stencil
def parts(u, k):
    twice = 2 * k
    return {"one": u[0, 1] / k, "third": u[0, 0] / 3, "half": u[0, -1] / twice}


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether all numbers are equal, zeros in sign as well; a NaN is any other."""
    bits = f"u{a.itemsize}"
    return bool(np.all((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))))


def divisors(dtype: str) -> np.ndarray:
    """Usual ones, and those at the ends of what has a reciprocal."""
    about, ends = np.finfo(dtype), np.array([3, 12, 1, 4, 0.1, 1 / 3, 1e-3, 1e6, 0, np.inf, np.nan], dtype)
    small, great = about.smallest_normal, 1 / about.smallest_normal
    rims = np.array([about.smallest_subnormal, small / 4, small / 3, small, small * 1.5, great / 2, great * 0.99, great,
                     great * 1.5, about.max, np.ldexp(3.0, about.maxexp - 5)], dtype)
    return np.concatenate([ends, rims, -ends[:5], -rims])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_are_those_of_ieee(dtype: str):
    u = awkward((22, 270), dtype)
    kernel = grids.kernel_of(parts, {"": u}, 2, np.dtype(dtype).type(3))
    assert len(re.findall(r"common_quotient<exact>\(", kernel.source)) == 3
    with np.errstate(all="ignore"):
        for k in divisors(dtype):
            one, third, half = grids.run(kernel, kernel.values(trace(parts, (k,)), (k,)), {"": u}, (1, 1),
                                         options=AS_ON_GPU)
            assert same_bits(one, u[1:-1, 2:] / k), k
            assert same_bits(third, u[1:-1, 1:-1] / u.dtype.type(3)), k
            assert same_bits(half, u[1:-1, :-2] / (2 * k)), k


@pytest.mark.parametrize(("divided", "counted"), [
    (lambda u, k: u[0, 0] / k, 1),
    (lambda u, k: u[0, 0] / (k * k + 1), 1),
    (lambda u, k: u[0, 0] / extent(0), 1),
    (lambda u, k: u[0, 0] / -k + (1 / k) * u[0, 1] + (k + 2) / 3, 1),
    (lambda u, k: u[0, 0] / 4 + u[0, 1] / 0.125 + k, 0),
    (lambda u, k: u[0, 0] / u[0, 1] + 1 / u[0, 1] + k, 0),
    (lambda u, k: u[0, 0] / coordinate(0) + k, 0),
    (lambda u, k: u[0, 0] // k, 0)])
def test_what_is_divided_by_a_reciprocal(divided, counted):
    source = grids.kernel_of(stencil(divided), {"": np.ones((5, 5), "float32")}, 2, 0.1).source
    cell = source[:source.index('extern "C"')]
    assert len(re.findall(r"common_quotient<exact>\(", cell)) == counted, cell
