// kernels: shifted_kernel
// closures over numbers and arrays
#include "vispark/rows.h"

static __device__ __forceinline__ void
shifted(const float x, float& out_value, const double step, const float* __restrict__ table)
{
    out_value = (x * ((float)step)) + table[1];
}

extern "C" __global__ void __launch_bounds__(256, 6)
shifted_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const double step, const float* __restrict__ table)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out = work.of<float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        shifted(x_in[row], out[row], step, table);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) shifted(x.item[i], out_value.item[i], step, table);
            *(rows::Pack<float, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                shifted(x_in[last], out[last], step, table);
            }
        }
    }
#endif
}
