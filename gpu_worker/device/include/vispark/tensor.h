// Matrix work on tensor cores: rows and their other factor as products of float16.
//
// A row's float is carried as two float16, its leading 11 bits and the next 11: x = high + low to 2^-22 of x, and to
// 2^-25 where float16 is no finer. The other factor's is one.
#pragma once

#include "vispark/target.h"
#include "vispark/tensor_target.h"

namespace tensor {

__device__ __forceinline__ void split(float first, float second, unsigned& high, unsigned& low)
{
    high = pack(first, second);
    low = pack(first - first_of(high), second - second_of(high));
}

// -- products --------------------------------------------------------------------------------------------------------

// Rows of 16 numbers each as a warp's lanes hold them: lane 4 g + t has of the rows g and g + 8 four numbers. Which is
// free as long as both factors have the same: it is those of which 16 bytes at a time lie side by side in memory, for
// floats 4 t to 4 t + 3, for doubles 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
// PARTS is 2, or 1 for the leading 11 bits alone.
template <int PARTS> struct Rows {
    unsigned high[4], low[4];
    __device__ __forceinline__ Rows() {}
    __device__ __forceinline__ void set(float4 a, float4 b)
    {
        if (PARTS == 1) {
            high[0] = pack(a.x, a.y);
            high[1] = pack(b.x, b.y);
            high[2] = pack(a.z, a.w);
            high[3] = pack(b.z, b.w);
            return;
        }
        split(a.x, a.y, high[0], low[0]);
        split(b.x, b.y, high[1], low[1]);
        split(a.z, a.w, high[2], low[2]);
        split(b.z, b.w, high[3], low[3]);
    }
};

// Where of the other factor's step of 16 columns (N rows, 32 N bytes in all) the number in row `n` and column
// `c` lies, in units of 2 bytes: tiles of 8 rows by 8 columns, row by row, two tiles side by side. WIDE numbers of the
// rows it is multiplied with are 16 bytes.
template <int N, int WIDE> __device__ __forceinline__ int place_of(int n, int c)
{
    const int t = c / 4, i = c % 4, column = WIDE == 2 ? c : i < 2 ? 2 * t + i : 6 + 2 * t + i;
    return (n / 8 * 2 + column / 8) * 64 + n % 8 * 8 + column % 8;
}

}  // namespace tensor

#if VISPARK_WARPGROUPS
#include "vispark/warpgroups.h"
#else
namespace tensor {

template <int pending> __device__ __forceinline__ void end() {}
template <int N, int PARTS>
__device__ __forceinline__ void multiply(float (&acc)[N / 2], const Rows<PARTS>& rows, const unsigned char* step,
                                         bool more)
{
    const unsigned* lane = (const unsigned*)step + threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float* four = acc + 4 * j;
        if (!more) four[0] = four[1] = four[2] = four[3] = 0.0f;
        const unsigned high[2] = {lane[64 * j], lane[64 * j + 32]};
        mma(four, rows.high, high);
        if (PARTS == 2) mma(four, rows.low, high);
    }
}
// acc += 16 rows of each warp x a step of 2 * COUNT columns, whose parts lie as place_of() has them of floats, from `high` and
// `low` on: lane 4 g + t gives of the rows g and g + 8 the numbers t and t + 4.
template <int COUNT>
__device__ __forceinline__ void multiply_split(float (&acc)[COUNT], const Halves (&rows)[4], const unsigned* high,
                                               const unsigned* low)
{
    const int lane = threadIdx.x % 32;
    VISPARK_UNROLL
    for (int j = 0; j < COUNT / 4; ++j) {
        float four[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
        Halves step[2];
        VISPARK_UNROLL
        for (int i = 0; i < 2; ++i)
            step[i].high = high[64 * j + 32 * i + lane], step[i].low = low[64 * j + 32 * i + lane];
        multiply_part<0>(four, rows, step);
        multiply_part<1>(four, rows, step);
        multiply_part<2>(four, rows, step);
        VISPARK_UNROLL
        for (int e = 0; e < 4; ++e) acc[4 * j + e] = four[e];
    }
}
// The same of STEPS steps that lie STEP apart, of rows whose leading parts alone are multiplied, and lie as a step's from
// `rows` on: 64 of them, of which a warp has 16.
template <int STEPS, int STEP, int COUNT>
__device__ __forceinline__ void multiply_halved(float (&acc)[COUNT], const unsigned* rows, const unsigned* high,
                                                const unsigned* low)
{
    const int lane = threadIdx.x % 32;
    rows += threadIdx.x / 32 % 4 * 128 + lane;
    VISPARK_UNROLL
    for (int step = 0; step < STEPS; ++step) {
        Halves leading[4];
        VISPARK_UNROLL
        for (int i = 0; i < 4; ++i) leading[i].high = rows[step * STEP + i % 2 * 64 + i / 2 * 32];
        VISPARK_UNROLL
        for (int j = 0; j < COUNT / 4; ++j) {
            float four[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
            Halves both[2];
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) {
                both[i].high = high[step * STEP + 64 * j + 32 * i + lane];
                both[i].low = low[step * STEP + 64 * j + 32 * i + lane];
            }
            multiply_part<1>(four, leading, both);
            multiply_part<2>(four, leading, both);
            VISPARK_UNROLL
            for (int e = 0; e < 4; ++e) acc[4 * j + e] = four[e];
        }
    }
}
// The same of N columns in the order of a step's halves of four terms, HALF apart.
template <int N, int HALF>
__device__ __forceinline__ void multiply_parts(float (&acc)[N / 2], const Halves (&rows)[4], const unsigned* high,
                                               const unsigned* low)
{
    const int lane = threadIdx.x % 32;
    VISPARK_UNROLL
    for (int j = 0; j < N / 8; ++j) {
        float four[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
        Halves step[2];
        VISPARK_UNROLL
        for (int i = 0; i < 2; ++i)
            step[i].high = high[HALF * i + 32 * j + lane], step[i].low = low[HALF * i + 32 * j + lane];
        multiply_part<0>(four, rows, step);
        multiply_part<1>(four, rows, step);
        multiply_part<2>(four, rows, step);
        VISPARK_UNROLL
        for (int e = 0; e < 4; ++e) acc[4 * j + e] = four[e];
    }
}
__device__ __forceinline__ void publish() {}

}  // namespace tensor
#endif
