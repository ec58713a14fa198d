"""Kernels by matrix work: which functions get them, and what they give on the host."""

import re
from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from numpy.linalg import norm

from gpu_worker.device.base import Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_GPU, launch
from vispark.translate import trace
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT, ElementField, ElementSpec, TableKernel, TracedCall
from vispark.translate.fusion import fuse
from vispark.translate.ir.folding import Folding
from vispark.translate.nearest.recognise import Nearest
from vispark.translate.nearest.two_pass import shape_for, why_by_rows

pytestmark = pytest.mark.slow

COLUMNS, CENTRES = 48, 20


def nearest(p, centres):
    best, closest = 0, inf
    for i in range(len(centres)):
        distance = np.sum((p - centres[i]) ** 2)
        if distance < closest:
            closest = distance
            best = i
    return best


def by_items(p, centres):
    best, closest = 0, inf
    for k in range(len(centres)):
        d = 0.0
        for j in range(len(p)):
            d += (p[j] - centres[k, j]) * (p[j] - centres[k, j])
        if d < closest:
            best, closest = k, d
    return best


def from_the_first(p, centres):
    best, closest = 0, np.sum((p - centres[0]) ** 2)
    for i in range(1, len(centres)):
        distance = np.sum((p - centres[i]) ** 2)
        if distance < closest:
            closest, best = distance, i
    return best


def least_of(p, centres):
    return min(range(len(centres)), key=lambda i: np.sum((p - centres[i]) ** 2))


def farthest(p, centres):
    return max(range(len(centres)), key=lambda i: np.sum((p - centres[i]) ** 2))


def least_by_sizes(p, centres):
    return min(range(len(centres)), key=lambda i: norm(p - centres[i], 1))


def stored(p, c):
    distances = np.zeros(len(c))
    for i, q in enumerate(c):
        distances[i] = np.sum((p - q) ** 2)
    return np.argmin(distances)


def by_einsum(p, c):
    apart = c - p
    return np.argmin(np.einsum("kd,kd->k", apart, apart))


def from_one(p, c):             # has no distance of the first centre
    best, closest = 0, inf
    for i in range(1, len(c)):
        distance = np.sum((p - c[i]) ** 2)
        if distance < closest:
            closest, best = distance, i
    return best


def from_none(p, c):            # -1 where no distance is finite
    best, closest = -1, inf
    for i in range(len(c)):
        distance = np.sum((p - c[i]) ** 2)
        if distance < closest:
            closest, best = distance, i
    return best


def stored_at_one_place(p, c):
    distances = np.zeros(len(c))
    for i in range(len(c)):
        distances[0] = np.sum((p - c[i]) ** 2)
    return np.argmin(distances)


def assign(p, centres):
    return nearest(p, centres), (p, 1)


def by_argmin(p, c):
    return np.argmin(np.sum((c - p) ** 2, axis=1))


SUMS = (FieldFold("1.0", "add"), FieldFold("1.1", "add", "overflow"))


def made(function, *arguments, columns=COLUMNS, dtype="float32", folding=None):
    calls = (TracedCall(trace(function, arguments), arguments),)
    return fuse(calls, ElementSpec((ElementField("", dtype, (columns,)),)), folding=folding), calls


def by_key(groups, fields=SUMS):
    return Folding(fields, "0", groups)


