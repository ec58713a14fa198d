// kernels: augmented_kernel
// augmented assignment
#include "vispark/rows.h"

// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b) { return vispark::floor_quotient<T>(a, b); }
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b) { return vispark::floor_rest<T>(a, b); }
// Shifts by more than the width, or by a negative number, shift everything out, as in NumPy.
template <class T> __device__ __forceinline__ T shift_left(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : T(0);
}

static __device__ __forceinline__ void
augmented(const int x, int& out_value)
{
    int x_1 = (int)((unsigned)x + (unsigned)3);
    x_1 = (int)((unsigned)x_1 * (unsigned)2);
    x_1 = (int)((unsigned)x_1 - (unsigned)1);
    x_1 = floor_divide<int>(x_1, 3);
    x_1 = floor_remainder<int>(x_1, 50);
    x_1 = shift_left<int>(x_1, 1);
    x_1 = x_1 ^ 5;
    x_1 = x_1 | 8;
    x_1 = x_1 & 127;
    out_value = x_1;
}

extern "C" __global__ void __launch_bounds__(256, 6)
augmented_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const x_in = work.of<const int>(0, 1);
    int* __restrict__ const out = work.of<int>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        augmented(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<int, 4> x = *(const rows::Pack<int, 4>*)(x_in + row);
            rows::Pack<int, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) augmented(x.item[i], out_value.item[i]);
            *(rows::Pack<int, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                augmented(x_in[last], out[last]);
            }
        }
    }
#endif
}
