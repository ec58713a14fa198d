// kernels: lambda_kernel
// chained comparisons
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }
template <class T> __device__ __forceinline__ bool less_equal(T a, T b) { return a <= b && a == a && b == b; }

static __device__ __forceinline__ void
lambda(const float x, bool& out_value)
{
    out_value = (opaque<float>(0.0f) < x) && (less_equal<float>(x, 3.0f));
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    bool* __restrict__ const out = work.of<bool>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<bool, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) lambda(x.item[i], out_value.item[i]);
            *(rows::Pack<bool, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(x_in[last], out[last]);
            }
        }
    }
#endif
}