def points(rows, columns=COLUMNS, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def exact(data, centres):
    return ((data[:, None].astype(float) - centres.astype(float)) ** 2).sum(2)


def labels_of(kernel: TableKernel, calls, *blocks, tiles=1, options=()):
    return [found[kernel.outputs[0].name] for found in launch(kernel, calls, blocks, tiles=tiles, options=options)]


def test_all_spellings_give_one_kernel():
    centres = points(CENTRES, seed=1)
    sources = {made(function, centres)[0].source for function in (nearest, by_items)}
    assert len(sources) == 1
    sources = {made(function, centres)[0].source for function in (
        by_argmin, lambda p, c: np.argmin(norm(c - p, axis=1)), lambda p, c: np.argmin(((p - c) ** 2).sum(axis=-1)),
        lambda p, c: np.argmin(np.sum(c * c, axis=1) - 2 * c @ p + p @ p), stored, by_einsum,
        lambda p, c: np.argmin(np.array([sum((p - q) ** 2) for q in c])),
        lambda p, c: np.argmin([sum([(x - y) ** 2 for x, y in zip(p, q, strict=False)]) for q in c]),
        lambda p, c: np.argmin(np.asarray([norm(p - q) for q in c])),
        lambda p, c: np.argmin(np.sum(np.abs(c - p) ** 2, axis=1)),
        lambda p, c: np.argmin(np.einsum("ij,ij->i", c, c) - 2 * np.einsum("ij,j", c, p)))}
    assert len(sources) == 1
    assert "nearest::FIRST" in sources.pop()
    sources = {made(function, centres)[0].source for function in (
        from_the_first, least_of, lambda p, c: min(range(len(c)), key=lambda i: norm(p - c[i], 2)))}
    assert len(sources) == 1 and "nearest::START" in sources.pop()


@pytest.mark.parametrize("function", [
    from_one, from_none, stored_at_one_place, farthest, least_by_sizes,
    lambda p, c: np.argmin(np.sum(np.abs(c - p), axis=1)),
    lambda p, c: np.argmin(np.einsum("kd,kd->k", c - p, c)),
    lambda p, c: np.argmin(np.einsum("kd->k", (c - p) ** 2 * p))])
def test_what_only_looks_like_it_keeps_the_translators_kernel(function):
    assert not made(function, points(CENTRES, seed=1))[0].name.startswith("nearest")


def test_lengths_may_be_plain_ints():
    centres, k, d = points(CENTRES, seed=1), CENTRES, COLUMNS

    def stored_in(p, c, count):
        distances = np.zeros(count)
        for i in range(k):
            distances[i] = sum((p[j] - c[i, j]) ** 2 for j in range(d))
        return np.argmin(distances)

    def filled(p, c):
        distances = np.full(k, inf)
        for i in range(len(c)):
            distances[i] = norm(p - c[i])
        return np.argmin(distances)

    expected = made(by_argmin, centres)[0].source
    assert made(stored_in, centres, k)[0].source == made(filled, centres)[0].source == expected
    # One number more, or two axes as long as it: these are not surely the centres' places.
    assert made(stored_in, centres, k + 1)[0].name == "stored_in_kernel"
    d = k
    assert made(stored_in, points(k, k, seed=1), k, columns=k)[0].name == "stored_in_kernel"


def test_the_row_may_be_the_one_field_of_a_record_that_is_read():
    centres = points(CENTRES, seed=1)
    record = ElementSpec((ElementField("w", "float64", ()), ElementField("p", "float32", (COLUMNS,))))
    call = TracedCall(trace(by_argmin, (centres,)), (centres,))
    kernel = fuse((call,), record)
    assert kernel.source == made(by_argmin, centres)[0].source
    assert [each.name for each in kernel.parameters if each.kind == "input"] == ["p"]
    both = TracedCall(trace(lambda p, w, c: (by_argmin(p, c), (p, w)), (centres,)), (centres,))
    assert fuse((both,), record).name == "lambda_kernel"
    assert "of the fields w, p the function reads more" in why_by_rows(both, record)


def test_nothing_is_said_of_functions_that_look_for_no_nearest_centre():
    centres, record = points(CENTRES, seed=1), ElementSpec((ElementField("", "float32", (COLUMNS,)),))
    assert why_by_rows(TracedCall(trace(farthest, (centres,)), (centres,)), record) == ""


def test_centres_may_be_a_list_as_takeSample_gives_them():
    centres = points(CENTRES, seed=1)
    listed = list(centres)

    def captured(p):
        return nearest(p, listed)

    (passed, _), (kernel, calls) = made(nearest, listed), made(captured)
    assert passed.source == kernel.source == made(nearest, centres)[0].source
    assert [value.tolist() for value in kernel.values(calls)] == [centres.tolist()]


@pytest.mark.parametrize(("columns", "dtype", "why"), [
    (COLUMNS, "float32", rf"with reduceByKey\(numKeys={CENTRES}\) or more matrix work adds up rows"),
    (46, "float32", f"{CENTRES} centres of 46 numbers are too few or too many"),
    (COLUMNS, "int64", "is for rows of float32 or float64, and these are int64"),
])
def test_it_is_said_why_there_is_none(columns, dtype, why):
    centres = points(CENTRES, columns, seed=1)
    call = TracedCall(trace(assign, (centres,)), (centres,))
    assert re.search(why, why_by_rows(call, ElementSpec((ElementField("", dtype, (columns,)),))))


def from_a_number(p, c):
    best, least = 0, 1e30
    for i in range(len(c)):
        distance = np.sum((p - c[i]) ** 2)
        if distance < least:
            best, least = i, distance
    return best


def by_the_last(p, c):
    best, least = 0, inf
    for i in range(len(c)):
        distance = np.sum((p - c[i]) ** 2)
        if distance <= least:
            best, least = i, distance
    return best


def how_many_are_near(p, c):
    near = 0
    for i in range(len(c)):
        if np.sum((p - c[i]) ** 2) < 1.5:
            near += 1
    return near


def test_a_search_that_goes_another_way_is_told_of():
    def reason(function):
        return why_by_rows(TracedCall(trace(function, (centres,)), (centres,)),
                           ElementSpec((ElementField("", "float32", (COLUMNS,)),)))

    centres = points(CENTRES, seed=1)
    assert all("does not begin with the label 0 and infinity" in reason(each) for each in (
        from_a_number, by_the_last, from_none, lambda p, c: norm(c - p, axis=1).argsort()[0]))
    assert not reason(how_many_are_near) and not reason(lambda p, c: np.argsort(p)[0])


@pytest.mark.parametrize(("centres", "columns", "dtype"), [(4, COLUMNS, "float32"), (CENTRES, 16, "float32"),
                                                           (CENTRES, 46, "float32"), (300, COLUMNS, "float32"),
                                                           (CENTRES, 47, "float64"), (CENTRES, COLUMNS, "int64")])
def test_what_does_not_fit_keeps_the_translators_kernel(centres, columns, dtype):
    kernel, _ = made(by_argmin, points(centres, columns), columns=columns, dtype=dtype)
    assert kernel.name == "by_argmin_kernel"


def test_a_fold_with_other_groups_or_operators_keeps_the_translators_kernel():
    centres = points(CENTRES, seed=1)
    assert made(assign, centres, folding=by_key(CENTRES))[0].name == "nearest_fold"
    assert made(assign, centres, folding=by_key(CENTRES - 1))[0].name == "assign_fold"
    for few, columns, name in ((9, 1000, "nearest_fold"), (9, 48, "assign_fold"), (8, 1200, "assign_fold")):
        fewer = points(few, columns)
        assert made(assign, fewer, columns=columns, folding=by_key(few))[0].name == name
    greatest = FieldFold("1.0", "maximum"), FieldFold("1.1", "add", "overflow")
    assert made(assign, centres, folding=by_key(CENTRES, greatest))[0].name == "assign_fold"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [nearest, by_argmin])
