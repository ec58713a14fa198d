// kernels: spin, fill<float>, add_constant, sum_shared, stray
// What the tests of a real GPU launch.
#include <stdint.h>

__constant__ float addend[2];

extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}

template <typename T>
__global__ void fill(T* out, T value, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = value;
}

extern "C" __global__ void add_constant(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += addend[1];
}

// Sums n values through n * 4 bytes of dynamic shared memory.
extern "C" __global__ void sum_shared(const float* in, float* out, int n) {
    extern __shared__ float part[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) part[i] = in[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += part[i];
        out[0] = sum;
    }
}

extern "C" __global__ void stray(float* out) { *(volatile float*)((char*)out + (1LL << 46)) = 1; }
