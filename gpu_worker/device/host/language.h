// Qualifiers, vector types and the indices of the running thread.
#pragma once

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define CUDART_VERSION 12080
#define __CUDA_ARCH__ 900
#define __CUDA_ON_HOST__ 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
// A block runs on one OS thread, so what its threads share is that OS thread's own.
#define __shared__ thread_local
#define __managed__ _Pragma("GCC error \"__managed__ variables are not available on the host device\"")
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#ifndef __clang__
#define __builtin_assume(condition) ((condition) ? void() : __builtin_unreachable())
#endif
#define __assume(condition) __builtin_assume(condition)

static const int warpSize = 32;

#define VISPARK_VECTORS(T, name, align1, align2, align3, align4)                                          \
    struct __attribute__((aligned(align1))) name##1 { T x; };                                             \
    struct __attribute__((aligned(align2))) name##2 { T x, y; };                                          \
    struct __attribute__((aligned(align3))) name##3 { T x, y, z; };                                       \
    struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; };                                    \
    static inline name##1 make_##name##1(T x) { name##1 v = {x}; return v; }                              \
    static inline name##2 make_##name##2(T x, T y) { name##2 v = {x, y}; return v; }                      \
    static inline name##3 make_##name##3(T x, T y, T z) { name##3 v = {x, y, z}; return v; }              \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { name##4 v = {x, y, z, w}; return v; }

VISPARK_VECTORS(signed char, char, 1, 2, 1, 4)
VISPARK_VECTORS(unsigned char, uchar, 1, 2, 1, 4)
VISPARK_VECTORS(short, short, 2, 4, 2, 8)
VISPARK_VECTORS(unsigned short, ushort, 2, 4, 2, 8)
VISPARK_VECTORS(int, int, 4, 8, 4, 16)
VISPARK_VECTORS(unsigned, uint, 4, 8, 4, 16)
VISPARK_VECTORS(long, long, 8, 16, 8, 16)
VISPARK_VECTORS(unsigned long, ulong, 8, 16, 8, 16)
VISPARK_VECTORS(long long, longlong, 8, 16, 8, 16)
VISPARK_VECTORS(unsigned long long, ulonglong, 8, 16, 8, 16)
VISPARK_VECTORS(float, float, 4, 8, 4, 16)
VISPARK_VECTORS(double, double, 8, 16, 8, 16)
#undef VISPARK_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    operator uint3() const { return make_uint3(x, y, z); }
};

// Their addresses are taken nowhere here, so that the compiler may keep them in registers across a user's stores. The
// extents are uint3, which converts to CUDA's dim3, as dim3's constructors would take their addresses.
static thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;

// Checks of accesses, which the compiler puts in after it has moved stores, read where a thread is.
#ifdef VISPARK_BOUNDS
#define VISPARK_PLACE_IS_READ() asm volatile("" : : "r"(&threadIdx), "r"(&blockIdx) : "memory")
#else
#define VISPARK_PLACE_IS_READ() (void)0
#endif
