"""Sums of long rows do not drift, on the host and the way that a GPU takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.golden.harness import translated

#: Numbers whose sums drift fastest: each addition of one rounds the same way for long.
DRIFTING = np.tile([0.1, 0.3], 20_000)


def _float_sums(p):
    return np.sum(p), p.mean(), sum(p, 1), np.sqrt(p @ p), np.linalg.norm(p), np.var(p), p.reshape(200, 200).sum()


def _complex_sums(p):
    return np.sum(p), p.mean(), np.vdot(p, p), np.std(p), p.reshape(200, 200).sum()


def _exactly(p: np.ndarray) -> dict[str, complex]:
    """Sum, mean, sum of squares and variance."""
    parts = [[float(x) for x in part] for part in (p.real, p.imag)]
    total = complex(*map(math.fsum, parts))
    mean = total / len(p)
    apart = [(x - middle) ** 2 for part, middle in zip(parts, (mean.real, mean.imag), strict=True) for x in part]
    return {"sum": total, "mean": mean, "squares": math.fsum(x * x for part in parts for x in part),
            "variance": math.fsum(apart) / len(p)}


def _floats(exact: dict[str, complex]) -> tuple[complex, ...]:
    size = math.sqrt(exact["squares"].real)
    return exact["sum"], exact["mean"], exact["sum"] + 1, size, size, exact["variance"], exact["sum"]


def _complexes(exact: dict[str, complex]) -> tuple[complex, ...]:
    return exact["sum"], exact["mean"], exact["squares"], math.sqrt(exact["variance"].real), exact["sum"]


CASES = {"float32": (_float_sums, _floats, DRIFTING), "float64": (_float_sums, _floats, DRIFTING),
         "complex64": (_complex_sums, _complexes, DRIFTING + 0.7j * DRIFTING)}


@pytest.mark.parametrize("staged", [False, True], ids=["host", "gpu"])
@pytest.mark.parametrize("dtype", CASES)
def test_sums_of_long_rows_do_not_drift(dtype: str, staged: bool):
    function, expected, numbers = CASES[dtype]
    row = numbers.astype(dtype)
    for number, (one, exact) in enumerate(zip(translated(function, row[None], staged=staged)[0],
                                              expected(_exactly(row)), strict=True)):
        assert abs(complex(one) - exact) <= 8 * np.finfo(dtype).eps * abs(exact), f"result {number}"


@pytest.mark.parametrize("staged", [False, True], ids=["host", "gpu"])
def test_long_sums_that_are_infinite_or_nan_are(staged: bool):
    numbers = np.ones((5, 20_000), np.float32)
    numbers[0, 7_000] = np.inf
    numbers[1, [3, 15_000]] = -np.inf, np.inf
    numbers[2, 19_999] = np.nan
    numbers[3] = np.finfo(np.float32).max
    np.testing.assert_array_equal(translated(_sum, numbers, staged=staged), [np.inf, np.nan, np.nan, np.inf, 20_000])


def _sum(p):
    return p.sum()
