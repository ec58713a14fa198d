"""The cuda device on cuda-bindings alone, against a stand-in that records the driver's calls.

CUDA itself is asked on a machine with a GPU: ``tests/gpu`` and ``tests/device`` with ``VISPARK_CUDA_DRIVER=bindings``.
"""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cuda import clock, device, driver, graph, layer, native_driver, nvrtc, pool, shared_memory
from gpu_worker.protocol.errors import DeviceUnavailable, KernelFault, OutOfMemory
from tests.device.recording_driver import RecordingDriver

real = pytest.importorskip("cuda.bindings.driver")

pytestmark = pytest.mark.slow

SOURCE = Source('__constant__ float factor[2];\nextern "C" __global__ void scale(float* p, int n, double x) '
                "{ if (threadIdx.x < n) p[threadIdx.x] *= x * factor[0]; }", constants=(("factor", bytes(8)),))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> RecordingDriver:
    """Return the recording driver in place of CUDA's, in all modules of the device."""
    stand_in = RecordingDriver(real, [(0, 8), (8, 4), (16, 8)])
    for module in (clock, device, driver, graph, layer, native_driver, pool, shared_memory):
        if hasattr(module, "bindings"):
            monkeypatch.setattr(module, "bindings", stand_in)
    monkeypatch.setattr(device, "cuda_driver", native_driver)
    monkeypatch.setattr(device, "compile_cubin", lambda source, name, arch: nvrtc.Cubin(
        b"code", name, (("factor", "factor"),)))
    return stand_in


@pytest.fixture
def gpu(cuda: RecordingDriver, tmp_path: Path) -> Iterator[device.CudaDevice]:
    (opened,) = device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))
    yield opened
    opened.close()


def test_a_device_tells_what_the_driver_says(gpu: device.CudaDevice):
    assert (gpu.name, gpu.arch, gpu.multiprocessors) == ("cuda:0", "sm_90a", 132)
    assert gpu.limits.threads == 1024 and gpu.limits.shared == 232448
    assert gpu.memory().total == 1 << 30


def test_memory_goes_there_and_back(gpu: device.CudaDevice):
    stream = gpu.stream()
    sent, back = np.arange(1000, dtype="f8"), np.zeros(1000)
    with closing(gpu.allocate(sent.nbytes, stream=stream)) as first, \
            closing(gpu.allocate(sent.nbytes, stream=stream)) as second:
        gpu.copy_in(first, sent, stream=stream)
        gpu.copy_across(second, first, stream=stream)
        gpu.copy_out(back, second, stream=stream)
        assert gpu.mark(stream=stream) == stream.passed == 1
    np.testing.assert_array_equal(back, sent)
    assert gpu.memory().used == 0


def test_a_launch_has_its_packed_values(gpu: device.CudaDevice, cuda: RecordingDriver):
    stream = gpu.stream()
    kernel = gpu.compile(SOURCE, "scale")
    with closing(gpu.allocate(64, stream=stream)) as buffer:
        gpu.launch(kernel, (4, 2), (32,), [buffer, np.int32(7), np.float64(0.5)], stream=stream, shared=100_000)
        ((grid, block, shared, packed),) = cuda.launches
        assert (grid, block, shared) == ((4, 2, 1), (32, 1, 1), 100_000)
        assert packed == struct.pack("=Qi4xd", buffer.address, 7, 0.5)
    settings = [arguments for name, arguments in cuda.calls if name == "cuFuncSetAttribute"]
    assert [value for *_, value in settings] == [100_000]


def test_a_module_that_is_let_go_of_during_the_wait_for_launches_stays(
        gpu: device.CudaDevice, cuda: RecordingDriver, monkeypatch: pytest.MonkeyPatch):
    held = [gpu.compile(replace(SOURCE, file=file), "scale") for file in ("one.cu", "two.cu")]
    gpu._kernels.clear()
    held.pop()
    waited = native_driver.Context.synchronize
    monkeypatch.setattr(native_driver.Context, "synchronize", lambda: (waited(), held.clear()))
    gpu.compile(SOURCE, "scale")
    assert [name for name, *_ in cuda.calls].count("cuModuleUnload") == 1


def test_launches_are_kept_for_some_extents(gpu: device.CudaDevice, cuda: RecordingDriver):
    """Also where two threads added the last ones at once."""
    stream, kernel = gpu.stream(), gpu.compile(SOURCE, "scale")
    kept = kernel.function._launches
    kept.update({((number,), (32,), 0): kept.get for number in range(-65, 0)})
    with closing(gpu.allocate(64, stream=stream)) as buffer:
        for blocks in range(1, 200):
            gpu.launch(kernel, (blocks,), (32,), [buffer, np.int32(7), np.float64(0.5)], stream=stream)
            assert 0 < len(kept) <= 64
    assert [grid for grid, *_ in cuda.launches] == [(blocks, 1, 1) for blocks in range(1, 200)]


