"""Kernels for GPUs whose thread blocks have less shared memory than an H100's: they fit, and give the same."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.cuda.nvrtc import compile_cubin
from gpu_worker.device.host.device import HostDevice
from gpu_worker.protocol.errors import LaunchError
from gpu_worker.protocol.messages import FieldFold
from tests.golden import grids
from tests.golden.case import rows
from tests.golden.fused import FUSED, FoldCase
from tests.golden.harness import AS_ON_GPU, launch, record_of
from tests.unit.test_translate_nearest import assign, by_key, points
from tests.unit.test_translate_stencil_steps import FIXED, MIXED, apart, around, filled, heat, values, wave
from vispark.translate import (
    ChainPart,
    ElementField,
    Folding,
    StencilKernel,
    TableKernel,
    TracedCall,
    fuse,
    specialise_steps,
    stepped,
    trace,
    why_not_stepped,
)
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.nearest.two_pass import is_matrix_work, why_by_rows

pytestmark = pytest.mark.slow

#: What a thread block can have at least on every GPU; on a T4; on an RTX 30 or 40 and an L4; on an A100.
EVERY, TURING, ADA, AMPERE = (kib * 1024 for kib in (48, 64, 99, 163))
LIMITS = EVERY, TURING, ADA, AMPERE


def greatest(p):
    return int(p[0]), (np.max(p), 1)


def layers(p, m, n):
    return np.maximum(p @ m, 0) @ n


def called(fn, *args) -> tuple[TracedCall, ...]:
    return (TracedCall(trace(fn, args), args),)


def twice(p):
    return p * 2


SUM, BOTH = (FieldFold("", "add"),), (FieldFold("1.0", "maximum"), FieldFold("1.1", "add"))
NEAREST = points(60, 100), points(300, 100, seed=1)

#: Beside the kernels that are kept: long rows, wide sums, long rows by few and many keys, layers and nearest centres.
FAMILIES = FUSED | {
    "longer_rows": FoldCase("", called(twice), rows(3, 20_000)),
    "wide_sums": FoldCase("", called(twice), rows(40, 2_700, "float64"), Folding(SUM)),
    "long_by_key": FoldCase("", called(greatest), np.abs(rows(90, 400)), Folding(BOTH, "0", 5)),
    "long_by_many_keys": FoldCase("", called(greatest), rows(90, 784), Folding(BOTH, "0", 5_000)),
    "layers": FoldCase("", called(layers, rows(784, 128), rows(128, 10)), rows(20, 784)),
    "small_layers": FoldCase("", called(layers, rows(64, 64), rows(64, 64)), rows(20, 64)),
    "centres": FoldCase("", called(assign, NEAREST[0]), NEAREST[1], by_key(60)),
    "few_centres": FoldCase("", called(assign, points(20, 64)), points(300, 64, seed=1), by_key(20)),
}


def kernel_of(family: str, shared_limit: int) -> TableKernel:
    case = FAMILIES[family]
    return fuse(case.calls, record_of(case.data), wanted=case.wanted, folding=case.folding, shared_limit=shared_limit)


@pytest.mark.parametrize("shared_limit", [*LIMITS, SHARED_LIMIT])
def test_kernels_of_rows_fit(shared_limit: int):
    sizes = {family: kernel_of(family, shared_limit).shared for family in FAMILIES}
    assert {family: shared for family, shared in sizes.items() if shared > shared_limit} == {}
    assert max(sizes.values()) > shared_limit // 2, "what there is, is used"


def test_with_what_an_h100_has_nothing_is_different():
    for family, case in FUSED.items():
        assert kernel_of(family, SHARED_LIMIT) == case.kernel()


@pytest.mark.parametrize(("family", "shared_limit", "block", "shared"), [
    ("long_by_key", EVERY, 32, 0),              # rows are read where they are,
    ("wide_sums", EVERY, 32, 0),                # and joined by one warp, which needs no room;
    ("small_layers", TURING, None, None),       # two matrices come in parts;
    ("centres", ADA, 512, None),                # fewer steps of the centres, and of rows, are on their way
])
def test_the_way_of_a_small_gpu_gives_what_the_host_gives(family: str, shared_limit: int, block: int | None,
                                                          shared: int | None):
    case, kernel = FAMILIES[family], kernel_of(family, shared_limit)
    assert block in (None, kernel.block) and shared in (None, kernel.shared)
    alike(launch(kernel_of(family, SHARED_LIMIT), case.calls, [case.data], tiles=99)[0],
          launch(kernel, case.calls, [case.data], tiles=99, options=AS_ON_GPU)[0])


def alike(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Check that two launches gave the same, up to the order of additions."""
    assert ours.keys() == theirs.keys()
    for name, other in theirs.items():
        parts = (other["sum"] + other["lost"], ours[name]["sum"] + ours[name]["lost"]) if other.dtype.names else \
            (other, ours[name])
        largest = np.abs(parts[1][np.isfinite(parts[1])]).max(initial=1.0)
        np.testing.assert_allclose(*parts, rtol=1e-5, atol=1e-5 * largest)


