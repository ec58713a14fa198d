// kernels: tuples_kernel
// tuples and unpacking
extern "C" __global__ void __launch_bounds__(256)
tuples_kernel(const float* __restrict__ x_in, float* __restrict__ out_0, float* __restrict__ out_1_0, float* __restrict__ out_1_1, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        const float value = x + 1.0f;
        const float value_1 = x * 2.0f;
        float t_0 = value;
        float t_1 = x;
        float t_2 = value_1;
        out_0[element] = t_0 - t_2;
        out_1_0[element] = t_1;
        out_1_1[element] = t_2;
    }
}
