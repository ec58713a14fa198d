"""Traits of the host device alone: its compiler, what it cannot run, and how it waits."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device import open_devices
from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.compiler import Compiler
from gpu_worker.protocol.errors import CompileError, DeviceUnavailable, KernelFault, LaunchError
from gpu_worker.system import caller
from tests.device.bench import DeviceBench, opened


@pytest.fixture
def host(cache_dir: str) -> Iterator[DeviceBench]:
    device = opened("host", cache_dir)
    yield DeviceBench(device, device.stream())
    device.close()


def launch(bench: DeviceBench, text: str, *arguments, grid: tuple[int, ...] = (1,), block: tuple[int, ...] = (1,)
           ) -> None:
    kernel = bench.device.compile(Source(text, "mine.cu"), "k")
    bench.device.launch(kernel, grid, block, arguments, stream=bench.stream)
    bench.device.synchronize(stream=bench.stream)


@pytest.mark.parametrize(("path", "cxx", "words"), [("", "", "neither"), (None, "no-such-c++", "no-such-c++")])
def test_a_missing_compiler_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, cache_dir: str,
                                                         path: str | None, cxx: str, words: str):
    monkeypatch.setenv("PATH", os.environ["PATH"] if path is None else path)
    monkeypatch.setenv("CXX", cxx)
    with pytest.raises(DeviceUnavailable, match="apt-get install g\\+\\+") as caught:
        open_devices("host", cache_dir=cache_dir)
    assert words in caught.value.message


def test_a_program_that_is_no_compiler(monkeypatch: pytest.MonkeyPatch, cache_dir: str):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(DeviceUnavailable, match="false is not a C"):
        open_devices("host", cache_dir=cache_dir)


@pytest.mark.parametrize(("text", "words"), [
    ("#include <cooperative_groups.h>\n__global__ void k() {}", "mine.cu, line 1: .*cooperative_groups.h is not"),
    ("\n#include <cuda_fp16.h>\n__global__ void k() {}", "mine.cu, line 2: .*cuda_fp16.h is not"),
    ("\n__managed__ int x;\n__global__ void k() {}", "mine.cu, line 2: .*__managed__ .*are not available"),
    ("__global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }", "line 2.*\n.*\n.*may not launch"),
    ("__global__ void k(int* x) {\nasm(\"mov.u32 %0, %laneid;\" : \"=r\"(*x)); }", "PTX"),
    ("#include \"nowhere.h\"\n__global__ void k() {}", "line 1: nowhere.h"),
    ("__global__ void k() { int x = }", "line 1"),
    ("", "no kernel k; it has no __global__ function"),
])
def test_what_cannot_run_is_a_clear_error(host: DeviceBench, text: str, words: str):
    with pytest.raises(CompileError, match=words):
        host.device.compile(Source(text, "mine.cu"), "k")


def test_shared_memory_is_not_shared_between_sources(host: DeviceBench):
    """Keep templates of one name in two sources from meeting in the loader."""
    for n in (4, 4000):
        text = f"""template <typename T> __device__ T* scratch() {{ __shared__ T x[{n}]; return x; }}
        __global__ void k(int* out) {{ int* x = scratch<int>(); x[threadIdx.x] = threadIdx.x; __syncthreads();
            out[threadIdx.x] = x[blockDim.x - 1 - threadIdx.x]; }}"""
        out = host.put(np.zeros(4, "i4"))
        launch(host, text, out, block=(4,))
        assert host.get(out, 4, "i4").tolist() == [3, 2, 1, 0]


def test_several_dynamic_arrays_are_one(host: DeviceBench):
    text = """namespace a { __device__ void put(int v) { extern __shared__ int words[]; words[threadIdx.x] = v; } }
    template <typename T> __device__ T get() { extern __shared__ __align__(32) unsigned char bytes[];
        return reinterpret_cast<T*>(bytes)[threadIdx.x ^ 1]; }
    __global__ void k(int* out) { a::put(threadIdx.x); __syncthreads(); out[threadIdx.x] = get<int>(); }"""
    out = host.put(np.zeros(6, "i4"))
    launch(host, text, out, block=(6,))
    assert host.get(out, 6, "i4").tolist() == [1, 0, 3, 2, 5, 4]


def test_a_barrier_in_a_function_of_its_own(host: DeviceBench, tmp_path: Path):
    """Expect the compiler to find what a header hides, which reading the text does not."""
    (tmp_path / "wait.h").write_text("__device__ __noinline__ void rest() { __syncthreads(); }\n")
    text = """#include "wait.h"
    __global__ void k(int* x) { __shared__ int y[64]; y[threadIdx.x] = x[threadIdx.x]; rest();
        x[threadIdx.x] = y[63 - threadIdx.x]; }"""
    out = host.put(np.arange(64, dtype="i4"))
    kernel = host.device.compile(Source(text, options=(f"-I{tmp_path}",)), "k")
    host.device.launch(kernel, (1,), (64,), [out], stream=host.stream)
    assert host.get(out, 64, "i4").tolist() == list(range(63, -1, -1))


def test_local_variables_survive_waiting(host: DeviceBench):
    text = """__device__ int deep(int n) {
        if (n == 0) { __syncthreads(); return threadIdx.x; } return deep(n - 1) + n; }
    __global__ void k(double* out, int rounds) { double local[32];
        for (int i = 0; i < 32; i++) local[i] = threadIdx.x * 100.0 + threadIdx.z + i;
        for (int r = 0; r < rounds; r++) { __syncthreads(); local[r % 32] += 1; }
        double sum = deep(40); for (int i = 0; i < 32; i++) sum += local[i];
        out[(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] = sum; }"""
    out = host.put(np.zeros(1024))
    launch(host, text, out, np.int32(70), block=(8, 16, 8))
    z, _, x = np.meshgrid(range(8), range(16), range(8), indexing="ij")
    np.testing.assert_array_equal(host.get(out, (8, 16, 8), "f8"),
                                  x + 820 + 32 * (x * 100.0 + z) + 496 + 70)


def test_threads_may_wait_different_numbers_of_times(host: DeviceBench):
    text = """__global__ void k(int* out) { for (unsigned i = 0; i < threadIdx.x; i++) __syncthreads();
        if (threadIdx.x % 2) return; out[threadIdx.x] = __syncthreads_count(1); }"""
    out = host.put(np.zeros(6, "i4"))
    launch(host, text, out, block=(6,))
    assert host.get(out, 6, "i4")[::2].all()


def test_parts_of_a_warp_wait_apart(host: DeviceBench):
    text = """__global__ void k(int* out) { int t = threadIdx.x, x = t;
        if (t < 8) for (int i = 0; i < 3; i++) x = __shfl_xor_sync(0xffu, x, 1);
        else if (t < 24) x = __shfl_sync(0xffff00u, x, 8);
        else { x = __popc(__activemask()); __syncwarp(0xff000000u); }
        out[t] = x + __shfl_sync(0xffffffffu, 1000, 0); }"""
    out = host.put(np.zeros(32, "i4"))
    launch(host, text, out, block=(32,))
    expected = [t ^ 1 for t in range(8)] + [8] * 16 + [8] * 8
    assert host.get(out, 32, "i4").tolist() == [1000 + x for x in expected]


def test_a_divergent_barrier_is_a_fault_that_stays(cache_dir: str):
    device = opened("host", cache_dir)
    bench = DeviceBench(device, device.stream())
    text = """__global__ void k(int n) { if (threadIdx.x < n) __syncthreads(); else __shfl_sync(0xffffffffu, n, 0); }"""
    with pytest.raises(KernelFault, match="7 wait at __syncthreads and 25"):
        launch(bench, text, np.int32(7), grid=(64,), block=(32,))
    with pytest.raises(KernelFault):
        bench.device.synchronize(stream=bench.stream)
    device = opened("host", cache_dir)
    other = DeviceBench(device, device.stream())
    out = other.put(np.zeros(64, "i4"))
    launch(other, "__global__ void k(int* x) { __syncthreads(); x[threadIdx.x] = 1; }", out, block=(64,))
    assert other.get(out, 64, "i4").all()


def test_blocks_may_wait_for_earlier_ones(host: DeviceBench):
    text = """__global__ void k(volatile int* turn, int* order) {
        while (turn[0] != (int)blockIdx.x) {}
        order[blockIdx.x] = turn[0]; __threadfence(); turn[0] = blockIdx.x + 1; }"""
    turn, order = host.put(np.zeros(1, "i4")), host.put(np.zeros(200, "i4"))
    launch(host, text, turn, order, grid=(200,))
    assert host.get(order, 200, "i4").tolist() == list(range(200))


def test_fast_math_keeps_infinities(host: DeviceBench):
    source = Source("__global__ void k(float* x) { x[0] = isinf(x[0]) ? 1.0f : 2.0f; }", options=("--use_fast_math",))
    out = host.put(np.array([np.inf], "f4"))
    host.device.launch(host.device.compile(source, "k"), (1,), (1,), [out], stream=host.stream)
    assert host.get(out, 1, "f4")[0] == 1


def test_zero_less_zero_has_no_sign(host: DeviceBench):
    of = host.put(np.zeros(2, "u8"))
    out = host.put(np.ones(2))
    text = """__global__ void k(double* out, const unsigned long long* of) {
        out[0] = (double)(of[0] ^ of[0]) - (double)of[1]; out[1] = 0.0 - (double)of[1]; }"""
    launch(host, text, out, of)
    assert host.get(out, 2, "f8").tobytes() == bytes(16)


def test_an_index_beyond_31_bits(host: DeviceBench):
    text = """__global__ void k(unsigned* out) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i > 0x7ffffffeu + 1000u && threadIdx.x < 3 && blockIdx.x + 1 == gridDim.x) out[threadIdx.x] = i; }"""
    out = host.put(np.zeros(3, "u4"))
    launch(host, text, out, grid=(2**21 + 2,), block=(1024,))
    assert host.get(out, 3, "u4").tolist() == [2**31 + 1024 + i for i in range(3)]


def test_a_users_macros_do_not_reach_our_headers(host: DeviceBench):
    names = ("A", "I", "N", "T", "F", "entry", "unit", "count", "value", "runtime", "symbol", "x", "i", "wait")
    text = "".join(f"#define {name}_ 1\n#define {name} {name}_\n" for name in names)
    text += "__constant__ int held;\n__global__ void k(int* out) { __syncthreads(); *out = N + T + A + held; }"
    source = Source(text, options=("-DE=1", "-DU=2", "-Dresult=3"), constants=(("held", np.int32(4).tobytes()),))
    out = host.put(np.zeros(1, "i4"))
    host.device.launch(host.device.compile(source, "k"), (1,), (1,), [out], stream=host.stream)
    assert host.get(out, 1, "i4")[0] == 7


def test_a_constant_that_is_const_cannot_be_set(host: DeviceBench):
    source = Source("__constant__ const int held = 3; __global__ void k(int* x) { *x = held; }",
                    constants=(("held", b"1234"),))
    with pytest.raises(CompileError, match="no __constant__ held that can be set"):
        host.device.compile(source, "k")


def test_blocks_that_nobody_waits_for_are_left_off(host: DeviceBench):
    source = Source("""__global__ void slow(int* done, double* x)
    { double y = 1; for (int i = 0; i < 20000; i++) y += sin(y); if (y != 0) atomicAdd(done, 1); *x = y; }""")
    kernel, done, x = host.device.compile(source, "slow"), host.put(np.zeros(1, "i4")), host.put(np.zeros(1))
    ours, theirs = socket.socketpair()
    with ours:
        with caller.serving(ours):
            host.device.launch(kernel, (8,), (1,), [done, x], stream=host.stream)
            theirs.close()
            with pytest.raises(LaunchError, match=r"slow of .* was left off, as the client that waited for it is gone"):
                host.device.launch(kernel, (100_000,), (1,), [done, x], stream=host.stream)
        left = host.get(done, 1, "i4")[0]
        assert 8 <= left < 100_000
        host.device.launch(kernel, (8,), (1,), [done, x], stream=host.stream)
        assert host.get(done, 1, "i4")[0] == left + 8


@pytest.mark.parametrize("body", [
    "for (double y = 1; *x != 7;) *x = y = y * 0.5 + 1;",
    "for (double y = 1; *x != 7;) *x = y = sin(y) + 1;",
    "__shared__ double s[32]; for (;;) { s[threadIdx.x] = *x; __syncthreads(); *x = s[31 - threadIdx.x] + 1; }",
], ids=["own", "library", "barriers"])
def test_a_block_that_nobody_waits_for_is_left_in_its_middle(host: DeviceBench, body: str):
    """Leave a loop that has no end; what the device does next is right."""
    source = Source(f"""__global__ void endless(volatile double* x) {{ {body} }}
    __global__ void sum(double* x) {{ __shared__ double s[32]; s[threadIdx.x] = threadIdx.x; __syncthreads();
    if (threadIdx.x == 0) {{ double y = 0; for (int i = 0; i < 32; i++) y += s[i]; *x = y; }} }}""")
    kernel, x = host.device.compile(source, "endless"), host.put(np.zeros(1))
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, caller.serving(ours):
        for _ in range(2):
            with pytest.raises(LaunchError, match=r"endless of .* was left off"):
                host.device.launch(kernel, (2,), (32,), [x], stream=host.stream)
    host.device.launch(host.device.compile(source, "sum"), (1,), (32,), [x], stream=host.stream)
    assert host.get(x, 1, "f8")[0] == 496


def test_a_precompiled_header_that_cannot_be_read_is_passed_over(tmp_path: Path):
    cache, compiler = KernelCache(tmp_path), Compiler.find()
    assert compiler.unit(Source("__global__ void k() {}"), "k", cache)
    header = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    assert b"gpch" in header.read_bytes()[:8]
    header.write_bytes(header.read_bytes()[:100_000])
    assert compiler.unit(Source("__global__ void k(int* x) { *x = 1; }"), "k", cache)


# -- bounds -----------------------------------------------------------------------------------------------------------

SHIFT = Source("""
__global__ void shift(const float* x, float* y, int n, int read, int write)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i + write] = x[i + read]; }
__global__ void reversed(const float* x, float* y, int at)
{
    extern __shared__ float part[];
    __shared__ float more[32];
    float local[8];
    part[threadIdx.x] = x[threadIdx.x];
    more[threadIdx.x] = 1;
    __syncthreads();
    for (int i = 0; i < 8; i++) local[(i * at) % 8] = part[i];
    y[threadIdx.x] = part[31 - threadIdx.x] + 0 * local[at % 8] + more[0];
    if (threadIdx.x == 0) atomicAdd(y + at, 1.0f);
}
""")


@pytest.fixture
def bounded(cache_dir: str):
    device = open_devices("auto", cache_dir=cache_dir, bounds=True)[0]
    assert device.kind == "host"
    yield DeviceBench(device, device.stream())
    device.close()


def shifted(bench: DeviceBench, *numbers: int) -> None:
    x, y = bench.put(np.arange(32, dtype="f4")), bench.put(np.zeros(32, "f4"))
    bench.device.launch(bench.device.compile(SHIFT, "shift"), (2,), (32,), [x, y, *map(np.int32, numbers)],
                        stream=bench.stream)
    bench.device.synchronize(stream=bench.stream)
    assert bench.get(y, 32, "f4").tolist() == list(range(32))


def test_accesses_within_bounds_pass(bounded: DeviceBench):
    shifted(bounded, 32, 0, 0)
    x, y = bounded.put(np.arange(32, dtype="f4")), bounded.put(np.zeros(32, "f4"))
    bounded.device.launch(bounded.device.compile(SHIFT, "reversed"), (1,), (32,), [x, y, np.int32(0)], shared=128,
                          stream=bounded.stream)
    assert bounded.get(y, 32, "f4").tolist() == [33.0, *range(31, 0, -1)]


@pytest.mark.parametrize(("numbers", "words"), [
    ((33, 0, 0), r"reads 4 bytes out of the bounds of argument 1, which has 128 bytes: 128 bytes behind its start, in"
                 r" thread \(0, 0, 0\) of block \(1, 0, 0\)"),
    ((32, 0, 1), "writes 4 bytes out of the bounds of argument 2, which has 128 bytes: 128 bytes behind its start"),
    ((32, -1, 0), "reads 4 bytes out of the bounds of argument 1, .*: 4 bytes before its start"),
    ((32, 0, -200_000), "writes 4 bytes out of the bounds of argument 2, .*: 800,000 bytes before its start"),
])
def test_accesses_out_of_bounds_are_faults(bounded: DeviceBench, numbers: tuple[int, ...], words: str):
    with pytest.raises(KernelFault, match=f"the kernel shift of kernels.cu failed on host:0: it {words}"):
        shifted(bounded, *numbers)


def test_an_atomic_out_of_bounds_is_a_fault(bounded: DeviceBench):
    x, y = bounded.put(np.arange(32, dtype="f4")), bounded.put(np.zeros(32, "f4"))
    bounded.device.launch(bounded.device.compile(SHIFT, "reversed"), (1,), (32,), [x, y, np.int32(32)], shared=128,
                          stream=bounded.stream)
    with pytest.raises(KernelFault, match="out of the bounds of argument 2"):
        bounded.device.synchronize(stream=bounded.stream)


def test_checks_are_only_where_they_are_asked_for(host: DeviceBench):
    big = host.device.allocate(1 << 20, stream=host.stream)
    within = big.part(4096, 128)
    host.device.launch(host.device.compile(SHIFT, "shift"), (2,), (32,), [within, within, *map(np.int32, (33, 0, 1))],
                       stream=host.stream)
    host.device.synchronize(stream=host.stream)
    big.close()


def test_checks_need_a_host(cache_dir: str):
    with pytest.raises(DeviceUnavailable, match=r"is for the host device: take .*, or NVIDIA's compute-sanitizer"):
        open_devices("cuda", cache_dir=cache_dir, bounds=True)
