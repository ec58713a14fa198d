// kernels: crossing_kernel
// return inside a loop
#include "vispark/rows.h"

static __device__ __forceinline__ void
crossing(const float x, long long& out_value)
{
    [&] {
        for (int i = 0; i < 8; ++i) {
            if ((x * ((float)i)) > 10.0f) {
                out_value = (long long)i;
                return;
            }
        }
        out_value = -1LL;
        return;
    }();
}

extern "C" __global__ void __launch_bounds__(256, 6)
crossing_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    long long* __restrict__ const out = work.of<long long>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        crossing(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<float, 2> x = *(const rows::Pack<float, 2>*)(x_in + row);
            rows::Pack<long long, 2> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) crossing(x.item[i], out_value.item[i]);
            *(rows::Pack<long long, 2>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                crossing(x_in[last], out[last]);
            }
        }
    }
#endif
}
