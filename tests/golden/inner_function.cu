// kernels: inner_kernel
// inner functions
#include "vispark/rows.h"

static __device__ __forceinline__ void
inner(const float x, float& out_value)
{
    float k = x * 2.0f;
    const float scale = k;
    out_value = ((x * 3.0f) + k) + ((1.0f * scale) + k);
}

extern "C" __global__ void __launch_bounds__(256, 6)
inner_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out = work.of<float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        inner(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) inner(x.item[i], out_value.item[i]);
            *(rows::Pack<float, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                inner(x_in[last], out[last]);
            }
        }
    }
#endif
}
