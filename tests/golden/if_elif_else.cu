// kernels: sections_kernel
// if, elif, else
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }

static __device__ __forceinline__ void
sections(const float x, float& out_value)
{
    float y_4;
    if (x > 3.0f) {
        float y = x * 2.0f;
        y_4 = y;
    } else {
        float y_3;
        if (x > opaque<float>(0.0f)) {
            float y_1 = x + 10.0f;
            y_3 = y_1;
        } else {
            float y_2 = -x;
            y_3 = y_2;
        }
        y_4 = y_3;
    }
    out_value = y_4 + 1.0f;
}

extern "C" __global__ void __launch_bounds__(256, 6)
sections_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out = work.of<float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        sections(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) sections(x.item[i], out_value.item[i]);
            *(rows::Pack<float, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                sections(x_in[last], out[last]);
            }
        }
    }
#endif
}
