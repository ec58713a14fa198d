// kernels: lambda_kernel
// and, or, not
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const bool* __restrict__ a_in, const bool* __restrict__ b_in, bool* __restrict__ out_0, bool* __restrict__ out_1, bool* __restrict__ out_2, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const bool a = a_in[element];
        const bool b = b_in[element];
        out_0[element] = a && b;
        out_1[element] = a || b;
        out_2[element] = !a;
    }
}
