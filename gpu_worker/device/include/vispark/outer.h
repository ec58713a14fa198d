// Sums of outer products: what rows of two factors, a and b, add up to as a matrix of the sums of a[i] * b[j]. The rows
// of a tile lie in shared memory, and the warps of a block share the matrix: each has tiles of it in registers. Where
// these are fewer than the warps, some of them take turns at the rows. A thread that does a work alone goes over blocks
// of the matrix for some rows at a time.
#pragma once

#include "vispark/rows.h"
#include "vispark/tensor_target.h"

namespace rows {

// What products of T are summed in, some of them and all; and the rows and columns of the matrix that a thread has.
template <class T, class A> struct Summed {
    typedef A Near;
    static constexpr int high = 4, broad = 4;
    static constexpr bool flushes = false, tensor = false;
    static __device__ __forceinline__ A product(T a, T b) { return (A)(T)(a * b); }
};
template <class A> struct Summed<float, A> {
    typedef float Near;
    static constexpr int high = 8, broad = 8;
    static constexpr bool flushes = true, tensor = true;
    static __device__ __forceinline__ float product(float a, float b) { return a * b; }
};
template <class A> struct Summed<double, A> {
    typedef double Near;
    static constexpr int high = 4, broad = 4;
    static constexpr bool flushes = true, tensor = false;
    static __device__ __forceinline__ double product(double a, double b) { return a * b; }
};

#if VISPARK_ALONE

// The rows of a factor that wait for being multiplied, filled up with zeros.
template <class T, int count, int most> struct Factor {
    static constexpr int stride = (count + 31) / 32 * 32;
    T* const rows;
    __device__ Factor() : rows(new T[most * stride]()) {}
    Factor(const Factor&) = delete;
    __device__ ~Factor() { delete[] rows; }
};

// A block of 4 x W sums over some rows.
template <class T, class A, int W> struct SumBlock {
    typename Summed<T, A>::Near sum[4][W];
    __device__ __forceinline__ void take(const T* left, int left_stride, const T* right, int right_stride, int count)
    {
        for (int r = 0; r < 4; ++r)
            for (int c = 0; c < W; ++c) sum[r][c] = 0;
        for (int k = 0; k < count; ++k)
            for (int r = 0; r < 4; ++r) {
                VISPARK_EACH
                for (int c = 0; c < W; ++c)
                    sum[r][c] += Summed<T, A>::product(left[k * left_stride + r], right[k * right_stride + c]);
            }
    }
    __device__ __forceinline__ A of(int r, int c) const { return (A)sum[r][c]; }
};
// Of floats, by the compiler's vectors.
template <class T, int W> struct VectorBlock {
    typedef T Vector __attribute__((vector_size(W * sizeof(T)), aligned(sizeof(T)), may_alias));
    Vector sum[4];
    __device__ __forceinline__ void take(const T* left, int left_stride, const T* right, int right_stride, int count)
    {
        Vector one = {}, two = {}, three = {}, four = {};
        for (int k = 0; k < count; ++k) {
            const Vector b = *(const Vector*)(right + (long long)k * right_stride);
            const T* a = left + (long long)k * left_stride;
            one += a[0] * b, two += a[1] * b, three += a[2] * b, four += a[3] * b;
        }
        sum[0] = one, sum[1] = two, sum[2] = three, sum[3] = four;
    }
};
template <class A, int W> struct SumBlock<float, A, W> : VectorBlock<float, W> {
    __device__ __forceinline__ A of(int r, int c) const { return (A)this->sum[r][c]; }
};
template <class A, int W> struct SumBlock<double, A, W> : VectorBlock<double, W> {
    __device__ __forceinline__ A of(int r, int c) const { return (A)this->sum[r][c]; }
};

// The matrix as a thread that does a work alone adds it up, where the work's sums are to be left.
template <class T, class A, int M, int N, bool HALF> struct OuterAlone {
    static constexpr int W = 64 / sizeof(T) < 8 ? 8 : 64 / sizeof(T) > 16 ? 16 : 64 / sizeof(T), NEAR = 32;
    A* const partial;
    __device__ explicit OuterAlone(A* partials) : partial(partials + (long long)blockIdx.x * M * N)
    {
        for (long long i = 0; i < (long long)M * N; ++i) partial[i] = Add::template identity<A>();
    }
    __device__ void add(const T* left, int left_stride, const T* right, int right_stride, int count)
    {
        for (int column = 0; column < N; column += W)
            for (int row = 0; row < M && (!HALF || row < column + W); row += 4)
                for (int first = 0; first < count; first += NEAR) {
                    SumBlock<T, A, W> block;
                    block.take(left + (long long)first * left_stride + row, left_stride,
                               right + (long long)first * right_stride + column, right_stride,
                               count - first < NEAR ? count - first : NEAR);
                    const int high = M - row < 4 ? M - row : 4, broad = N - column < W ? N - column : W;
                    for (int r = 0; r < high; ++r) {
                        A* const to = partial + (long long)(row + r) * N + column;
                        for (int c = 0; c < broad; ++c) to[c] = Add::of(to[c], block.of(r, c));
                    }
                }
    }
    __device__ void leave()
    {
        if (HALF)
            for (int i = 0; i < M; ++i)
                for (int j = 0; j < i; ++j) partial[(long long)i * N + j] = partial[(long long)j * N + i];
    }
};

#else

// Zeros for a tile of a factor, whose rows end before the last number of the warps' tiles.
template <int size, int threads, class T> __device__ __forceinline__ void clear_tile(T* tile)
{
    for (int i = threadIdx.x; i < size; i += threads) tile[i] = T(0);
}

// A matrix that the warps of a block share: a warp has a tile of DOWN x ACROSS numbers of it. Of one that is symmetric
// HALF the tiles are enough. Where tensor cores multiply, a tile has 8 * EIGHTS columns.
template <class T, class A, int M, int N, bool HALF, int EIGHTS> struct Outer {
    static constexpr int BROAD = VISPARK_TF32 && Summed<T, A>::tensor ? EIGHTS : Summed<T, A>::broad;
    static constexpr int DOWN = 4 * Summed<T, A>::high, ACROSS = 8 * BROAD;
    static constexpr int ROWS = (M + DOWN - 1) / DOWN, COLUMNS = (N + ACROSS - 1) / ACROSS;
    static __device__ constexpr int first_of(int row) { return HALF ? row * DOWN / ACROSS : 0; }
    static __device__ constexpr int tiles()
    {
        int count = 0;
        for (int row = 0; row < ROWS; ++row) count += COLUMNS - first_of(row);
        return count;
    }
    static constexpr int TILES = tiles();
    static constexpr long long SIZE = (long long)M * N;

    static __device__ __forceinline__ void find(int tile, int& row, int& column)
    {
        int down = 0;
        while (down < ROWS - 1 && tile >= COLUMNS - first_of(down)) tile -= COLUMNS - first_of(down++);
        row = down * DOWN;
        column = (first_of(down) + tile) * ACROSS;
    }
    static __device__ __forceinline__ bool has(int i, int j) { return i < M && j < N && !(HALF && j < i); }
    static __device__ __forceinline__ void put(A* partial, int i, int j, A value)
    {
        if (!has(i, j)) return;
        partial[(long long)i * N + j] = value;
        if (HALF) partial[(long long)j * N + i] = value;
    }
};

// The sums that a warp has of one tile, of all matrices' TILES together: of the first WARPS of them in the first pass
// over the rows, and so on. Where there are fewer, warps of several groups take turns at the rows. A warp has 4 x 8
// threads. No matrix has more than 8 * EIGHTS columns in a tile. Lanes that are neighbours read rows that are SPREAD
// apart, so that they meet in no bank of shared memory.
template <class T, class A, int TILES, int THREADS, int EIGHTS, int SPREAD> struct OuterSums {
    typedef typename Summed<T, A>::Near Near;

    // Whether tensor cores multiply: rows in steps of 8, of which lane 4 g + t reads those numbered t and t + 4; or, of
    // the 4 * SPREAD rows of some steps, two of those from t * SPREAD on.
    static constexpr bool FLOATS = sizeof(T) == 4 && Summed<T, A>::flushes, TENSOR = VISPARK_TF32 && FLOATS;
    static constexpr int HIGH = Summed<T, A>::high, BROAD = TENSOR ? EIGHTS : Summed<T, A>::broad;
    static constexpr int WARPS = THREADS / 32, NEAR = 32;
    static constexpr int GROUPS = TILES < WARPS ? WARPS / TILES : 1, PASSES = (TILES + WARPS - 1) / WARPS;
    static constexpr int STEP = TENSOR ? 8 : 1, FLUSHED = TENSOR ? 16 : NEAR;

    Near near[HIGH][BROAD];
    A far[HIGH][BROAD];
    int group, tile, row, column, taken;
    // Whether numbers are looked at before tensor cores multiply them.
    const bool careful;

    // Where number (i, j) of a thread lies in the warp's tile.
    static __device__ __forceinline__ int down(int i)
    {
        const int lane = threadIdx.x % 32;
        return TENSOR ? i / 4 * 16 + i % 4 / 2 * 8 + lane / 4 : i / 4 * 16 + i % 4 + lane / 8 * 4;
    }
    static __device__ __forceinline__ int across(int i, int j)
    {
        const int lane = threadIdx.x % 32;
        return TENSOR ? j * 8 + lane % 4 * 2 + i % 2 : j / 4 * 32 + j % 4 + lane % 8 * 4;
    }

    __device__ __forceinline__ OuterSums(int pass, bool careful)
        : row(0), column(0), taken(0), careful(careful)
    {
        const int warp = threadIdx.x / 32;
        tile = GROUPS > 1 ? warp % TILES : pass * WARPS + warp;
        group = GROUPS > 1 ? warp / TILES : 0;
        if (group >= GROUPS || tile >= TILES) group = -1, tile = -1;
        VISPARK_UNROLL
        for (int i = 0; i < HIGH; ++i)
            VISPARK_UNROLL
            for (int j = 0; j < BROAD; ++j) near[i][j] = (Near)(-0.0), far[i][j] = Add::template identity<A>();
    }

    // Whether the warp's tile is one of a matrix, whose tiles are from FIRST on.
    template <class Matrix, int FIRST> __device__ __forceinline__ bool is_of() const
    {
        return tile >= FIRST && tile < FIRST + Matrix::TILES;
    }
    template <class Matrix, int FIRST> __device__ __forceinline__ void place()
    {
        if (is_of<Matrix, FIRST>()) Matrix::find(tile - FIRST, row, column);
    }

    __device__ __forceinline__ void flush()
    {
        taken = 0;
        if (!Summed<T, A>::flushes) return;
        VISPARK_UNROLL
        for (int i = 0; i < HIGH; ++i)
            VISPARK_UNROLL
            for (int j = 0; j < BROAD; ++j) far[i][j] = Add::of(far[i][j], (A)near[i][j]), near[i][j] = (Near)(-0.0);
    }

    // The products of `count` rows of a tile. Of each 4 rows and columns of the warp's a thread has some side by side.
    template <class Matrix, int FIRST>
    __device__ __forceinline__ void add(const T* left, int left_stride, const T* right, int right_stride, int count)
    {
        if (!is_of<Matrix, FIRST>()) return;
        left += row;
        right += column;
        if constexpr (TENSOR) {
            if (careful || count % (STEP * TOGETHER))
                add_steps(left, left_stride, right, right_stride, count);
            else
                add_whole_steps(left, left_stride, right, right_stride, count);
        } else
            add_rows(left, left_stride, right, right_stride, count);
    }
    __device__ __forceinline__ void add_rows(const T* left, int left_stride, const T* right, int right_stride,
                                             int count)
    {
        const int lane = threadIdx.x % 32;
        left += lane / 8 * 4;
        right += lane % 8 * 4;
        VISPARK_PRAGMA(unroll 2)
        for (int k = group; k < count; k += GROUPS) {
            Pack<T, 4> a[HIGH / 4], b[BROAD / 4];
            VISPARK_UNROLL
            for (int i = 0; i < HIGH / 4; ++i) read(a[i], left + k * left_stride + i * 16);
            VISPARK_UNROLL
            for (int j = 0; j < BROAD / 4; ++j) read(b[j], right + k * right_stride + j * 32);
            VISPARK_UNROLL
            for (int i = 0; i < HIGH; ++i)
                VISPARK_UNROLL
                for (int j = 0; j < BROAD; ++j)
                    (Summed<T, A>::flushes ? near[i][j] : *(Near*)&far[i][j]) +=
                        Summed<T, A>::product(a[i / 4].item[i % 4], b[j / 4].item[j % 4]);
            if (++taken == FLUSHED) flush();
        }
    }

    // Floats may be parts of rows, and start anywhere.
    static __device__ __forceinline__ void read(Pack<T, 4>& some, const T* from)
    {
        if (!FLOATS) some = *(const Pack<T, 4>*)from;
        else VISPARK_UNROLL for (int i = 0; i < 4; ++i) some.item[i] = from[i];
    }

    // By tensor cores: each float is two numbers of 11 bits, its leading ones and the next, of which three products are
    // taken. Sums with numbers that have no such parts, as they are not finite, are not finite.
    static constexpr int TOGETHER = SPREAD > 1 ? SPREAD / 2 : 1, SECOND = SPREAD > 1 ? 1 : 4;
    __device__ __forceinline__ void add_whole_steps(const float* left, int left_stride, const float* right,
                                                    int right_stride, int count)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, steps = count / STEP;
        VISPARK_PRAGMA(unroll 1)
        for (int step = group; step < steps; step += GROUPS) {
            const int k = step / TOGETHER * TOGETHER * STEP + t * SPREAD + step % TOGETHER * 2;
            const float* const a = left + k * left_stride + g;
            const float* const b = right + k * right_stride + g;
            const int a_next = SECOND * left_stride, b_next = SECOND * right_stride;
            tensor::Halves down[2][4];
            VISPARK_UNROLL
            for (int m = 0; m < 2; ++m) {
                down[m][0].set(a[m * 16]);
                down[m][1].set(a[m * 16 + 8]);
                down[m][2].set(a[a_next + m * 16]);
                down[m][3].set(a[a_next + m * 16 + 8]);
            }
            VISPARK_UNROLL
            for (int n = 0; n < BROAD; n += TWO) {
                tensor::Halves across[TWO][2];
                VISPARK_UNROLL
                for (int i = 0; i < TWO && n + i < BROAD; ++i) {
                    across[i][0].set(b[(n + i) * 8]);
                    across[i][1].set(b[b_next + (n + i) * 8]);
                }
                multiply(down, across, n);
            }
            if (++taken == FLUSHED) flush();
        }
    }
    // Columns that are multiplied together, as a product waits for the one before it that is added to the same numbers.
    static constexpr int TWO = BROAD == 3 ? 3 : 2;
    template <int WIDE>
    __device__ __forceinline__ void multiply(const tensor::Halves (&down)[2][4], const tensor::Halves (&across)[WIDE][2],
                                             int n)
    {
        multiply_part<0>(down, across, n);
        multiply_part<1>(down, across, n);
        multiply_part<2>(down, across, n);
    }
    template <int PART, int WIDE>
    __device__ __forceinline__ void multiply_part(const tensor::Halves (&down)[2][4],
                                                  const tensor::Halves (&across)[WIDE][2], int n)
    {
        VISPARK_UNROLL
        for (int i = 0; i < WIDE && n + i < BROAD; ++i)
            VISPARK_UNROLL
            for (int m = 0; m < 2; ++m) {
                float sum[4] = {near[m * 4][n + i], near[m * 4 + 1][n + i], near[m * 4 + 2][n + i],
                                near[m * 4 + 3][n + i]};
                tensor::multiply_part<PART>(sum, down[m], across[i]);
                VISPARK_UNROLL
                for (int e = 0; e < 4; ++e) near[m * 4 + e][n + i] = sum[e];
            }
    }

