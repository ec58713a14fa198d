// kernels: lambda_kernel
// scalars as arguments
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ x_in, float* __restrict__ out, const double a, const long long b, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out[element] = (x * ((float)a)) + ((float)b);
    }
}
