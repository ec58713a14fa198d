"""Decisions of the cuda device without a GPU: arguments, extents, addresses, and what is missing."""

from __future__ import annotations

import struct
import types
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Buffer
from gpu_worker.device.cuda import device, layer, native_driver
from gpu_worker.device.launch_limits import Limits, Parameters, check_launch, ordinals
from gpu_worker.protocol.device_kinds import AddressUnknown
from gpu_worker.protocol.errors import DeviceUnavailable, LaunchError

H200 = Limits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 232448)


def buffer(address: int) -> Buffer:
    return Buffer(None, address, 8)  # type: ignore[arg-type]


def test_arguments_lie_at_the_kernels_offsets():
    # void k(char c, double d, float* p, bool b, short s, float2 z)
    parameters = Parameters("k", [(0, 1), (8, 8), (16, 8), (24, 1), (26, 2), (32, 8)])
    packed = parameters.pack([np.int8(-3), np.float64(2.5), buffer(0x7F00_0000_0100), np.bool_(True), np.int16(-2),
                              np.complex64(1 + 2j)])
    assert packed == struct.pack("<b7xdQ?xh4xff", -3, 2.5, 0x7F00_0000_0100, True, -2, 1.0, 2.0)
    assert Parameters("k", []).pack([]) == b""


@pytest.mark.parametrize(("arguments", "message"), [
    ([np.int32(1)], "k takes 2 arguments, 1 were given"),
    ([np.int32(1), np.int32(1), np.int32(1)], "k takes 2 arguments, 3 were given"),
    ([np.int32(1), np.float32(1)], "argument 2 of k must have 8 bytes; a float32 has 4"),
    ([buffer(0), np.float64(1)], "argument 1 of k must have 4 bytes; a buffer's address has 8"),
    ([1, np.float64(1)], "argument 1 of k is a int; it must be a buffer or a NumPy scalar"),
])
def test_arguments_that_are_not_the_kernels(arguments: list, message: str):
    with pytest.raises(LaunchError) as caught:
        Parameters("k", [(0, 4), (8, 8)]).pack(arguments)
    assert caught.value.message == message


@pytest.mark.parametrize(("grid", "block", "shared", "message"), [
    ((0,), (1,), 0, r"the grid \(0,\) of k is out of range: its extents must be from 1 to 2147483647"),
    ((1, 65536), (1,), 0, r"the grid .* from 1 to 2147483647, 65535"),
    ((1,), (1, 1, 65), 0, r"the block .* from 1 to 1024, 1024, 64"),
    ((1,), (), 0, r"the block \(\) of k has 0 extents"),
    ((1, 1, 1, 1), (1,), 0, "the grid .* has 4 extents; it must have 1 to 3"),
    ((1,), (32, 17), 0, "the block .* has 544 threads; this kernel can have 512"),
    ((1,), (1,), 231425, "k cannot have 231425 bytes of dynamic shared memory; 0 to 231424 are possible"),
    ((1,), (1,), -1, "k cannot have -1 bytes"),
])
def test_launches_out_of_range(grid: tuple, block: tuple, shared: int, message: str):
    with pytest.raises(LaunchError, match=message):
        check_launch("k", grid, block, H200.of_kernel(512, 1024), shared)


def test_launches_in_range():
    check_launch("k", (2**31 - 1, 65535, 65535), (16, 16, 2), H200.of_kernel(512, 1024), 231424)
    check_launch("k", (1,), (1024,), H200, 232448)


@pytest.mark.parametrize(("addresses", "visible", "count", "expected"), [
    ([], None, 3, [0, 1, 2]),
    (["1", "0"], None, 2, [1, 0]),
    (["3"], "2,3", 2, [1]),
    (["3", "2", "3"], " 2, 3", 2, [1, 0, 1]),
    (["0"], "5", 1, [0]),
    (["GPU-ab"], "GPU-cd,GPU-ab", 2, [1]),
])
def test_sparks_addresses(addresses: list, visible: str | None, count: int, expected: list):
    assert ordinals(addresses, visible, count) == expected


@pytest.mark.parametrize(("addresses", "expected"), [
    (["GPU-22bb"], [1]),
    (["gpu-22BB0000-0000-0000-0000-000000000000", "GPU-11"], [1, 0]),
    (["1", "GPU-22"], [1, 1]),
])
def test_uuids_are_addresses(addresses: list, expected: list):
    uuids = ["GPU-11aa0000-0000-0000-0000-000000000000", "GPU-22bb0000-0000-0000-0000-000000000000"]
    assert ordinals(addresses, None, 2, uuids) == expected


@pytest.mark.parametrize(("address", "visible", "message"), [
    ("GPU-3", None, "'GPU-3', but this process sees 2 GPUs: GPU-11, GPU-12"),
    ("GPU-1", None, "'GPU-1', but this process sees 2 GPUs: GPU-11, GPU-12"),
    ("MIG-2", "MIG-1", "of MIG instances one at most: give an application one instance on each node"),
])
def test_uuids_of_none_or_several_are_errors(address: str, visible: str | None, message: str):
    with pytest.raises(AddressUnknown, match=message):
        ordinals([address], visible, 2, ["GPU-11", "GPU-12"])


@pytest.mark.parametrize(("addresses", "visible", "count", "message"), [
    ([], "", 0, "this process sees no GPU"),
    (["2"], None, 2, "Spark assigned the GPU '2', but this process sees 2 GPUs"),
    (["GPU-ab"], "GPU-cd", 1, "'GPU-ab'.*CUDA_VISIBLE_DEVICES=GPU-cd"),
    (["-1"], None, 2, "'-1'"),
    (["0", "2", "GPU-ab"], None, 2, "the GPUs '2', 'GPU-ab', but this process sees 2 GPUs"),
    (["MIG-a", "0"], "MIG-a", 1, "the GPU '0', .* of MIG instances one at most"),
])
def test_addresses_of_no_gpu(addresses: list, visible: str | None, count: int, message: str):
    with pytest.raises(DeviceUnavailable, match=message):
        ordinals(addresses, visible, count)


def test_absence_of_packages_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layer, "bindings", None)
    with pytest.raises(DeviceUnavailable, match=r"needs cuda-bindings or PyCUDA.*pip install '[.a-z]+\[cuda\]'"):
        device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))


@pytest.mark.skipif(layer._pycuda is not None, reason="PyCUDA is installed here")
def test_a_layer_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    unknown = "VISPARK_CUDA_DRIVER is one of bindings, pycuda, not 'cupy'"
    for name, reason in (("pycuda", "pycuda"), ("cupy", unknown)):
        monkeypatch.setenv("VISPARK_CUDA_DRIVER", name)
        with pytest.raises(DeviceUnavailable, match=reason):
            device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))


def test_a_layer_is_chosen_by_name_and_by_what_is_installed():
    pycuda = types.ModuleType("pycuda.driver")
    assert layer.chosen("pycuda", pycuda) is pycuda
    assert layer.chosen("bindings", pycuda) is layer.chosen("", pycuda) is layer.chosen("pycuda", None) is native_driver


def test_fatal_errors_are_cudas():
    bindings = pytest.importorskip("cuda.bindings.driver")
    assert {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ASSERT", "CUDA_ERROR_LAUNCH_FAILED"} <= device.FATAL
    assert {code.name for code in bindings.CUresult} >= device.FATAL - {"CUDA_ERROR_TENSOR_MEMORY_LEAK"}
