"""Kernels for GPUs with less shared memory, and without newer instructions, on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cuda import device as cuda
from gpu_worker.device.cuda import nvrtc
from gpu_worker.device.cuda.device import CudaDevice
from gpu_worker.protocol.errors import CompileError, VisparkError
from tests.golden.harness import launch
from tests.unit.test_shared_memory import (
    ADA,
    AMPERE,
    EVERY,
    FAMILIES,
    MIXED,
    SHARED_LIMIT,
    TURING,
    alike,
    check_steps,
    heat,
    kernel_of,
    steps_of,
    wave,
)

ROWS = ("long_rows", "wide_sums", "long_by_key", "long_by_many_keys", "key_device", "small_layers", "layers", "centres",
        "few_centres")


def check_rows(family: str, device: CudaDevice) -> None:
    """Check that the kernel for a device gives what the host gives."""
    case, kernel = FAMILIES[family], kernel_of(family, device.shared_limit)
    ours, theirs = (launch(one, case.calls, [case.data], tiles=99, on=on)[0]
                    for one, on in ((kernel_of(family, SHARED_LIMIT), None), (kernel, device)))
    alike(ours, theirs)


def opened(shared_limit: int, place: Path) -> Iterator[CudaDevice]:
    device, = cuda.open_cuda(memory=0, addresses=("0",), cache_dir=str(place), shared_limit=shared_limit)
    assert device.shared_limit == shared_limit
    yield device
    assert device.memory().used == 0
    device.close()


@pytest.fixture(params=[EVERY, TURING, ADA, AMPERE])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CudaDevice]:
    """Yield a GPU whose thread blocks may have so much shared memory."""
    yield from opened(request.param, tmp_path)


def test_kernels_for_less_shared_memory_give_what_the_host_gives(small: CudaDevice):
    for family in ROWS:
        check_rows(family, small)


def test_steps_for_less_shared_memory_are_the_steps_apart(small: CudaDevice):
    check_steps(steps_of(heat, ("",), 2 if small.shared_limit == EVERY else 3, MIXED, small.shared_limit), heat, ("",),
                on=small)
    if small.shared_limit >= ADA:
        names = "u", "before"
        check_steps(steps_of(wave, names, 2, MIXED, small.shared_limit), wave, names, on=small)


@pytest.fixture
def turing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CudaDevice]:
    """Yield a GPU that runs the code for a Turing: its driver makes machine code of what NVRTC wrote for that."""
    def written(library: Any, program: Any, source: Source) -> bytes:
        code = bytes(nvrtc._check(library, library.nvrtcGetPTXSize(program)))
        nvrtc._check(library, library.nvrtcGetPTX(program, code))
        return code

    monkeypatch.setattr(cuda, "architecture", lambda major, minor: "compute_75")
    monkeypatch.setattr(nvrtc, "_code", written)
    for device in opened(TURING, tmp_path):
        try:
            device.compile(Source('extern "C" __global__ void k() {}'), "k")
        except CompileError:
            raise
        except VisparkError as error:
            device.close()
            pytest.skip(f"the driver does not take what this NVRTC writes: {error}")
        yield device


def test_the_code_for_gpus_before_ampere(turing: CudaDevice):
    for family in ("long_rows", "fold_rows", "layers", "few_centres"):
        check_rows(family, turing)
    check_steps(steps_of(heat, ("",), 3, MIXED, TURING), heat, ("",), on=turing)
