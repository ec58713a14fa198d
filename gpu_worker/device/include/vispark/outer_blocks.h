// Sums of outer products of parts of rows, of matrices larger than what a thread block's registers hold: blocks of
// 128 x 128 of the matrix, one after the other. Thread blocks that are neighbours go over the same rows at the same time,
// each for another block of the matrix, so that all but one of them find the rows in the cache; and each brings in the
// columns of its block alone.
#pragma once

#include "vispark/outer.h"
#include "vispark/tensor.h"

#if !VISPARK_ALONE

namespace rows {

// A matrix of M x N in blocks; of one that is symmetric, those on the diagonal and above it.
template <int M, int N, bool HALF> struct Blocks {
    static constexpr int SIDE = 128, DOWN = (M + SIDE - 1) / SIDE, ACROSS = (N + SIDE - 1) / SIDE;
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
// a time lie in shared memory, STAGES such tiles, and behind them the parts of three tiles' columns if PARTS.
template <class Matrix, int WIDTH, int LEFT, int RIGHT, int ROWS, int STAGES, bool PARTS> struct BlockSums {
    static constexpr int SIDE = Matrix::SIDE, THREADS = 256, STRIDE = 2 * SIDE + 4, TILE = ROWS * STRIDE;
    // Rows whose products tensor cores add up before a double takes the sum.
    static constexpr int NEAR = 128, TURNS = NEAR / ROWS;

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

    // Columns [column, column + SIDE) of some rows, as far as rows reach: a thread brings in 16 bytes of every eighth row.
    __device__ __forceinline__ void bring(float* tile, const float* from, int column, int some) const
    {
        constexpr int CHUNKS = SIDE / 4, APART = THREADS / CHUNKS;
        const int row = threadIdx.x / CHUNKS, at = threadIdx.x % CHUNKS * 4;
        if (column + at >= WIDTH) return;
        tile += row * STRIDE + at;
        from += row * WIDTH + column + at;
        if (some == ROWS && whole) {
            VISPARK_UNROLL
            for (int i = 0; i < ROWS; i += APART) copy_ahead<16>(tile + i * STRIDE, from + i * WIDTH);
            return;
        }
        VISPARK_PRAGMA(unroll 1)
        for (int i = 0; i < some - row; i += APART)
            VISPARK_PRAGMA(unroll 1)
            for (int j = 0; j < 4; ++j) copy_ahead<4>(tile + i * STRIDE + j, from + i * WIDTH + j);
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

    // By warps, each of which has 32 x 64 of the sums. Returns whether some are not finite and need care.
    __device__ __forceinline__ bool by_warps(double* partial, bool careful) const
    {
        typedef OuterSums<float, double, Matrix::TILES, THREADS, 8, 2> Sums;
        Sums sums(0, careful);
        sums.row = threadIdx.x / 64 * 32;
        sums.column = threadIdx.x / 32 % 2 * 64;
        if (alike && sums.column + 64 <= sums.row) sums.tile = -1;
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
        if (any(sums.template fail<Matrix, 0>())) return true;
        if (sums.tile < 0) return false;
        VISPARK_UNROLL
        for (int i = 0; i < Sums::HIGH; ++i)
            VISPARK_UNROLL
            for (int j = 0; j < Sums::BROAD; ++j)
                Matrix::put(partial, sums.row + Sums::down(i), sums.column + Sums::across(i, j), sums.far[i][j]);
        return false;
    }

    // By groups of four warps, each of which has 64 x 128 of the sums. All threads split a tile's columns into their
    // parts, in the order in which tensor cores read them: of 8 rows, those of even numbers before the others. They do
    // so while products of the tile before are under way, which read the parts of up to three tiles.
    static constexpr int STEPS = ROWS / 8, STEP = 8 * SIDE, PART = STEPS * STEP, SPLIT = 3;
    __device__ __forceinline__ unsigned* parts_of(int turn) const
    {
        return (unsigned*)(tiles + STAGES * TILE) + turn % SPLIT * (2 * PART);
    }
    __device__ __forceinline__ void split(int turn) const
    {
        if (turn >= turns()) return;
        const int some = least(count - (long long)turn * ROWS, ROWS);
        if (some < ROWS) {
            for (int i = some * STRIDE + threadIdx.x; i < TILE; i += THREADS) tile_of(turn)[i] = 0.0f;
            barrier();
        }
        const int column = threadIdx.x % SIDE;
        const float* const from = tile_of(turn) + (alike ? 0 : SIDE) + column;
        unsigned* const high = parts_of(turn);
        VISPARK_UNROLL
        for (int j = 0; j < STEPS; ++j) {
            const int item = threadIdx.x / SIDE + 2 * j, step = item / 2, half = item % 2;
            Pack<unsigned, 4> leading, next;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) {
                tensor::Halves one;
                one.set(from[(step * 8 + 2 * i + half) * STRIDE]);
                leading.item[i] = one.high, next.item[i] = one.low;
            }
            unsigned* const to = high + step * STEP + (column / 8 * 2 + half) * 32 + column % 8 * 4;
            *(Pack<unsigned, 4>*)to = leading;
            *(Pack<unsigned, 4>*)(to + PART) = next;
        }
        tensor::publish();
    }
    __device__ __forceinline__ bool by_groups(double* partial) const
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, mine = threadIdx.x / 32 * 16 + g;
        float near[64];
        double far[64];
        VISPARK_UNROLL
        for (int i = 0; i < 64; ++i) near[i] = 0.0f, far[i] = -0.0;
        barrier();
        for (int turn = 0; turn < STAGES - 1; ++turn) fetch(turn);
        wait_for_groups<STAGES - 2>();
        barrier();
        split(0);
        VISPARK_PRAGMA(unroll 1)
        for (int turn = 0; turn < turns(); ++turn) {
            // The next tile is there, and this one's parts are.
            wait_for_groups<STAGES - 3>();
            barrier();
            fetch(turn + STAGES - 1);
            const float* const from = tile_of(turn) + 2 * t * STRIDE + mine;
            const unsigned* const high = parts_of(turn);
            VISPARK_UNROLL
            for (int step = 0; step < STEPS; ++step) {
                // The registers of the step before the last may be used again.
                tensor::end<1>();
                tensor::Halves down[4];
                VISPARK_UNROLL
                for (int i = 0; i < 4; ++i) down[i].set(from[(step * 8 + i / 2) * STRIDE + i % 2 * 8]);
                tensor::multiply_split(near, down, high + step * STEP, high + step * STEP + PART);
                if (step == STEPS / 2 - 1) split(turn + 1);
            }
            // The groups take turns, so that one's products are under way while the other adds up.
            if ((turn + threadIdx.x / 128 * (TURNS / 2)) % TURNS == TURNS - 1) {
                tensor::end<0>();
                VISPARK_UNROLL
                for (int i = 0; i < 64; ++i) far[i] += near[i], near[i] = 0.0f;
            }
        }
        tensor::end<0>();
        wait_for_groups<0>();
        bool odd = false;
        VISPARK_UNROLL
        for (int i = 0; i < 64; ++i) {
            far[i] += near[i];
            odd |= far[i] - far[i] != 0 && Matrix::has(row + mine + i % 4 / 2 * 8, column + i / 4 * 8 + 2 * t + i % 2);
        }
        if (any(odd)) return true;
        VISPARK_UNROLL
        for (int i = 0; i < 64; ++i)
            Matrix::put(partial, row + mine + i % 4 / 2 * 8, column + i / 4 * 8 + 2 * t + i % 2, far[i]);
        return false;
    }
};

// The whole fold of rows in port PORT of PORTS: what each work leaves, in `partials`.
template <class Matrix, int WIDTH, int LEFT, int RIGHT, int ROWS, int STAGES, bool PARTS>
__device__ __forceinline__ void fold_blocks(const long long* works, void* const* ports, int width, int port,
                                            unsigned char* memory, double* partials)
{
    const Dealt dealt(Matrix::COUNT);
    VISPARK_PRAGMA(unroll 1)
    for (int item = dealt.begin(); item < dealt.end(); item += dealt.some) {
        const int number = dealt.work_of(item);
        const Work work(works, ports, width, number);
        const BlockSums<Matrix, WIDTH, LEFT, RIGHT, ROWS, STAGES, PARTS> sums(
            memory, work.of<const float>(port, WIDTH), work.count, dealt.block_of(item));
        double* const partial = partials + number * Matrix::SIZE;
        if (VISPARK_ONE_PASS && PARTS) {
            if (sums.by_groups(partial)) sums.by_warps(partial, true);
        } else if (sums.by_warps(partial, false))
            sums.by_warps(partial, true);
    }
}

}  // namespace rows

#endif
