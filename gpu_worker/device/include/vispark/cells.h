// Cells that the threads of a block, or of all blocks, fold into at once: what is added up is whole numbers, so that the
// order in which threads come does not matter, and a fold gives the same bits each time.
#pragma once

#include "vispark/rows.h"

namespace rows {

typedef unsigned long long Word;

// -- where a cell's words are, and how threads change them ----------------------------------------------------------

// The same word of all cells lies side by side.
struct InMemory {
    Word* at;
    int stride;
    __device__ __forceinline__ Word* of(int w) const { return at + (long long)w * stride; }
    __device__ __forceinline__ Word word(int w) const { return *of(w); }
    __device__ __forceinline__ void start(int w, Word one) const { *of(w) = one; }
    __device__ __forceinline__ void count() const { atomicAdd(at, 1ull); }
    __device__ __forceinline__ void add(int w, Word one) const { atomicAdd(of(w), one); }
    // To neighbouring words, of a number that begins with some power of two in the first; see below.
    template <int n> __device__ __forceinline__ void add(int w, int, const Word (&one)[n]) const
    {
        VISPARK_UNROLL
        for (int i = 0; i < n; ++i)
            if (one[i]) add(w + i, one[i]);
    }
    __device__ __forceinline__ void all(int w, Word one) const { atomicAnd(of(w), one); }
    __device__ __forceinline__ void any(int w, Word one) const { atomicOr(of(w), one); }
    __device__ __forceinline__ void differ(int w, Word one) const { atomicXor(of(w), one); }
    __device__ __forceinline__ void least(int w, Word one) const { atomicMin(of(w), one); }
    __device__ __forceinline__ void greatest(int w, Word one) const { atomicMax(of(w), one); }
};

// In shared memory, which adds up words of 4 bytes by itself and those of 8 only by trying again and again: halves of
// words, and what the lower one cannot hold goes to the upper one.
struct InBlock {
    unsigned* at;
    int stride;
    __device__ __forceinline__ unsigned* half(int w, int upper) const { return at + (2 * w + upper) * stride; }
    __device__ __forceinline__ Word word(int w) const { return (Word)*half(w, 1) << 32 | *half(w, 0); }
    __device__ __forceinline__ void start(int w, Word one) const
    {
        *half(w, 0) = (unsigned)one, *half(w, 1) = (unsigned)(one >> 32);
    }
    // Fewer than 2^32 records, as a work has.
    __device__ __forceinline__ void count() const { atomicAdd(at, 1u); }
    // To the lower half; what is for the upper one then.
    __device__ __forceinline__ unsigned lower(int w, Word one) const
    {
        const unsigned low = (unsigned)one, sum = atomicAdd(half(w, 0), low) + low;
        return (unsigned)(one >> 32) + (sum < low);
    }
    __device__ __forceinline__ void add(int w, Word one) const
    {
        if (const unsigned high = lower(w, one)) atomicAdd(half(w, 1), high);
    }
    template <int n> __device__ __forceinline__ void add(int w, int, const Word (&one)[n]) const
    {
        unsigned high[n];       // no answer is waited for before all are asked
        VISPARK_UNROLL
        for (int i = 0; i < n; ++i) high[i] = one[i] ? lower(w + i, one[i]) : 0;
        VISPARK_UNROLL
        for (int i = 0; i < n; ++i)
            if (high[i]) atomicAdd(half(w + i, 1), high[i]);
    }
    __device__ __forceinline__ void all(int w, Word one) const
    {
        atomicAnd(half(w, 0), (unsigned)one), atomicAnd(half(w, 1), (unsigned)(one >> 32));
    }
    __device__ __forceinline__ void any(int w, Word one) const
    {
        atomicOr(half(w, 0), (unsigned)one), atomicOr(half(w, 1), (unsigned)(one >> 32));
    }
    __device__ __forceinline__ void differ(int w, Word one) const
    {
        atomicXor(half(w, 0), (unsigned)one), atomicXor(half(w, 1), (unsigned)(one >> 32));
    }
};

// The first word of those that a block has in shared memory, which its threads agree on.
struct Window {
    int* agreed;
    int first;
    __device__ __forceinline__ Window(int* agreed) : agreed(agreed), first(-1) {}
    // Around a number that begins with the power `shift` of two in word `w`, of `all` words. Sums are exact, so what they
    // come to does not depend on whose number was first.
    template <int near, int n> __device__ __forceinline__ void around(int w, int shift, int all)
    {
        if (first >= 0) return;
        const int lowest = w > 0 && near > n && shift < 14 ? w - 1 : w;
        const int proposed = lowest < all - near ? lowest : all - near;
        const int other = atomicCAS(agreed, -1, proposed);
        first = other < 0 ? proposed : other;
    }
};

// `near` words of a number's sum in shared memory, the others in memory.
template <int near, int all> struct InBoth {
    InBlock block;
    InMemory memory;
    Window& window;
    template <int n> __device__ __forceinline__ void add(int w, int shift, const Word (&one)[n]) const
    {
        window.around<near, n>(w, shift, all);
        if ((unsigned)(w - window.first) <= unsigned(near - n))
            block.add(w - window.first, shift, one);
        else
            memory.add(w, shift, one);
    }
    __device__ __forceinline__ void any(int w, Word one) const { memory.any(w, one); }
};

// -- cells -----------------------------------------------------------------------------------------------------------

// A number as a word; what is less comes first.
template <class A> __device__ __forceinline__ Word ordered(A one)
{
    return A(-1) < A(0) ? (Word)(long long)one ^ 1ull << 63 : (Word)one;
}

// Whole numbers added up, and what is counted.
template <class Op, class Of, class T, class A> struct Cell {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one)
    {
        in.add(0, (Word)(long long)Of::template of<long long>(one));
    }
    template <class In> static __device__ __forceinline__ A value(const In& in) { return (A)in.word(0); }
};

