// kernels: collatz_kernel
// while
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
collatz_kernel(const long long* __restrict__ x_in, long long* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const long long x = x_in[element];
        long long steps = 0;
        long long x_1 = x;
        while (x_1 > 1LL) {
            if (floor_remainder<long long>(x_1, 2LL) == 0LL) {
                x_1 = floor_divide<long long>(x_1, 2LL);
            } else {
                x_1 = (long long)((unsigned long long)((long long)((unsigned long long)3LL * (unsigned long long)x_1)) + (unsigned long long)1LL);
            }
            steps = steps + 1;
        }
        out[element] = steps;
    }
}
