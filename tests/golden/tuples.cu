// kernels: tuples_kernel
// tuples and unpacking
#include "vispark/rows.h"

static __device__ __forceinline__ void
tuples(const float x, float& out_0_value, float& out_1_0_value, float& out_1_1_value)
{
    const float value = x + 1.0f;
    const float value_1 = x * 2.0f;
    float t_0 = value;
    float t_1 = x;
    float t_2 = value_1;
    out_0_value = t_0 - t_2;
    out_1_0_value = t_1;
    out_1_1_value = t_2;
}

extern "C" __global__ void __launch_bounds__(256, 6)
tuples_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out_0 = work.of<float>(1, 1);
    float* __restrict__ const out_1_0 = work.of<float>(2, 1);
    float* __restrict__ const out_1_1 = work.of<float>(3, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        tuples(x_in[row], out_0[row], out_1_0[row], out_1_1[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_0_value;
            rows::Pack<float, 4> out_1_0_value;
            rows::Pack<float, 4> out_1_1_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) tuples(x.item[i], out_0_value.item[i], out_1_0_value.item[i], out_1_1_value.item[i]);
            *(rows::Pack<float, 4>*)(out_0 + row) = out_0_value;
            *(rows::Pack<float, 4>*)(out_1_0 + row) = out_1_0_value;
            *(rows::Pack<float, 4>*)(out_1_1 + row) = out_1_1_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                tuples(x_in[last], out_0[last], out_1_0[last], out_1_1[last]);
            }
        }
    }
#endif
}
