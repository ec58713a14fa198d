// What matrix work on tensor cores needs, for a CPU that takes the way of a GPU: the names of the GPUs' header.
#pragma once

#include "vispark/mma.h"

#define VISPARK_TF32 1

namespace tensor {

typedef unsigned char* Shared;
__device__ __forceinline__ Shared shared_of(const void* p) { return (Shared)p; }

template <class T, int n> __device__ __forceinline__ void stream(T (&v)[n], const T* p)
{
    __builtin_memcpy(v, p, 16);
}
__device__ __forceinline__ void copy(Shared to, const void* from, bool there)
{
    const float4 none = {0, 0, 0, 0};
    *(float4*)to = there ? *(const float4*)from : none;
}
__device__ __forceinline__ void end_copies() {}
template <int pending> __device__ __forceinline__ void await_copies() {}
template <class T, int n> __device__ __forceinline__ void copied(T (&v)[n], Shared from)
{
    __builtin_memcpy(v, from, 16);
}

// A barrier: how many arrivals its phase lacks, how many a phase has, and the phase's parity, of 16 bits each. Copies
// are done at once.
inline void prepare(Shared bar, int arrivals)
{
    *(unsigned long long*)bar = (unsigned long long)arrivals << 16 | (unsigned long long)arrivals;
}
inline void prepared() {}
inline void arrive(Shared bar)
{
    unsigned short* const parts = (unsigned short*)bar;
    if (--parts[0]) return;
    parts[0] = parts[1];
    parts[2] ^= 1;
}
inline void wait(Shared bar, unsigned parity)
{
    while (((unsigned short*)bar)[2] == parity) __nanosleep(20);
}
// Groups of THREADS, whose warps arrive at a barrier of each turn.
template <int THREADS> inline void meet(Shared bar, int, unsigned turn)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(bar);
    wait(bar, turn & 1);
}
inline void bring_once(Shared to, const void* from, unsigned bytes, Shared bar)
{
    __builtin_memcpy(to, from, bytes);
    arrive(bar);
}

inline void expect(Shared bar, unsigned) { arrive(bar); }
inline void add_once(Shared to, const void* from, unsigned bytes, Shared) { __builtin_memcpy(to, from, bytes); }

// A cluster of one block.
inline int there(const int* local, unsigned) { return *local; }
inline void arrive_in_cluster(const void* bar, unsigned) { arrive(shared_of(bar)); }
inline void wait_for_cluster(Shared bar, unsigned parity) { wait(bar, parity); }

template <int registers> inline void take_registers() {}
template <int registers> inline void leave_registers() {}
inline int thread() { return threadIdx.x; }

// Float32 as parts of TF32, and their products.
inline unsigned bits_of(float x)
{
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}
inline float float_of(unsigned bits)
{
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

// A float as two numbers of 11 bits: its leading ones, rounded, and the next. What is not finite, or near to it, has
// none: its products are not finite either. SPLIT_MOST is beyond all others.
constexpr float SPLIT_MOST = 3.0e38f;
struct Halves {
    unsigned high, low;
    // The next ones doubled, if asked for.
    template <bool DOUBLED = false> __device__ __forceinline__ void set(float x)
    {
        high = (bits_of(x) + 0x1000u) & 0xffffe000u;
        const float rest = x - float_of(high);
        low = bits_of(DOUBLED ? rest + rest : rest) & 0xffffe000u;
    }
};
template <int PART> inline void multiply_part(float (&acc)[4], const Halves (&a)[4], const Halves (&b)[2])
{
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    for (int q = 0; q < 4; q++) {
        float row[4], other[2][2];
        for (int i = 0; i < 4; i++) row[i] = float_of(__shfl_sync(~0u, PART == 0 ? a[i].low : a[i].high, 4 * g + q));
        for (int i = 0; i < 2; i++)
            for (int n = 0; n < 2; n++)
                other[n][i] = float_of(__shfl_sync(~0u, PART == 1 ? b[i].low : b[i].high, 4 * (2 * t + n) + q));
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++) acc[i] += row[i / 2 + 2 * half] * other[i % 2][half];
    }
}

}  // namespace tensor
