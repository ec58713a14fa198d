// kernels: early_kernel
// early return
extern "C" __global__ void __launch_bounds__(256)
early_kernel(const float* __restrict__ x_in, float* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        if (x < 0.0f) {
            out[element] = x * 0.5f;
        } else {
            if (x > 10.0f) {
                out[element] = x - 10.0f;
            } else {
                float y = x * x;
                out[element] = y;
            }
        }
    }
}
