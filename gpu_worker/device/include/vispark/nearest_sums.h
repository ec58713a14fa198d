// The rows of a chunk sorted by their labels, and the sums of each label's rows: what nearest.h does with labels.
#pragma once

#include "vispark/tensor.h"

namespace nearest {

// Numbers of rows in the order of their labels, each label's in ascending order: start[k] is where label k begins.
template <int K, int T>
__device__ void sort(const unsigned char* labels, int rows, unsigned short* order, int* places, int* start)
{
    constexpr int W = T / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int share = ((rows + W - 1) / W + 31) / 32 * 32, from = warp * share, to = min(rows, from + share);
    for (int i = threadIdx.x; i < W * K; i += T) places[i] = 0;
    __syncthreads();
    for (int i = from + lane; i < to; i += 32) atomicAdd(&places[warp * K + labels[i]], 1);
    __syncthreads();
    if (warp == 0) {
        int total = 0;
        for (int base = 0; base < K; base += 32) {
            const int k = base + lane;
            int sum = 0;
            if (k < K)
                for (int w = 0; w < W; w++) {
                    const int count = places[w * K + k];
                    places[w * K + k] = sum;
                    sum += count;
                }
            int scan = sum;
            for (int offset = 1; offset < 32; offset *= 2) {
                const int up = __shfl_up_sync(~0u, scan, offset);
                if (lane >= offset) scan += up;
            }
            if (k < K) {
                start[k] = total + scan - sum;
                for (int w = 0; w < W; w++) places[w * K + k] += total + scan - sum;
            }
            total += __shfl_sync(~0u, scan, 31);
        }
        if (lane == 0) start[K] = total;
    }
    __syncthreads();
    for (int i = from; i < to; i += 32) {
        const bool there = i + lane < to;
        const int label = there ? labels[i + lane] : -1;
        const unsigned peers = __match_any_sync(~0u, label);
        const int place = there ? places[warp * K + label] + __popc(peers & ((1u << lane) - 1)) : 0;
        __syncwarp();
        if (there) {
            order[place] = (unsigned short)(i + lane);
            if (peers >> lane == 1) places[warp * K + label] = place + 1;
        }
        __syncwarp();
    }
    __syncthreads();
}

// What sums of a type are kept in, beyond a few numbers.
template <class R> struct Sums;
template <> struct Sums<float> { typedef double type; };
template <> struct Sums<double> { typedef Twofold type; };

// Adds rows to the sums of their labels: those that `row_of` finds in the order of their labels. The first time they
// start the sums. A thread has 16 bytes of a label's rows at a time; where threads are enough for whole labels, only
// these take part.
template <int K, int D, int T, int AHEAD, class R, class RowOf>
__device__ void gather(const R* x, RowOf row_of, const int* start, typename Sums<R>::type* sums, bool first)
{
    typedef typename Sums<R>::type Sum;
    constexpr int WIDE = 16 / sizeof(R), PARTS = D / WIDE, ACTIVE = PARTS < T ? T / PARTS * PARTS : T;
    if (threadIdx.x >= ACTIVE) return;
    for (int part = threadIdx.x; part < K * PARTS; part += ACTIVE) {
        const int k = part / PARTS, column = WIDE * (part % PARTS), end = start[k + 1];
        Sum sum[WIDE];
        #pragma unroll
        for (int c = 0; c < WIDE; c++) sum[c] = 0.0;
        for (int i = start[k]; i < end; i += AHEAD) {
            R row[AHEAD][WIDE];
            #pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                #pragma unroll
                for (int c = 0; c < WIDE; c++) row[u][c] = 0;
                if (i + u < end) tensor::stream(row[u], x + column + (long long)row_of(i + u) * D);
            }
            #pragma unroll
            for (int offset = 1; offset < AHEAD; offset *= 2)
                #pragma unroll
                for (int u = 0; u < AHEAD; u += 2 * offset)
                    #pragma unroll
                    for (int c = 0; c < WIDE; c++) row[u][c] += row[u + offset][c];
            #pragma unroll
            for (int c = 0; c < WIDE; c++) sum[c] = Add::of(sum[c], Sum(row[0][c]));
        }
        Sum* const out = sums + (long long)k * D + column;
        #pragma unroll
        for (int c = 0; c < WIDE; c++) out[c] = first ? sum[c] : Add::of(out[c], sum[c]);
    }
}

// Folds `count` numbers into a cell, by a warp: a few in each lane's accumulator, and these joined in a fixed order.
template <class Fold, class Op, class A, class Item>
__device__ __forceinline__ void fold_into(A* cell, int count, Item item)
{
    constexpr int FEW = 16;
    Fold fold;
    for (int i = threadIdx.x % 32, turn = 1; i < count; i += 32, ++turn) {
        fold.take(item(i));
        if (turn % FEW == 0) fold.flush();
    }
    fold.flush();
    A value = (A)fold.value;
    for (int offset = 16; offset; offset /= 2) value = Op::of(value, rows::exchange(~0u, value, offset));
    if (threadIdx.x % 32 == 0) *cell = Op::of(*cell, value);
}

// Values of a chunk's rows, which are in order: `make(row, value)` by LANES threads, of which one stores, and
// `take(label, values, count)` by a warp, for some neighbouring rows of the label.
template <class Value, int K, int T, int LANES, class Storage, class Make, class Take>
__device__ void by_label(Storage& storage, Make make, Take take)
{
    constexpr int MOST = sizeof(storage.staged) / sizeof(Value);
    Value* const values = (Value*)storage.staged;
    for (int begin = 0, count = storage.start[K]; begin < count; begin += MOST) {
        const int some = min(MOST, count - begin);
        for (int i = threadIdx.x / LANES; i < some; i += T / LANES) make(storage.order[begin + i], values[i]);
        __syncthreads();
        for (int k = threadIdx.x / 32; k < K; k += T / 32) {
            const int from = max(storage.start[k] - begin, 0), to = min(storage.start[k + 1] - begin, some);
            if (from < to) take(k, values + from, to - from);
        }
        __syncthreads();
    }
}

}  // namespace nearest
