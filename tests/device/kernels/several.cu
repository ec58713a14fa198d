// kernels: fill, scale, square, inner::negate
// Several kernels in one source, with C and with C++ names, in a namespace, and sharing a device function.
#ifndef SCALE
#define SCALE 2
#endif
#define SQUARE(x) ((x) * (x))

static __device__ __noinline__ float scaled(float x) { return SCALE * x; }

extern "C" {
__global__ void fill(float* x, float value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value;
}
__global__ void scale(float* x, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = scaled(x[i]);
}
}

__global__ void square(float* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = SQUARE(x[i]);
}

namespace inner {
__global__ void negate(float* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = -x[i];
}
}
