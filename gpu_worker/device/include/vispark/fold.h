// What folds are made of: accumulators, associative operators, and what of an element is folded. For fold.cu and for
// kernels that fold what they compute.
#pragma once

// A sum of doubles with what rounding took from it: D. E. Knuth, TAOCP 2, 4.2.2, theorem B. Where the sum is infinite
// or NaN what is lost has no meaning.
struct Twofold {
    double sum, lost;
    Twofold() = default;
    __device__ Twofold(double value) : sum(value), lost(0.0) {}
    __device__ Twofold(double sum, double lost) : sum(sum), lost(lost) {}
    __device__ operator double() const { return lost == 0.0 || sum - sum != 0.0 ? sum : sum + lost; }
};

// Folds with associative operators. The identity stands for no record at all.
struct Add {
    template <typename A> static __device__ A of(A a, A b) { return a + b; }
    static __device__ Twofold of(Twofold a, Twofold b)
    {
        const double sum = a.sum + b.sum, part = sum - a.sum;
        return Twofold(sum, a.lost + b.lost + ((a.sum - (sum - part)) + (b.sum - part)));
    }
    template <typename A> static __device__ A identity() { return (A)(-0.0); }
};
struct Multiply {
    template <typename A> static __device__ A of(A a, A b) { return a * b; }
    template <typename A> static __device__ A identity() { return (A)1; }
};
struct Minimum {
    template <typename A> static __device__ A of(A a, A b) { return b < a || b != b ? b : a; }
    template <typename A> static __device__ A identity() { return greatest((A)0); }
    static __device__ double greatest(double) { return 1.0 / 0.0; }
    static __device__ float greatest(float) { return (float)(1.0 / 0.0); }
    template <typename A> static __device__ A greatest(A)
    {
        return (A)-1 > (A)0 ? (A)-1 : (A)((1ull << (8 * sizeof(A) - 1)) - 1);
    }
};
struct Maximum {
    template <typename A> static __device__ A of(A a, A b) { return a < b || b != b ? b : a; }
    template <typename A> static __device__ A identity() { return least((A)0); }
    static __device__ double least(double) { return -1.0 / 0.0; }
    static __device__ float least(float) { return (float)(-1.0 / 0.0); }
    template <typename A> static __device__ A least(A)
    {
        return (A)-1 > (A)0 ? (A)0 : (A)(1ull << (8 * sizeof(A) - 1));
    }
};
struct And {
    template <typename A> static __device__ A of(A a, A b) { return a & b; }
    template <typename A> static __device__ A identity() { return (A)~(A)0; }
};
struct Or {
    template <typename A> static __device__ A of(A a, A b) { return a | b; }
    template <typename A> static __device__ A identity() { return (A)0; }
};
struct Xor {
    template <typename A> static __device__ A of(A a, A b) { return a ^ b; }
    template <typename A> static __device__ A identity() { return (A)0; }
};

// What is folded: the value itself; its size, which bounds sums; its size or 1, which bounds products; whether it is
// NaN; that it is there.
struct Value { template <typename A, typename T> static __device__ A of(T v) { return (A)v; } };
struct Size { template <typename A, typename T> static __device__ A of(T v) { return v < 0 ? -(A)v : (A)v; } };
struct SizeOrOne {
    template <typename A, typename T> static __device__ A of(T v) { A a = v < 0 ? -(A)v : (A)v; return a < 1 ? 1 : a; }
};
struct IsNan { template <typename A, typename T> static __device__ A of(T v) { return v != v ? (A)1 : (A)0; } };
struct One { template <typename A, typename T> static __device__ A of(T) { return (A)1; } };
