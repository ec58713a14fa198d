// kernels: weights_kernel
// for over a tuple
#include "vispark/rows.h"

static __device__ __forceinline__ void
weights(const float x, float& out_value)
{
    float s = 0.0f + (0.5f * x);
    s = s + (2.0f * x);
    s = s + (x * x);
    out_value = s;
}

extern "C" __global__ void __launch_bounds__(256, 6)
weights_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out = work.of<float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        weights(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) weights(x.item[i], out_value.item[i]);
            *(rows::Pack<float, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                weights(x_in[last], out[last]);
            }
        }
    }
#endif
}
