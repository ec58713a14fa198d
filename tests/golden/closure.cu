// kernels: shifted_kernel
// closures over numbers and arrays
extern "C" __global__ void __launch_bounds__(256)
shifted_kernel(const float* __restrict__ x_in, float* __restrict__ out, const double step, const float* __restrict__ table, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out[element] = (x * ((float)step)) + table[1];
    }
}
