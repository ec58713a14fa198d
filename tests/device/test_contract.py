"""Contract of every device: memory, copies, streams, compilation, launches and their errors."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from gpu_worker.device import open_devices
from gpu_worker.device.base import ReadOnlyPart, Source
from gpu_worker.protocol.errors import CompileError, DeviceUnavailable, LaunchError, OutOfMemory
from gpu_worker.protocol.payload import Payload
from tests.device.bench import DeviceBench, opened

ADD_ONE = Source("""
__global__ void add_one(int* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }
__global__ void one_byte(unsigned char* x, bool wanted, double scale) { *x = wanted ? (unsigned char)scale : 0; }
template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }
""", "add.cu")

WHERE = Source("""
__global__ void where(unsigned* x)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    x[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 10000 + thread;
}
""")


# -- memory -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("nbytes", [1, 255, 257, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_buffers_are_aligned_and_apart(any_bench: DeviceBench, nbytes: int):
    buffers = [any_bench.device.allocate(nbytes, stream=any_bench.stream) for _ in range(3)]
    assert all(buffer.address % 256 == 0 and buffer.nbytes == nbytes for buffer in buffers)
    starts = sorted(buffer.address for buffer in buffers)
    assert all(b - a >= nbytes for a, b in pairwise(starts))
    for buffer in buffers:
        buffer.close()


def test_memory_is_counted(any_bench: DeviceBench):
    device = any_bench.device
    buffers = [device.allocate(n, stream=any_bench.stream) for n in (0, 1000, 2000)]
    assert device.memory().used == 3000
    assert device.memory().total > 3000
    for buffer in buffers:
        buffer.close()
    assert device.memory().used == 0


def test_a_shared_buffer_is_freed_by_its_last_user(any_bench: DeviceBench):
    buffer = any_bench.device.allocate(512, stream=any_bench.stream)
    assert buffer.share() is buffer
    buffer.close()
    assert any_bench.device.memory().used == 512
    buffer.close()
    assert any_bench.device.memory().used == 0


@pytest.mark.parametrize("kind", ["host", "cuda", "null"])
def test_out_of_memory_leaves_the_rest_intact(kind: str, cache_dir: str):
    device = opened(kind, cache_dir, memory=1 << 20)
    bench = DeviceBench(device, device.stream())
    kept = bench.put(np.arange(1000))
    with pytest.raises(OutOfMemory, match=r"1,?048,?576"):
        device.allocate(1 << 20, stream=bench.stream)
    assert device.memory().used == kept.nbytes
    assert device.memory().total == 1 << 20
    if kind != "null":
        np.testing.assert_array_equal(bench.get(kept, 1000, "i8"), np.arange(1000))
    again = device.allocate((1 << 20) - kept.nbytes, stream=bench.stream)
    again.close()
    kept.close()
    device.close()


def test_more_than_the_machine_has_is_refused(bench: DeviceBench):
    with pytest.raises(OutOfMemory):
        bench.device.allocate(1 << 50, stream=bench.stream)
    assert bench.device.memory().used == 0


def test_memory_is_mapped_by_another_device_and_read_only(bench: DeviceBench, cache_dir: str):
    device, numbers = bench.device, np.arange(5000)
    if not device.shares:
        pytest.skip(f"{device.name} has no memory that other processes can map")
    shared = device.share_memory(numbers.nbytes)
    device.copy_in(shared.buffer, numbers.view("u1"), stream=bench.stream)
    device.synchronize(stream=bench.stream)
    shared.protect()
    assert device.memory().used == numbers.nbytes
    other = opened(device.kind, cache_dir)
    there = DeviceBench(other, other.stream())
    whole = other.map_memory(shared.descriptor, numbers.nbytes)
    assert other.shares == device.shares and other.memory().used == 0
    for reader, buffer in ((bench, shared.buffer), (there, whole)):
        np.testing.assert_array_equal(reader.get(buffer, numbers.shape, "i8"), numbers)
    parts = [ReadOnlyPart(whole, offset, 8000) for offset in (0, 16000)]
    for buffer in (shared.buffer, whole):
        buffer.close()
    os.close(shared.descriptor)
    assert device.memory().used == 0
    np.testing.assert_array_equal(there.get(parts[1], 1000, "i8"), numbers[2000:3000])
    for part in parts:
        part.close()
    other.close()


def test_what_is_no_shared_memory_is_not_mapped(bench: DeviceBench):
    with Payload.create(4096) as payload, pytest.raises(DeviceUnavailable):
        bench.device.map_memory(payload.descriptor, 4096)
    assert bench.device.memory().used == 0


def test_memory_is_used_again(bench: DeviceBench):
    for size in (100, 4096, 3 << 20):
        for _ in range(300):
            bench.device.allocate(size, stream=bench.stream).close()
    bench.device.synchronize(stream=bench.stream)
    assert bench.device.memory().used == 0


def test_threads_allocate_at_once(bench: DeviceBench):
    def work(seed: int) -> bool:
        stream, right = bench.device.stream(), True
        for i in range(50):
            array = np.full(200 + seed, seed * 1000 + i)
            own = DeviceBench(bench.device, stream)
            buffer = own.put(array)
            right &= bool((own.get(buffer, array.shape, "i8") == array).all())
            buffer.close()
        return right

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(12)))
    assert bench.device.memory().used == 0


# -- copies -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("nbytes", [0, 1, 1000, 1 << 20])
def test_bytes_come_back_as_they_went(bench: DeviceBench, nbytes: int):
    data = np.random.default_rng(1).integers(0, 256, nbytes).astype("u1")
    first, second = bench.put(data), bench.device.allocate(nbytes + 10, stream=bench.stream)
    bench.device.copy_across(second, first, stream=bench.stream)
    np.testing.assert_array_equal(bench.get(first, nbytes, "u1"), data)
    np.testing.assert_array_equal(bench.get(second, nbytes, "u1"), data)


def test_whoever_sleeps_wakes_when_all_is_copied(bench: DeviceBench):
    data = np.random.default_rng(1).integers(0, 256, 8 << 20).astype("u1")
    back, buffer = np.zeros_like(data), bench.device.allocate(data.nbytes, stream=bench.stream)
    for memory in (data, back):
        bench.device.pin(memory)
    bench.device.copy_in(buffer, data, stream=bench.stream)
    bench.device.copy_out(back, buffer, stream=bench.stream)
    bench.device.synchronize_asleep(stream=bench.stream)
    np.testing.assert_array_equal(back, data)
    for memory in (data, back):
        bench.device.unpin(memory)


def test_the_start_of_a_buffer_is_copied(bench: DeviceBench):
    buffer = bench.put(np.arange(100, dtype="u1"))
    bench.device.copy_in(buffer, np.zeros(10, "u1"), stream=bench.stream)
    np.testing.assert_array_equal(bench.get(buffer, 20, "u1"), [0] * 10 + list(range(10, 20)))


def test_a_copy_that_does_not_fit_is_refused(bench: DeviceBench):
    small, large = bench.put(np.zeros(8, "u1")), bench.put(np.zeros(16, "u1"))
    for copy in (lambda: bench.device.copy_in(small, np.zeros(9, "u1"), stream=bench.stream),
                 lambda: bench.device.copy_out(np.zeros(9, "u1"), small, stream=bench.stream),
                 lambda: bench.device.copy_across(small, large, stream=bench.stream)):
        with pytest.raises(ValueError, match="does not fit"):
            copy()


def test_pinning_changes_nothing(any_bench: DeviceBench):
    memory = np.zeros(1 << 16, "u1")
    any_bench.device.pin(memory)
    buffer = any_bench.put(memory)
    any_bench.device.unpin(memory)
    buffer.close()


def test_streams_work_side_by_side(bench: DeviceBench):
    kernel = bench.device.compile(ADD_ONE, "add_one")
    lanes = [DeviceBench(bench.device, bench.device.stream()) for _ in range(4)]
    buffers = [lane.put(np.full(1000, i, "i4")) for i, lane in enumerate(lanes)]
    for _ in range(10):
        for lane, buffer in zip(lanes, buffers, strict=True):
            bench.device.launch(kernel, (8,), (128,), [buffer, np.int32(1000)], stream=lane.stream)
    for i, (lane, buffer) in enumerate(zip(lanes, buffers, strict=True)):
        assert set(lane.get(buffer, 1000, "i4")) == {i + 10}


# -- compilation ------------------------------------------------------------------------------------------------------

def test_a_compile_error_shows_the_users_line(bench: DeviceBench):
    text = "__device__ int f() { return 1; }\n\n__global__ void k(int* x) {\n    x[0] = undeclared + f();\n}\n"
    source = Source(text, "mine.cu")
    with pytest.raises(CompileError) as caught:
        bench.device.compile(source, "k")
    assert "mine.cu, line 4" in caught.value.message
    assert "x[0] = undeclared + f();" in caught.value.message
    assert "undeclared" in caught.value.detail
    assert "cuda_on_host" not in str(caught.value) and "vispark" not in caught.value.detail


def test_an_error_in_a_template_shows_the_users_line(bench: DeviceBench):
    source = Source("template <typename T> __device__ T half_of(T x) {\n    return x.missing / 2;\n}\n"
                    "template <typename T> __global__ void k(T* x) { x[0] = half_of(x[0]); }", "mine.cu")
    with pytest.raises(CompileError, match=r"mine\.cu, line 2"):
        bench.device.compile(source, "k<float>")


@pytest.mark.parametrize("name", ["missing", "missing<int>", "space::add_one"])
def test_an_unknown_kernel_is_answered_with_those_there_are(bench: DeviceBench, name: str):
    with pytest.raises(CompileError, match="add_one, one_byte, twice") as caught:
        bench.device.compile(ADD_ONE, name)
    assert name in caught.value.message and "add.cu" in caught.value.message


def test_a_template_without_arguments_is_no_kernel(bench: DeviceBench):
    with pytest.raises(CompileError, match="twice"):
        bench.device.compile(ADD_ONE, "twice")


def test_an_unknown_option_is_named(bench: DeviceBench):
    with pytest.raises(CompileError, match="--no-such-option"):
        bench.device.compile(Source(ADD_ONE.text, options=("--no-such-option",)), "add_one")


@pytest.mark.parametrize(("constants", "words"), [((("other", b"1234"),), "other"),
                                                  ((("weight", b"12345678"),), "4 bytes, 8 were given")])
def test_constants_that_do_not_fit_the_source(bench: DeviceBench, constants: tuple, words: str):
    text = "__constant__ float weight; __global__ void k(float* x) { x[0] = weight; }"
    with pytest.raises(CompileError, match=words):
        bench.device.compile(Source(text, constants=constants), "k")


def test_a_kernel_is_compiled_once(bench: DeviceBench):
    with ThreadPoolExecutor(8) as pool:
        kernels = list(pool.map(lambda _: bench.device.compile(ADD_ONE, "twice<int>"), range(8)))
    assert len(set(map(id, kernels))) == 1
    assert kernels[0].name == "twice<int>" and kernels[0].source == ADD_ONE


# -- launches ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("grid", "block"), [((1,), (1,)), ((3,), (5,)), ((2, 3), (4, 5)), ((2, 3, 4), (5, 6, 7)),
                                             ((1, 1, 2), (1024,)), ((65536,), (1,)), ((1, 70), (1, 1, 64))])
def test_every_thread_knows_its_place(bench: DeviceBench, grid: tuple[int, ...], block: tuple[int, ...]):
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    out = bench.put(np.zeros(blocks * threads, "u4"))
    bench.device.launch(bench.device.compile(WHERE, "where"), grid, block, [out], stream=bench.stream)
    expected = np.arange(blocks, dtype="u4")[:, None] * 10000 + np.arange(threads, dtype="u4")
    np.testing.assert_array_equal(bench.get(out, (blocks, threads), "u4"), expected)


@pytest.mark.parametrize(("grid", "block", "shared"), [
    ((0,), (32,), 0), ((1,), (0,), 0), ((1, 0), (32,), 0), ((-1,), (32,), 0), ((1,), (1025,), 0), ((1,), (32, 33), 0),
    ((1,), (1, 1, 65), 0), ((1, 65536), (1,), 0), ((1, 1, 65536), (1,), 0), ((2**31,), (1,), 0), ((), (1,), 0),
    ((1,), (1, 1, 1, 1), 0), ((1,), (1,), 10**6), ((1,), (1,), -1)])
def test_extents_out_of_range(bench: DeviceBench, grid: tuple[int, ...], block: tuple[int, ...], shared: int):
    buffer = bench.put(np.zeros(1, "i4"))
    with pytest.raises(LaunchError, match="add_one"):
        bench.device.launch(bench.device.compile(ADD_ONE, "add_one"), grid, block, [buffer, np.int32(1)], shared=shared,
                            stream=bench.stream)
    assert bench.get(buffer, 1, "i4")[0] == 0


def test_arguments_that_do_not_fit_the_kernel(bench: DeviceBench):
    buffer = bench.put(np.zeros(1, "i4"))
    kernel = bench.device.compile(ADD_ONE, "add_one")
    for arguments, words in [([buffer], "takes 2 arguments, 1 "),
                             ([buffer, np.int32(1), np.int32(1)], "takes 2 arguments, 3 "),
                             ([buffer, np.int64(1)], "argument 2 .* 4 bytes.*int64.* 8"),
                             ([np.float32(1), np.int32(1)], "argument 1 .* 8 bytes.*float32.* 4"),
                             ([buffer, buffer], "argument 2 .* 4 bytes.*8"), ([buffer, 1], "argument 2 .* int")]:
        with pytest.raises(LaunchError, match=words):
            bench.device.launch(kernel, (1,), (1,), arguments, stream=bench.stream)
    assert bench.get(buffer, 1, "i4")[0] == 0


def test_scalars_of_all_sizes_travel_by_value(bench: DeviceBench):
    out = bench.put(np.zeros(1, "u1"))
    bench.device.launch(bench.device.compile(ADD_ONE, "one_byte"), (1,), (1,), [out, np.bool_(True), np.float64(7)],
                        stream=bench.stream)
    assert bench.get(out, 1, "u1")[0] == 7


def test_threads_launch_at_once(bench: DeviceBench):
    kernel = bench.device.compile(ADD_ONE, "add_one")
    start = threading.Barrier(4)

    def work(_: int) -> bool:
        own = DeviceBench(bench.device, bench.device.stream())
        buffer = own.put(np.zeros(5000, "i4"))
        start.wait()
        for _ in range(30):
            bench.device.launch(kernel, (40,), (128,), [buffer, np.int32(5000)], stream=own.stream)
        return bool((own.get(buffer, 5000, "i4") == 30).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_threads_launch_kernels_with_barriers_at_once(bench: DeviceBench):
    def work(seed: int) -> bool:
        own = DeviceBench(bench.device, bench.device.stream())
        keys = np.random.default_rng(seed).integers(0, 2**32, (8, 256), "u4")
        buffer = own.put(keys)
        own.run("bitonic.cu", "bitonic_sort", (8,), (256,), buffer, shared=1024)
        return bool((own.get(buffer, keys.shape, "u4") == np.sort(keys, axis=1)).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


# -- opening ----------------------------------------------------------------------------------------------------------

def test_an_unknown_kind_is_answered_with_those_there_are():
    with pytest.raises(DeviceUnavailable, match="auto, cuda, host, null"):
        open_devices("tpu")


def test_auto_is_cuda_or_else_host(cache_dir: str):
    devices = open_devices("auto", cache_dir=cache_dir)
    try:
        wanted = open_devices("cuda", cache_dir=cache_dir)
    except DeviceUnavailable:
        wanted = open_devices("host", cache_dir=cache_dir)
    assert [device.name for device in devices] == [device.name for device in wanted]
    for device in [*devices, *wanted]:
        device.close()


def test_a_closed_device_says_so(bench: DeviceBench):
    bench.device.close()
    with pytest.raises(DeviceUnavailable, match="closed"):
        bench.device.allocate(1, stream=bench.stream)
