"""Kernels that others wrote, through Spark: fields, in place, shared memory, grids, constants, templates, options."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.protocol.errors import CompileError
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark import IN, OUT, Kernels, PlanError

K = Kernels("""
__constant__ float weights[3];

extern "C" __global__ void axpy(const float* x, const float* y, float* z, float a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = a * x[i] + y[i]; }

extern "C" __global__ void increment(int* x, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += STEP; }

extern "C" __global__ void weigh(const float* x, float* y, int n)
{ int i = threadIdx.x; if (i < n) y[i] = x[i] * weights[i % 3]; }

extern "C" __global__ void transpose(const float* in, float* out, int rows, int columns)
{
    __shared__ float tile[8][9];
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
    __syncthreads();
    x = blockIdx.y * 8 + threadIdx.x; y = blockIdx.x * 8 + threadIdx.y;
    if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void block_sums(const double* x, double* sums, int n)
{
    extern __shared__ double part[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

extern "C" __global__ void count_even(const long long* x, int* counts, int n)
{ int i = threadIdx.x; if (i == 0) counts[0] = 0; __syncthreads(); if (i < n && x[i] % 2 == 0) atomicAdd(counts, 1); }

template <typename T, int N> __global__ void power(const T* x, T* y, int n)
{ int i = threadIdx.x; if (i < n) { T p = 1; for (int k = 0; k < N; k++) p *= x[i]; y[i] = p; } }
""", options=["-DSTEP=3"], constants={"weights": np.float32([1, 10, 100])})

COPY = Kernels("""
extern "C" __global__ void copy(const void* x, void* y, int n)
{ for (int i = threadIdx.x; i < n; i += blockDim.x) ((char*)y)[i] = ((const char*)x)[i]; }
""")


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


BOX = np.dtype([("n", "i4"), ("low", "f8", 2), ("weight", "f4")], align=True)
BOXES = """
struct Box { int n; double low[2]; float weight; };
__constant__ Box box;
static __constant__ Box more[2];
extern "C" __global__ void scaled(const double* x, double* y, int n)
{ int i = threadIdx.x; if (i < n) y[i] = box.n * x[i] + box.low[1] + more[1].weight; }
"""


def test_constants_that_are_structures(sc: SparkContext):
    box, more = np.array((3, (1.0, 2.0), 0.5), BOX)[()], np.array([(0, (0, 0), 1), (0, (0, 0), 0.25)], BOX)
    kernels = Kernels(BOXES, constants={"box": box, "more": more})
    numbers = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
    assert numbers.exec(kernels.scaled, IN, OUT, IN.shape[0], grid=1, block=32).collect() == [5.25, 8.25, 11.25]
    with pytest.raises(PlanError, match=r"structures of 32 bytes: int32 at 0, .* it is given 12 bytes"):
        Kernels(BOXES, constants={"box": np.array((1, 2.0), "i4, f8")})
    with pytest.raises(PlanError, match=r"not dict: for a structure write np.array\("):
        Kernels(BOXES, constants={"box": {"n": 1}})  # type: ignore[dict-item]


def test_fields(sc: SparkContext):
    records = [{"x": np.float32(i), "y": np.float32(2 * i), "tag": i} for i in range(5)]
    vrdd = sc.parallelize(records, 2).cache("GPU")
    summed = vrdd.exec(K.axpy, IN["x"], IN["y"], OUT["y"], 10.0, IN["x"].shape[0], grid=1, block=32)
    expected = [{"x": np.float32(i), "y": np.float32(12 * i), "tag": i} for i in range(5)]
    assert exact(summed.collect()) == exact(expected) == exact(summed.map(dict).collect())
    new = vrdd.exec(K.axpy, IN["x"], IN["y"], OUT["z"], 1.0, IN["x"].shape[0],
                    out=lambda b: {"z": (b["x"].shape, "f4")}, grid=1, block=32)
    assert exact(new.collect()) == exact([each | {"z": np.float32(3 * i)} for i, each in enumerate(records)])


def test_fields_of_blocks_in_pairs(sc: SparkContext):
    records = [("a", {"x": np.ones((2, 2), np.float32), "y": np.zeros((2, 2), np.float32)}),
               ("b", {"x": np.ones((3, 1), np.float32), "y": np.ones((3, 1), np.float32)})]
    results = sc.parallelize(records, 2).cache("GPU").exec(
        K.axpy, IN["x"], IN["y"], OUT["y"], 2.0, IN["x"].size, grid=1, block=lambda b: b["x"].size).collect()
    assert exact(results) == exact([(key, {"x": each["x"], "y": 2 * each["x"] + each["y"]}) for key, each in records])


def test_in_place_works_on_a_copy(sc: SparkContext):
    numbers = sc.parallelize(list(map(np.int32, range(6))), 2).cache("GPU")
    more = numbers.exec(K.increment, IN, IN.shape[0], grid=1, block=32)
    more = more.exec(K.increment, IN, IN.shape[0], grid=1, block=32)
    assert exact(more.collect()) == exact([np.int32(i + 6) for i in range(6)])
    assert exact(numbers.collect()) == exact([np.int32(i) for i in range(6)])


def test_a_tuple_is_a_row_and_stays_one(sc: SparkContext):
    rows = sc.parallelize([(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)], 1).cache("GPU")
    squares = rows.exec(K["power<double, 2>"], IN, OUT, IN.size, grid=1, block=32)
    assert exact(squares.collect()) == exact([(1.0, 4.0, 9.0), (16.0, 25.0, 36.0)])


def test_a_grid_of_two_dimensions_and_static_shared_memory(sc: SparkContext):
    blocks = [np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
              for rows, columns in ((3, 20), (17, 8), (1, 1))]
    turned = sc.parallelize(blocks, 2).cache("GPU").exec(
        K.transpose, IN, OUT, IN.shape[0], IN.shape[1], out=lambda b: (b.shape[::-1], b.dtype),
        grid=lambda b: (-(-b.shape[1] // 8), -(-b.shape[0] // 8)), block=(8, 8))
    assert exact(turned.collect()) == exact([np.ascontiguousarray(block.T) for block in blocks])


@pytest.mark.parametrize("shared", [64 * 8, lambda b: 64 * b.dtype.itemsize], ids=["number", "function"])
def test_dynamic_shared_memory(sc: SparkContext, shared):
    numbers = sc.parallelize([float(i) for i in range(300)], 2).cache("GPU")
    sums = numbers.exec(K.block_sums, IN, OUT, IN.shape[0], out=lambda b: ((-(-b.shape[0] // 64),), "f8"),
                        grid=lambda b: -(-b.shape[0] // 64), block=64, shared=shared)
    assert sums.count() == 6 and sums.sum() == sum(range(300))


def test_constants_and_options(sc: SparkContext):
    rows = sc.parallelize([np.float32([1, 2, 3])], 1).cache("GPU")
    assert exact(rows.exec(K.weigh, IN, OUT, IN.size, grid=1, block=3).first()) == exact(np.float32([1, 20, 300]))
    other = Kernels(K.source, ["-DSTEP=3"], constants={"weights": np.float32([0, 0, 1])})
    assert exact(rows.exec(other.weigh, IN, OUT, IN.size, grid=1, block=3).first()) == exact(np.float32([0, 0, 3]))


@pytest.mark.parametrize(("kernel", "kind"), [("power<float, 3>", np.float32), ("power<long long, 2>", np.int64)])
def test_templates(sc: SparkContext, kernel: str, kind: type):
    exponent = int(kernel[-2])
    numbers = sc.parallelize([kind(i) for i in range(5)], 2).cache("GPU")
    results = numbers.exec(K[kernel], IN, OUT, IN.shape[0], grid=1, block=32)
    assert exact(results.collect()) == exact([kind(i ** exponent) for i in range(5)])


def test_atomics_and_another_shape(sc: SparkContext):
    numbers = in_partitions(sc, [[np.int64(i) for i in range(7)], [], [np.int64(4)]]).cache("GPU")
    counts = numbers.exec(K.count_even, IN, OUT, IN.shape[0], out=((1,), "i4"), grid=1, block=32)
    assert exact(counts.glom().collect()) == exact([[np.int32(4)], [], [np.int32(1)]])
    assert counts.count() == 2 and counts.cache().count() == 2


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D", ">f4", ">i8"])
def test_dtypes_pass_through_a_kernel(sc: SparkContext, dtype: str):
    rows = [np.array([0, 1, 1], dtype), np.array([1, 0, 1], dtype)]
    copied = sc.parallelize(rows, 1).cache("GPU").exec(COPY.copy, IN, OUT, IN.size * rows[0].itemsize, grid=1, block=16)
    assert exact(copied.collect()) == exact(rows)


NUMBERS = Kernels("""
typedef struct { int n; double scale; } Par;
__global__ void par(const double* x, double* y, Par par, size_t first, long n, double add)
{ int i = threadIdx.x + first; if (i < n && i < par.n) y[i] = par.scale * x[i] + add; }
template <typename T> __global__ void add(T* x, T by, int n) { if (threadIdx.x < n) x[threadIdx.x] += by; }
""")


def test_structures_and_python_numbers_as_their_parameters_take_them(sc):
    numbers = sc.parallelize([1.0, 2.0, 3.0], 1).cache("GPU")
    for scale in (0.5, 2.0):        # the second is the first plan again, with another value
        par = np.array((3, scale), np.dtype([("n", "i4"), ("scale", "f8")], align=True))[()]
        scaled = numbers.exec(NUMBERS.par, IN, OUT, par, 0, IN.size, 0.1, grid=1, block=32)
        assert scaled.collect() == [scale * x + 0.1 for x in (1.0, 2.0, 3.0)]


def test_an_argument_that_a_templates_instance_does_not_take(sc):
    numbers = sc.parallelize([1.0, 2.0, 3.0], 1).cache("GPU")
    with pytest.raises(CompileError, match="argument 2 of add<double> is of dtype float32, which its parameter"):
        numbers.exec(NUMBERS["add<double>"], IN, 2.0, IN.size, grid=1, block=32).collect()
    added = numbers.exec(NUMBERS["add<double>"], IN, np.float64(2), IN.size, grid=1, block=32)
    assert added.collect() == [3.0, 4.0, 5.0]


COUNTS = Kernels("""
__global__ void count(const int* x, int* counts, int n)
{ for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(counts + x[i], 1); }
__global__ void part(double* x, float* y, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
""")


def test_outputs_are_filled_before_the_launch(sc):
    """Again and again, in memory that was used before."""
    blocks = [np.int32([[1, 2, 2]]), np.int32([[0, 3, 3, 3]])]
    rolls = sc.parallelize([(place, block) for place, block in enumerate(blocks)], 2).cache("GPU")
    for init in (0, 7, 0, 7, 7):
        counted = rolls.exec(COUNTS.count, IN, OUT, IN.size, out=(50_000, "i4"), init=init, grid=1, block=32)
        for block, counts in zip(blocks, counted.values().collect(), strict=True):
            assert (counts == init + np.bincount(block[0], minlength=50_000)).all()


def test_outputs_are_filled_by_field(sc):
    numbers = sc.parallelize([("a", np.float32([[1, 2]]))], 1).cache("GPU")
    filled = numbers.exec(COUNTS.part, OUT["x"], OUT["y"], 2, out={"x": (5, "f8"), "y": (3, "f4")},
                          init={"x": 0.25, "y": -1}, grid=1, block=32)
    block, = filled.values().collect()
    assert block["x"].tolist() == [1.25, 1.25, 0.25, 0.25, 0.25] and block["y"].tolist() == [-1, -1, -1]
