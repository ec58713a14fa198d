// kernels: lambda_kernel
// promotion: int32 with Python numbers
extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const int* __restrict__ x_in, int* __restrict__ out_0, double* __restrict__ out_1, int* __restrict__ out_2, int* __restrict__ out_3, double* __restrict__ out_4, double* __restrict__ out_5, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const int x = x_in[element];
        out_0[element] = (int)((unsigned)x * (unsigned)2);
        out_1[element] = ((double)x) * 0.1;
        out_2[element] = (int)((unsigned)x + (unsigned)1);
        out_3[element] = (int)((unsigned)1 - (unsigned)x);
        out_4[element] = ((double)x) / 2.0;
        out_5[element] = 3.0 * ((double)x);
    }
}
