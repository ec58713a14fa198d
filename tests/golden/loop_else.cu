// kernels: first_divisor_kernel
// for with else
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b)
{
    if (b == 0 || (T(-1) < 0 && b == T(-1))) return 0;
    const T rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}

extern "C" __global__ void __launch_bounds__(256)
first_divisor_kernel(const int* __restrict__ n_in, long long* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const int n_1 = n_in[element];
        long long found;
        bool broke = false;
        for (int i = 2; i < 6; ++i) {
            if (floor_remainder<int>(n_1, (int)i) == 0) {
                found = i;
                broke = true;
                break;
            }
        }
        long long found_1;
        if (!broke) {
            found_1 = -1;
        } else {
            found_1 = found;
        }
        out[element] = found_1;
    }
}
