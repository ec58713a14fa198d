// kernels: globals_kernel
// module variables
extern "C" __global__ void __launch_bounds__(256)
globals_kernel(const float* __restrict__ x_in, float* __restrict__ out, const double RATE, const long long LIMIT, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out[element] = (x * ((float)RATE)) + ((float)LIMIT);
    }
}
