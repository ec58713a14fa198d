// Sums of outer products of parts of rows, of matrices larger than what a thread block's registers hold: blocks of
// 128 x 128 of the matrix, one after the other. Thread blocks that are neighbours go over the same rows at the same time,
// each for another block of the matrix, so that all but one of them find the rows in the cache; and each brings in the
// columns of its block alone.
#pragma once

#include "vispark/outer.h"
#include "vispark/tensor.h"

#if !VISPARK_ALONE

namespace rows {

// Columns [column, column + SIDE) of `some` rows of WIDTH floats into a tile of ROWS, and zeros where there are no more
// rows; of columns beyond the rows nothing. Each of THREADS brings in 16 bytes of every so many rows, at once where rows
// are `whole`: they begin at 16 bytes.
template <int SIDE, int WIDTH, int ROWS, int STRIDE, int THREADS>
__device__ __forceinline__ void bring_columns(float* tile, const float* from, int column, int some, bool whole,
                                              int thread)
{
    constexpr int CHUNKS = SIDE / 4, ROWS_AT_ONCE = THREADS / CHUNKS;
    const int row = thread / CHUNKS, at = thread % CHUNKS * 4;
    if (column + at >= WIDTH) return;
    tile += row * STRIDE + at;
    from += row * WIDTH + column + at;
    if (some == ROWS && whole) {
        VISPARK_UNROLL
        for (int i = 0; i < ROWS; i += ROWS_AT_ONCE) copy_ahead<16>(tile + i * STRIDE, from + i * WIDTH);
        return;
    }
    VISPARK_PRAGMA(unroll 1)
    for (int i = 0; i < ROWS; i += ROWS_AT_ONCE)
        VISPARK_PRAGMA(unroll 1)
        for (int j = 0; j < 4; ++j)
            if (row + i < some) copy_ahead<4>(tile + i * STRIDE + j, from + i * WIDTH + j);
            else tile[i * STRIDE + j] = 0.0f;
}

// A matrix of M x N in blocks; of one that is symmetric, those on the diagonal and above it.
template <int M, int N, bool HALF, int WIDE = 128> struct Blocks {
    static constexpr int SIDE = WIDE, DOWN = (M + SIDE - 1) / SIDE, ACROSS = (N + SIDE - 1) / SIDE;
    static constexpr int COUNT = HALF ? DOWN * (DOWN + 1) / 2 : DOWN * ACROSS, TILES = 8;
    static constexpr bool SYMMETRIC = HALF;
    static constexpr long long SIZE = (long long)M * N;

    static __device__ __forceinline__ void find(int number, int& row, int& column)
    {
        int down = 0;
        for (; number >= ACROSS - (HALF ? down : 0); ++down) number -= ACROSS - (HALF ? down : 0);
        row = down * SIDE;
        column = (number + (HALF ? down : 0)) * SIDE;
    }
    static __device__ __forceinline__ bool has(int i, int j) { return i < M && j < N && !(HALF && j < i); }
    static __device__ __forceinline__ bool is_inside(int i, int j) { return i < M && j < N; }
    static __device__ __forceinline__ void put(double* partial, int i, int j, double value)
    {
        if (!has(i, j)) return;
        partial[(long long)i * N + j] = value;
        if (HALF) partial[(long long)j * N + i] = value;
    }
};

// The works of a launch, dealt to groups of as many thread blocks as the matrix has blocks. Each block of a group begins
// with another block of the matrix, and all go through the group's works together.
struct Dealt {
    const int first, some, every;
    __device__ __forceinline__ explicit Dealt(int blocks)
        : first(blockIdx.x / blocks * blocks), some(least(gridDim.x - first, blocks)), every(blocks)
    {
    }
    __device__ __forceinline__ int begin() const { return blockIdx.x - first; }
    __device__ __forceinline__ int end() const { return some * every; }
    __device__ __forceinline__ int work_of(int item) const { return first + item / every; }
    __device__ __forceinline__ int block_of(int item) const { return (item + item / every) % every; }
};

// A block of a matrix for a work's rows of WIDTH floats: the columns from LEFT on with those from RIGHT on. ROWS rows at
// a time lie in shared memory, STAGES such tiles. A warp has 32 rows of the block and 64 columns; or, where a thread has
// few registers, 8 * EIGHTS of these in each of several passes over the rows.
template <class Matrix, int WIDTH, int LEFT, int RIGHT, int ROWS, int STAGES, int EIGHTS> struct BlockSums {
    static constexpr int SIDE = Matrix::SIDE, THREADS = 256, STRIDE = 2 * SIDE + 4, TILE = ROWS * STRIDE;
    static constexpr int BYTES = STAGES * TILE * 4, PASSES = 8 / EIGHTS;

    float* const tiles;
    const float* const rows;
    const long long count;
    int row, column;
    // Whether the block is one on the diagonal, whose rows and columns are alike; and whether rows begin at 16 bytes.
    bool alike, whole;

    __device__ __forceinline__ BlockSums(unsigned char* memory, const float* rows, long long count, int number)
        : tiles((float*)memory), rows(rows), count(count)
    {
        Matrix::find(number, row, column);
        alike = Matrix::SYMMETRIC && row == column;
        whole = (unsigned long long)rows % 16 == 0;
    }

    __device__ __forceinline__ void bring(float* tile, const float* from, int column, int some) const
    {
        bring_columns<SIDE, WIDTH, ROWS, STRIDE, THREADS>(tile, from, column, some, whole, threadIdx.x);
    }
    __device__ __forceinline__ void fetch(int turn) const
    {
        const long long first = (long long)turn * ROWS;
        if (first < count) {
            const int some = least(count - first, ROWS);
            bring(tile_of(turn), rows + first * WIDTH, LEFT + row, some);
            if (!alike) bring(tile_of(turn) + SIDE, rows + first * WIDTH, RIGHT + column, some);
        }
        end_group();
    }
    __device__ __forceinline__ float* tile_of(int turn) const { return tiles + turn % STAGES * TILE; }
    __device__ __forceinline__ int turns() const { return (int)((count + ROWS - 1) / ROWS); }

    // Leaves the block's sums. Whether some of a thread's are not finite and need care.
    __device__ __forceinline__ bool by_warps(double* partial, bool careful) const
    {
        bool odd = false;
        VISPARK_PRAGMA(unroll 1)
        for (int pass = 0; pass < PASSES; ++pass) odd |= by_warps(partial, careful, pass);
        return odd;
    }
    __device__ __forceinline__ bool by_warps(double* partial, bool careful, int pass) const
    {
        typedef OuterSums<float, double, Matrix::TILES, THREADS, EIGHTS, 2> Sums;
        Sums sums(0, careful);
        sums.row = threadIdx.x / 64 * 32;
        sums.column = threadIdx.x / 32 % 2 * 64 + pass * 8 * EIGHTS;
        if (alike && sums.column + 8 * EIGHTS <= sums.row) sums.tile = -1;
        barrier();
        for (int turn = 0; turn < STAGES - 1; ++turn) fetch(turn);
        VISPARK_PRAGMA(unroll 1)
        for (int turn = 0; turn < turns(); ++turn) {
            wait_for_groups<STAGES - 2>();
            barrier();
            fetch(turn + STAGES - 1);
            const float* const tile = tile_of(turn);
            sums.template add<Matrix, 0>(tile, STRIDE, tile + (alike ? 0 : SIDE), STRIDE,
                                         least(count - (long long)turn * ROWS, ROWS));
        }
        wait_for_groups<0>();
        sums.flush();
        sums.row += row, sums.column += column;
        if (sums.tile < 0) return false;
        VISPARK_UNROLL
        for (int i = 0; i < Sums::HIGH; ++i)
            VISPARK_UNROLL
            for (int j = 0; j < Sums::BROAD; ++j)
                Matrix::put(partial, sums.row + Sums::down(i), sums.column + Sums::across(i, j), sums.far[i][j]);
        return sums.template fail<Matrix, 0>();
    }
    // The barriers of that, for others of a block.
    __device__ __forceinline__ void accompany() const
    {
        for (int turn = 0; turn < PASSES * (turns() + 1); ++turn) barrier();
    }
};

// The whole fold of rows in port PORT of PORTS: what each work leaves, in `partials`. Of a block of THREADS
// those beyond BlockSums' wait.
template <int M, int N, bool HALF, int WIDTH, int LEFT, int RIGHT, int ROWS, int STAGES, int THREADS>
__device__ __forceinline__ void fold_by_warps(const long long* works, void* const* ports, int width, int port,
                                              unsigned char* memory, double* partials)
{
    typedef Blocks<M, N, HALF> Matrix;
    typedef BlockSums<Matrix, WIDTH, LEFT, RIGHT, ROWS, STAGES, (THREADS > 256 ? 4 : 8)> Sums;
    const Dealt dealt(Matrix::COUNT);
    VISPARK_PRAGMA(unroll 1)
    for (int item = dealt.begin(); item < dealt.end(); item += dealt.some) {
        const int number = dealt.work_of(item);
        const Work work(works, ports, width, number);
        const Sums sums(memory, work.of<const float>(port, WIDTH), work.count, dealt.block_of(item));
        double* const partial = partials + number * Matrix::SIZE;
        if (threadIdx.x >= Sums::THREADS) {
            sums.accompany();
            if (any(false)) sums.accompany();
        } else if (any(sums.by_warps(partial, false)))
            sums.by_warps(partial, true);
    }
}

}  // namespace rows

#endif
