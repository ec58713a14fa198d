// The part of tensor.h that is PTX, for a CPU that takes the way of a GPU without warpgroups.
#pragma once

namespace tensor {

typedef unsigned char* Shared;
__device__ __forceinline__ Shared shared_of(const void* p) { return (Shared)p; }

__device__ __forceinline__ unsigned pack(float first, float second)
{
    const _Float16 pair[2] = {(_Float16)first, (_Float16)second};
    unsigned bits;
    __builtin_memcpy(&bits, pair, 4);
    return bits;
}
__device__ __forceinline__ float part_of(unsigned pair, int i)
{
    _Float16 parts[2];
    __builtin_memcpy(parts, &pair, 4);
    return parts[i];
}
__device__ __forceinline__ float first_of(unsigned pair) { return part_of(pair, 0); }
__device__ __forceinline__ float second_of(unsigned pair) { return part_of(pair, 1); }

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

// Lane 4 g + t gives of the rows g and g + 8, and of the other factor's row g, the columns 2 t, 2 t + 1, 2 t + 8 and
// 2 t + 9; it has of the sums rows g and g + 8, columns 2 t and 2 t + 1.
__device__ inline void mma(float* acc, const unsigned (&a)[4], const unsigned (&b)[2])
{
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    for (int q = 0; q < 4; q++) {
        unsigned row[4], other[2][2];
        for (int i = 0; i < 4; i++) row[i] = __shfl_sync(~0u, a[i], 4 * g + q);
        for (int i = 0; i < 2; i++)
            for (int n = 0; n < 2; n++) other[n][i] = __shfl_sync(~0u, b[i], 4 * (2 * t + n) + q);
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                for (int part = 0; part < 2; part++)
                    acc[i] += part_of(row[i / 2 + 2 * half], part) * part_of(other[i % 2][half], part);
    }
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