@pytest.mark.parametrize(("centres", "columns"), [(CENTRES, COLUMNS), (37, 100), (130, 784)])
def test_labels_are_those_of_exact_distances(function, dtype, centres, columns):
    around = points(centres, columns, seed=2).astype(dtype)
    kernel, calls = made(function, around, columns=columns)
    assert kernel.name == "nearest_labels"
    blocks = [points(150, columns, 3), points(0, columns), points(61, columns, 4) * 10 + 1000]
    for data, labels in zip(blocks, labels_of(kernel, calls, *blocks), strict=True):
        assert labels.tolist() == exact(data, around).argmin(axis=1).tolist()


def test_the_first_of_equal_centres_is_taken():
    rng = np.random.default_rng(5)
    data = rng.integers(0, 2, (200, COLUMNS)).astype(np.float32)
    centres = rng.integers(0, 2, (CENTRES, COLUMNS)).astype(np.float32)
    centres[11] = centres[3]
    distances = exact(data, centres)
    assert (np.sort(distances, axis=1)[:, 0] == np.sort(distances, axis=1)[:, 1]).any()
    for function in (nearest, by_argmin):
        kernel, calls = made(function, centres)
        labels, = labels_of(kernel, calls, data)
        assert labels.tolist() == distances.argmin(axis=1).tolist()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("options", [(), AS_ON_GPU])
