"""The cuda device on a real GPU: overlap, pinned copies, exhaustion, faults, peers, and many small allocations."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cuda import device as cuda
from gpu_worker.device.cuda.device import CudaDevice
from gpu_worker.device.cuda.driver import bindings, check
from gpu_worker.protocol.errors import LaunchError, OutOfMemory

MIB = 1 << 20
FILE = Path(__file__).with_name("kernels.cu")
SOURCE = Source(FILE.read_text(), "kernels.cu")


def mapped(nbytes: int) -> np.ndarray:
    """Host memory of a memfd, touched, as the worker's payloads are."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, nbytes)
    array = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
    os.close(descriptor)
    array[:] = np.arange(nbytes, dtype=np.uint8) if nbytes < MIB else 1
    return array


def round_trip(device: CudaDevice) -> None:
    """Check that the device still copies and computes."""
    stream = device.stream()
    buffer = device.allocate(4000, stream=stream)
    fill = device.compile(SOURCE, "fill<float>")
    device.launch(fill, (4,), (256,), [buffer, np.float32(2.5), np.int64(1000)], stream=stream)
    result = np.empty(4000, np.uint8)
    device.copy_out(result, buffer, stream=stream)
    device.synchronize(stream=stream)
    assert np.all(result.view(np.float32) == 2.5)
    buffer.close()


def test_template_kernel_and_copies(device: CudaDevice):
    round_trip(device)
    stream = device.stream()
    data = np.random.default_rng(1).integers(0, 256, 100_003, dtype=np.uint8)
    buffers = [device.allocate(data.nbytes, stream=stream) for _ in range(2)]
    assert all(buffer.address % 256 == 0 for buffer in buffers)
    device.copy_in(buffers[0], data, stream=stream)
    device.copy_across(buffers[1], buffers[0], stream=stream)
    back = np.zeros_like(data)
    device.copy_out(back, buffers[1], stream=stream)
    device.synchronize(stream=stream)
    np.testing.assert_array_equal(back, data)
    for buffer in buffers:
        buffer.close()


@pytest.mark.parametrize("value", [3.0, 4.0])
def test_constants(device: CudaDevice, value: float):
    stream = device.stream()
    source = Source(SOURCE.text, constants=(("addend", np.array([0, value], np.float32).tobytes()),))
    kernel = device.compile(source, "add_constant")
    assert device.compile(source, "add_constant") is kernel
    data = np.arange(100, dtype=np.float32)
    buffer = device.allocate(data.nbytes, stream=stream)
    device.copy_in(buffer, data.view(np.uint8), stream=stream)
    device.launch(kernel, (1,), (128,), [buffer, np.int32(100)], stream=stream)
    back = np.empty_like(data)
    device.copy_out(back.view(np.uint8), buffer, stream=stream)
    device.synchronize(stream=stream)
    np.testing.assert_array_equal(back, data + np.float32(value))
    buffer.close()


def test_dynamic_shared_memory_beyond_what_cuda_gives_unasked(device: CudaDevice):
    stream = device.stream()
    n = 25_000
    kernel = device.compile(SOURCE, "sum_shared")
    buffers = [device.allocate(size, stream=stream) for size in (4 * n, 4)]
    data = np.ones(n, np.float32)
    device.copy_in(buffers[0], data.view(np.uint8), stream=stream)
    device.launch(kernel, (1,), (256,), [*buffers, np.int32(n)], shared=4 * n, stream=stream)
    back = np.empty(1, np.float32)
    device.copy_out(back.view(np.uint8), buffers[1], stream=stream)
    device.synchronize(stream=stream)
    assert back[0] == n
    with pytest.raises(LaunchError, match="dynamic shared memory"):
        device.launch(kernel, (1,), (256,), [*buffers, np.int32(n)], shared=MIB, stream=stream)
    for buffer in buffers:
        buffer.close()


