// kernels: lambda_kernel
// promotion: int32 with Python numbers
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const int x, int& out_0_value, double& out_1_value, int& out_2_value, int& out_3_value, double& out_4_value, double& out_5_value)
{
    out_0_value = (int)((unsigned)x * (unsigned)2);
    out_1_value = ((double)x) * 0.1;
    out_2_value = (int)((unsigned)x + (unsigned)1);
    out_3_value = (int)((unsigned)1 - (unsigned)x);
    out_4_value = ((double)x) / 2.0;
    out_5_value = 3.0 * ((double)x);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 7);
    const int* __restrict__ const x_in = work.of<const int>(0, 1);
    int* __restrict__ const out_0 = work.of<int>(1, 1);
    double* __restrict__ const out_1 = work.of<double>(2, 1);
    int* __restrict__ const out_2 = work.of<int>(3, 1);
    int* __restrict__ const out_3 = work.of<int>(4, 1);
    double* __restrict__ const out_4 = work.of<double>(5, 1);
    double* __restrict__ const out_5 = work.of<double>(6, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(x_in[row], out_0[row], out_1[row], out_2[row], out_3[row], out_4[row], out_5[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<int, 2> x = *(const rows::Pack<int, 2>*)(x_in + row);
            rows::Pack<int, 2> out_0_value;
            rows::Pack<double, 2> out_1_value;
            rows::Pack<int, 2> out_2_value;
            rows::Pack<int, 2> out_3_value;
            rows::Pack<double, 2> out_4_value;
            rows::Pack<double, 2> out_5_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) lambda(x.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i], out_3_value.item[i], out_4_value.item[i], out_5_value.item[i]);
            *(rows::Pack<int, 2>*)(out_0 + row) = out_0_value;
            *(rows::Pack<double, 2>*)(out_1 + row) = out_1_value;
            *(rows::Pack<int, 2>*)(out_2 + row) = out_2_value;
            *(rows::Pack<int, 2>*)(out_3 + row) = out_3_value;
            *(rows::Pack<double, 2>*)(out_4 + row) = out_4_value;
            *(rows::Pack<double, 2>*)(out_5 + row) = out_5_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(x_in[last], out_0[last], out_1[last], out_2[last], out_3[last], out_4[last], out_5[last]);
            }
        }
    }
#endif
}
