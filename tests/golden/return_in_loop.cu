// kernels: crossing_kernel
// return inside a loop
extern "C" __global__ void __launch_bounds__(256)
crossing_kernel(const float* __restrict__ x_in, long long* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        [&] {
            for (int i = 0; i < 8; ++i) {
                if ((x * ((float)i)) > 10.0f) {
                    out[element] = (long long)i;
                    return;
                }
            }
            out[element] = -1LL;
            return;
        }();
    }
}
