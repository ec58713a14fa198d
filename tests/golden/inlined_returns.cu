// kernels: signs_kernel
// calls of functions with early returns
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }

static __device__ __forceinline__ void
signs(const float x, long long& out_value)
{
    long long sign_of_result;
    if (x > opaque<float>(0.0f)) {
        sign_of_result = 1;
    } else {
        if (x < opaque<float>(0.0f)) {
            sign_of_result = -1;
        } else {
            sign_of_result = 0;
        }
    }
    const float x_1 = -x;
    long long sign_of_result_1;
    if (x_1 > opaque<float>(0.0f)) {
        sign_of_result_1 = 1;
    } else {
        if (x_1 < opaque<float>(0.0f)) {
            sign_of_result_1 = -1;
        } else {
            sign_of_result_1 = 0;
        }
    }
    out_value = (sign_of_result * 10) + sign_of_result_1;
}

extern "C" __global__ void __launch_bounds__(256, 6)
signs_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    long long* __restrict__ const out = work.of<long long>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        signs(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<float, 2> x = *(const rows::Pack<float, 2>*)(x_in + row);
            rows::Pack<long long, 2> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) signs(x.item[i], out_value.item[i]);
            *(rows::Pack<long long, 2>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                signs(x_in[last], out[last]);
            }
        }
    }
#endif
}
