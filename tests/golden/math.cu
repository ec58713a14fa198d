// kernels: lambda_kernel
// math.exp of float32 is a Python float
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ x_in, double* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out[element] = exp((double)x);
    }
}
