// kernels: lambda_kernel
// np.where
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ x_in, float* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out[element] = (x > 0.0f) ? x : 0.1f;
    }
}
