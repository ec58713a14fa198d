"""Folds by nearest centres in one pass: which shapes take it, and what its warps leave, thread by thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from gpu_worker.device.base import Device, Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from tests.golden.harness import AS_ON_HOPPER, launch
from tests.unit.test_translate_nearest import (
    CENTRES,
    all_equal,
    assign,
    between,
    by_argmin,
    by_key,
    exact,
    far_rows,
    infinite_centre,
    made,
    nan_centre,
    not_finite,
    one_large_column,
    points,
    scaled,
)
from vispark.translate.nearest.one_pass import Pair, roles_for
from vispark.translate.nearest.recognise import Nearest
from vispark.translate.nearest.two_pass import one_pass

pytestmark = pytest.mark.slow

#: No multiple of 16, so that the last step of the products lacks some; nor are the centres one of 8.
COLUMNS = 420


def by_first(p, c):
    return by_argmin(p, c), (p, 1)


def check(blocks: Sequence[np.ndarray], centres: np.ndarray, *, tiles: int, on: Device | None = None,
          way: str = "Roles") -> None:
    """Fold blocks by their rows' nearest centres, in works of so many tiles, and compare with float64's."""
    kernel, calls = made(by_first, centres, columns=centres.shape[1], dtype=blocks[0].dtype.name,
                         folding=by_key(len(centres)))
    assert next((each for each in ("Roles", "Pair") if f"nearest::{each}" in kernel.source), "") == way
    first, second = (launch(kernel, calls, blocks, tiles=tiles, options=AS_ON_HOPPER, on=on) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert {name: part.tobytes() for name, part in one.items()} == \
               {name: part.tobytes() for name, part in other.items()}
    rows = np.concatenate(blocks)
    labels = np.concatenate([exact(rows[i:i + 1000], centres).argmin(axis=1) for i in range(0, len(rows), 1000)])
    counts = np.bincount(labels, minlength=len(centres))
    for name in ("0", "1.1", "1.1 overflow"):
        assert np.sum([each[name].reshape(-1) for each in first], axis=0).tolist() == counts.tolist()
    assert min(int(each["0 least"][0]) for each in first) == labels.min()
    assert max(int(each["0 greatest"][0]) for each in first) == labels.max()
    left = [each["1.0"].reshape(centres.shape) for each in first]
    sums = np.sum([each["sum"] if each.dtype.names else each for each in left], axis=0)
    wide = float if rows.dtype == np.float32 else np.longdouble
    wanted = np.array([rows[labels == k].sum(axis=0, dtype=wide) for k in range(len(centres))])
    sizes = np.array([np.abs(rows[labels == k]).sum(axis=0, dtype=float) for k in range(len(centres))])
    assert np.isfinite(sums).tolist() == np.isfinite(wanted).tolist()
    finite = np.isfinite(wanted)
    within = 1e-5 if rows.dtype == np.float32 else 1e-15 * max(1, len(first))
    assert (np.abs(sums - wanted)[finite] <= within * sizes[finite]).all()


@pytest.mark.parametrize(("centres", "columns", "expected"), [
    (40, 784, (3, 2)), (10, 784, (3, 2)), (60, 532, (4, 4)), (2, 372, (9, 2)), (48, 784, None), (1, 784, None),
    (40, 790, None), (40, 460, None), (40, 464, (6, 2)), (3, 100, None)])
def test_what_gains_by_one_pass_and_fits_registers_and_shared_memory_takes_it(centres, columns, expected):
    shape = roles_for(centres, columns)
    assert (shape and (shape.slots, shape.groups)) == expected


@pytest.mark.parametrize(("centres", "columns", "slots"), [
    (80, 784, 5), (57, 784, 6), (41, 784, 6), (64, 704, 6), (64, 576, 8), (80, 572, None), (96, 784, None),
    (112, 704, None), (80, 786, None)])
def test_sums_that_fit_the_registers_of_two_blocks_take_these(centres, columns, slots):
    shape = one_pass(centres, columns, "float32", Nearest("first", False))
    assert (shape and (type(shape.way), shape.way.slots)) == (slots and (Pair, slots))


def test_labels_alone_take_no_roles():
    kernel, _ = made(by_argmin, points(40, 784), columns=784)
    assert kernel.name == "nearest_labels"
    assert "Roles" not in kernel.source


def test_works_of_several_tiles_blocks_and_turns_of_the_ring_are_added_up():
    check([points(450, COLUMNS, 3), points(0, COLUMNS), points(5, COLUMNS, 4), points(33, COLUMNS, 5)],
          points(3, COLUMNS, 6), tiles=200)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("change", [scaled(1, 1e4), scaled(1e-25), scaled(1e18), between, far_rows, not_finite,
                                    nan_centre, infinite_centre, one_large_column, all_equal])
def test_rows_that_products_leave_open_are_added_up_where_they_belong(change: Callable):
    data, centres = points(40, COLUMNS, 7), points(CENTRES, COLUMNS, 8)
    change(data, centres)
    check([data], centres, tiles=2)


def half_way(rows: int, centres: np.ndarray, share: float) -> np.ndarray:
    """Return rows of which so many are as far from two centres or from three, up to a 10,000th, and the others near
    one.
    """
    rng = np.random.default_rng(rows)
    data = np.empty((rows, centres.shape[1]))
    for row, kind in zip(data, np.where(rng.random(rows) < share, rng.integers(1, 3, rows), 0), strict=True):
        some = centres[rng.permutation(len(centres))[:kind + 1]].astype(float)
        first, apart = some[0], some[1:] - some[0]
        row[:] = first + np.linalg.solve(apart @ apart.T, (apart * apart).sum(axis=1) / 2) @ apart
    return (data + rng.normal(scale=1e-4, size=data.shape)).astype(np.float32)


@pytest.mark.parametrize("share", [0.05, 0.6])
def test_rows_that_wait_come_again_in_a_later_tile(share: float):
    # Of the greater share more wait than there is room for: these get labels at once.
    centres = points(16, 404, 6)
    check([half_way(2_300, centres, share), half_way(1_030, centres, share)], centres, tiles=200)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("centres", "columns"), [(CENTRES, COLUMNS), (80, 784), (57, 708)])
def test_the_kernels_compile_for_gpus_with_and_without_roles(arch, centres, columns):
    kernel, _ = made(assign, points(centres, columns), columns=columns, folding=by_key(centres))
    assert compile_cubin(Source(kernel.source, "nearest.cu"), kernel.name, arch).code
