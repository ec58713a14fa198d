// Folds by key of rows that a thread block sorts by their keys first, so that a warp folds all of a key's rows in
// registers. The order is stable, so a fold gives the same bits each time.
#pragma once

#include "vispark/rows.h"

namespace rows {

// At most MOST rows in the order of their keys below GROUPS, by all THREADS of a block. Each warp sorts a share of them;
// `counts` says how many of a key's rows a warp has, and then where its next one goes.
template <int GROUPS, int THREADS, int MOST> struct SortedRows {
    static constexpr int WARPS = THREADS / 32, OWN = (GROUPS + THREADS - 1) / THREADS, NONE = 0xffff;
    static_assert(GROUPS < NONE && MOST < NONE, "16 bits");
    // Each lies behind the one before it.
    int *starts, *sums;
    unsigned short *counts, *keys, *order;

    __device__ __forceinline__ explicit SortedRows(void* memory)
        : starts((int*)memory), sums(starts + GROUPS + 1), counts((unsigned short*)(sums + THREADS)),
          keys(counts + WARPS * GROUPS), order(keys + MOST)
    {
    }
    static constexpr int nbytes = 4 * (GROUPS + 1 + THREADS) + 2 * (WARPS * GROUPS + 2 * MOST);

    __device__ __forceinline__ void set(int row, long long key)
    {
        keys[row] = key >= 0 && key < GROUPS ? (unsigned short)key : (unsigned short)NONE;
    }

    // Calls `take(row, key, mask of the warp's rows with this key)` for a warp's share of the rows, 32 at a time.
    template <class Take> __device__ __forceinline__ void for_each(int count, Take take) const
    {
        const int share = (count + THREADS - 1) / THREADS * 32, first = threadIdx.x / 32 * share;
        for (int start = first; start < first + share; start += 32) {
            const int row = start + threadIdx.x % 32, key = row < count ? keys[row] : NONE;
            take(row, key, __match_any_sync(0xffffffffu, key));
            __syncwarp();
        }
    }

    __device__ void sort(int count)
    {
        const int warp = threadIdx.x / 32;
        unsigned short* const warp_counts = counts + warp * GROUPS;
        const unsigned before = (1u << threadIdx.x % 32) - 1;
        for (int i = threadIdx.x; i < WARPS * GROUPS; i += THREADS) counts[i] = 0;
        barrier();
        for_each(count, [&](int, int key, unsigned same) {
            if (key != NONE && !(same & before)) warp_counts[key] += __popc(same);
        });
        barrier();
        int sum = 0;
        for (int key = threadIdx.x * OWN; key < (int)(threadIdx.x + 1) * OWN && key < GROUPS; ++key)
            for (int other = 0; other < WARPS; ++other) sum += counts[other * GROUPS + key];
        sums[threadIdx.x] = sum;
        barrier();
        int place = 0;
        for (int other = 0; other < (int)threadIdx.x; ++other) place += sums[other];
        for (int key = threadIdx.x * OWN; key < (int)(threadIdx.x + 1) * OWN && key < GROUPS; ++key) {
            starts[key] = place;
            for (int other = 0; other < WARPS; ++other) {
                const int rows = counts[other * GROUPS + key];
                counts[other * GROUPS + key] = (unsigned short)place;
                place += rows;
            }
        }
        if (threadIdx.x == THREADS - 1) starts[GROUPS] = place;
        barrier();
        for_each(count, [&](int row, int key, unsigned same) {
            const int place = key != NONE ? warp_counts[key] : 0;
            __syncwarp();
            if (key == NONE) return;
            order[place + __popc(same & before)] = (unsigned short)row;
            if (!(same & before)) warp_counts[key] = (unsigned short)(place + __popc(same));
        });
        barrier();
    }
};

// Sums of the outer products of a key's rows of WIDTH floats, of M numbers of each from LEFT on with N from RIGHT on. A
// warp brings AT_ONCE rows into shared memory, number by number, as the cache gives few rows at a time; then it has several
// at once, and of each some lanes in a square, which have a part of the matrix. NEAR rows are added up in floats.
template <int M, int N, int LEFT, int RIGHT, int WIDTH> struct KeyOuter {
    static constexpr int SIDE = (M + 1) / 2 * ((N + 1) / 2) > 36 ? 4 : 2, LANES = SIDE * SIDE, ROWS = 32 / LANES;
    static constexpr int HIGH = (M + SIDE - 1) / SIDE, BROAD = (N + SIDE - 1) / SIDE, COUNT = HIGH * BROAD;
    // Of the numbers of a part those that a lane has in the end, as the rows' lanes share them.
    static constexpr int OWN = (COUNT + ROWS - 1) / ROWS, AT_ONCE = 40, NEAR = 8 * AT_ONCE;
    static constexpr int BYTES = (AT_ONCE * WIDTH * 4 + 15) / 16 * 16;

    // Adds them to what is there of earlier rows; whether some are not finite, so that cells are as before. `tile` has
    // room for the warp's rows.
    static __device__ __forceinline__ bool fails(float* tile, const float* rows, const unsigned short* order, int begin,
                                                 int end, double* cells, bool is_first)
    {
        const int lane = threadIdx.x % 32, row = lane / LANES;
        const int down = lane % LANES / SIDE * HIGH, across = lane % SIDE * BROAD;
        double far[OWN];
        VISPARK_UNROLL
        for (int i = 0; i < OWN; ++i) far[i] = -0.0;
        VISPARK_PRAGMA(unroll 1)
        for (int first = begin; first < end; first += NEAR) {
            float sums[OWN * ROWS];
            add(sums, tile, rows, order, first, least(end, first + NEAR), down, across);
            share<ROWS / 2>(sums, lane);
            VISPARK_UNROLL
            for (int i = 0; i < OWN; ++i) far[i] += sums[i];
        }
        bool odd = false;
        VISPARK_UNROLL
        for (int i = 0; i < OWN; ++i) odd |= has(row, down, across, i) && far[i] - far[i] != 0;
        if (__any_sync(0xffffffffu, odd)) return true;
        VISPARK_UNROLL
        for (int i = 0; i < OWN; ++i) {
            if (!has(row, down, across, i)) continue;
            const int at = row * OWN + i;
            double& cell = cells[(down + at / BROAD) * N + across + at % BROAD];
            cell = is_first ? far[i] : cell + far[i];
        }
        return false;
    }
    static __device__ __forceinline__ void add(float (&sums)[OWN * ROWS], float* tile, const float* rows,
                                               const unsigned short* order, int begin, int end, int down, int across)
    {
        const int lane = threadIdx.x % 32, row = lane / LANES;
        VISPARK_UNROLL
        for (int i = 0; i < OWN * ROWS; ++i) sums[i] = -0.0f;
        VISPARK_PRAGMA(unroll 1)
        for (int first = begin; first < end; first += AT_ONCE) {
            const int some = least(end - first, AT_ONCE);
            VISPARK_UNROLL
            for (int i = 0; i < (AT_ONCE * WIDTH + 31) / 32; ++i) {
                const int at = i * 32 + lane, place = at / WIDTH;
                if (place < some) copy_ahead<4>(tile + at, rows + (long long)order[first + place] * WIDTH + at % WIDTH);
            }
            end_group();
            wait_for_groups<0>();
            __syncwarp();
            VISPARK_UNROLL
            for (int i = 0; i < AT_ONCE; i += ROWS) {
                if (i + row >= some) continue;
                const float* const own = tile + (i + row) * WIDTH;
                float left[HIGH], right[BROAD];
                VISPARK_UNROLL
                for (int j = 0; j < HIGH; ++j) left[j] = down + j < M ? own[LEFT + down + j] : 0.0f;
                VISPARK_UNROLL
                for (int j = 0; j < BROAD; ++j) right[j] = across + j < N ? own[RIGHT + across + j] : 0.0f;
                VISPARK_UNROLL
                for (int j = 0; j < COUNT; ++j) sums[j] += left[j / BROAD] * right[j % BROAD];
            }
            __syncwarp();
        }
    }
    // Adds up the rows' numbers, of which each keeps a half, then a half of these.
    template <int HALF> static __device__ __forceinline__ void share(float (&sums)[OWN * ROWS], int lane)
    {
        const bool is_upper = lane & LANES * HALF;
        VISPARK_UNROLL
        for (int i = 0; i < OWN * HALF; ++i) {
            const float one = sums[i], other = sums[i + OWN * HALF];
            sums[i] = (is_upper ? other : one) + __shfl_xor_sync(0xffffffffu, is_upper ? one : other, LANES * HALF);
        }
        if constexpr (HALF > 1) share<HALF / 2>(sums, lane);
    }
    // Whether the matrix has what a lane of a row has in one of its places.
    static __device__ __forceinline__ bool has(int row, int down, int across, int i)
    {
        const int at = row * OWN + i;
        return at < COUNT && down + at / BROAD < M && across + at % BROAD < N;
    }
};

// What a warp folded of a key's rows, beside what is there of earlier rows. Column `slot * 32 + lane` of `width` is in
// accumulator `slot`.
template <class Op, int width, class A, class F>
__device__ __forceinline__ void leave_key(A* cells, F* folds, bool is_first)
{
    VISPARK_UNROLL
    for (int slot = 0; slot < (width + 31) / 32; ++slot) {
        const int column = slot * 32 + threadIdx.x % 32;
        folds[slot].flush();
        if (column >= width) continue;
        const A value = (A)folds[slot].value;
        cells[column] = is_first ? value : Op::of(cells[column], value);
    }
}

}  // namespace rows
