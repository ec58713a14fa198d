// A GPU as kernels see it: the one place that says what a GPU does otherwise than a CPU. The host device's header of this
// name defines the same names; include paths choose between them.
//
//   VISPARK_ALONE         1: one thread of a block does the block's work, row by row; 0: the block's threads share it
//   VISPARK_WARPGROUPS    whether there are Hopper's products by four warps (warpgroups.h)
//   VISPARK_ONE_PASS      whether barriers in shared memory, bulk copies and registers that warps leave can be had
//   VISPARK_REPORT        defines the pointer to where a kernel says why it ended
//   VISPARK_UNROLL, ...   before loops
//   namespace vispark     functions
#pragma once

#ifndef VISPARK_ALONE
#define VISPARK_ALONE 0
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !VISPARK_ALONE
#define VISPARK_WARPGROUPS 1
#else
#define VISPARK_WARPGROUPS 0
#endif
#define VISPARK_ONE_PASS VISPARK_WARPGROUPS

#define VISPARK_REPORT(name) extern "C" { __device__ long long* name; }

// Before loops: to be written out; so many turns of it; some turns to be, which read before any of them goes on; turns
// in any order; turns in any order but for what they add to a sum. Of a long sum that one thread has, the numbers of a
// block.
#define VISPARK_PRAGMA(words) _Pragma(#words)
#define VISPARK_UNROLL VISPARK_PRAGMA(unroll)
#define VISPARK_UNROLL_SOME(turns) VISPARK_PRAGMA(unroll turns)
#define VISPARK_BATCH VISPARK_PRAGMA(unroll 15)
#define VISPARK_EACH
#define VISPARK_SUM(total) VISPARK_PRAGMA(unroll 64)
#define VISPARK_BLOCK 32

namespace vispark {

// The place of a thread among those that share a work, and how many share it.
__device__ __forceinline__ unsigned own_place() { return VISPARK_ALONE ? 0 : threadIdx.x; }
__device__ __forceinline__ unsigned places() { return VISPARK_ALONE ? 1 : blockDim.x; }

// -- memory ----------------------------------------------------------------------------------------------------------

template <int bytes> struct __align__(bytes) Chunk { char byte[bytes]; };

// Copies into shared memory go on while the thread does; a group of them is waited for at once: until at most `ahead`
// groups are on their way. GPUs before Ampere copy there and then.
#if __CUDA_ARCH__ < 800
template <int bytes> __device__ __forceinline__ void copy_ahead(void* shared, const void* global)
{
    *(Chunk<bytes>*)shared = *(const Chunk<bytes>*)global;
}
__device__ __forceinline__ void end_group() {}
template <int ahead> __device__ __forceinline__ void wait_for_groups() {}
#else
template <int bytes> __device__ __forceinline__ void copy_ahead(void* shared, const void* global)
{
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    if (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(bytes) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int ahead> __device__ __forceinline__ void wait_for_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(ahead) : "memory");
}
#endif

// Stores what is not read soon, so that the cache keeps other things instead.
template <class T> __device__ __forceinline__ void store_aside(T* to, const T& value)
{
    if (sizeof(T) % 16 == 0) {
        #pragma unroll
        for (int i = 0; i < (int)sizeof(T) / 16; ++i) __stcs((uint4*)to + i, ((const uint4*)&value)[i]);
        return;
    }
    *to = value;
}

// -- numbers ---------------------------------------------------------------------------------------------------------

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
    asm("" : "+r"(a));
    return a;
}
template <> __device__ __forceinline__ short opaque<short>(short a)
{
    asm("" : "+h"(a));
    return a;
}
template <> __device__ __forceinline__ unsigned short opaque<unsigned short>(unsigned short a)
{
    asm("" : "+h"(a));
    return a;
}
template <> __device__ __forceinline__ long long opaque<long long>(long long a)
{
    asm("" : "+l"(a));
    return a;
}
template <> __device__ __forceinline__ unsigned long long opaque<unsigned long long>(unsigned long long a)
{
    asm("" : "+l"(a));
    return a;
}
template <> __device__ __forceinline__ float opaque<float>(float a)
{
    asm("" : "+f"(a));
    return a;
}
template <> __device__ __forceinline__ double opaque<double>(double a)
{
    asm("" : "+d"(a));
    return a;
}

// -a, which wraps. In 32 bits it is ~a + 1 to CUDA's assembler, which takes max(max(b, -a), c) for that of a otherwise.
template <class T> __device__ __forceinline__ T negative(T a)
{
    if (sizeof(T) == 8) return (T)opaque<long long>((long long)(0ull - a));
    int negative;
    asm("{ .reg .s32 inverse; not.b32 inverse, %1; add.s32 %0, inverse, 1; }" : "=r"(negative) : "r"((int)a));
    return (T)negative;
}

// Quotients of integers rounded down, remainders of the divisor's sign, and those of the dividend's; of 0 they are 0, and
// that of the least integer and -1 wraps.
template <class T> __device__ __forceinline__ T floor_quotient(T a, T b)
{
    if (b == 0) return 0;
    if (T(-1) < 0 && b == T(-1)) return negative<T>(a);
    const T quotient = a / b;
    return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}
template <class T> __device__ __forceinline__ T floor_rest(T a, T b)
{
    if (b == 0 || (T(-1) < 0 && b == T(-1))) return 0;
    const T rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}
template <class T> __device__ __forceinline__ T rest(T a, T b)
{
    return b == 0 || (T(-1) < 0 && b == T(-1)) ? 0 : a % b;
}

// The root of a * a + b * b. CUDA's hypot may be off by two units in the last place, and infinite where the result is
// the greatest float; here the root is corrected by what its square and the squares lost, as C. F. Borges has it ("An
// Improved Algorithm for hypot(a, b)", 2019), and is the nearest number. Floats are summed in double, as glibc does.
__device__ __forceinline__ double hypotenuse(double a, double b)
{
    const double most = fmax(fabs(a), fabs(b)), least = fmin(fabs(a), fabs(b));
    if (most == most && most - most != most - most) return most;
    if (a != a || b != b) return a + b;
    if (least <= most * 0x1p-54) return most + least;
    const double scale = most > 0x1p+500 ? 0x1p-600 : least < 0x1p-400 ? 0x1p+600 : 1.0;
    const double x = most * scale, y = least * scale;
    const double root = sqrt(fma(x, x, fma(y, y, 0.0))), square = fma(root, root, 0.0), part = fma(x, x, 0.0);
    const double lost = fma(-y, y, square - part) + fma(root, root, -square) - fma(x, x, -part);
    return (root - lost / (2 * root)) / scale;
}
__device__ __forceinline__ float hypotenuse(float a, float b)
{
    const float most = fmaxf(fabsf(a), fabsf(b));
    if (most == most && most - most != most - most) return most;
    return (float)sqrt(fma((double)a, (double)a, (double)b * (double)b));
}

}  // namespace vispark