def test_launches_that_do_not_fit_leave_the_device_well(device: CudaDevice):
    stream = device.stream()
    kernel = device.compile(SOURCE, "spin")
    for grid, block, arguments in [((0,), (1,), [np.int64(1)]), ((1,), (2048,), [np.int64(1)]),
                                   ((1,), (1,), [np.int32(1)]), ((1,), (1,), []),
                                   ((1,), (1,), [np.int64(1), np.int64(1)])]:
        with pytest.raises(LaunchError):
            device.launch(kernel, grid, block, arguments, stream=stream)
    round_trip(device)


def test_copies_and_kernels_of_two_streams_overlap(device: CudaDevice):
    """Trace when a copy on one stream and a kernel on another began and ended, by the GPU's clock."""
    copying, computing = device.stream(), device.stream()
    spin = device.compile(SOURCE, "spin")
    host = mapped(512 * MIB)
    device.pin(host)
    buffer = device.allocate(host.nbytes, stream=copying)
    device.synchronize(stream=copying)
    with device.active():
        zero, *events = (cuda.cuda_driver.Event() for _ in range(5))
        zero.record(computing.native)
        events[0].record(computing.native)
        device.launch(spin, (1,), (1,), [np.int64(40_000_000)], stream=computing)
        events[1].record(computing.native)
        events[2].record(copying.native)
        device.copy_in(buffer, host, stream=copying)
        events[3].record(copying.native)
        device.synchronize(stream=computing)
        device.synchronize(stream=copying)
        kernel_begin, kernel_end, copy_begin, copy_end = (event.time_since(zero) for event in events)
        del zero, events
    device.unpin(host)
    buffer.close()
    print(f"kernel {kernel_begin:.2f} to {kernel_end:.2f} ms, copy {copy_begin:.2f} to {copy_end:.2f} ms")
    both = min(kernel_end, copy_end) - max(kernel_begin, copy_begin)
    assert both > 0.5 * min(kernel_end - kernel_begin, copy_end - copy_begin)


def test_pinned_copies_are_faster(device: CudaDevice):
    host = mapped(512 * MIB)
    stream = device.stream()
    buffer = device.allocate(host.nbytes, stream=stream)

    def rate() -> float:
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            device.copy_in(buffer, host, stream=stream)
            device.synchronize(stream=stream)
            best = min(best, time.perf_counter() - start)
        return host.nbytes / best / 1e9

    pageable = rate()
    device.pin(host)
    device.pin(host)
    pinned = rate()
    device.unpin(host)
    still = rate()
    device.unpin(host)
    device.unpin(host)
    buffer.close()
    print(f"pageable {pageable:.1f} GB/s, pinned {pinned:.1f} GB/s, pinned by the other user {still:.1f} GB/s")
    assert pinned > 1.5 * pageable and still > 1.5 * pageable


def test_exhaustion_leaves_the_rest_intact(device: CudaDevice):
    stream = device.stream()
    data = np.arange(1000, dtype=np.uint8)
    kept = device.allocate(1000, stream=stream)
    device.copy_in(kept, data, stream=stream)
    with pytest.raises(OutOfMemory, match="do not fit"):
        device.allocate(1 << 50, stream=stream)
    held = []
    with pytest.raises(OutOfMemory, match="do not fit"):
        while True:
            held.append(device.allocate(1 << 30, stream=stream))
    assert len(held) > 4
    back = np.empty_like(data)
    device.copy_out(back, kept, stream=stream)
    device.synchronize(stream=stream)
    np.testing.assert_array_equal(back, data)
    for buffer in held:
        buffer.close()
    assert device.memory().used == 1000
    # What one stream gave back is there for another.
    other = device.stream()
    again = [device.allocate(1 << 30, stream=other) for _ in range(len(held) - 1)]
    for buffer in [*again, kept]:
        buffer.close()
    round_trip(device)


def test_limit_of_memory(tmp_path: Path):
    limited = cuda.open_cuda(memory=10 * MIB, addresses=("0",), cache_dir=str(tmp_path))[0]
    stream = limited.stream()
    buffer = limited.allocate(8 * MIB, stream=stream)
    with pytest.raises(OutOfMemory, match="4,194,304 bytes do not fit, 8,388,608 of 10,485,760 are in use"):
        limited.allocate(4 * MIB, stream=stream)
    buffer.close()
    limited.allocate(10 * MIB, stream=stream).close()
    assert limited.memory().used == 0 and limited.memory().total == 10 * MIB
    limited.close()


