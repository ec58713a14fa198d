// kernels: lambda_kernel
// << and >> of int16
#include "vispark/rows.h"

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

static __device__ __forceinline__ void
lambda(const short a, const short b, short& out_0_value, short& out_1_value)
{
    out_0_value = shift_left<short>(a, b);
    out_1_value = shift_right<short>(a, b);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const short* __restrict__ const a_in = work.of<const short>(0, 1);
    const short* __restrict__ const b_in = work.of<const short>(1, 1);
    short* __restrict__ const out_0 = work.of<short>(2, 1);
    short* __restrict__ const out_1 = work.of<short>(3, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(a_in[row], b_in[row], out_0[row], out_1[row]);
#else
    for (long long row = threadIdx.x * 8; row < work.count; row += 2048) {
        if (row + 8 <= work.count) {
            const rows::Pack<short, 8> a = *(const rows::Pack<short, 8>*)(a_in + row);
            const rows::Pack<short, 8> b = *(const rows::Pack<short, 8>*)(b_in + row);
            rows::Pack<short, 8> out_0_value;
            rows::Pack<short, 8> out_1_value;
            VISPARK_UNROLL
            for (int i = 0; i < 8; ++i) lambda(a.item[i], b.item[i], out_0_value.item[i], out_1_value.item[i]);
            *(rows::Pack<short, 8>*)(out_0 + row) = out_0_value;
            *(rows::Pack<short, 8>*)(out_1 + row) = out_1_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(a_in[last], b_in[last], out_0[last], out_1[last]);
            }
        }
    }
#endif
}
