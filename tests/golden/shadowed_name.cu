// kernels: types_kernel
// a name of several types
extern "C" __global__ void __launch_bounds__(256)
types_kernel(const float* __restrict__ x_in, long long* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        bool y = x > 0.0f;
        float y_1 = y ? x : (-x);
        long long y_2 = (long long)(y_1 > 3.0f);
        out[element] = y_2;
    }
}
