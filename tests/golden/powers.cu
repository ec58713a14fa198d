// kernels: lambda_kernel
// ** of float32 by Python numbers
template <class T> __device__ __forceinline__ T power2(T a) { return a * a; }
template <class T> __device__ __forceinline__ T power3(T a) { return a * a * a; }
template <class T> __device__ __forceinline__ T power4(T a) { return (a * a) * (a * a); }

extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const float* __restrict__ x_in, float* __restrict__ out_0, float* __restrict__ out_1, float* __restrict__ out_2, float* __restrict__ out_3, float* __restrict__ out_4, float* __restrict__ out_5, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        out_0[element] = power2(x);
        out_1[element] = power3(x);
        out_2[element] = power4(x);
        out_3[element] = powf(x, 0.5f);
        out_4[element] = powf(x, -1.0f);
        out_5[element] = powf(2.0f, x);
    }
}
