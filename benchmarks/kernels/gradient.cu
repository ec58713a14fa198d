// The gradient of logistic regression in one pass over rows of (label, D features), label -1 or 1.
//
// A few blocks of THREADS threads walk over tiles of ROWS rows. A tile comes into shared memory by asynchronous copies
// of 16 bytes, while the one before it is worked on. A thread takes a row, at a stride that is odd for even D, so that
// no two threads of a warp meet in a bank, and adds the row's gradient up in registers. Which rows a thread adds, and in
// which order, depends on the extents alone: the result is the same bits each time.
#define ROWS 128
#ifndef THREADS
#define THREADS ROWS  // a CPU, on which they take turns, does better with fewer
#endif
#define WIDTH (D + 1)
#define TILE (ROWS * WIDTH)
#define STAGES 2

#ifdef __CUDA_ON_HOST__
__device__ void copy_16(float* to, const float* from) { *(float4*)to = *(const float4*)from; }
__device__ void end_stage() {}
__device__ void wait_for_all_but_one_stage() {}
#else
__device__ __forceinline__ void copy_16(float* to, const float* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
}
__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;"); }
__device__ __forceinline__ void wait_for_all_but_one_stage() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
#endif

// Begin to copy a tile; the rows beyond the last one are left as they are.
__device__ __forceinline__ void fetch(float* to, const float* points, int tile, int n)
{
    const long long first = (long long)tile * TILE, left = (long long)n * WIDTH - first;
    const int count = (int)(left < TILE ? left : TILE);
    for (int i = threadIdx.x * 4; i + 4 <= count; i += THREADS * 4)
        copy_16(to + i, points + first + i);
    for (int i = count / 4 * 4 + threadIdx.x; i < count; i += THREADS)
        to[i] = points[first + i];
}

__device__ __forceinline__ void add_gradient(float* sums, const float* row, const float* weights)
{
    const float y = row[0];
    float margins[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < D; ++j)
        margins[j % 4] += weights[j] * row[1 + j];
    const float margin = (margins[0] + margins[1]) + (margins[2] + margins[3]);
    const float scale = (1 / (1 + expf(-y * margin)) - 1) * y;
#pragma unroll
    for (int j = 0; j < D; ++j)
        sums[j] += scale * row[1 + j];
}

// One row of `partials` for each block. Dynamic shared memory: STAGES * TILE floats. `points` is aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
gradient_partials(const float* points, float* partials, const float* w, int n)
{
    extern __shared__ __align__(16) float tiles[];
    const int count = (n + ROWS - 1) / ROWS;
    float weights[D], sums[D];
#pragma unroll
    for (int j = 0; j < D; ++j) {
        weights[j] = w[j];
        sums[j] = 0;
    }
    if (blockIdx.x < count)
        fetch(tiles, points, blockIdx.x, n);
    end_stage();
    int stage = 0;
    for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
        if (tile + gridDim.x < count)
            fetch(tiles + (stage ^ 1) * TILE, points, tile + gridDim.x, n);
        end_stage();
        wait_for_all_but_one_stage();
        __syncthreads();
        const int rows = min(ROWS, n - tile * ROWS);
        for (int i = threadIdx.x; i < rows; i += THREADS)
            add_gradient(sums, tiles + stage * TILE + i * WIDTH, weights);
        __syncthreads();
        stage ^= 1;
    }
#pragma unroll
    for (int j = 0; j < D; ++j)
        tiles[threadIdx.x * WIDTH + j] = sums[j];
    __syncthreads();
    for (int j = threadIdx.x; j < D; j += THREADS) {
        double sum = 0;
        for (int i = 0; i < THREADS; ++i)
            sum += tiles[i * WIDTH + j];
        partials[blockIdx.x * D + j] = (float)sum;
    }
}

// The sum of all rows of `partials`, in one block of D x SLICES threads.
#define SLICES 16
extern "C" __global__ void sum_partials(const float* partials, float* sum, int rows)
{
    __shared__ double slices[SLICES][D];
    double total = 0;
    for (int i = threadIdx.y; i < rows; i += SLICES)
        total += partials[i * D + threadIdx.x];
    slices[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y)
        return;
    for (int i = 1; i < SLICES; ++i)
        total += slices[i][threadIdx.x];
    sum[threadIdx.x] = (float)total;
}