    // Whether sums of a matrix that were taken without care are not finite: then the rows are gone over once more, with
    // care.
    template <class Matrix, int FIRST> __device__ __forceinline__ bool fail() const
    {
        bool odd = false;
        if constexpr (TENSOR) {
            VISPARK_UNROLL
            for (int i = 0; i < HIGH; ++i)
                VISPARK_UNROLL
                for (int j = 0; j < BROAD; ++j)
                    odd |= far[i][j] - far[i][j] != 0 && Matrix::has(row + down(i), column + across(i, j));
            odd &= !careful && is_of<Matrix, FIRST>();
        }
        return odd;
    }

    // With care: steps with numbers that have no parts are multiplied as they are.
    __device__ __forceinline__ void add_steps(const float* left, int left_stride, const float* right, int right_stride,
                                              int count)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const int steps = (count + 8 * TOGETHER - 1) / (8 * TOGETHER) * TOGETHER;
        for (int step = group; step < steps; step += GROUPS) {
            const int start = step / TOGETHER * TOGETHER * 8;
            const int k = start + t * SPREAD + step % TOGETHER * 2;
            const bool here = k < count, there = k + SECOND < count;
            const float* const a = left + k * left_stride + g;
            const float* const b = right + k * right_stride + g;
            const int a_next = SECOND * left_stride, b_next = SECOND * right_stride;
            tensor::Halves down[2][4];
            bool odd = false;
            VISPARK_UNROLL
            for (int m = 0; m < 2; ++m) {
                const float some[4] = {here ? a[m * 16] : 0.0f, here ? a[m * 16 + 8] : 0.0f,
                                       there ? a[a_next + m * 16] : 0.0f, there ? a[a_next + m * 16 + 8] : 0.0f};
                VISPARK_UNROLL
                for (int i = 0; i < 4; ++i) odd |= !(fabsf(some[i]) < tensor::SPLIT_MOST), down[m][i].set(some[i]);
            }
            VISPARK_UNROLL
            for (int n = 0; n < BROAD; ++n) {
                const float one = here ? b[n * 8] : 0.0f, other = there ? b[b_next + n * 8] : 0.0f;
                odd |= !(fabsf(one) < tensor::SPLIT_MOST && fabsf(other) < tensor::SPLIT_MOST);
            }
            if (__any_sync(0xffffffffu, odd)) {
                // The rows of the step, two by two of those that lanes t read.
                VISPARK_PRAGMA(unroll 1)
                for (int row = 0; row < STEP; ++row) {
                    const int one = start + row / 2 * SPREAD + step % TOGETHER * 2 + row % 2;
                    const int at = SPREAD > 1 ? one : start + row;
                    if (at < count) add_as_it_is(left + at * left_stride, right + at * right_stride);
                }
            } else {
                VISPARK_UNROLL
                for (int n = 0; n < BROAD; ++n) {
                    tensor::Halves across[1][2];
                    across[0][0].set(here ? b[n * 8] : 0.0f);
                    across[0][1].set(there ? b[b_next + n * 8] : 0.0f);
                    multiply(down, across, n);
                }
            }
            if (++taken == FLUSHED) flush();
        }
    }
    __device__ __forceinline__ void add_as_it_is(const float* left, const float* right)
    {
        VISPARK_UNROLL
        for (int i = 0; i < HIGH; ++i)
            VISPARK_UNROLL
            for (int j = 0; j < BROAD; ++j) near[i][j] += left[down(i)] * right[across(i, j)];
    }

    // All groups' sums become the last one's, in their order; `memory` has room for those of all tiles.
    __device__ __forceinline__ void join(A* memory)
    {
        flush();
        for (int turn = 0; GROUPS > 1 && turn < GROUPS; ++turn) {
            barrier();
            if (group != turn) continue;
            VISPARK_UNROLL
            for (int i = 0; i < HIGH; ++i)
                VISPARK_UNROLL
                for (int j = 0; j < BROAD; ++j) {
                    A* const kept = memory + ((tile * HIGH + i) * BROAD + j) * 32 + threadIdx.x % 32;
                    if (turn) far[i][j] = Add::of(*kept, far[i][j]);
                    if (turn < GROUPS - 1) *kept = far[i][j];
                }
        }
        barrier();
    }

    // The work's sums.
    template <class Matrix, int FIRST> __device__ __forceinline__ void leave(A* partials) const
    {
        if (!is_of<Matrix, FIRST>() || group != GROUPS - 1) return;
        A* const partial = partials + blockIdx.x * Matrix::SIZE;
        VISPARK_UNROLL
        for (int i = 0; i < HIGH; ++i)
            VISPARK_UNROLL
            for (int j = 0; j < BROAD; ++j) Matrix::put(partial, row + down(i), column + across(i, j), far[i][j]);
    }
};

#endif

}  // namespace rows
