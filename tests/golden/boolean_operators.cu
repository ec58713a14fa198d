// kernels: lambda_kernel
// and, or, not
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const bool a, const bool b, bool& out_0_value, bool& out_1_value, bool& out_2_value)
{
    out_0_value = a && b;
    out_1_value = a || b;
    out_2_value = !a;
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 5);
    const bool* __restrict__ const a_in = work.of<const bool>(0, 1);
    const bool* __restrict__ const b_in = work.of<const bool>(1, 1);
    bool* __restrict__ const out_0 = work.of<bool>(2, 1);
    bool* __restrict__ const out_1 = work.of<bool>(3, 1);
    bool* __restrict__ const out_2 = work.of<bool>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(a_in[row], b_in[row], out_0[row], out_1[row], out_2[row]);
#else
    for (long long row = threadIdx.x * 16; row < work.count; row += 4096) {
        if (row + 16 <= work.count) {
            const rows::Pack<bool, 16> a = *(const rows::Pack<bool, 16>*)(a_in + row);
            const rows::Pack<bool, 16> b = *(const rows::Pack<bool, 16>*)(b_in + row);
            rows::Pack<bool, 16> out_0_value;
            rows::Pack<bool, 16> out_1_value;
            rows::Pack<bool, 16> out_2_value;
            VISPARK_UNROLL
            for (int i = 0; i < 16; ++i) lambda(a.item[i], b.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i]);
            *(rows::Pack<bool, 16>*)(out_0 + row) = out_0_value;
            *(rows::Pack<bool, 16>*)(out_1 + row) = out_1_value;
            *(rows::Pack<bool, 16>*)(out_2 + row) = out_2_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(a_in[last], b_in[last], out_0[last], out_1[last], out_2[last]);
            }
        }
    }
#endif
}
