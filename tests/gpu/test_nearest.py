"""Labels and sums by nearest centres on a real GPU: one pass by warps with roles, or two passes."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.device.cuda.device import CudaDevice
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import launch
from tests.unit.test_nearest_beside import made, nearest_and_cost
from tests.unit.test_nearest_roles import check, half_way
from tests.unit.test_translate_nearest import (
    CENTRES,
    all_equal,
    between,
    by_key,
    exact,
    far_rows,
    nan_centre,
    not_finite,
    points,
)


@pytest.mark.parametrize(("centres", "columns"), [(40, 784), (10, 784), (2, 784), (33, 516), (60, 532), (3, 420),
                                                  (64, 544), (21, 460)])
def test_rows_are_folded_in_one_pass(device: CudaDevice, centres: int, columns: int):
    sizes = 6_011, 0, 16, 7, 1_000
    check([points(size, columns, 3 + number) for number, size in enumerate(sizes)], points(centres, columns, 1),
          tiles=30, on=device)


@pytest.mark.parametrize(("centres", "columns"), [(80, 784), (41, 784), (57, 708), (80, 788), (64, 704),
                                                  (80, 576)])
def test_rows_are_folded_by_two_blocks(device: CudaDevice, centres: int, columns: int):
    sizes = 6_011, 0, 16, 7, 1_000
    check([points(size, columns, 3 + number) for number, size in enumerate(sizes)], points(centres, columns, 1),
          tiles=30, on=device, way="Pair")


@pytest.mark.parametrize(("centres", "columns", "way"), [(64, 704, "Pair"), (80, 784, "Pair"), (40, 784, "Roles")])
@pytest.mark.parametrize("share", [0.05, 0.6])
def test_rows_that_wait_come_again_in_a_later_tile(device: CudaDevice, centres: int, columns: int, way: str,
                                                   share: float):
    around = points(centres, columns, 1)
    check([half_way(31_000, around, share), half_way(770, around, share)], around, tiles=31_000 // 16 + 1, on=device,
          way=way)


@pytest.mark.parametrize(("centres", "columns"), [(96, 784), (160, 784), (256, 512), (24, 256)])
def test_rows_are_folded_in_two_passes(device: CudaDevice, centres: int, columns: int):
    check([points(size, columns, 3 + number) for number, size in enumerate((9_011, 0, 1_000))],
          points(centres, columns, 1), tiles=40, on=device, way="")


@pytest.mark.parametrize(("centres", "columns", "dtype"), [(40, 784, "float64"), (80, 784, "float32"),
                                                           (160, 784, "float64"), (24, 258, "float64")])
def test_rows_of_doubles_are_folded_in_two_passes(device: CudaDevice, centres: int, columns: int, dtype: str):
    around = points(centres, columns, 1).astype(dtype)
    check([points(size, columns, 3 + size).astype(float) / 3 for size in (3_011, 0, 700)], around, tiles=4, on=device,
          way="")


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_rows_of_doubles_that_products_leave_open(device: CudaDevice):
    for change in (between, far_rows, not_finite, nan_centre, all_equal):
        data, centres = points(1_000, 784, 7).astype(float), points(CENTRES, 784, 8).astype(float)
        change(data, centres)
        check([data], centres, tiles=10, on=device, way="")


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize(("count", "columns", "way"), [(CENTRES, 420, "Roles"), (CENTRES, 784, "Roles"),
                                                       (60, 784, "Pair")])
def test_rows_that_products_leave_open(device: CudaDevice, count: int, columns: int, way: str):
    for change in (between, far_rows, not_finite, nan_centre, all_equal):
        data, centres = points(3_000, columns, 7), points(count, columns, 8)
        change(data, centres)
        check([data], centres, tiles=10, on=device, way=way)


def test_sums_are_exact_where_floats_are(device: CudaDevice):
    data = np.random.default_rng(9).integers(0, 4, (8_000, 784)).astype(np.float32)
    for count, way in ((40, "Roles"), (80, "Pair")):
        centres = np.random.default_rng(10).integers(0, 4, (count, 784)).astype(np.float32)
        centres[1::2] = centres[::2]
        check([data], centres, tiles=300, on=device, way=way)


@pytest.mark.parametrize(("centres", "columns", "dtype"), [(40, 784, "float32"), (160, 784, "float64"),
                                                           (CENTRES, 48, "float32")])
def test_what_is_computed_beside_labels(device: CudaDevice, centres: int, columns: int, dtype: str):
    data, around = points(9_011, columns, 3).astype(dtype), points(centres, columns, 1).astype(dtype)
    distances = exact(data, around)
    labels, least = distances.argmin(axis=1), distances.min(axis=1)
    rest, calls = made(nearest_and_cost, around, data)
    outputs = launch(rest, calls, [data], tiles=9, on=device)[0]
    assert rest.name == "nearest_rest" and outputs["0"].tolist() == labels.tolist()
    np.testing.assert_allclose(outputs["1"], least, rtol=1e-5 if dtype == "float32" else 1e-13)
    fold, calls = made(nearest_and_cost, around, data, by_key(centres, (FieldFold("1", "maximum"),)))
    left = launch(fold, calls, [data], tiles=9, on=device)
    assert sum(each["0"] for each in left).tolist() == np.bincount(labels, minlength=centres).tolist()
    greatest = [max(least[labels == k], default=-np.inf) for k in range(centres)]
    np.testing.assert_allclose(np.max([each["1"] for each in left], axis=0), greatest, rtol=1e-5)
