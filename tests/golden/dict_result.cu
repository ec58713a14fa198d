// kernels: lambda_kernel
// a dict as a result
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }

static __device__ __forceinline__ void
lambda(const float a, const float b, float& out_b_value, bool& out_c_value)
{
    out_b_value = a + b;
    out_c_value = a > opaque<float>(0.0f);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const float* __restrict__ const a_in = work.of<const float>(0, 1);
    const float* __restrict__ const b_in = work.of<const float>(1, 1);
    float* __restrict__ const out_b = work.of<float>(2, 1);
    bool* __restrict__ const out_c = work.of<bool>(3, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(a_in[row], b_in[row], out_b[row], out_c[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> a = *(const rows::Pack<float, 4>*)(a_in + row);
            const rows::Pack<float, 4> b = *(const rows::Pack<float, 4>*)(b_in + row);
            rows::Pack<float, 4> out_b_value;
            rows::Pack<bool, 4> out_c_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) lambda(a.item[i], b.item[i], out_b_value.item[i], out_c_value.item[i]);
            *(rows::Pack<float, 4>*)(out_b + row) = out_b_value;
            *(rows::Pack<bool, 4>*)(out_c + row) = out_c_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(a_in[last], b_in[last], out_b[last], out_c[last]);
            }
        }
    }
#endif
}
