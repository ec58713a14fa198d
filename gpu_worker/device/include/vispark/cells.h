// Cells that the threads of a block, or of all blocks, fold into at once: what is added up is whole numbers, so that the
// order in which threads come does not matter, and a fold gives the same bits each time.
#pragma once

#include "vispark/rows.h"

namespace rows {

typedef unsigned long long Word;

// A number as a word; what is less comes first.
template <class A> __device__ __forceinline__ Word ordered(A one)
{
    return A(-1) < A(0) ? (Word)(long long)one ^ 1ull << 63 : (Word)one;
}

// Whole numbers added up, and what is counted.
template <class Op, class Of, class T, class A> struct Cell {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    static __device__ __forceinline__ void take(Word* cell, T one)
    {
        atomicAdd(cell, (Word)(long long)Of::template of<long long>(one));
    }
    static __device__ __forceinline__ A value(const Word* cell) { return (A)*cell; }
};

template <class T, class A> struct Cell<And, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = ~0ull;
    static __device__ __forceinline__ void take(Word* cell, T one) { atomicAnd(cell, (Word)one); }
    static __device__ __forceinline__ A value(const Word* cell) { return (A)*cell; }
};
template <class T, class A> struct Cell<Or, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    static __device__ __forceinline__ void take(Word* cell, T one) { atomicOr(cell, (Word)one); }
    static __device__ __forceinline__ A value(const Word* cell) { return (A)*cell; }
};
template <class T, class A> struct Cell<Xor, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    static __device__ __forceinline__ void take(Word* cell, T one) { atomicXor(cell, (Word)one); }
    static __device__ __forceinline__ A value(const Word* cell) { return (A)*cell; }
};

template <class T, class A> struct Cell<Minimum, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = ~0ull;
    static __device__ __forceinline__ void take(Word* cell, T one) { atomicMin(cell, ordered((A)one)); }
    static __device__ __forceinline__ A value(const Word* cell)
    {
        return *cell == start ? Minimum::identity<A>() : (A)(A(-1) < A(0) ? *cell ^ 1ull << 63 : *cell);
    }
};
template <class T, class A> struct Cell<Maximum, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    static __device__ __forceinline__ void take(Word* cell, T one) { atomicMax(cell, ordered((A)one)); }
    static __device__ __forceinline__ A value(const Word* cell)
    {
        return *cell == start ? Maximum::identity<A>() : (A)(A(-1) < A(0) ? *cell ^ 1ull << 63 : *cell);
    }
};

// Sizes of whole numbers: sums of their lower and of their upper 32 bits.
template <class T, class A> struct Cell<Add, Size, T, A> {
    static constexpr int words = 2;
    static constexpr Word start = 0;
    static __device__ __forceinline__ void take(Word* cell, T one)
    {
        const Word size = one < T(0) ? 0 - (Word)(long long)one : (Word)one;
        atomicAdd(cell, size & 0xffffffff);
        if (size >> 32) atomicAdd(cell + 1, size >> 32);
    }
    static __device__ __forceinline__ A value(const Word* cell) { return (A)cell[1] * 4294967296.0 + (A)cell[0]; }
};

// A sum of floats, exact: digit d counts 2^(28 d - 149), which is the least float for the first. A digit takes 2^35
// numbers before it is full. Behind the digits is what is no number: 1 and 2 for the infinities, 4 for NaN.
template <> struct Cell<Add, Value, float, double> {
    static constexpr int digits = 11, bits = 28, words = digits + 1;
    static constexpr Word start = 0;
    static __device__ __forceinline__ void take(Word* cell, float one)
    {
        unsigned all;
        memcpy(&all, &one, 4);
        int exponent = all >> 23 & 255;
        Word part = all & 0x7fffff;
        if (exponent == 255) {
            atomicOr(cell + digits, part ? 4ull : all >> 31 ? 2ull : 1ull);
            return;
        }
        if (exponent) part |= 0x800000;
        else exponent = 1;
        const int digit = (exponent - 1) / bits;
        part <<= (exponent - 1) % bits;
        const Word low = part & ((1ull << bits) - 1), high = part >> bits;
        if (low) atomicAdd(cell + digit, all >> 31 ? 0 - low : low);
        if (high) atomicAdd(cell + digit + 1, all >> 31 ? 0 - high : high);
    }
    static __device__ __forceinline__ double value(const Word* cell)
    {
        const int special = (int)cell[digits];
        if (special) return special == 1 ? 1.0 / 0.0 : special == 2 ? -1.0 / 0.0 : 0.0 / 0.0;
        long long digit[digits], carry = 0;
        for (int d = 0; d < digits; ++d) {
            const long long all = (long long)cell[d] + carry;
            carry = all >> bits;
            digit[d] = all & ((1 << bits) - 1);
        }
        // From the sum's size, as digits of one sign can be added up without taking from each other.
        const bool negative = carry < 0;
        long long borrow = 0;
        if (negative) {
            for (int d = 0; d < digits; ++d) {
                const long long all = borrow - digit[d];
                borrow = all >> bits;
                digit[d] = all & ((1 << bits) - 1);
            }
            carry = borrow - carry;
        }
        double sum = 0;
        for (int d = 0; d < digits; ++d) sum += ldexp((double)digit[d], bits * d - 149);
        sum += ldexp((double)carry, bits * digits - 149);
        return negative ? -sum : sum;
    }
};

// Cells before the first record, by all threads of a block or of some blocks.
template <class Cell> __device__ __forceinline__ void start_cells(Word* cells, long long count, long long first,
                                                                  long long step)
{
    for (long long i = first; i < count * Cell::words; i += step) cells[i] = Cell::start;
}

// What a block's cells have become, or nothing, as its partial.
template <class Cell, class Op, class A>
__device__ __forceinline__ void leave_cells(A* partial, const Word* cells, int width, bool all)
{
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        partial[(long long)blockIdx.x * width + i] = all ? Cell::value(cells + (long long)i * Cell::words)
                                                         : Op::template identity<A>();
}

// Whether this is the last block that gets here; `ticket` counts them.
__device__ __forceinline__ bool comes_last(Word* ticket)
{
    __shared__ bool last;
    __threadfence();
    barrier();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1ull) == gridDim.x - 1;
    barrier();
    __threadfence();
    return last;
}

}  // namespace rows
