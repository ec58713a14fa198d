"""Kernels are unloaded when there are many, and nothing holds them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device import loaded_kernels
from gpu_worker.device.base import CompiledKernel, Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host import device as host
from gpu_worker.device.host.device import HostDevice
from gpu_worker.device.loaded_kernels import LoadedKernels

_MOST = 3


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDevice]:
    monkeypatch.setattr(loaded_kernels, "LOADED_KERNELS", _MOST)
    opened = HostDevice(cache=KernelCache(tmp_path / "kernels"))
    yield opened
    opened.close()


def _source(number: int) -> Source:
    return Source(f"__global__ void add(float* x) {{ x[threadIdx.x] += {number}; }}", file=f"add{number}.cu")


def _added(device: HostDevice, kernel: host.HostKernel) -> float:
    stream = device.stream()
    buffer = device.allocate(4, stream=stream)
    device.copy_in(buffer, np.zeros(1, np.float32).view("u1"), stream=stream)
    device.launch(kernel, (1,), (1,), [buffer], stream=stream)
    number = np.empty(1, np.float32)
    device.copy_out(number.view("u1"), buffer, stream=stream)
    buffer.close()
    return float(number[0])


def _libraries(directory: Path) -> int:
    """Count the libraries of the cache that are mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[5] for line in lines if str(directory) in line})


def test_what_was_not_used_for_longest_is_unloaded(device: HostDevice, tmp_path: Path) -> None:
    first = device.compile(_source(1), "add")
    before = _libraries(tmp_path)
    for number in range(2, 10):
        assert _added(device, device.compile(_source(number), "add")) == number
    gc.collect()
    assert _libraries(tmp_path) == before + _MOST           # the first is held here, and no more in the table
    assert _added(device, first) == 1
    del first
    gc.collect()
    assert _libraries(tmp_path) == before + _MOST - 1
    assert _added(device, device.compile(_source(1), "add")) == 1


def test_a_kernel_that_does_not_compile_leaves_nothing(device: HostDevice) -> None:
    for _ in range(3):
        with pytest.raises(Exception, match="not declared"):
            device.compile(Source("__global__ void bad(float* x) { x[0] = unknown; }", file="bad.cu"), "bad")
    assert not device._kernels._making


def test_different_kernels_are_made_at_once_and_one_only_once() -> None:
    loaded, both, files = LoadedKernels[CompiledKernel](), threading.Barrier(2, timeout=20), list[str]()

    def make(source: Source, name: str) -> CompiledKernel:
        files.append(source.file)
        both.wait()
        return CompiledKernel(None, source, name)  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(loaded.get, _source(number), "add", make) for number in (1, 2, 1, 2)]
        kernels = [each.result() for each in futures]
    assert sorted(files) == ["add1.cu", "add2.cu"]
    assert kernels[0] is kernels[2]
    assert kernels[1] is kernels[3]