@pytest.mark.parametrize(("function", "centre"), [(nearest, 9), (by_argmin, 9), (from_the_first, 9),
                                                  (from_the_first, 0), (least_of, 0), (least_of, 9)])
def test_nan_and_infinity_mean_what_the_function_says(function, centre, options):
    data, centres = points(60, seed=6), points(CENTRES, seed=7)
    data[5, 3], data[6, 0], data[7] = np.nan, np.inf, np.nan
    centres[centre, 4] = np.nan
    data[8:] *= np.float32(1e18)
    kernel, calls = made(function, centres)
    assert kernel.name == "nearest_labels"
    labels, = labels_of(kernel, calls, data, options=options)
    assert labels.tolist() == [function(row.astype(float), centres.astype(float)) for row in data]


@pytest.mark.parametrize(("centres", "columns"), [(CENTRES, COLUMNS), (130, 784)])
def test_a_fold_leaves_sums_counts_and_the_range_of_labels(centres, columns):
    around = points(centres, columns, seed=8)
    kernel, calls = made(assign, around, columns=columns, folding=by_key(centres))
    assert kernel.name == "nearest_fold"
    assert kernel.tile and kernel.waves <= 1
    data = [points(kernel.tile * 2 + 13, columns, 9), points(5, columns, 10)]
    left = launch(kernel, calls, data, tiles=1)
    assert len(left) == 4
    rows = np.concatenate(data)
    labels = exact(rows, around).argmin(axis=1)
    sums = sum(each["1.0"].reshape(centres, columns) for each in left)
    np.testing.assert_allclose(sums, [rows[labels == k].sum(axis=0, dtype=float) for k in range(centres)], rtol=1e-12,
                               atol=1e-12)
    counts = np.bincount(labels, minlength=centres)
    for name in ("0", "1.1", "1.1 overflow"):
        assert sum(each[name].reshape(-1) for each in left).tolist() == counts.tolist()
    assert min(int(each["0 least"][0]) for each in left) == labels.min()
    assert max(int(each["0 greatest"][0]) for each in left) == labels.max()


def test_constants_beside_the_row_are_added_up():
    centres = points(CENTRES, seed=1)
    fields = FieldFold("1.0", "add"), FieldFold("1.1", "add"), FieldFold("1.2", "add", "overflow")
    kernel, calls = made(lambda p, c: (by_argmin(p, c), (p, 0.1, -3)), centres, folding=by_key(CENTRES, fields))
    assert kernel.name == "nearest_fold"
    data = points(100, seed=2)
    left, = launch(kernel, calls, [data])
    counts = np.bincount(exact(data, centres).argmin(axis=1), minlength=CENTRES)
    np.testing.assert_allclose(left["1.1"]["sum"] + left["1.1"]["lost"], 0.1 * counts, rtol=1e-15)
    assert left["1.2"].reshape(-1).tolist() == (-3 * counts).tolist()
    assert left["1.2 overflow"].reshape(-1).tolist() == (3.0 * counts).tolist()


# -- the way of a GPU, whose products have bounds --------------------------------------------------------------------

def as_on_gpu(data, centres):
    """Return the labels, and the number of rows that the products left open."""
    kernel, calls = made(by_argmin, centres)
    call = "    Shape::labels(x, work.count, storage, image, centres, work.of<long long>(1, 1));\n"
    assert call in kernel.source
    counted = call + "    if (threadIdx.x == 0) work.of<long long>(1, 1)[work.count - 1] += 1000 * storage.open;\n"
    (outputs,) = launch(replace(kernel, source=kernel.source.replace(call, counted)), calls, [data], options=AS_ON_GPU)
    labels = outputs[kernel.outputs[0].name]
    opened, labels[-1] = divmod(labels[-1], 1000)
    return labels, opened


