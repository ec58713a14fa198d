// K-means in plain CUDA: squared distances in float32, a tile of rows against all centres, then sums by label.
//
// `nearest` computes the tile of dot products as a matrix product does: chunks of 16 features of 128 rows and of all
// centres go through shared memory, and a thread holds 8 rows x K / 16 centres in registers. `accumulate` adds the rows
// of each label, 64 columns and a share of the rows to a block, by atomics in shared memory: the order of additions, and
// so the last bits, differ from run to run.
#define ROWS 128
#define DEPTH 16
#define LANE_ROWS 8
#define LANE_COLUMNS ((K + 15) / 16)

extern "C" __global__ void __launch_bounds__(256)
nearest(const float* __restrict__ points, const float* __restrict__ centers, const float* __restrict__ squares,
        int* __restrict__ labels, int n)
{
    __shared__ float x[DEPTH][ROWS + 4], c[DEPTH][16 * LANE_COLUMNS];
    __shared__ float best[16][ROWS];
    __shared__ int which[16][ROWS];
    const int group = threadIdx.x % 16, lane = threadIdx.x / 16;
    const long long first = (long long)blockIdx.x * ROWS;
    float sums[LANE_ROWS][LANE_COLUMNS] = {};
    for (int start = 0; start < D; start += DEPTH) {
        for (int i = threadIdx.x; i < ROWS * DEPTH; i += 256) {
            const int row = i / DEPTH, k = i % DEPTH;
            x[k][row] = first + row < n && start + k < D ? points[(first + row) * D + start + k] : 0;
        }
        for (int i = threadIdx.x; i < 16 * LANE_COLUMNS * DEPTH; i += 256) {
            const int center = i / DEPTH, k = i % DEPTH;
            c[k][center] = center < K && start + k < D ? centers[center * D + start + k] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            float rows[LANE_ROWS];
#pragma unroll
            for (int i = 0; i < LANE_ROWS; ++i)
                rows[i] = x[k][lane * LANE_ROWS + i];
#pragma unroll
            for (int j = 0; j < LANE_COLUMNS; ++j) {
                const float center = c[k][j * 16 + group];
#pragma unroll
                for (int i = 0; i < LANE_ROWS; ++i)
                    sums[i][j] += rows[i] * center;
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < LANE_ROWS; ++i) {
        float least = 1e38f;
        int at = 0;
        for (int j = 0; j < LANE_COLUMNS; ++j) {
            const int center = j * 16 + group;
            const float distance = center < K ? squares[center] - 2 * sums[i][j] : 2e38f;
            if (distance < least) {
                least = distance;
                at = center;
            }
        }
        best[group][lane * LANE_ROWS + i] = least;
        which[group][lane * LANE_ROWS + i] = at;
    }
    __syncthreads();
    for (int row = threadIdx.x; row < ROWS && first + row < n; row += 256) {
        float least = best[0][row];
        int at = which[0][row];
        for (int other = 1; other < 16; ++other)
            if (best[other][row] < least || (best[other][row] == least && which[other][row] < at)) {
                least = best[other][row];
                at = which[other][row];
            }
        labels[first + row] = at;
    }
}

#define COLUMNS 64
extern "C" __global__ void __launch_bounds__(256)
accumulate(const float* __restrict__ points, const int* __restrict__ labels, float* __restrict__ sums,
           int* __restrict__ counts, int n)
{
    extern __shared__ float cells[];
    const int column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS, lane = threadIdx.x / COLUMNS;
    for (int i = threadIdx.x; i < K * COLUMNS; i += 256)
        cells[i] = 0;
    __syncthreads();
    const long long share = (n + gridDim.y - 1) / gridDim.y, first = blockIdx.y * share;
    const long long last = first + share < n ? first + share : n;
    if (column < D)
        for (long long row = first + lane; row < last; row += 256 / COLUMNS) {
            atomicAdd(&cells[labels[row] * COLUMNS + threadIdx.x % COLUMNS], points[row * D + column]);
            if (column == 0)
                atomicAdd(&counts[labels[row]], 1);
        }
    __syncthreads();
    for (int i = threadIdx.x; i < K * COLUMNS; i += 256)
        if (blockIdx.x * COLUMNS + i % COLUMNS < D)
            atomicAdd(&sums[i / COLUMNS * D + blockIdx.x * COLUMNS + i % COLUMNS], cells[i]);
}
