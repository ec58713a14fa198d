"""Quotients by a number that all cells have in common are NumPy's on a GPU as well, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.device.cuda.device import CudaDevice
from tests.golden import grids
from tests.golden.cases_stencils import awkward
from vispark.translate import stencil, trace


@stencil
def parts(u, k):
    return {"one": u[0, 1] / k, "known": (u[0, 0] * u[0, 0] + 1) / 12, "chosen": max(u[0, -1], 2.0) / 3}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_are_numpys(device: CudaDevice, dtype: str):
    u = awkward((300, 1000), dtype)
    kernel, about = grids.kernel_of(parts, {"": u}, 2, np.dtype(dtype).type(3)), np.finfo(dtype)
    x, left = u[1:-1, 1:-1], u[1:-1, :-2]
    with np.errstate(all="ignore"):
        for k in np.array([3, -0.7, 0, np.inf, about.smallest_subnormal, about.smallest_normal, about.max], dtype):
            outputs = grids.run(kernel, kernel.values(trace(parts, (k,)), (k,)), {"": u}, (1, 1), on=device)
            wanted = u[1:-1, 2:] / k, (x * x + 1) / u.dtype.type(12), np.where(left < 2, 2, left) / u.dtype.type(3)
            for one, other in zip(outputs, wanted, strict=True):
                np.testing.assert_array_equal(np.signbit(one[one == 0]), np.signbit(other[one == 0]))
                np.testing.assert_array_equal(one, other)
