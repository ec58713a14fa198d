// Tree reduction in dynamic shared memory, in the manner of the CUDA samples.
#include <cuda_runtime.h>
#include <stdio.h>

extern "C" __global__ void sum_blocks(const double* in, double* out, unsigned int n)
{
    extern __shared__ __align__(16) double part[];
    unsigned int t = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    double value = i < n ? in[i] : 0.0;
    if (i + blockDim.x < n)
        value += in[i + blockDim.x];
    part[t] = value;
    __syncthreads();
    for (unsigned int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}
