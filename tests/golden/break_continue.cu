// kernels: escapes_kernel
// break
extern "C" __global__ void __launch_bounds__(256)
escapes_kernel(const float* __restrict__ x_in, long long* __restrict__ out_0, float* __restrict__ out_1, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        float y = x * 0.0f;
        long long count = 0;
        for (int i = 0; i < 20; ++i) {
            if (y > 4.0f) {
                break;
            } else {
                if ((i % 3) == 1) {
                    continue;
                } else {
                    y = y + x;
                    count = count + 1;
                }
            }
        }
        out_0[element] = count;
        out_1[element] = y;
    }
}