def between(data, centres):
    """Put rows half way between two centres, but for their last bits."""
    data[:] = (centres[np.arange(len(data)) % CENTRES] + centres[np.arange(len(data)) * 7 % CENTRES]) / 2
    data *= 1 + np.random.default_rng(3).integers(-1, 2, data.shape).astype("f4") * np.float32(1e-7)


def far_rows(data, centres):
    data[::3] *= np.float32(1e6)


def not_finite(data, centres):
    data[5, 3], data[6, 0], data[7], data[8, 1] = np.nan, np.inf, np.nan, -np.inf
    data[9], data[10] = np.float32(3e38), np.float32(-1e-40)


def nan_centre(data, centres):
    centres[9, 4] = np.nan


def infinite_centre(data, centres):
    centres[3, 4] = np.inf


def one_in_the_mean(data, centres):
    centres[4] = np.delete(centres, 4, axis=0).mean(axis=0) + np.float32(1e-7)


def one_large_column(data, centres):
    data[:, 1:] *= np.float32(1e-3)
    centres[:, 1:] *= np.float32(1e-3)
    centres[:, 0] = np.where(np.arange(CENTRES) % 2, 1000, -1000)
    data[:, 0] = np.where(np.arange(len(data)) % 3, 1000, -1000)


def all_equal(data, centres):
    centres[:] = centres[0]


def scaled(factor: float, offset: float = 0) -> Callable:
    def scale(data, centres):
        for values in (data, centres):
            values *= np.float32(factor)
            values += np.float32(offset)
    return scale


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize(("change", "least", "most"), [
    (scaled(1), 0, 9), (scaled(1, 1e4), 0, 9), (scaled(1e-13), 0, 9), (scaled(1e13), 0, 9), (scaled(1e-25), 200, 200),
    (scaled(1e18), 200, 200), (between, 150, 200), (far_rows, 67, 80), (not_finite, 5, 15), (nan_centre, 200, 200),
    (infinite_centre, 200, 200), (one_in_the_mean, 0, 9), (one_large_column, 0, 200), (all_equal, 200, 200)])
def test_rows_that_products_cannot_tell_are_computed_again(change, least, most):
    data, centres = points(200, seed=6), points(CENTRES, seed=7)
    change(data, centres)
    labels, opened = as_on_gpu(data, centres)
    assert labels.tolist() == exact(data, centres).argmin(axis=1).tolist()
    assert least <= opened <= most


def test_the_way_of_a_gpu_folds_what_the_host_folds():
    data, centres = points(300, seed=8), points(CENTRES, seed=9)
    data[::2] = np.round(data[::2])
    centres[1::2] = centres[::2] = np.round(centres[::2])
    data[7] *= np.float32(1e20)
    kernel, calls = made(assign, centres, folding=by_key(CENTRES))
    ours, theirs = (launch(kernel, calls, [data], tiles=9, options=options)[0] for options in ((), AS_ON_GPU))
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-5, atol=1e-5 if name == "1.0" else 0)


@pytest.mark.parametrize(("centres", "ring"), [(80, 0), (81, 5), (160, 5)])
def test_centres_that_fit_shared_memory_lie_there_as_a_whole(centres, ring):
    shape = shape_for(centres, 784, "float32", "float32", Nearest("first", False), folds=True)
    assert shape.ring == ring
    assert shape.shared <= SHARED_LIMIT


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("centres", "columns"), [(CENTRES, COLUMNS), (100, 1000)])
def test_the_kernels_compile_for_gpus(arch, centres, columns):
    kernel, _ = made(assign, points(centres, columns), columns=columns, folding=by_key(centres))
    assert (kernel.preparation is None) == (columns == COLUMNS)     # Else the centres come through a ring.
    for name in (kernel.name, *([kernel.preparation.name] if kernel.preparation else [])):
        assert compile_cubin(Source(kernel.source, "nearest.cu"), name, arch).code
