// kernels: sections_kernel
// if, elif, else
extern "C" __global__ void __launch_bounds__(256)
sections_kernel(const float* __restrict__ x_in, float* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        float y_4;
        if (x > 3.0f) {
            float y = x * 2.0f;
            y_4 = y;
        } else {
            float y_3;
            if (x > 0.0f) {
                float y_1 = x + 10.0f;
                y_3 = y_1;
            } else {
                float y_2 = -x;
                y_3 = y_2;
            }
            y_4 = y_3;
        }
        out[element] = y_4 + 1.0f;
    }
}
