// Products of the rows of a tile with a matrix, by all threads of a block: the matrix, or a part of it, lies in shared
// memory, and each thread has a few rows' products with a few columns in registers. Each item is added up in the order
// of the row.
#pragma once

#include "vispark/rows.h"

namespace rows {

// The matrix: item (k, j) of TERMS x WIDTH is number BASE + k * DOWN + j * ACROSS of an array of M.
template <class M, int TERMS, int WIDTH, int BASE, int DOWN, int ACROSS> struct Matrix {
    static constexpr int terms = TERMS, width = WIDTH;
    const M* from;
    __device__ __forceinline__ M operator()(int k, int j) const
    {
        return from[BASE + (long long)k * DOWN + j * ACROSS];
    }

    // Terms [first, first + MOST) as rows of WIDE numbers of type W, filled up with zeros.
    template <int MOST, int WIDE, int THREADS, class W> __device__ __forceinline__ void bring(W* part, int first) const
    {
        for (int i = threadIdx.x; i < MOST * WIDE; i += THREADS) {
            const int k = ACROSS == 1 ? i / WIDE : i % MOST, j = ACROSS == 1 ? i % WIDE : i / MOST;
            part[k * WIDE + j] = k < TERMS - first && j < WIDTH ? (W)(*this)(first + k, j) : W(0);
        }
    }
};

// ROWS rows of a tile, STRIDE apart, whose numbers from FIRST on are multiplied; the products lie PITCH apart in a tile
// of their own. Of the matrix MOST terms are in shared memory at once. A thread has HIGH rows and BROAD columns; READ
// numbers of a row are read at once.
template <class Matrix, int ROWS, int STRIDE, int FIRST, int PITCH, int THREADS, int MOST, int HIGH, int BROAD, int READ>
struct Multiply {
    static constexpr int WIDE = (Matrix::width + BROAD - 1) / BROAD * BROAD, ALONG = ROWS / HIGH;
    static constexpr bool WHOLE = MOST >= Matrix::terms;

    template <class W> static __device__ __forceinline__ void bring(W* part, const Matrix matrix)
    {
        if (WHOLE) matrix.template bring<MOST, WIDE, THREADS>(part, 0);
    }

    template <class A, class W>
    static __device__ __forceinline__ void tile(W* products, const A* rows, W* part, const Matrix matrix)
    {
        for (int first = 0; first < Matrix::terms; first += MOST) {
            if (!WHOLE) {
                if (first) barrier();
                matrix.template bring<MOST, WIDE, THREADS>(part, first);
                barrier();
            }
            const int count = least(Matrix::terms - first, MOST);
            for (int item = threadIdx.x; item < ALONG * (WIDE / BROAD); item += THREADS)
                some(products + item % ALONG * PITCH, rows + item % ALONG * STRIDE + FIRST + first, part,
                     item / ALONG * BROAD, count, first == 0);
        }
    }

    template <class A, class W>
    static __device__ __forceinline__ void some(W* products, const A* rows, const W* part, int column, int count,
                                                bool start)
    {
        typedef Pack<W, sizeof(W) * BROAD < 16 ? BROAD : 16 / sizeof(W)> Some;
        constexpr int lanes = sizeof(Some) / sizeof(W);
        W sum[HIGH][BROAD];
        VISPARK_UNROLL
        for (int r = 0; r < HIGH; ++r)
            VISPARK_UNROLL
            for (int c = 0; c < BROAD; ++c)
                sum[r][c] = start || column + c >= Matrix::width ? W(0) : products[r * ALONG * PITCH + column + c];
        VISPARK_PRAGMA(unroll 2)
        for (int k = 0; k < count; k += READ) {
            Pack<A, READ> left[HIGH];
            VISPARK_UNROLL
            for (int r = 0; r < HIGH; ++r) left[r] = *(const Pack<A, READ>*)(rows + r * ALONG * STRIDE + k);
            VISPARK_UNROLL
            for (int i = 0; i < READ; ++i) {
                Some right[BROAD / lanes];
                VISPARK_UNROLL
                for (int c = 0; c < BROAD / lanes; ++c)
                    right[c] = *(const Some*)(part + (k + i) * WIDE + column + c * lanes);
                VISPARK_UNROLL
                for (int r = 0; r < HIGH; ++r)
                    VISPARK_UNROLL
                    for (int c = 0; c < BROAD; ++c) sum[r][c] += (W)left[r].item[i] * right[c / lanes].item[c % lanes];
            }
        }
        VISPARK_UNROLL
        for (int r = 0; r < HIGH; ++r)
            VISPARK_UNROLL
            for (int c = 0; c < BROAD; ++c)
                if (column + c < Matrix::width) products[r * ALONG * PITCH + column + c] = sum[r][c];
    }
};

// The matrix as a thread that does a work alone reads it, and its product with a row.
template <class Matrix, class W> struct Turned {
    static constexpr int width = Matrix::width, terms = Matrix::terms;
    W* const part;
    __device__ explicit Turned(const Matrix matrix) : part(new W[terms * width])
    {
        for (int k = 0; k < terms; ++k)
            for (int j = 0; j < width; ++j) part[k * width + j] = (W)matrix(k, j);
    }
    Turned(const Turned&) = delete;
    __device__ ~Turned() { delete[] part; }
    template <class A> __device__ void row(W* product, const A* row) const
    {
        W sum[width];
        for (int j = 0; j < width; ++j) sum[j] = W(0);
        for (int k = 0; k < terms; ++k) {
            const W one = (W)row[k];
            VISPARK_EACH
            for (int j = 0; j < width; ++j) sum[j] += one * part[k * width + j];
        }
        for (int j = 0; j < width; ++j) product[j] = sum[j];
    }
};

}  // namespace rows
