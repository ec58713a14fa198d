// kernels: lambda_kernel
// ** of float32 by Python numbers
#include "vispark/rows.h"

template <class T> __device__ __forceinline__ T power2(T a) { return a * a; }
template <class T> __device__ __forceinline__ T power3(T a) { return a * a * a; }
template <class T> __device__ __forceinline__ T power4(T a) { return (a * a) * (a * a); }

static __device__ __forceinline__ void
lambda(const float x, float& out_0_value, float& out_1_value, float& out_2_value, float& out_3_value, float& out_4_value, float& out_5_value)
{
    out_0_value = power2(x);
    out_1_value = power3(x);
    out_2_value = power4(x);
    out_3_value = powf(x, 0.5f);
    out_4_value = powf(x, -1.0f);
    out_5_value = powf(2.0f, x);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 7);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out_0 = work.of<float>(1, 1);
    float* __restrict__ const out_1 = work.of<float>(2, 1);
    float* __restrict__ const out_2 = work.of<float>(3, 1);
    float* __restrict__ const out_3 = work.of<float>(4, 1);
    float* __restrict__ const out_4 = work.of<float>(5, 1);
    float* __restrict__ const out_5 = work.of<float>(6, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(x_in[row], out_0[row], out_1[row], out_2[row], out_3[row], out_4[row], out_5[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_0_value;
            rows::Pack<float, 4> out_1_value;
            rows::Pack<float, 4> out_2_value;
            rows::Pack<float, 4> out_3_value;
            rows::Pack<float, 4> out_4_value;
            rows::Pack<float, 4> out_5_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) lambda(x.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i], out_3_value.item[i], out_4_value.item[i], out_5_value.item[i]);
            *(rows::Pack<float, 4>*)(out_0 + row) = out_0_value;
            *(rows::Pack<float, 4>*)(out_1 + row) = out_1_value;
            *(rows::Pack<float, 4>*)(out_2 + row) = out_2_value;
            *(rows::Pack<float, 4>*)(out_3 + row) = out_3_value;
            *(rows::Pack<float, 4>*)(out_4 + row) = out_4_value;
            *(rows::Pack<float, 4>*)(out_5 + row) = out_5_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(x_in[last], out_0[last], out_1[last], out_2[last], out_3[last], out_4[last], out_5[last]);
            }
        }
    }
#endif
}
