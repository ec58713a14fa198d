"""Labels and sums by nearest centres on a real GPU: one pass by warps with roles, or two passes."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.device.cuda import CudaDevice
from tests.unit.test_nearest_roles import check
from tests.unit.test_translate_nearest import CENTRES, all_equal, between, far_rows, nan_centre, not_finite, points


@pytest.mark.parametrize(("centres", "columns"), [(40, 784), (10, 784), (2, 784), (33, 516), (60, 532), (3, 420),
                                                  (64, 544), (21, 460)])
def test_rows_are_folded_in_one_pass(device: CudaDevice, centres: int, columns: int):
    sizes = 6_011, 0, 16, 7, 1_000
    check([points(size, columns, 3 + number) for number, size in enumerate(sizes)], points(centres, columns, 1),
          tiles=30, on=device)


@pytest.mark.parametrize(("centres", "columns"), [(80, 784), (160, 784), (256, 512), (24, 256)])
def test_rows_are_folded_in_two_passes(device: CudaDevice, centres: int, columns: int):
    check([points(size, columns, 3 + number) for number, size in enumerate((9_011, 0, 1_000))],
          points(centres, columns, 1), tiles=40, on=device, one_pass=False)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("columns", [420, 784])
def test_rows_that_products_leave_open(device: CudaDevice, columns: int):
    for change in (between, far_rows, not_finite, nan_centre, all_equal):
        data, centres = points(3_000, columns, 7), points(CENTRES, columns, 8)
        change(data, centres)
        check([data], centres, tiles=10, on=device)


def test_sums_are_exact_where_floats_are(device: CudaDevice):
    data = np.random.default_rng(9).integers(0, 4, (8_000, 784)).astype(np.float32)
    centres = np.random.default_rng(10).integers(0, 4, (40, 784)).astype(np.float32)
    centres[1::2] = centres[::2]
    check([data], centres, tiles=300, on=device)