def test_why_centres_are_found_row_by_row():
    case = FAMILIES["centres"]
    assert f"60 centres of 100 numbers needs more than the {TURING:,} bytes of shared memory" in \
        why_by_rows(case.calls[0], record_of(case.data), TURING)
    assert not is_matrix_work(kernel_of("centres", TURING).source)


# -- stencils ---------------------------------------------------------------------------------------------------------

def steps_of(fn, names: tuple[str, ...], steps: int, rims, shared_limit: int) -> StencilKernel:
    fields = tuple(ElementField(name, "<f4") for name in names)
    return specialise_steps([ChainPart(trace(fn, (0.1,)), fields, (0.1,))] * steps,
                            around(dict.fromkeys(names), rims), shared_limit)


@pytest.mark.parametrize(("shared_limit", "one", "two"), [(EVERY, (2, 2, 2), (1, 1)), (TURING, (3, 3), (1, 1)),
                                                  (ADA, (3, 3), (2,)), (AMPERE, (3, 3), (2,))])
def test_as_many_steps_at_once_as_fit(shared_limit: int, one: tuple[int, ...], two: tuple[int, ...]):
    for fn, names, counts in ((heat, ("",), one), (wave, ("u", "before"), two)):
        part = ChainPart(trace(fn, (0.1,)), tuple(ElementField(name, "<f4") for name in names), (0.1,))
        beyond = around(dict.fromkeys(names), FIXED)
        assert stepped([part] * sum(counts), beyond, shared_limit)[0] == counts
        for count in set(counts) - {1}:
            assert steps_of(fn, names, count, FIXED, shared_limit).shared <= shared_limit
        reason = why_not_stepped([part, part], beyond, shared_limit)
        assert (f"more than the {shared_limit:,} bytes of shared memory" in reason) == (1 in counts)


@pytest.mark.parametrize(("fn", "names", "steps", "shared_limit", "threads"), [
    (heat, ("",), 3, ADA, 8), (wave, ("u", "before"), 2, ADA, 6)])
def test_steps_of_a_small_gpu_are_the_steps_apart(fn, names, steps: int, shared_limit: int, threads: int):
    kernel = steps_of(fn, names, steps, MIXED, shared_limit)
    assert kernel.block == (32, threads, 1) and kernel.shared <= shared_limit
    check_steps(kernel, fn, names, options=AS_ON_GPU)


def check_steps(kernel: StencilKernel, fn, names: tuple[str, ...], **how) -> None:
    """Check that a kernel of several steps gives what they give one by one."""
    shape, steps = (7, 35, 150), kernel.steps
    fields = {name: values(tuple(n + 2 * steps for n in shape), "float32", seed) for seed, name in enumerate(names)}
    wanted = apart([(fn, (0.1,))] * steps, fields, MIXED, steps, shape)
    arrays = grids.run(kernel, kernel.values(trace(fn, (0.1,)), (0.1,)), filled(fields, steps, MIXED), (steps,) * 3,
                       shape=shape, **how)
    for output, array in zip(kernel.outputs, arrays, strict=True):
        assert np.array_equal(array, wanted[output.name])


# -- compilers and devices --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("family", ["fold_rows", "few_centres", "steps"])
def test_kernels_compile_for_gpus_before_ampere(family: str):
    kernel: TableKernel | StencilKernel = steps_of(heat, ("",), 2, FIXED, TURING) if family == "steps" else \
        kernel_of(family, TURING)
    assert is_matrix_work(kernel.source) == (family == "few_centres")
    assert compile_cubin(Source(kernel.source, f"{family}.cu"), kernel.name, "sm_75").code


def test_a_device_refuses_more_than_it_is_told_to_have(tmp_path):
    device = HostDevice(cache=KernelCache(tmp_path), shared_limit=EVERY)
    kernel = device.compile(Source('extern "C" __global__ void k() {}'), "k")
    device.launch(kernel, (1,), (1,), [], shared=EVERY, stream=device.stream())
    with pytest.raises(LaunchError, match=f"0 to {EVERY} are possible"):
        device.launch(kernel, (1,), (1,), [], shared=EVERY + 16, stream=device.stream())
    assert device.shared_limit == EVERY
    device.close()
