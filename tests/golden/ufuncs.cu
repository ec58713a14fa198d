// kernels: lambda_kernel
// np.exp and its like
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ x_in, float* __restrict__ out_0, float* __restrict__ out_1, float* __restrict__ out_2, float* __restrict__ out_3, float* __restrict__ out_4, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out_0[element] = expf(x);
        out_1[element] = exp2f(x);
        out_2[element] = expm1f(x);
        out_3[element] = cbrtf(x);
        out_4[element] = tanhf(x);
    }
}
