// A CPU as kernels see it: the one place that says what a CPU does otherwise than a GPU, under the names of the cuda
// device's header of this name, which says what they are. With -DVISPARK_ALONE=0 a CPU does works as a GPU does, and with
// -DVISPARK_ONE_PASS=1 too as Hopper does; for tests.
#pragma once

#ifndef VISPARK_ALONE
#define VISPARK_ALONE 1
#endif
#define VISPARK_WARPGROUPS 0
#ifndef VISPARK_ONE_PASS
#define VISPARK_ONE_PASS 0
#endif

#define VISPARK_REPORT(name) VISPARK_EXPORT long long* name = nullptr;

// Of a long sum the numbers of a block: a few for each lane of the vectors.
#define VISPARK_PRAGMA(words) _Pragma(#words)
#define VISPARK_UNROLL
#define VISPARK_UNROLL_SOME(turns)
#define VISPARK_BATCH
#define VISPARK_EACH VISPARK_PRAGMA(GCC ivdep)
#define VISPARK_SUM(total) VISPARK_PRAGMA(omp simd reduction(+:total))
#define VISPARK_BLOCK 512

namespace vispark {

__device__ __forceinline__ unsigned own_place() { return VISPARK_ALONE ? 0 : threadIdx.x; }
__device__ __forceinline__ unsigned places() { return VISPARK_ALONE ? 1 : blockDim.x; }

// -- memory ----------------------------------------------------------------------------------------------------------

template <int bytes> struct __align__(bytes) Chunk { char byte[bytes]; };

template <int bytes> __device__ __forceinline__ void copy_ahead(void* shared, const void* global)
{
    *(Chunk<bytes>*)shared = *(const Chunk<bytes>*)global;
}
__device__ __forceinline__ void end_group() {}
template <int ahead> __device__ __forceinline__ void wait_for_groups() {}

template <class T> __device__ __forceinline__ void store_aside(T* to, const T& value) { *to = value; }

// -- numbers ---------------------------------------------------------------------------------------------------------

template <class T> struct unsigned_of { typedef T type; };
template <> struct unsigned_of<signed char> { typedef unsigned char type; };
template <> struct unsigned_of<short> { typedef unsigned short type; };
template <> struct unsigned_of<int> { typedef unsigned type; };
template <> struct unsigned_of<long long> { typedef unsigned long long type; };

template <class T> __device__ __forceinline__ T opaque(T a) { return a; }

template <class T> __device__ __forceinline__ T negative(T a)
{
    return sizeof(T) == 8 ? (T)(0ull - a) : (T)(0u - (unsigned)a);
}

// g++ 12 takes -(a / b) for (-a) / b, which is another number where a is the least integer, so it divides without signs:
// of -1 - a where a < 0 < b.
template <class T> __device__ __forceinline__ T floor_quotient(T a, T b)
{
    typedef typename unsigned_of<T>::type U;
    if (b == 0) return 0;
    if (b > 0) {
        const U flip = a < 0 ? (U)~U(0) : U(0);
        return (T)((U)((U)a ^ flip) / (U)b ^ flip);
    }
    const U by = (U)(U(0) - (U)b);
    return a <= 0 ? (T)((U)(U(0) - (U)a) / by) : (T)~((U)((U)a - U(1)) / by);
}
template <class T> __device__ __forceinline__ T floor_rest(T a, T b)
{
    typedef typename unsigned_of<T>::type U;
    return b == 0 ? T(0) : (T)((U)a - 1u * (U)floor_quotient<T>(a, b) * (U)b);
}
template <class T> __device__ __forceinline__ T rest(T a, T b)
{
    typedef typename unsigned_of<T>::type U;
    if (b == 0) return 0;
    const U rest = (U)(a < 0 ? U(0) - (U)a : (U)a) % (U)(b < 0 ? U(0) - (U)b : (U)b);
    return (T)(a < 0 ? U(0) - rest : rest);
}

__device__ __forceinline__ double hypotenuse(double a, double b) { return hypot(a, b); }
__device__ __forceinline__ float hypotenuse(float a, float b) { return hypotf(a, b); }

}  // namespace vispark
