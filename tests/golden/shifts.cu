// kernels: lambda_kernel
// << and >> of int16
// Shifts by more than the width, or by a negative number, shift everything out, as in NumPy.
template <class T> __device__ __forceinline__ T shift_left(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : T(0);
}
template <class T> __device__ __forceinline__ T shift_right(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)(a >> by) : a < 0 ? T(-1) : T(0);
}

extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const short* __restrict__ a_in, const short* __restrict__ b_in, short* __restrict__ out_0, short* __restrict__ out_1, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const short a = a_in[element];
        const short b = b_in[element];
        out_0[element] = shift_left<short>(a, b);
        out_1[element] = shift_right<short>(a, b);
    }
}
