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
    unsigned short *counts, *keys, *order;
    int *starts, *sums;

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