FAULT = """
import sys
import numpy as np
from gpu_worker.device.base import Source
from gpu_worker.device.cuda.device import open_cuda
from gpu_worker.protocol.errors import KernelFault
device, = open_cuda(memory=0, addresses=("0",), cache_dir=sys.argv[2])
stream = device.stream()
buffer = device.allocate(1024, stream=stream)
device.launch(device.compile(Source(open(sys.argv[1]).read()), "stray"), (1,), (1,), [buffer], stream=stream)
for attempt in range(2):
    try:
        device.synchronize(stream=stream)
    except KernelFault as error:
        print(attempt, error)
try:
    device.allocate(16, stream=stream)
except KernelFault as error:
    print(2, error)
buffer.close()
device.close()
print("closed")
"""


def test_illegal_address_is_a_kernel_fault(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", FAULT, str(FILE), str(tmp_path)], capture_output=True, text=True,
                          timeout=120, cwd=FILE.parents[2])
    lines = done.stdout.splitlines()
    assert [line[0] for line in lines] == ["0", "1", "2", "c"], done.stdout + done.stderr
    assert all("CUDA_ERROR_ILLEGAL_ADDRESS" in line and "must end" in line for line in lines[:3])
    assert done.returncode == 0, done.stderr


def test_peer_copy(devices: list[CudaDevice]):
    if len(devices) < 2:
        pytest.skip("one GPU here")
    first, second = devices[:2]
    near, far = first.stream(), second.stream()
    data = np.random.default_rng(2).integers(0, 256, 64 * MIB, dtype=np.uint8)
    source = first.allocate(data.nbytes, stream=near)
    target = second.allocate(data.nbytes, stream=far)
    first.copy_in(source, data, stream=near)
    first.synchronize(stream=near)
    second.synchronize(stream=far)
    for device, stream in ((second, far), (first, near)):
        start = time.perf_counter()
        device.copy_across(target, source, stream=stream)
        device.synchronize(stream=stream)
        print(f"64 MiB on a stream of {device.name}: {1e3 * (time.perf_counter() - start):.2f} ms")
    back = np.empty_like(data)
    second.copy_out(back, target, stream=far)
    second.synchronize(stream=far)
    np.testing.assert_array_equal(back, data)
    source.close()
    target.close()


def test_thousands_of_allocations_do_not_grow(device: CudaDevice):
    stream = device.stream()

    def reserved_bytes() -> int:
        """Ask for what this process's pool holds: others may take of the GPU's memory meanwhile."""
        device.synchronize(stream=stream)
        with device.active():
            pool = check(bindings.cuDeviceGetDefaultMemPool(bindings.CUdevice(device.ordinal)))
            return int(check(bindings.cuMemPoolGetAttribute(
                pool, bindings.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)))

    def cycle() -> None:
        for _ in range(5000):
            device.allocate(MIB, stream=stream).close()

    cycle()
    reserved = reserved_bytes()
    for _ in range(3):
        cycle()
    assert MIB <= reserved_bytes() <= reserved


def test_streams_come_back(device: CudaDevice):
    handles = set()
    for _ in range(1000):
        handles.add(int(device.stream().handle))
    assert len(handles) < 5


def test_threads_share_the_device(device: CudaDevice):
    def work(_: int) -> None:
        for _ in range(50):
            round_trip(device)

    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(work, range(8)))) == 8


def test_launches_cost_little(device: CudaDevice):
    stream = device.stream()
    kernel = device.compile(SOURCE, "spin")
    argument = [np.int64(0)]
    for _ in range(1000):
        device.launch(kernel, (1,), (1,), argument, stream=stream)
    device.synchronize(stream=stream)
    count = 1000
    start = time.perf_counter()
    for _ in range(count):
        device.launch(kernel, (1,), (1,), argument, stream=stream)
    cost = (time.perf_counter() - start) / count
    device.synchronize(stream=stream)
    print(f"a launch costs {1e6 * cost:.1f} µs")
    assert cost < 50e-6
