// kernels: augmented_kernel
// augmented assignment
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
// Shifts by more than the width, or by a negative number, shift everything out, as in NumPy.
template <class T> __device__ __forceinline__ T shift_left(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : T(0);
}

extern "C" __global__ void __launch_bounds__(256)
augmented_kernel(const int* __restrict__ x_in, int* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const int x = x_in[element];
        int x_1 = (int)((unsigned)x + (unsigned)3);
        x_1 = (int)((unsigned)x_1 * (unsigned)2);
        x_1 = (int)((unsigned)x_1 - (unsigned)1);
        x_1 = floor_divide<int>(x_1, 3);
        x_1 = floor_remainder<int>(x_1, 50);
        x_1 = shift_left<int>(x_1, 1);
        x_1 = x_1 ^ 5;
        x_1 = x_1 | 8;
        x_1 = x_1 & 127;
        out[element] = x_1;
    }
}
