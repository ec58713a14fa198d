"""Kernels as others write them run unchanged and give what NumPy gives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.device.bench import DeviceBench

FULL = 0xFFFFFFFF


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(("m", "k", "n"), [(48, 32, 64), (37, 21, 53), (1, 1, 1)])
def test_tiled_matmul(bench: DeviceBench, random: np.random.Generator, m: int, k: int, n: int):
    a, b = random.random((m, k), "f4"), random.random((k, n), "f4")
    out = bench.put(np.zeros((m, n), "f4"))
    bench.run("matmul.cu", "matmul", (-(-n // 16), -(-m // 16)), (16, 16), bench.put(a), bench.put(b), out,
              np.int32(m), np.int32(k), np.int32(n))
    np.testing.assert_allclose(bench.get(out, (m, n), "f4"), a @ b, rtol=1e-5)


@pytest.mark.parametrize("threads", [32, 256, 1024])
def test_tree_reduction_in_dynamic_shared_memory(bench: DeviceBench, random: np.random.Generator, threads: int):
    values = random.random(5000)
    blocks = -(-values.size // (2 * threads))
    out = bench.put(np.zeros(blocks))
    bench.run("reduce.cu", "sum_blocks", (blocks,), (threads,), bench.put(values), out, np.uint32(values.size),
              shared=threads * 8)
    assert math.isclose(bench.get(out, blocks, "f8").sum(), values.sum(), rel_tol=1e-12)


@pytest.mark.parametrize("shape", [(64, 96), (33, 65), (1, 7)])
def test_transpose(bench: DeviceBench, random: np.random.Generator, shape: tuple[int, int]):
    values = random.random(shape, "f4")
    height, width = shape
    out = bench.put(np.zeros((width, height), "f4"))
    bench.run("transpose.cu", "transpose", (-(-width // 32), -(-height // 32)), (32, 8), bench.put(values), out,
              np.int32(width), np.int32(height))
    np.testing.assert_array_equal(bench.get(out, (width, height), "f4"), values.T)


def test_scan_with_shared_memory_at_file_scope(bench: DeviceBench, random: np.random.Generator):
    rows = random.integers(-9, 9, (5, 200), "i4")
    out = bench.put(np.zeros_like(rows))
    bench.run("scan.cu", "scan", (5,), (256,), bench.put(rows), out, np.int32(200), shared=2 * 256 * 4)
    np.testing.assert_array_equal(bench.get(out, rows.shape, "i4"), rows.cumsum(axis=1))


def test_histogram_with_shared_and_global_atomics(bench: DeviceBench, random: np.random.Generator):
    data = random.integers(0, 256, 20_000).astype("u1")
    bins = bench.put(np.zeros(256, "u4"))
    bench.run("histogram.cu", "histogram", (13,), (96,), bench.put(data), bins, np.uint64(data.size))
    np.testing.assert_array_equal(bench.get(bins, 256, "u4"), np.bincount(data, minlength=256))


def test_stencil_with_three_dimensions(bench: DeviceBench, random: np.random.Generator):
    nx, ny, nz = 37, 19, 11
    u = random.random((nz, ny, nx), "f4")
    out = bench.put(np.zeros_like(u))
    bench.run("stencil.cu", "heat", (2, 5, 6), (32, 4, 2), bench.put(u), out, np.int32(nx), np.int32(ny), np.int32(nz),
              np.float32(0.1))
    expected = u.copy()
    c = u[1:-1, 1:-1, 1:-1]
    expected[1:-1, 1:-1, 1:-1] = c + np.float32(0.1) * (
        u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1] + u[2:, 1:-1, 1:-1]
        + u[:-2, 1:-1, 1:-1] - 6 * c)
    np.testing.assert_allclose(bench.get(out, u.shape, "f4"), expected, atol=1e-6)


@pytest.mark.parametrize(("dtype", "name", "threads"), [("f4", "float", 128), ("f8", "double", 256), ("i4", "int", 64)])
def test_template_reduction_with_warp_shuffles(bench: DeviceBench, random: np.random.Generator, dtype: str, name: str,
                                               threads: int):
    values = random.integers(0, 100, 3000).astype(dtype)
    out = bench.put(np.zeros(1, dtype))
    bench.run("warp_reduce.cu", f"reduce<{name}, {threads}>", (4,), (threads,), bench.put(values), out,
              np.int32(values.size))
    assert bench.get(out, 1, dtype)[0] == values.sum()


def test_bitonic_sort(bench: DeviceBench, random: np.random.Generator):
    keys = random.integers(0, 2**32, (3, 512), "u4")
    buffer = bench.put(keys)
    bench.run("bitonic.cu", "bitonic_sort", (3,), (512,), buffer, shared=512 * 4)
    np.testing.assert_array_equal(bench.get(buffer, keys.shape, "u4"), np.sort(keys, axis=1))


def test_several_kernels_of_one_source(bench: DeviceBench):
    buffer, n = bench.put(np.zeros(100, "f4")), np.int32(100)
    bench.run("several.cu", "fill", (2,), (64,), buffer, np.float32(3), n)
    bench.run("several.cu", "scale", (1,), (64,), buffer, n)
    bench.run("several.cu", "square", (2,), (64,), buffer, n)
    bench.run("several.cu", "inner::negate", (2,), (64,), buffer, n)
    assert set(bench.get(buffer, 100, "f4")) == {-36.0}


@pytest.mark.parametrize("options", [
    ("-DSCALE=5",), ("-D", "SCALE=5"), ("--define-macro=SCALE=5",), ("-DSCALE=5", "-std=c++14"),
    ("-DSCALE=5", "--use_fast_math", "-lineinfo", "--maxrregcount=64", "-I/nowhere", "-UOTHER")])
def test_macros_given_as_options(bench: DeviceBench, options: tuple[str, ...]):
    buffer = bench.put(np.ones(8, "f4"))
    bench.run("several.cu", "scale", (1,), (8,), buffer, np.int32(8), options=options)
    assert set(bench.get(buffer, 8, "f4")) == {5.0}


def test_convolution_with_constant_memory(bench: DeviceBench, random: np.random.Generator):
    values, weights = random.random(300, "f4"), random.random(7, "f4")
    for shift in (0, 10):  # a source with other constants is another source, whose values are its own
        out = bench.put(np.zeros_like(values))
        bench.run("convolution.cu", "convolve", (3,), (128,), bench.put(values), out, np.int32(values.size),
                  constants=(("weights", weights.tobytes()), ("tuning::shift", np.int32(shift).tobytes())))
        expected = np.convolve(values, weights[::-1], mode="same") + shift
        np.testing.assert_allclose(bench.get(out, values.shape, "f4"), expected, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 31, 100, 256])
def test_early_return_before_a_barrier(bench: DeviceBench, random: np.random.Generator, n: int):
    values = random.integers(0, 100, n, "i4")
    out = bench.put(np.zeros(n, "i4"))
    bench.run("early_return.cu", "neighbours", (1,), (256,), bench.put(values), out, np.int32(n))
    expected = values + np.roll(values, -1)
    for _ in range(3):
        expected = expected + np.roll(expected, 1)
    np.testing.assert_array_equal(bench.get(out, n, "i4"), expected)


def test_votes(bench: DeviceBench, random: np.random.Generator):
    values = random.integers(-120, 120, 96, "i4")
    values[32:64] = 5
    ballots, any_all = bench.put(np.zeros(3, "u4")), bench.put(np.zeros(6, "i4"))
    counts = bench.put(np.zeros(3, "i4"))
    bench.run("votes.cu", "votes", (1,), (96,), bench.put(values), ballots, any_all, counts)
    warps = values.reshape(3, 32)
    np.testing.assert_array_equal(bench.get(ballots, 3, "u4"),
                                  [sum(1 << lane for lane in range(32) if warp[lane] > 0) for warp in warps])
    np.testing.assert_array_equal(bench.get(any_all, (3, 2), "i4"),
                                  [[(warp > 100).any(), (warp > -100).all()] for warp in warps])
    np.testing.assert_array_equal(bench.get(counts, 3, "i4"), [(values > 0).sum(), 1, 0])


def test_shuffles(bench: DeviceBench, random: np.random.Generator):
    values = random.integers(0, 1000, 64, "i4")
    out = bench.put(np.zeros((64, 6), "i4"))
    bench.run("votes.cu", "shuffles", (1,), (64,), bench.put(values), out)
    lane = np.arange(32)
    expected = []
    for warp in values.reshape(2, 32):
        expected.append(np.stack([
            np.full(32, warp[5]),
            warp[np.where(lane >= 3, lane - 3, lane)],
            warp[np.where(lane % 8 + 3 < 8, np.minimum(lane + 3, 31), lane)],
            warp[lane ^ 6],
            2 * warp[lane // 16 * 16 + (lane + 1) % 16] + 1,
            np.where(lane < 20, 20 + warp[19], 0),
        ], axis=1))
    np.testing.assert_array_equal(bench.get(out, (64, 6), "i4"), np.concatenate(expected))


def test_stream_compaction_by_ballot(bench: DeviceBench):
    values = np.arange(32, dtype="i4") % 3
    out, length = bench.put(np.zeros(32, "i4")), bench.put(np.zeros(1, "i4"))
    bench.run("votes.cu", "compact", (1,), (32,), bench.put(values), out, length)
    kept = values[values != 0]
    assert bench.get(length, 1, "i4")[0] == kept.size
    np.testing.assert_array_equal(bench.get(out, 32, "i4")[:kept.size], kept)


def test_reductions_of_a_warp(bench: DeviceBench, random: np.random.Generator):
    values = random.integers(-1000, 1000, 64, "i4")
    out = bench.put(np.zeros((64, 5), "i4"))
    bench.run("warp_reduce_sync.cu", "reductions", (1,), (64,), bench.put(values), out)
    expected = []
    for warp in values.reshape(2, 32):
        same = [sum(1 << i for i in range(32) if warp[i] & 3 == value & 3) for value in warp]
        common = [warp.sum(), warp.min(), warp.max(), np.bitwise_xor.reduce(warp)]
        expected += [[*common, np.uint32(mask).astype("i4")] for mask in same]
    np.testing.assert_array_equal(bench.get(out, (64, 5), "i4"), expected)


def test_vector_types(bench: DeviceBench, random: np.random.Generator):
    a, b = random.random((50, 4), "f4"), random.random((50, 4), "f4")
    out = bench.put(np.zeros_like(a))
    bench.run("structs.cu", "add4", (2,), (32,), bench.put(a), bench.put(b), out, np.int32(50))
    np.testing.assert_array_equal(bench.get(out, a.shape, "f4"), a + b)


def test_a_structure_by_value(bench: DeviceBench, random: np.random.Generator):
    x = (random.random(200, "f4") * 12 - 1).astype("f4")
    limits = np.array((0, 10, 20), "f4,f4,i4")[()]
    out = bench.put(np.zeros(200, "i4"))
    bench.run("structs.cu", "digitize", (2,), (128,), bench.put(x), out, limits, np.int32(200))
    np.testing.assert_array_equal(bench.get(out, 200, "i4"), np.clip(np.floor(x * np.float32(2)), 0, 19))


def test_small_integers_and_dim3(bench: DeviceBench, random: np.random.Generator):
    pixels = random.integers(0, 256, (9, 21, 4)).astype("u1")
    out = bench.put(np.zeros((9, 21), "u1"))
    size = np.array((21, 9, 1), "u4,u4,u4")[()]
    bench.run("structs.cu", "luma", (2, 2), (16, 8), bench.put(pixels), out, size)
    red, green, blue, _ = np.moveaxis(pixels.astype("u4"), 2, 0)
    np.testing.assert_array_equal(bench.get(out, (9, 21), "u1"), (77 * red + 151 * green + 28 * blue) >> 8)


def test_atomics_on_doubles(bench: DeviceBench, random: np.random.Generator):
    values = random.normal(size=4000)
    total, least = bench.put(np.zeros(1)), bench.put(np.full(1, np.inf))
    bench.run("atomics.cu", "statistics", (32,), (128,), bench.put(values), total, least, np.int32(values.size))
    assert math.isclose(bench.get(total, 1, "f8")[0], values.sum(), abs_tol=1e-9)
    assert bench.get(least, 1, "f8")[0] == values.min()


def test_atomics_on_integers(bench: DeviceBench, random: np.random.Generator):
    values = random.integers(0, 1000, 1024, "i4")
    r, u = bench.put(np.array([0, 0, 9999, -1, 0], "i4")), bench.put(np.array([FULL, 0, 0, 0, 3, 0, 0], "u4"))
    w, f = bench.put(np.zeros(2, "u8")), bench.put(np.zeros(1, "f4"))
    bench.run("atomics.cu", "integers", (8,), (128,), bench.put(values), r, u, w, f)
    np.testing.assert_array_equal(bench.get(r, 5, "i4"), [values.sum(), -values.sum(), values.min(), values.max(), 7])
    bits = np.bitwise_or.reduce(np.uint32(1) << (values & 31).astype("u4"))
    np.testing.assert_array_equal(bench.get(u, 7, "u4"), [
        ~bits, bits, np.bitwise_xor.reduce(values), 1024 % 10, (3 - 1024) % 10, values.max(), 5])
    np.testing.assert_array_equal(bench.get(w, 2, "u8"), [int(values.sum()) << 33, int(values.max()) << 33])
    assert bench.get(f, 1, "f4")[0] == 512


def test_printf(bench: DeviceBench, capfd: pytest.CaptureFixture[str]):
    bench.run("printing.cu", "hello", (3,), (4,), np.int32(12))
    assert capfd.readouterr().out == "thread 2 of 12, 1.50 ready\n"


def test_float_intrinsics(bench: DeviceBench):
    a, b = 0.25, 3.5
    out = bench.put(np.zeros(40, "f4"))
    bench.run("intrinsics.cu", "floats", (1,), (1,), bench.put(np.array([a, b], "f4")), out)
    expected = [
        a / b, math.exp(a), math.log(b), b ** a, math.sin(a), math.cos(a), b ** -0.5, b ** (-1 / 3), a * b + 1, 1,
        math.sin(math.pi * a), math.sqrt(a * a + b * b + 4), math.erf(a), 0.4769362762, 0.5987063257, 10 ** a, a, b, 0,
        math.sin(a), math.cos(a), b ** -0.5, -b, math.pi, b - a, math.hypot(a, b), math.log1p(a), 0.25, a * b, -3]
    np.testing.assert_allclose(bench.get(out, 40, "f4")[:len(expected)], expected, rtol=3e-6, atol=1e-7)


def test_integer_intrinsics(bench: DeviceBench):
    a, b = 12, 7
    out = bench.put(np.zeros(40, "i8"))
    bench.run("intrinsics.cu", "integers", (1,), (1,), bench.put(np.array([a, b], "i4")), out)
    expected = [2, 3, 28, 32, 0x30000000, (a << 20) * (b << 20) >> 32, 4000000000 * 3000000000 >> 32, a * b, 32, 23, 41,
                0x77552200, 24, 2, -2, 0x3F800000, 0x3FF0000000000000, 15, a + b, 1 * 5 + 2 * 6 + 3 * 7 + 4 * 8 + 1, 9,
                3, 32]
    assert bench.get(out, 40, "i8")[:len(expected)].tolist() == expected
