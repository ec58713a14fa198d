// kernels: lambda_kernel
// math.exp of float32 is a Python float
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float x, double& out_value)
{
    out_value = exp((double)x);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    double* __restrict__ const out = work.of<double>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<float, 2> x = *(const rows::Pack<float, 2>*)(x_in + row);
            rows::Pack<double, 2> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) lambda(x.item[i], out_value.item[i]);
            *(rows::Pack<double, 2>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(x_in[last], out[last]);
            }
        }
    }
#endif
}