def test_a_thread_gets_the_context_once(gpu: device.CudaDevice, cuda: RecordingDriver):
    def launch_often() -> None:
        stream = gpu.stream()
        kernel = gpu.compile(SOURCE, "scale")
        with closing(gpu.allocate(64, stream=stream)) as buffer:
            for _ in range(5):
                gpu.launch(kernel, (1,), (32,), [buffer, np.int32(7), np.float64(0.5)], stream=stream)

    before = cuda.count()["cuCtxSetCurrent"]
    launch_often()
    thread = threading.Thread(target=launch_often)
    thread.start()
    thread.join()
    assert len(cuda.launches) == 10 and cuda.count()["cuCtxSetCurrent"] == before + 1


def test_devices_take_turns_in_a_thread(cuda: RecordingDriver, tmp_path: Path):
    cuda.gpus *= 2
    one, other = device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))
    before = cuda.count()["cuCtxSetCurrent"]
    with one.active():
        one.stream()
        with other.active():
            other.stream()
        one.stream()
    assert cuda.count()["cuCtxSetCurrent"] == before + 3
    one.close()
    other.close()


def test_streams_wait_for_each_other(gpu: device.CudaDevice, cuda: RecordingDriver):
    one, other = gpu.stream(), gpu.stream()
    gpu.order(other, stream=one, of=gpu)
    gpu.synchronize(stream=one)
    names = [name for name, _ in cuda.calls]
    assert names.index("cuEventRecord") < names.index("cuStreamWaitEvent") < names.index("cuStreamSynchronize")


def test_everything_is_given_back(cuda: RecordingDriver, tmp_path: Path):
    for _ in range(3):
        (gpu,) = device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))
        stream = gpu.stream()
        gpu.compile(SOURCE, "scale")
        with closing(gpu.allocate(64, stream=stream)) as buffer:
            gpu.copy_in(buffer, np.zeros(8), stream=stream)
        del stream
        gc.collect()
        gpu.close()
    del gpu
    gc.collect()
    # A device's own stream and its report of faults go with its context.
    assert cuda.unpaired() == {"cuStreamCreate": 3, "cuMemHostAlloc": 3}


def test_an_exhausted_device_is_tried_again_and_told(gpu: device.CudaDevice, cuda: RecordingDriver):
    stream = gpu.stream()
    cuda.failing["cuMemAllocAsync"] = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0
    with pytest.raises(OutOfMemory, match=r"536,870,912 of 1,073,741,824 are free"):
        gpu.allocate(64, stream=stream)
    assert cuda.count()["cuMemPoolTrimTo"] == 1 and gpu.memory().used == 0
    cuda.failing.clear()
    gpu.allocate(64, stream=stream).close()


def test_memory_of_messages_is_of_no_pool(gpu: device.CudaDevice, cuda: RecordingDriver):
    with closing(gpu.allocate(64, stream=gpu.stream(), is_for_messages=True)) as buffer:
        assert buffer.nbytes == gpu.memory().used == 64
        with pytest.raises(OutOfMemory, match="64 of 1,073,741,824 are in use"):
            gpu.allocate(1 << 30, stream=gpu.stream(), is_for_messages=True)
    count = cuda.count()
    assert count["cuMemAlloc"] == count["cuMemFree"] == 1 and not count["cuMemAllocAsync"]
    assert gpu.memory().used == 0


def test_a_fault_ends_the_device(cuda: RecordingDriver, tmp_path: Path):
    (gpu,) = device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))
    stream = gpu.stream()
    cuda.failing["cuStreamSynchronize"] = (real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)
    with pytest.raises(KernelFault, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.synchronize(stream=stream)
    with pytest.raises(KernelFault):
        gpu.allocate(64, stream=stream)
    gpu.close()


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class Absent:
        CUresult = real.CUresult

        def cuInit(self, _):
            raise RuntimeError("the library libcuda.so.1 was not found")

    monkeypatch.setattr(native_driver, "bindings", Absent())
    monkeypatch.setattr(device, "cuda_driver", native_driver)
    with pytest.raises(DeviceUnavailable, match=r"there is no usable NVIDIA GPU here: .*libcuda\.so\.1 was not found"):
        device.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))


def test_all_calls_of_the_layer_are_in_cuda_bindings():
    source = Path(native_driver.__file__).read_text()
    called = {name.partition("(")[0] for name in source.split("bindings.")[1:]}
    called = {name.split(")")[0].split(",")[0].split(":")[0] for name in called if name.startswith("cu")}
    assert len(called) > 25
    assert all(hasattr(real, name) for name in called), {name for name in called if not hasattr(real, name)}
