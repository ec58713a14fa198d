// A histogram per block in shared memory, joined in global memory.
#include <stdint.h>
#define BINS 256

extern "C" __global__ void histogram(const unsigned char* data, unsigned int* bins, size_t n)
{
    __shared__ unsigned int block_bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        block_bins[bin] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        atomicAdd(&block_bins[data[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        if (block_bins[bin])
            atomicAdd(bins + bin, block_bins[bin]);
}
