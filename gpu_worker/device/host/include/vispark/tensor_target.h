// What matrix work on tensor cores needs, for a CPU that takes the way of a GPU: the names of the GPUs' header.
#pragma once

#include "vispark/mma.h"

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
inline void bring_once(Shared to, const void* from, unsigned bytes, Shared bar)
{
    __builtin_memcpy(to, from, bytes);
    arrive(bar);
}

inline void expect(Shared bar, unsigned) { arrive(bar); }
inline void add_once(Shared to, const void* from, unsigned bytes, Shared) { __builtin_memcpy(to, from, bytes); }

// A cluster of one block.
inline int there(const int* mine, unsigned) { return *mine; }
inline void arrive_in_cluster(const void* bar, unsigned) { arrive(shared_of(bar)); }
inline void wait_for_cluster(Shared bar, unsigned parity) { wait(bar, parity); }

template <int registers> inline void take_registers() {}
template <int registers> inline void leave_registers() {}
inline int thread() { return threadIdx.x; }

}  // namespace tensor
