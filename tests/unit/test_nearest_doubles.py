"""Nearest centres of rows of float64: labels are exact far beyond float32, and so are sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from tests.golden.harness import AS_ON_GPU, launch
from tests.unit.test_translate_nearest import (
    CENTRES,
    all_equal,
    assign,
    by_argmin,
    by_key,
    exact,
    infinite_centre,
    made,
    nan_centre,
    scaled,
)
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.nearest.recognise import Nearest
from vispark.translate.nearest.two_pass import shape_for

pytestmark = pytest.mark.slow

#: No multiple of 4, and the second half of a step of the products lacks some.
COLUMNS = 58


def doubles(rows: int, seed: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, COLUMNS)).astype(dtype)


def labelled(data: np.ndarray, centres: np.ndarray, options: tuple[str, ...]) -> tuple[np.ndarray, int]:
    """Return the labels, and the number of rows that the products left open; -1 where nobody counts them."""
    kernel, calls = made(by_argmin, centres, columns=data.shape[1], dtype=data.dtype.name)
    assert kernel.name == "nearest_labels"
    call = "    Shape::labels(x, work.count, storage, image, centres, work.of<long long>(1, 1));\n"
    assert call in kernel.source
    if options:
        counted = call + "    if (threadIdx.x == 0) work.of<long long>(1, 1)[work.count - 1] += 1000 * storage.open;\n"
        kernel = replace(kernel, source=kernel.source.replace(call, counted))
    (outputs,) = launch(kernel, calls, [data], options=options)
    labels = outputs[kernel.outputs[0].name]
    opened, labels[-1] = divmod(labels[-1], 1000) if options else (-1, labels[-1])
    return labels, opened


def between(data, centres):
    """Put rows half way between two centres, but for what only a double has."""
    data[:] = (centres[np.arange(len(data)) % CENTRES] + centres[np.arange(len(data)) * 7 % CENTRES]) / 2
    data *= 1 + np.random.default_rng(3).integers(-1, 2, data.shape) * 1e-12


def twins(data, centres):
    """Make pairs of centres that are one as floats, and put rows near either."""
    centres[1::2] = centres[::2] * (1 + 1e-11)
    data[:] = centres[np.arange(len(data)) % CENTRES] * (1 + 1e-13)


def huge_rows(data, centres):
    data[::4] *= 1e60
    data[1::4, 5] = 3e38


def tiny_rows(data, centres):
    data[::4] *= 1e-60


def not_finite(data, centres):
    data[5, 3], data[6, 0], data[7], data[8, 1], data[9] = np.nan, np.inf, np.nan, -np.inf, 1e200


def far_from_zero(data, centres):
    """Move all to seconds since 1970: as floats they are 128 apart."""
    for values in (data, centres):
        values += 1.6e9


def between_far_from_zero(data, centres):
    """Put rows nearer to one of two centres by less than floats of them are apart."""
    some, others = centres[np.arange(len(data)) % CENTRES], centres[np.arange(len(data)) * 7 % CENTRES]
    data[:] = (some + others) / 2 + 1e-5 * (others - some)
    far_from_zero(data, centres)


def one_huge_centre(data, centres):
    centres[4] = 1e300


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("options", [(), AS_ON_GPU])
@pytest.mark.parametrize(("change", "least", "most"), [
    (scaled(1), 0, 9), (far_from_zero, 0, 9), (scaled(1e-13), 0, 9), (scaled(1e13), 0, 9), (tiny_rows, 0, 59),
    (between, 150, 200), (between_far_from_zero, 150, 200), (twins, 200, 200), (huge_rows, 100, 109),
    (not_finite, 5, 14),
    *((change, 200, 200) for change in (
        lambda *both: [np.multiply(each, 1e-40, out=each) for each in both],
        lambda *both: [np.multiply(each, 1e100, out=each) for each in both],
        lambda *both: [np.multiply(each, 1e200, out=each) for each in both],
        one_huge_centre, nan_centre, infinite_centre, all_equal))])
def test_labels_are_those_of_doubles(change: Callable, least: int, most: int, options: tuple[str, ...]):
    data, centres = doubles(200, 6), doubles(CENTRES, 7)
    change(data, centres)
    labels, opened = labelled(data, centres, options)
    assert labels.tolist() == exact(data, centres).argmin(axis=1).tolist()
    assert not options or least <= opened <= most


@pytest.mark.parametrize("options", [(), AS_ON_GPU])
def test_centres_may_be_floats(options: tuple[str, ...]):
    data, centres = doubles(200, 8) + 4096, (doubles(CENTRES, 9) + 4096).astype("float32")
    # Floats of these rows may be nearer to the other centre.
    data[::3] = centres[:2].mean(axis=0, dtype=float) + 1e-4 * doubles(67, 10)
    assert labelled(data, centres, options)[0].tolist() == exact(data, centres).argmin(axis=1).tolist()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("options", [(), AS_ON_GPU])
def test_sums_are_as_accurate_as_a_tree_of_doubles(options: tuple[str, ...]):
    centres = doubles(CENTRES, 10)
    centres[0, 5] = 5
    data = centres[np.arange(900) % 2] + doubles(900, 11) * 1e-3
    data[:, 1], data[::7, 2], data[::5, 3] = 0.1, 1e9, -1e-9
    data[8, 4], data[9, 4] = np.inf, 1e300
    data[:, 5], data[0, 5] = 7.5, 2.0 ** 60     # 16 of them are less than half a unit of the sum's last place.
    kernel, calls = made(assign, centres, columns=COLUMNS, dtype="float64", folding=by_key(CENTRES))
    assert kernel.name == "nearest_fold"
    left, = launch(kernel, calls, [data], tiles=99, options=options)
    labels = exact(data, centres).argmin(axis=1)
    for name in ("0", "1.1", "1.1 overflow"):
        assert left[name].reshape(-1).tolist() == np.bincount(labels, minlength=CENTRES).tolist()
    assert (int(left["0 least"][0]), int(left["0 greatest"][0])) == (labels.min(), labels.max())
    sums = left["1.0"].reshape(CENTRES, COLUMNS)
    for k in range(CENTRES):
        for column in range(COLUMNS):
            items = data[labels == k, column]
            wanted, total = math.fsum(items), sums["sum"][k, column]
            if math.isfinite(wanted):
                total += sums["lost"][k, column]
                assert abs(total - wanted) <= 5 * 2.0 ** -53 * math.fsum(abs(items))
            else:
                assert total == wanted


@pytest.mark.parametrize(("centres", "ring", "ahead"), [(40, 0, 4), (80, 0, 2), (81, 5, 4), (160, 5, 4), (256, 5, 4)])
def test_steps_on_their_way_are_as_many_as_shared_memory_has_room_for(centres: int, ring: int, ahead: int):
    shape = shape_for(centres, 784, "float64", "float64", Nearest("first", False), folds=True)
    assert (shape.ring, shape.ahead) == (ring, ahead)
    assert shape.shared <= SHARED_LIMIT


@pytest.mark.parametrize(("arch", "centres", "columns"), [("sm_80", CENTRES, COLUMNS), ("sm_90a", 100, 1002)])
def test_the_kernels_compile_for_gpus(arch: str, centres: int, columns: int):
    kernel, _ = made(assign, np.ones((centres, columns)), columns=columns, dtype="float64", folding=by_key(centres))
    assert (kernel.preparation is None) == (columns == COLUMNS)     # Else the centres come through a ring.
    for name in (kernel.name, *([kernel.preparation.name] if kernel.preparation else [])):
        assert compile_cubin(Source(kernel.source, "nearest.cu"), name, arch).code
