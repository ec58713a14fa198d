// kernels: lambda_kernel
// promotion: float32 with Python numbers
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ x_in, float* __restrict__ out_0, float* __restrict__ out_1, float* __restrict__ out_2, float* __restrict__ out_3, float* __restrict__ out_4, float* __restrict__ out_5, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out_0[element] = x * 2.0f;
        out_1[element] = x * 0.1f;
        out_2[element] = x + 1.0f;
        out_3[element] = 1.0f - x;
        out_4[element] = x / 2.0f;
        out_5[element] = 3.0f * x;
    }
}