template <class T, class A> struct Cell<And, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = ~0ull;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one) { in.all(0, (Word)one); }
    template <class In> static __device__ __forceinline__ A value(const In& in) { return (A)in.word(0); }
};
template <class T, class A> struct Cell<Or, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one) { in.any(0, (Word)one); }
    template <class In> static __device__ __forceinline__ A value(const In& in) { return (A)in.word(0); }
};
template <class T, class A> struct Cell<Xor, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one) { in.differ(0, (Word)one); }
    template <class In> static __device__ __forceinline__ A value(const In& in) { return (A)in.word(0); }
};

// Extremes are compared as a whole: `In` is InMemory in shared memory, too.
template <class T, class A> struct Cell<Minimum, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = ~0ull;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one)
    {
        in.least(0, ordered((A)one));
    }
    template <class In> static __device__ __forceinline__ A value(const In& in)
    {
        const Word word = in.word(0);
        return word == start ? Minimum::identity<A>() : (A)(A(-1) < A(0) ? word ^ 1ull << 63 : word);
    }
};
template <class T, class A> struct Cell<Maximum, Value, T, A> {
    static constexpr int words = 1;
    static constexpr Word start = 0;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one)
    {
        in.greatest(0, ordered((A)one));
    }
    template <class In> static __device__ __forceinline__ A value(const In& in)
    {
        const Word word = in.word(0);
        return word == start ? Maximum::identity<A>() : (A)(A(-1) < A(0) ? word ^ 1ull << 63 : word);
    }
};

// Sizes of whole numbers: sums of their lower and of their upper 32 bits.
template <class T, class A> struct Cell<Add, Size, T, A> {
    static constexpr int words = 2;
    static constexpr Word start = 0;
    template <class In> static __device__ __forceinline__ void take(const In& in, T one)
    {
        const Word size = one < T(0) ? 0 - (Word)(long long)one : (Word)one;
        in.add(0, size & 0xffffffff);
        if (size >> 32) in.add(1, size >> 32);
    }
    template <class In> static __device__ __forceinline__ A value(const In& in)
    {
        return (A)in.word(1) * 4294967296.0 + (A)in.word(0);
    }
};

