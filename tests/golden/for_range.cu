// kernels: horner_kernel
// for over range
extern "C" __global__ void __launch_bounds__(256)
horner_kernel(const float* __restrict__ x_in, float* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        float s = 0.0f;
        for (int i = 0; i < 5; ++i) {
            s = (s * x) + ((float)i);
        }
        out[element] = s;
    }
}
