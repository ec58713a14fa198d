// kernels: augmented_kernel
// augmented assignment
#include "vispark/rows.h"

template <class T> struct unsigned_of { typedef T type; };
template <> struct unsigned_of<signed char> { typedef unsigned char type; };
template <> struct unsigned_of<short> { typedef unsigned short type; };
template <> struct unsigned_of<int> { typedef unsigned type; };
template <> struct unsigned_of<long long> { typedef unsigned long long type; };
// A value whose origin the compiler for GPUs does not see. What it knows of integers of 16 bits it turns into negations
// in 16 bits (a + b == 0 into a == -b), and of -32768 those of CUDA 13.0 give 32768 where a comparison, a shift, max()
// or a conversion follows: so nothing may be known that becomes one. The choice of -a where a < 0 it turns into PTX's
// abs, in 32 and 64 bits, whose result the assembler takes for never negative, though that of the least integer is: so
// a choice may not be seen to be of a number and its negation. Of 16 bits the assembler compares a max() by the wrong
// half of a register, so there may be none. The choice of b where b < 0 and else of 0 becomes min(b, 0), which is -0
// where b is, so that a zero may not be seen. In a loop that ends where a + 1 < b, a + 2 < b, ... it forgets that
// unsigned sums wrap (NVRTC 12.9 to 13.5: the first of them is returned, whatever b is). It costs no instruction.
template <class T> __device__ __forceinline__ T opaque(T a)
{
#ifndef __CUDA_ON_HOST__
    asm("" : "+r"(a));
#endif
    return a;
}
template <> __device__ __forceinline__ long long opaque<long long>(long long a)
{
#ifndef __CUDA_ON_HOST__
    asm("" : "+l"(a));
#endif
    return a;
}
// -a, which wraps. In 32 bits it is ~a + 1 to CUDA's assembler, which takes max(max(b, -a), c) for that of a otherwise.
template <class T> __device__ __forceinline__ T wrapped_negative(T a)
{
    if (sizeof(T) == 8) return (T)opaque<long long>((long long)(0ull - a));
#ifdef __CUDA_ON_HOST__
    return (T)(0u - (unsigned)a);
#else
    int negative;
    asm("{ .reg .s32 inverse; not.b32 inverse, %1; add.s32 %0, inverse, 1; }" : "=r"(negative) : "r"((int)a));
    return (T)negative;
#endif
}
// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy. g++ 12 takes -(a / b) for (-a) / b,
// which is another number where a is the least integer, so a host divides without signs: of -1 - a where a < 0 < b.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b)
{
    if (b == 0) return 0;
#ifdef __CUDA_ON_HOST__
    typedef typename unsigned_of<T>::type U;
    if (b > 0) {
        const U flip = a < 0 ? (U)~U(0) : U(0);
        return (T)((U)((U)a ^ flip) / (U)b ^ flip);
    }
    const U by = (U)(U(0) - (U)b);
    return a <= 0 ? (T)((U)(U(0) - (U)a) / by) : (T)~((U)((U)a - U(1)) / by);
#endif
    if (T(-1) < 0 && b == T(-1)) return wrapped_negative<T>(a);
    const T quotient = a / b;
    return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}
template <> __device__ __forceinline__ double floor_divide<double>(double a, double b)
{
    if (b == 0) return a / b;
    const double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0.0, a / b);
    const double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}
template <> __device__ __forceinline__ float floor_divide<float>(float a, float b)
{
    if (b == 0) return a / b;
    const float rest = fmodf(a, b);
    float quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysignf(0.0f, a / b);
    const float whole = floorf(quotient);
    return quotient - whole > 0.5f ? whole + 1 : whole;
}
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b)
{
#ifdef __CUDA_ON_HOST__
    typedef typename unsigned_of<T>::type U;
    return b == 0 ? T(0) : (T)((U)a - 1u * (U)floor_divide<T>(a, b) * (U)b);
#endif
    if (b == 0 || (T(-1) < 0 && b == T(-1))) return 0;
    const T rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}
// Shifts by more than the width, or by a negative number, shift everything out, as in NumPy.
template <class T> __device__ __forceinline__ T shift_left(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : T(0);
}

static __device__ __forceinline__ void
augmented(const int x, int& out_value)
{
    int x_1 = (int)((unsigned)x + (unsigned)3);
    x_1 = (int)((unsigned)x_1 * (unsigned)2);
    x_1 = (int)((unsigned)x_1 - (unsigned)1);
    x_1 = floor_divide<int>(x_1, 3);
    x_1 = floor_remainder<int>(x_1, 50);
    x_1 = shift_left<int>(x_1, 1);
    x_1 = x_1 ^ 5;
    x_1 = x_1 | 8;
    x_1 = x_1 & 127;
    out_value = x_1;
}

extern "C" __global__ void __launch_bounds__(256, 6)
augmented_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const x_in = work.of<const int>(0, 1);
    int* __restrict__ const out = work.of<int>(1, 1);
#ifdef VISPARK_ON_HOST
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        augmented(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<int, 4> x = *(const rows::Pack<int, 4>*)(x_in + row);
            rows::Pack<int, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) augmented(x.item[i], out_value.item[i]);
            *(rows::Pack<int, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                augmented(x_in[last], out[last]);
            }
        }
    }
#endif
}