// A sum of floats, exact: digit d counts 2^(28 d) times the least float above 0, and a float goes into two digits, a
// double into three. A digit takes 2^35 numbers before it is full. Behind the digits is what is no number: 1 and 2 for
// the infinities, 4 for NaN.
template <class F, class A, class Bits, int fraction, int digits, int parts> struct ExactSum {
    static constexpr int bits = 28, words = digits + 1;
    static constexpr int least = fraction == 23 ? -149 : -1074, no_number = fraction == 23 ? 255 : 2047;
    static constexpr Word start = 0, most = (1ull << bits) - 1;
    template <class In> static __device__ __forceinline__ void take(const In& in, F one)
    {
        Bits all;
        memcpy(&all, &one, sizeof(all));
        const bool negative = all >> (8 * sizeof(F) - 1);
        int exponent = (int)(all >> fraction) & no_number;
        Word part = all & (((Bits)1 << fraction) - 1);
        if (exponent == no_number) {
            in.any(digits, part ? 4ull : negative ? 2ull : 1ull);
            return;
        }
        if (exponent) part |= 1ull << fraction;
        else exponent = 1;
        if (!part) return;
        const int digit = (exponent - 1) / bits, shift = (exponent - 1) % bits;
        Word piece[parts];
        VISPARK_UNROLL
        for (int i = 0; i < parts; ++i) {
            piece[i] = (i ? part >> (bits * i - shift) : part << shift) & most;
            if (negative) piece[i] = 0 - piece[i];
        }
        in.add(digit, shift, piece);
    }
    template <class In> static __device__ __forceinline__ A value(const In& in)
    {
        const int special = (int)in.word(digits);
        if (special) return special == 1 ? 1.0 / 0.0 : special == 2 ? -1.0 / 0.0 : 0.0 / 0.0;
        long long carry = 0;
        VISPARK_BATCH
        for (int d = 0; d < digits; ++d) carry = ((long long)in.word(d) + carry) >> bits;
        // From the sum's size, as digits of one sign can be added up without taking from each other.
        const bool negative = carry < 0;
        long long all = 0, size = 0;
        double scale = ldexp(1.0, least);
        A sum = A(0.0);
        VISPARK_BATCH
        for (int d = 0; d < digits; ++d) {
            all = (long long)in.word(d) + (all >> bits);
            const long long digit = all & most;
            size = negative ? (size >> bits) - digit : digit;
            sum = Add::of(sum, A((double)(size & most) * scale));
            scale *= 1 << bits;
        }
        const long long rest = negative ? (size >> bits) - (all >> bits) : all >> bits;
        if (rest) sum = Add::of(sum, A((double)rest * scale));
        return negative ? minus(sum) : sum;
    }
    static __device__ __forceinline__ double minus(double one) { return -one; }
    static __device__ __forceinline__ Twofold minus(Twofold one) { return Twofold(-one.sum, -one.lost); }
};
template <> struct Cell<Add, Value, float, double> : ExactSum<float, double, unsigned, 23, 11, 2> {};
template <> struct Cell<Add, Value, double, Twofold> : ExactSum<double, Twofold, Word, 52, 75, 3> {};

// -- all cells of a fold ---------------------------------------------------------------------------------------------

__device__ __forceinline__ InBlock cell_of(unsigned* cells, int i, int width) { return InBlock{cells + i, width}; }
__device__ __forceinline__ InMemory cell_of(Word* cells, int i, int width) { return InMemory{cells + i, width}; }

// Some words of cells before the first record, by all threads of a block or of some blocks.
template <class Cell, int words = Cell::words, class Words>
__device__ __forceinline__ void start_cells(Words* cells, int width, long long first, long long step)
{
    for (int w = 0; w < words; ++w)
        for (long long i = first; i < width; i += step) cell_of(cells, (int)i, width).start(w, Cell::start);
}

// A block's words are added to those in memory, the first to word `first`, of cells from `begin` on.
template <int words>
__device__ __forceinline__ void hand_on(Word* far, int width, int begin, unsigned* near, int side, int first)
{
    for (int w = 0; w < words; ++w)
        for (int i = threadIdx.x; i < side; i += blockDim.x)
            if (const Word one = cell_of(near, i, side).word(w)) cell_of(far, begin + i, width).add(first + w, one);
}

// What a block's cells have become, or nothing, as its partial.
template <class Cell, class Op, class A, class Words>
__device__ __forceinline__ void leave_cells(A* partial, Words* cells, int width, bool all)
{
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        partial[(long long)blockIdx.x * width + i] = all ? Cell::value(cell_of(cells, i, width))
                                                         : Op::template identity<A>();
}

// Whether this is the last block that gets here; `arrived` counts them.
__device__ __forceinline__ bool comes_last(Word* arrived)
{
    __shared__ bool last;
    __threadfence();
    barrier();
    if (threadIdx.x == 0) last = atomicAdd(arrived, 1ull) == gridDim.x - 1;
    barrier();
    __threadfence();
    return last;
}

}  // namespace rows
