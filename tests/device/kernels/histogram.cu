// A histogram per block in shared memory, joined in global memory.
#include <stdint.h>
#define BINS 256

extern "C" __global__ void histogram(const unsigned char* data, unsigned int* bins, size_t n)
{
    __shared__ unsigned int mine[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        mine[bin] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        atomicAdd(&mine[data[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        if (mine[bin])
            atomicAdd(bins + bin, mine[bin]);
}
