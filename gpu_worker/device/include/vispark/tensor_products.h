// Products of the rows of a tile with a matrix of floats on tensor cores: each float is two numbers of 11 bits, its
// leading ones and the next, of which three products are taken. The matrix, or a part of it, lies in shared memory as
// its parts, in the order in which a warp's lanes read them.
#pragma once

#include "vispark/products.h"
#include "vispark/tensor_target.h"

namespace rows {

#if !VISPARK_TF32 || VISPARK_ALONE

template <class Matrix, int ROWS, int STRIDE, int FIRST, int PITCH, int THREADS, int MOST, int HIGH, int BROAD, int READ>
struct TensorMultiply : Multiply<Matrix, ROWS, STRIDE, FIRST, PITCH, THREADS, MOST, HIGH, BROAD, READ> {};

#else

// As Multiply, whose last parameters are of no use here. A warp has 16 rows and some tiles of 8 columns. Of the terms of
// a step, which are 8, lane 4 g + t reads two of the rows g and g + 8: those numbered t and t + 4; or where rows are an
// odd number of floats apart two of the 8 terms that it reads of each 32, so that lanes meet in no bank.
template <class Matrix, int ROWS, int STRIDE, int FIRST, int PITCH, int THREADS, int MOST, int HIGH, int BROAD, int READ>
struct TensorMultiply {
    static constexpr int terms = Matrix::terms, TILES = (Matrix::width + 7) / 8, WARPS = THREADS / 32;
    static constexpr int DOWN = ROWS / 16;
    static constexpr bool ODD = STRIDE % 2 == 1 && MOST % 32 == 0, WHOLE = MOST >= terms;
    // The tiles that a warp multiplies rows with at once, by what all of its turns take: rows are split once for each.
    static __device__ constexpr int turns(int tiles)
    {
        return (DOWN * ((TILES + tiles - 1) / tiles) + WARPS - 1) / WARPS * (4 + tiles);
    }
    static __device__ constexpr int best()
    {
        int least = 1;
        for (int tiles = 2; tiles <= 4; ++tiles)
            if (turns(tiles) < turns(least)) least = tiles;
        return least;
    }
    static constexpr int AT_ONCE = best();
    static constexpr int GROUPS = (TILES + AT_ONCE - 1) / AT_ONCE, STEPS = MOST / 8, FLUSHED = 8;
    static_assert(ROWS % 16 == 0 && MOST % 8 == 0, "whole steps of whole tiles");

    // The parts of two numbers of the matrix, as a lane has them of a step.
    struct __align__(16) Parts { unsigned high[2], low[2]; };

    static __device__ __forceinline__ int term_of(int step, int t, int half)
    {
        return ODD ? step / 4 * 32 + t * 8 + step % 4 * 2 + half : step * 8 + t + half * 4;
    }

    template <class W> static __device__ __forceinline__ void bring(W* part, const Matrix matrix)
    {
        if (WHOLE) bring_from((Parts*)part, matrix, 0);
    }
    static __device__ __forceinline__ void bring_from(Parts* part, const Matrix matrix, int first)
    {
        for (int i = threadIdx.x; i < STEPS * TILES * 32; i += THREADS) {
            const int lane = i % 32, tile = i / 32 % TILES, step = i / 32 / TILES, j = tile * 8 + lane / 4;
            Parts both;
            VISPARK_UNROLL
            for (int half = 0; half < 2; ++half) {
                const int k = first + term_of(step, lane % 4, half);
                tensor::Halves one;
                one.set(k < terms && j < Matrix::width ? (float)matrix(k, j) : 0.0f);
                both.high[half] = one.high, both.low[half] = one.low;
            }
            part[i] = both;
        }
    }

    static __device__ __forceinline__ void tile(float* products, const float* rows, float* part, const Matrix matrix)
    {
        const int warp = threadIdx.x / 32;
        for (int first = 0; first < terms; first += MOST) {
            if (!WHOLE) {
                if (first) barrier();
                bring_from((Parts*)part, matrix, first);
                barrier();
            }
            VISPARK_PRAGMA(unroll 1)
            for (int item = warp; item < DOWN * GROUPS; item += WARPS)
                some(products + item % DOWN * 16 * PITCH, rows + item % DOWN * 16 * STRIDE + FIRST + first,
                     (const Parts*)part, item / DOWN * AT_ONCE, first, matrix);
        }
    }

