// kernels: collatz_kernel
// while
#include "vispark/rows.h"

// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b) { return vispark::floor_quotient<T>(a, b); }
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b) { return vispark::floor_rest<T>(a, b); }

static __device__ __forceinline__ void
collatz(const long long x, long long& out_value)
{
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
    out_value = steps;
}

extern "C" __global__ void __launch_bounds__(256, 6)
collatz_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const long long* __restrict__ const x_in = work.of<const long long>(0, 1);
    long long* __restrict__ const out = work.of<long long>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        collatz(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<long long, 2> x = *(const rows::Pack<long long, 2>*)(x_in + row);
            rows::Pack<long long, 2> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) collatz(x.item[i], out_value.item[i]);
            *(rows::Pack<long long, 2>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                collatz(x_in[last], out[last]);
            }
        }
    }
#endif
}
