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
            for (int apart = 1; apart < 32; apart *= 2) {
                const int up = __shfl_up_sync(~0u, scan, apart);
                if (lane >= apart) scan += up;
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

// Adds rows, D apart, to the sums of their labels: the first `columns`, at most WIDTH, of those that `row_of` finds in
// the order of their labels. The first time they start the sums.
template <int K, int D, int T, int AHEAD, int WIDTH, class RowOf>
__device__ void gather(const float* x, int columns, RowOf row_of, const int* start, double* sums, bool first)
{
    constexpr int FOURS = WIDTH / 4, LANES = FOURS < T ? FOURS : T, SIDE = T / LANES;
    const int side = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (side >= SIDE) return;
    for (int k = side; k < K; k += SIDE)
        for (int four = lane; 4 * four < columns; four += LANES) {
            const float* column = x + 4 * four;
            double sum[4] = {0, 0, 0, 0};
            const int end = start[k + 1];
            for (int i = start[k]; i < end; i += AHEAD) {
                float4 row[AHEAD];
                #pragma unroll
                for (int u = 0; u < AHEAD; u++)
                    row[u] = i + u < end ? tensor::stream(column + (long long)row_of(i + u) * D)
                                         : make_float4(0, 0, 0, 0);
                #pragma unroll
                for (int apart = 1; apart < AHEAD; apart *= 2)
                    #pragma unroll
                    for (int u = 0; u < AHEAD; u += 2 * apart) {
                        row[u].x += row[u + apart].x;
                        row[u].y += row[u + apart].y;
                        row[u].z += row[u + apart].z;
                        row[u].w += row[u + apart].w;
                    }
                sum[0] += row[0].x;
                sum[1] += row[0].y;
                sum[2] += row[0].z;
                sum[3] += row[0].w;
            }
            double* out = sums + (long long)k * D + 4 * four;
            for (int i = 0; i < 4; i++) out[i] = first ? sum[i] : out[i] + sum[i];
        }
}

}  // namespace nearest
