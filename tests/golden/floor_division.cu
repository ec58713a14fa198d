// kernels: lambda_kernel
// // and % of int32
#include "vispark/rows.h"

// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b) { return vispark::floor_quotient<T>(a, b); }
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b) { return vispark::floor_rest<T>(a, b); }

static __device__ __forceinline__ void
lambda(const int a, const int b, int& out_0_value, int& out_1_value)
{
    out_0_value = floor_divide<int>(a, b);
    out_1_value = floor_remainder<int>(a, b);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const int* __restrict__ const a_in = work.of<const int>(0, 1);
    const int* __restrict__ const b_in = work.of<const int>(1, 1);
    int* __restrict__ const out_0 = work.of<int>(2, 1);
    int* __restrict__ const out_1 = work.of<int>(3, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(a_in[row], b_in[row], out_0[row], out_1[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<int, 4> a = *(const rows::Pack<int, 4>*)(a_in + row);
            const rows::Pack<int, 4> b = *(const rows::Pack<int, 4>*)(b_in + row);
            rows::Pack<int, 4> out_0_value;
            rows::Pack<int, 4> out_1_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) lambda(a.item[i], b.item[i], out_0_value.item[i], out_1_value.item[i]);
            *(rows::Pack<int, 4>*)(out_0 + row) = out_0_value;
            *(rows::Pack<int, 4>*)(out_1 + row) = out_1_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(a_in[last], b_in[last], out_0[last], out_1[last]);
            }
        }
    }
#endif
}
