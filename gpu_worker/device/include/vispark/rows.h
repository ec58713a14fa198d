// What the kernels that the translator makes of functions of rows have in common: rows on their way through shared
// memory, the lanes that share a row, and accumulators that are joined in a fixed order.
//
// L neighbouring threads, the lanes of a row, work on one row together; L is a power of two up to a warp's 32.
#pragma once

#include "vispark/fold.h"
#include "vispark/target.h"

namespace rows {

__device__ __forceinline__ void barrier() { __syncthreads(); }

// Whether something holds for a thread of the block; all of them ask.
__device__ __forceinline__ bool any(bool here) { return __syncthreads_or(here); }

__device__ __forceinline__ int least(long long a, int b) { return a < b ? (int)a : b; }

// One work of a table launch: some rows of one block, whose arrays are the entry's ports.
struct Work {
    void* const* ports;
    long long first, count;
    __device__ __forceinline__ Work(const long long* works, void* const* ports, int width, unsigned number)
        : ports(ports + works[3ll * number] * width), first(works[3ll * number + 1]), count(works[3ll * number + 2])
    {
    }
    __device__ __forceinline__ Work(const long long* works, void* const* ports, int width)
        : Work(works, ports, width, blockIdx.x)
    {
    }
    // The first of the work's rows in an array whose rows have `width` numbers.
    template <class T> __device__ __forceinline__ T* of(int port, int width) const
    {
        return (T*)ports[port] + first * width;
    }
};

// -- copies ----------------------------------------------------------------------------------------------------------

using vispark::Chunk;
using vispark::copy_ahead;
using vispark::end_group;
using vispark::wait_for_groups;

// Where a byte of flat rows lies in a tile whose rows have `width` and are `stride` apart; both in bytes. Padded rows
// are whole multiples of 16 bytes.
template <int width, int stride> __device__ __forceinline__ int in_tile(int byte)
{
    return stride == width ? byte : byte + byte / width * (stride - width);
}

// Rows [first, first + most) of `all` from memory to a tile, flat and 16 bytes at a time, by all `threads` of the block.
// `width` and `stride` are in numbers. Rows that do not start at 16 bytes come number by number.
template <int width, int stride, int threads, class T>
__device__ __forceinline__ void fetch(T* tile, const T* from, long long first, long long all, int most)
{
    constexpr int W = width * sizeof(T), S = stride * sizeof(T);
    if (first >= all) return;
    const int count = least(all - first, most), bytes = count * W;
    from += first * width;
    int done = 0;
    if ((unsigned long long)from % 16 == 0) {
        done = bytes / 16 * 16;
        for (int i = threadIdx.x * 16; i < done; i += threads * 16)
            copy_ahead<16>((char*)tile + in_tile<W, S>(i), (const char*)from + i);
    }
    for (int i = done / (int)sizeof(T) + threadIdx.x; i < count * width; i += threads) {
        T* to = (T*)((char*)tile + in_tile<W, S>(i * (int)sizeof(T)));
        if (sizeof(T) == 4 || sizeof(T) == 8)
            copy_ahead<sizeof(T) == 8 ? 8 : 4>(to, from + i);
        else
            *to = from[i];
    }
}

// Rows from a tile to memory.
template <int width, int stride, int threads, class T>
__device__ __forceinline__ void give(T* to, const T* tile, int count)
{
    constexpr int W = width * sizeof(T), S = stride * sizeof(T);
    const int bytes = count * W;
    int done = 0;
    if ((unsigned long long)to % 16 == 0) {
        done = bytes / 16 * 16;
        for (int i = threadIdx.x * 16; i < done; i += threads * 16)
            *(Chunk<16>*)((char*)to + i) = *(const Chunk<16>*)((const char*)tile + in_tile<W, S>(i));
    }
    for (int i = done / (int)sizeof(T) + threadIdx.x; i < count * width; i += threads)
        to[i] = *(const T*)((const char*)tile + in_tile<W, S>(i * (int)sizeof(T)));
}

// Some neighbouring numbers, which are read and written at once.
template <class T, int n> struct __align__(sizeof(T) * n > 16 ? 16 : sizeof(T) * n) Pack { T item[n]; };

// -- lanes -----------------------------------------------------------------------------------------------------------

// The lanes of one's own row, as shuffles want them.
template <int L> __device__ __forceinline__ unsigned row_mask()
{
    return L == 32 ? 0xffffffffu : ((1u << (L % 32)) - 1) << (threadIdx.x % 32 & ~(L - 1));
}

// What the lane `apart` from one's own has; all lanes of the mask ask.
template <class T> __device__ __forceinline__ T exchange(unsigned mask, T value, int offset)
{
    constexpr int words = (sizeof(T) + 3) / 4;
    int word[words] = {};
    memcpy(word, &value, sizeof(T));
    for (int i = 0; i < words; ++i) word[i] = __shfl_xor_sync(mask, word[i], offset);
    memcpy(&value, word, sizeof(T));
    return value;
}

// What lanes of a row wrote to shared memory is seen by the others.
template <int L> __device__ __forceinline__ void settle()
{
    if (L > 1) __syncwarp(row_mask<L>());
}

// -- folds -----------------------------------------------------------------------------------------------------------

// An accumulator of one thread. What of a number is folded is `Of`; see fold.h.
template <class Op, class Of, class T, class A> struct Fold {
    A value;
    __device__ __forceinline__ Fold() : value(Op::template identity<A>()) {}
    __device__ __forceinline__ void take(T one) { value = Op::of(value, Of::template of<A>(one)); }
    __device__ __forceinline__ void flush() {}
};
// Sums of floats: a few in float, and these in double.
template <> struct Fold<Add, Value, float, double> {
    float near;
    double value;
    __device__ __forceinline__ Fold() : near(-0.0f), value(-0.0) {}
    __device__ __forceinline__ void take(float one) { near += one; }
    __device__ __forceinline__ void flush()
    {
        value += near;
        near = -0.0f;
    }
};
// Extremes of floats need no wider type.
template <class Op> struct FloatExtreme {
    float value;
    __device__ __forceinline__ FloatExtreme() : value((float)Op::template identity<double>()) {}
    __device__ __forceinline__ void take(float one) { value = Op::of(value, one); }
    __device__ __forceinline__ void flush() {}
};
template <> struct Fold<Minimum, Value, float, double> : FloatExtreme<Minimum> {};
template <> struct Fold<Maximum, Value, float, double> : FloatExtreme<Maximum> {};

// A block's accumulators become one partial of `width`, in the same order each time. Column `slot * L + lane` is in
// accumulator `slot` of the lanes numbered `lane`. `memory` holds an accumulator for each warp and column, if there are
// several warps.
template <int L, int width, int threads, class Op, class A, class F>
__device__ __forceinline__ void leave(A* partial, A* memory, F* folds)
{
    constexpr int slots = (width + L - 1) / L, warps = (threads + 31) / 32;
    const int lane = threadIdx.x % L, warp = threadIdx.x / 32;
    barrier();
    VISPARK_UNROLL_SOME(slots <= 64 ? slots : 1)
    for (int slot = 0; slot < slots; ++slot) {
        folds[slot].flush();
        A value = (A)folds[slot].value;
        for (int offset = (threads < 32 ? threads : 32) / 2; offset >= L; offset /= 2)
            value = Op::of(value, exchange(0xffffffffu, value, offset));
        const int column = slot * L + lane;
        if (threadIdx.x % 32 >= L || column >= width) continue;
        if (warps == 1)
            partial[(long long)blockIdx.x * width + column] = value;
        else
            memory[warp * width + column] = value;
    }
    if (warps == 1) return;
    barrier();
    for (int column = threadIdx.x; column < width; column += threads) {
        A value = memory[column];
        for (int other = 1; other < warps; ++other) value = Op::of(value, memory[other * width + column]);
        partial[(long long)blockIdx.x * width + column] = value;
    }
}

// Accumulators of a thread that does a work alone, side by side as vectors want them.
template <class Op, class Of, class T, class A, int width> struct Columns {
    A value[width];
    __device__ Columns()
    {
        for (int j = 0; j < width; ++j) value[j] = Op::template identity<A>();
    }
    __device__ void take(const T* row, int count = width)
    {
        VISPARK_EACH
        for (int j = 0; j < count; ++j) value[j] = Op::of(value[j], Of::template of<A>(row[j]));
    }
    __device__ void flush() {}
    __device__ A column(int j) const { return value[j]; }
};
template <int width> struct Columns<Add, Value, float, double, width> {
    float near[width];
    double value[width];
    __device__ Columns()
    {
        for (int j = 0; j < width; ++j) near[j] = -0.0f, value[j] = -0.0;
    }
    __device__ void take(const float* row, int count = width)
    {
        VISPARK_EACH
        for (int j = 0; j < count; ++j) near[j] += row[j];
    }
    __device__ void flush()
    {
        VISPARK_EACH
        for (int j = 0; j < width; ++j) value[j] += near[j], near[j] = -0.0f;
    }
    __device__ double column(int j) const { return value[j]; }
};
template <class T, int width> struct Columns<Add, Value, T, Twofold, width> {
    double sum[width], lost[width];
    __device__ Columns()
    {
        for (int j = 0; j < width; ++j) sum[j] = -0.0, lost[j] = 0.0;
    }
    __device__ void take(const T* row, int count = width)
    {
        VISPARK_EACH
        for (int j = 0; j < count; ++j) {
            const Twofold both = Add::of(Twofold(sum[j], lost[j]), Twofold((double)row[j]));
            sum[j] = both.sum, lost[j] = both.lost;
        }
    }
    __device__ void flush() {}
    __device__ Twofold column(int j) const { return Twofold(sum[j], lost[j]); }
};

// What such a thread leaves of a work: its columns, or all of them joined where a record has one number.
template <class Op, int width, class A, class Of, class T, class B, int all>
__device__ void leave_alone(A* partial, Columns<Op, Of, T, B, all>& columns)
{
    columns.flush();
    A* const own = partial + (long long)blockIdx.x * width;
    for (int j = 0; j < all; ++j)
        own[j < width ? j : 0] = j < width ? (A)columns.column(j) : Op::of(own[0], (A)columns.column(j));
}

// -- folds by key ----------------------------------------------------------------------------------------------------

// A key as a signed number; one that is too great for it is out of any range all the same.
template <class K> __device__ __forceinline__ long long key_of(K key)
{
    const unsigned long long top = 0x7fffffffffffffffull;
    return K(-1) > K(0) && sizeof(K) == 8 && (unsigned long long)key > top ? (long long)top : (long long)key;
}

// A warp's cells before the first record.
template <class Op, int width, class A> __device__ __forceinline__ void clear(A* cells)
{
    for (int i = threadIdx.x % 32; i < width; i += 32) cells[i] = Op::template identity<A>();
    __syncwarp();
}

template <class Op, class Of, class A, class T> __device__ __forceinline__ void take(A& cell, T one)
{
    cell = Op::of(cell, Of::template of<A>(one));
}

// The rows of a warp with the same key, one after the other; those with different keys side by side. All lanes go
// through all turns.
template <int L> struct Turns {
    int rank, turn;
    __device__ __forceinline__ Turns(bool wanted, long long key) : turn(-1)
    {
        const unsigned same = __match_any_sync(0xffffffffu, wanted ? (int)key : -1);
        const unsigned before = (1u << (threadIdx.x % 32 & ~(L - 1))) - 1;
        rank = wanted ? __popc(same & before) / L : -1;
    }
    __device__ __forceinline__ bool next()
    {
        ++turn;
        __syncwarp();
        return __any_sync(0xffffffffu, rank >= turn);
    }
    __device__ __forceinline__ bool is_own() const { return rank == turn; }
};

// The cells of a block's threads become its partial: each cell by a warp.
template <class Op, int width, int threads, class A, class B>
__device__ __forceinline__ void leave_thread_cells(B* partial, const A* own)
{
    const A* cells = own - threadIdx.x;
    barrier();
    for (int i = threadIdx.x / 32; i < width; i += threads / 32) {
        B value = (B)cells[i * threads + threadIdx.x % 32];
        for (int other = threadIdx.x % 32 + 32; other < threads; other += 32)
            value = Op::of(value, (B)cells[i * threads + other]);
        for (int offset = 16; offset > 0; offset /= 2) value = Op::of(value, exchange(0xffffffffu, value, offset));
        if (threadIdx.x % 32 == 0) partial[(long long)blockIdx.x * width + i] = value;
    }
}

// The cells of a block's warps become its partial.
template <class Op, int width, int threads, class A>
__device__ __forceinline__ void leave_warp_cells(A* partial, const A* own)
{
    const A* cells = own - threadIdx.x / 32 * width;
    barrier();
    for (int i = threadIdx.x; i < width; i += threads) {
        A value = cells[i];
        for (int warp = 1; warp < threads / 32; ++warp) value = Op::of(value, cells[warp * width + i]);
        partial[(long long)blockIdx.x * width + i] = value;
    }
}

}  // namespace rows
