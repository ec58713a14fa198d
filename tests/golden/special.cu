// kernels: near_kernel
// special: near functions of float32
#include "vispark/rows.h"

// Functions of scipy.special, in the precision of their operands.
__device__ __forceinline__ float exp_of(float a) { return expf(a); }
__device__ __forceinline__ double exp_of(double a) { return exp(a); }
__device__ __forceinline__ float log_of(float a) { return logf(a); }
__device__ __forceinline__ double log_of(double a) { return log(a); }
__device__ __forceinline__ float log1p_of(float a) { return log1pf(a); }
__device__ __forceinline__ double log1p_of(double a) { return log1p(a); }
template <class T> __device__ __forceinline__ T special_expit(T a) { return 1 / (1 + exp_of(-a)); }
template <class T> __device__ __forceinline__ T special_logit(T a)
{
    if (a < T(0.3) || a > T(0.65)) return log_of(a / (1 - a));
    const T centred = 2 * (a - T(0.5));
    return log1p_of(centred) - log1p_of(-centred);
}
template <class T> __device__ __forceinline__ T special_log_expit(T a)
{
    return a < 0 ? a - log1p_of(exp_of(a)) : -log1p_of(exp_of(-a));
}
template <class T> __device__ __forceinline__ T special_entr(T a)
{
    const T none = T(0), least = log_of(none);
    return a > 0 ? -a * log_of(a) : a == 0 ? none : a < 0 ? least : a;
}

static __device__ __forceinline__ void
near(const float x, float& out_0_value, float& out_1_value, float& out_2_value, float& out_3_value, float& out_4_value, float& out_5_value, float& out_6_value, float& out_7_value, float& out_8_value)
{
    out_0_value = erff(x);
    out_1_value = special_expit<float>(x);
    out_2_value = special_log_expit<float>(x);
    out_3_value = special_entr<float>(x);
    out_4_value = log1pf(x);
    out_5_value = expm1f(x);
    out_6_value = cbrtf(x);
    out_7_value = exp2f(x);
    out_8_value = special_logit<float>(x);
}

extern "C" __global__ void __launch_bounds__(256, 6)
near_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 10);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out_0 = work.of<float>(1, 1);
    float* __restrict__ const out_1 = work.of<float>(2, 1);
    float* __restrict__ const out_2 = work.of<float>(3, 1);
    float* __restrict__ const out_3 = work.of<float>(4, 1);
    float* __restrict__ const out_4 = work.of<float>(5, 1);
    float* __restrict__ const out_5 = work.of<float>(6, 1);
    float* __restrict__ const out_6 = work.of<float>(7, 1);
    float* __restrict__ const out_7 = work.of<float>(8, 1);
    float* __restrict__ const out_8 = work.of<float>(9, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        near(x_in[row], out_0[row], out_1[row], out_2[row], out_3[row], out_4[row], out_5[row], out_6[row], out_7[row], out_8[row]);
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
            rows::Pack<float, 4> out_6_value;
            rows::Pack<float, 4> out_7_value;
            rows::Pack<float, 4> out_8_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) near(x.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i], out_3_value.item[i], out_4_value.item[i], out_5_value.item[i], out_6_value.item[i], out_7_value.item[i], out_8_value.item[i]);
            *(rows::Pack<float, 4>*)(out_0 + row) = out_0_value;
            *(rows::Pack<float, 4>*)(out_1 + row) = out_1_value;
            *(rows::Pack<float, 4>*)(out_2 + row) = out_2_value;
            *(rows::Pack<float, 4>*)(out_3 + row) = out_3_value;
            *(rows::Pack<float, 4>*)(out_4 + row) = out_4_value;
            *(rows::Pack<float, 4>*)(out_5 + row) = out_5_value;
            *(rows::Pack<float, 4>*)(out_6 + row) = out_6_value;
            *(rows::Pack<float, 4>*)(out_7 + row) = out_7_value;
            *(rows::Pack<float, 4>*)(out_8 + row) = out_8_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                near(x_in[last], out_0[last], out_1[last], out_2[last], out_3[last], out_4[last], out_5[last], out_6[last], out_7[last], out_8[last]);
            }
        }
    }
#endif
}