    // The products of 16 rows with EACH tiles of columns from `tile` on, added to those of the terms before `first`.
    static __device__ __forceinline__ void some(float* products, const float* rows, const Parts* part, int tile,
                                                int first, const Matrix matrix)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        // Products of parts are added up apart, so that they need not wait for each other.
        constexpr int CHAINS = AT_ONCE < 3 ? 3 : 2;
        float near[CHAINS][AT_ONCE][4], sum[AT_ONCE][4];
        VISPARK_UNROLL
        for (int n = 0; n < AT_ONCE; ++n)
            VISPARK_UNROLL
            for (int e = 0; e < 4; ++e) {
                sum[n][e] = 0.0f;
                VISPARK_UNROLL
                for (int part = 0; part < CHAINS; ++part) near[part][n][e] = 0.0f;
            }
        const float* const upper = rows + g * STRIDE;
        const float* const lower = upper + 8 * STRIDE;
        const int steps = least((terms - first + 7) / 8, STEPS);
        VISPARK_PRAGMA(unroll 1)
        for (int begin = 0; begin < (ODD ? STEPS : steps); begin += FLUSHED) {
            VISPARK_PRAGMA(unroll 4)
            for (int step = begin; step < (begin + FLUSHED < STEPS ? begin + FLUSHED : STEPS); ++step) {
                const int here = term_of(step, t, 0), there = term_of(step, t, 1);
                const bool is_here = terms % MOST == 0 || first + here < terms;
                const bool is_there = terms % MOST == 0 || first + there < terms;
                tensor::Halves down[4];
                down[0].set(is_here ? upper[here] : 0.0f);
                down[1].set(is_here ? lower[here] : 0.0f);
                down[2].set(is_there ? upper[there] : 0.0f);
                down[3].set(is_there ? lower[there] : 0.0f);
                tensor::Halves across[AT_ONCE][2];
                VISPARK_UNROLL
                for (int n = 0; n < AT_ONCE; ++n) {
                    // Beyond the last tile a warp multiplies by it again, and leaves that.
                    const int here = TILES % AT_ONCE && tile + n >= TILES ? TILES - 1 : tile + n;
                    const Parts both = part[(step * TILES + here) * 32 + lane];
                    across[n][0].high = both.high[0], across[n][0].low = both.low[0];
                    across[n][1].high = both.high[1], across[n][1].low = both.low[1];
                }
                VISPARK_UNROLL
                for (int n = 0; n < AT_ONCE; ++n) tensor::multiply_part<0>(near[0][n], down, across[n]);
                VISPARK_UNROLL
                for (int n = 0; n < AT_ONCE; ++n) tensor::multiply_part<2>(near[CHAINS - 1][n], down, across[n]);
                VISPARK_UNROLL
                for (int n = 0; n < AT_ONCE; ++n) tensor::multiply_part<1>(near[CHAINS - 2][n], down, across[n]);
            }
            VISPARK_UNROLL
            for (int n = 0; n < AT_ONCE; ++n)
                VISPARK_UNROLL
                for (int e = 0; e < 4; ++e) {
                    float both = near[0][n][e];
                    VISPARK_UNROLL
                    for (int part = 1; part < CHAINS; ++part) both += near[part][n][e];
                    sum[n][e] += both;
                    VISPARK_UNROLL
                    for (int part = 0; part < CHAINS; ++part) near[part][n][e] = 0.0f;
                }
        }
        // Numbers that have no parts are found by their products.
        bool odd = false;
        VISPARK_UNROLL
        for (int n = 0; n < AT_ONCE; ++n)
            VISPARK_UNROLL
            for (int e = 0; e < 4; ++e) odd |= !(fabsf(sum[n][e]) < tensor::SPLIT_MOST);
        const bool plain = __any_sync(0xffffffffu, odd);
        VISPARK_UNROLL
        for (int n = 0; n < AT_ONCE; ++n)
            VISPARK_UNROLL
            for (int e = 0; e < 4; ++e) {
                const int i = g + e / 2 * 8, j = (tile + n) * 8 + t * 2 + e % 2;
                if (j >= Matrix::width) continue;
                float* const to = products + i * PITCH + j;
                if (plain) sum[n][e] = as_it_is(rows + i * STRIDE, first, j, matrix);
                *to = first ? *to + sum[n][e] : sum[n][e];
            }
    }

    // An item as a loop over the row has it, for numbers that are not finite or near to it.
    static __device__ __noinline__ float as_it_is(const float* row, int first, int j, const Matrix matrix)
    {
        float sum = 0.0f;
        VISPARK_PRAGMA(unroll 1)
        for (int k = 0; k < terms - first && k < MOST; ++k) sum += row[k] * (float)matrix(first + k, j);
        return sum;
    }
};

#endif

}  // namespace rows
