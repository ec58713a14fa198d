// Every kind of atomic, and a minimum of doubles that CUDA lacks, by compare-and-swap.
#include <stdint.h>

__device__ double atomic_min(double* address, double value)
{
    unsigned long long* bits = (unsigned long long*)address;
    unsigned long long seen = *bits, assumed;
    do {
        assumed = seen;
        if (__longlong_as_double(assumed) <= value)
            break;
        seen = atomicCAS(bits, assumed, __double_as_longlong(value));
    } while (seen != assumed);
    return __longlong_as_double(seen);
}

extern "C" __global__ void statistics(const double* x, double* sum, double* least, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    atomicAdd(sum, x[i]);
    atomic_min(least, x[i]);
}

extern "C" __global__ void integers(const int* x, int* r, unsigned* u, uint64_t* w, float* f)
{
    const int v = x[threadIdx.x + blockIdx.x * blockDim.x];
    atomicAdd(&r[0], v);
    atomicSub(&r[1], v);
    atomicMin(&r[2], v);
    atomicMax(&r[3], v);
    atomicExch(&r[4], 7);
    atomicAnd(&u[0], ~(1u << (v & 31)));
    atomicOr(&u[1], 1u << (v & 31));
    atomicXor(&u[2], (unsigned)v);
    atomicInc(&u[3], 9u);
    atomicDec(&u[4], 9u);
    atomicMax(&u[5], (unsigned)v);
    atomicCAS(&u[6], 0u, 5u);
    atomicAdd(&w[0], (uint64_t)v << 33);
    atomicMax(&w[1], (uint64_t)v << 33);
    atomicAdd(&f[0], 0.5f);
    __threadfence();
}
