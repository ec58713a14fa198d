"""Results that a function makes of its nearest centre beside the label: which of them is matrix work, and its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from numpy.linalg import norm

from gpu_worker.device.base import Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from gpu_worker.protocol.messages import FieldFold
from tests.golden.harness import AS_ON_GPU, CaseData, build, difference, launch, plain, promoted, record_of
from tests.unit.test_translate_nearest import CENTRES, COLUMNS, by_argmin, by_key, exact, nearest, points
from vispark.translate import trace
from vispark.translate.codegen.scalar.interface import TableKernel, TracedCall
from vispark.translate.fusion import fuse
from vispark.translate.ir.folding import Folding
from vispark.translate.nearest.two_pass import why_by_rows

pytestmark = pytest.mark.slow


def nearest_and_cost(p, centres):
    best, closest = 0, inf
    for i in range(len(centres)):
        distance = np.sum((p - centres[i]) ** 2)
        if distance < closest:
            closest = distance
            best = i
    return best, closest


def from_distances(p, c):
    distances = np.sum((p - c) ** 2, axis=1)
    k = np.argmin(distances)
    return k.astype(np.int32) + 1, (p, distances[k], 1)


def cost(p, c):
    return min(np.sum((p - q) ** 2) for q in c)


def on_one_side(p, c):
    if p[0] < 0:
        return -1
    return nearest(p, c) % 5


def made(function: Callable, centres: np.ndarray, data: CaseData, folding: Folding | None = None,
         *more: Callable) -> tuple[TableKernel, Sequence[TracedCall]]:
    calls = (TracedCall(trace(function, (centres,)), (centres,)), *(TracedCall(trace(each)) for each in more))
    return fuse(calls, record_of(data), folding=folding), calls


def given_by(kernel: TableKernel, calls: Sequence[TracedCall], data: CaseData,
             options: tuple[str, ...] = ()) -> list[object]:
    (outputs,) = launch(kernel, calls, [data], options=("-fmad=false", *options), tiles=9)
    return [build(kernel, kernel.structure, [outputs[each.name][i] for each in kernel.outputs])
            for i in range(len(next(iter(outputs.values()))))]


# -- what the functions give -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [(), AS_ON_GPU])
@pytest.mark.parametrize(("function", "tolerance"), [
    (on_one_side, 0), (from_distances, 8), (cost, 8),
    (lambda p, c: (nearest_and_cost(p, c), norm(p - c[nearest(p, c)])), 8)])
def test_it_is_what_python_gives(function: Callable, tolerance: float, options: tuple[str, ...]):
    data, centres = points(150, seed=3), points(CENTRES, seed=1)
    kernel, calls = made(function, centres, data)
    assert kernel.name == "nearest_rest"
    for expected, result in zip(plain(function, data, centres), given_by(kernel, calls, data, options), strict=True):
        assert not difference(promoted(expected, result), result, tolerance)


def test_the_least_distance_is_rounded_as_that_of_the_rows_own_kernel():
    data, centres = points(60, seed=3), points(CENTRES, seed=1)
    centres[7] = centres[2]
    kernel, calls = made(nearest_and_cost, centres, data)
    few, few_calls = made(nearest_and_cost, centres[:12], data)
    assert (kernel.name, few.name) == ("nearest_rest", "nearest_and_cost_kernel")
    several = [label < 12 for label, _ in given_by(kernel, calls, data)]
    assert 10 < sum(several) < 60
    for own, other, known in zip(given_by(few, few_calls, data), given_by(kernel, calls, data), several, strict=True):
        assert own == other or not known


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize(("function", "options"), [
    (nearest_and_cost, ()), (lambda p, c: (by_argmin(p, c), np.min(np.sum((c - p) ** 2, axis=1))), AS_ON_GPU)])
def test_nan_and_infinity_mean_what_the_function_says(function: Callable, options: tuple[str, ...]):
    data, centres = points(60, seed=6).astype(float), points(CENTRES, seed=7).astype(float)
    data[5, 3], data[6, 0], data[7] = np.nan, np.inf, np.nan
    centres[9, 4] = np.nan
    kernel, calls = made(function, centres, data)
    assert kernel.name == "nearest_rest"
    for expected, result in zip(plain(function, data, centres), given_by(kernel, calls, data, options), strict=True):
        assert not difference(promoted(expected, result), result, 8)


@pytest.mark.parametrize("options", [(), AS_ON_GPU])
def test_sums_and_costs_are_folded_by_label(options: tuple[str, ...]):
    data, centres = points(300, seed=8), points(CENTRES, seed=9)

    def assign(p, c):
        best, closest = nearest_and_cost(p, c)
        return best + 2, (p, 1, closest)

    fields = (FieldFold("1.0", "add"), FieldFold("1.1", "add", "overflow"), FieldFold("1.2", "add"))
    kernel, calls = made(assign, centres, data, by_key(CENTRES + 5, fields))
    assert kernel.name == "nearest_fold"
    left = launch(kernel, calls, [data], tiles=1, options=options)
    distances, groups = exact(data, centres), CENTRES + 5
    labels = distances.argmin(axis=1) + 2
    counts = np.bincount(labels, minlength=groups)
    for name in ("0", "1.1", "1.1 overflow"):
        assert sum(each[name].reshape(-1) for each in left).tolist() == counts.tolist()
    assert (min(int(each["0 least"][0]) for each in left), max(int(each["0 greatest"][0]) for each in left)) == \
        (labels.min(), labels.max())
    sums, costs = (sum(each[name].reshape(groups, -1) for each in left) for name in ("1.0", "1.2"))
    np.testing.assert_allclose(sums, [data[labels == k].sum(axis=0, dtype=float) for k in range(groups)], rtol=1e-5,
                               atol=1e-5)
    np.testing.assert_allclose(costs[:, 0], np.bincount(labels, distances.min(axis=1), groups), rtol=1e-6)


@pytest.mark.parametrize("options", [(), AS_ON_GPU])
def test_costs_are_added_up_whether_rows_are_or_not(options: tuple[str, ...]):
    data, centres = points(300, seed=8).astype(float), points(CENTRES, seed=9)
    least = exact(data, centres).min(axis=1)
    kernel, calls = made(cost, centres, data, Folding((FieldFold("", "add"),)), lambda d: d ** 0.5)
    left = launch(kernel, calls, [data], tiles=1, options=options)
    total = sum(float(each["sum"][0] + each["lost"][0]) for one in left for each in one.values())
    assert kernel.name == "nearest_fold" and total == pytest.approx(np.sqrt(least).sum(), rel=1e-14)
    kernel, calls = made(nearest_and_cost, centres, data, by_key(CENTRES, (FieldFold("1", "maximum"),)))
    assert kernel.name == "nearest_fold"
    greatest = np.max([each["1"] for each in launch(kernel, calls, [data], tiles=1, options=options)], axis=0)
    labels = exact(data, centres).argmin(axis=1)
    assert greatest.tolist() == pytest.approx([max(least[labels == k], default=-inf) for k in range(CENTRES)])


def test_a_row_may_be_one_field_of_several():
    centres = points(CENTRES, seed=1)
    data = {"w": np.arange(40.0), "p": points(40, seed=2)}
    kernel, calls = made(lambda p, c: {"label": by_argmin(p, c) + 1}, centres, data, None,
                         lambda label, w: label * w)
    assert kernel.name == "nearest_rest"
    expected = (exact(data["p"], centres).argmin(axis=1) + 1) * data["w"]
    assert given_by(kernel, calls, data) == expected.tolist()


def test_the_kernels_compile_for_gpus():
    data, centres = points(4, 1000), points(82, 1000)
    fields = (FieldFold("1.0", "add"), FieldFold("1.1", "add"), FieldFold("1.2", "add", "overflow"))
    fold, _ = made(lambda p, c: (by_argmin(p, c), (p, np.min(np.sum((c - p) ** 2, axis=1)), 1)), centres, data,
                   by_key(82, fields))
    rest, _ = made(from_distances, centres[:20, :COLUMNS].copy(), data[:, :COLUMNS])
    assert (fold.name, rest.name) == ("nearest_fold", "nearest_rest")
    assert fold.preparation is not None
    for kernel, name, arch in ((fold, fold.preparation.name, "sm_80"), (fold, fold.name, "sm_90a"),
                               (rest, rest.name, "sm_80")):
        assert compile_cubin(Source(kernel.source, "nearest.cu"), name, arch).code


# -- what lets out more of the centres than the nearest ----------------------------------------------------------------

def the_last_distance(p, c):
    best, closest = 0, inf
    for i in range(len(c)):
        distance = np.sum((p - c[i]) ** 2)
        if distance < closest:
            closest, best = distance, i
    return best, distance


def turns_over_centres(p, c):
    n = 1
    for _ in c:
        n *= 2
    return by_argmin(p, c), n


def an_item_of_a_centre(p, c):
    for j in range(len(p)):
        t = c[0, j]
    return by_argmin(p, c), t


def by_two_rules(p, c):
    return nearest(p, c), np.min(np.sum((c - p) ** 2, axis=1))


@pytest.mark.parametrize("function", [
    the_last_distance, turns_over_centres, an_item_of_a_centre, by_two_rules, lambda p, c: (by_argmin(p, c), c[0, 0]),
    lambda p, c: (by_argmin(p, c), np.sum((c - p) ** 2, axis=1)), lambda p, c: by_argmin(p, c) / len(c),
    lambda p, c: (by_argmin(p, c), np.sort(np.sum((c - p) ** 2, axis=1))[1]),
    lambda p, c: (by_argmin(p, c), np.max(np.sum((c - p) ** 2, axis=1)))])
def test_what_lets_out_more_of_the_centres_goes_row_by_row(function: Callable):
    data, centres = points(4), points(CENTRES, seed=1)
    kernel, calls = made(function, centres, data)
    assert not kernel.name.startswith("nearest")
    assert "more of the centres than" in why_by_rows(calls[0], record_of(data))


def test_a_fold_of_other_rows_or_by_other_keys_goes_row_by_row():
    data, centres = points(4), points(CENTRES, seed=1)
    for function, groups in ((lambda p, c: (by_argmin(p, c), (p * p, 1)), CENTRES),
                             (lambda p, c: (by_argmin(p, c) // 2, (p, 1)), CENTRES),
                             (lambda p, c: (by_argmin(p, c) + 1, (p, 1)), CENTRES)):
        kernel, calls = made(function, centres, data, by_key(groups))
        assert not kernel.name.startswith("nearest")
        assert "keys are the label, or that and a constant" in why_by_rows(calls[0], record_of(data))
    few = replace(by_key(CENTRES), fields=(FieldFold("1.0", "maximum"), FieldFold("1.1", "add", "overflow")))
    assert not made(lambda p, c: (by_argmin(p, c), (p, 1)), centres, data, few)[0].name.startswith("nearest")
