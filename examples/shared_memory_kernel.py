"""A hand-written CUDA kernel with tiles in shared memory: transposes of a stack of matrices, block by block.

    python examples/shared_memory_kernel.py
"""

import numpy as np
from pyspark import SparkContext

from vispark import IN, OUT, Kernels

SOURCE = """
#define TILE 32
extern "C" __global__ void transpose(const float* in, float* out, int rows, int columns)
{
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < columns && y < rows)
        tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < rows && y < columns)
        out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}
"""


def main() -> None:
    sc = SparkContext.getOrCreate()
    shapes = [(100, 60), (33, 65), (1, 7), (256, 256)]
    matrices = [np.random.default_rng(index).random(shape, np.float32) for index, shape in enumerate(shapes)]
    transpose = Kernels(SOURCE).transpose
    stack = sc.parallelize(enumerate(matrices), 2).cache("GPU")
    turned = stack.exec(transpose, IN, OUT, IN.shape[0], IN.shape[1],
                        out=lambda b: (b.shape[::-1], b.dtype),
                        grid=lambda b: (-(-b.shape[1] // 32), -(-b.shape[0] // 32)), block=(32, 32))
    for index, matrix in turned.collect():
        np.testing.assert_array_equal(matrix, matrices[index].T)
    print(f"{len(shapes)} matrices transposed; {turned.values().first().shape} is the first one's shape now")


if __name__ == "__main__":
    main()
