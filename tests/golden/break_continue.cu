// kernels: escapes_kernel
// break
#include "vispark/rows.h"

static __device__ __forceinline__ void
escapes(const float x, long long& out_0_value, float& out_1_value)
{
    float y = x * 0.0f;
    long long count_1 = 0;
    for (int i = 0; i < 20; ++i) {
        if (y > 4.0f) {
            break;
        } else {
            if ((i % 3) == 1) {
                continue;
            } else {
                y = y + x;
                count_1 = count_1 + 1;
            }
        }
    }
    out_0_value = count_1;
    out_1_value = y;
}

extern "C" __global__ void __launch_bounds__(256, 6)
escapes_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 3);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    long long* __restrict__ const out_0 = work.of<long long>(1, 1);
    float* __restrict__ const out_1 = work.of<float>(2, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        escapes(x_in[row], out_0[row], out_1[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<float, 2> x = *(const rows::Pack<float, 2>*)(x_in + row);
            rows::Pack<long long, 2> out_0_value;
            rows::Pack<float, 2> out_1_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) escapes(x.item[i], out_0_value.item[i], out_1_value.item[i]);
            *(rows::Pack<long long, 2>*)(out_0 + row) = out_0_value;
            *(rows::Pack<float, 2>*)(out_1 + row) = out_1_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                escapes(x_in[last], out_0[last], out_1[last]);
            }
        }
    }
#endif
}
