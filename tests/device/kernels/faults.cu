// Kernels that go wrong.
#include <assert.h>
extern "C" __global__ void illegal_address(int* x) { *(volatile int*)(x == 0 ? (int*)16 : (int*)64) = 1; }
extern "C" __global__ void trap(int n) { if (threadIdx.x == n) __trap(); }
extern "C" __global__ void failed_assertion(int n) { assert(n == 12345); }
extern "C" __global__ void diverging_barrier(int n)
{
    if (threadIdx.x < n) __syncthreads();
    else __syncwarp(0xffffffffu);
}
