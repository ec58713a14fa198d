// kernels: lambda_kernel
// a dict as a result
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ a_in, const float* __restrict__ b_in, float* __restrict__ out_b, bool* __restrict__ out_c, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float a = a_in[element];
        const float b = b_in[element];
        out_b[element] = a + b;
        out_c[element] = a > 0.0f;
    }
}
