// kernels: inner_kernel
// inner functions
extern "C" __global__ void __launch_bounds__(256)
inner_kernel(const float* __restrict__ x_in, float* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        float k = x * 2.0f;
        const float scale = k;
        out[element] = ((x * 3.0f) + k) + ((1.0f * scale) + k);
    }
}
