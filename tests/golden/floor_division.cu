// kernels: lambda_kernel
// // and % of int32
// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b)
{
    if (b == 0) return 0;
    if (T(-1) < 0 && b == T(-1)) return (T)(0ull - (unsigned long long)a);
    const T quotient = a / b;
    return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b)
{
    if (b == 0 || (T(-1) < 0 && b == T(-1))) return 0;
    const T rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}

extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const int* __restrict__ a_in, const int* __restrict__ b_in, int* __restrict__ out_0, int* __restrict__ out_1, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const int a = a_in[element];
        const int b = b_in[element];
        out_0[element] = floor_divide<int>(a, b);
        out_1[element] = floor_remainder<int>(a, b);
    }
}
