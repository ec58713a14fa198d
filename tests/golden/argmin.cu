// kernels: lambda_kernel
// np.argmin, np.argmax
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }
template <class T> __device__ __forceinline__ bool is_nan(T a) { return a != a; }

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, long long& out_0_value, long long& out_1_value, long long& out_2_value, long long& out_3_value)
{
    float min_1 = opaque<float>(p[0]);
    int argmin = 0;
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        const float value = p[j];
        if (value < min_1 || (is_nan<float>(value) && !is_nan<float>(min_1))) {
            min_1 = value;
            argmin = j;
        }
    }
    float max_1 = opaque<float>(p[0]);
    int argmax = 0;
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        const float value_1 = p[j];
        if (value_1 > max_1 || (is_nan<float>(value_1) && !is_nan<float>(max_1))) {
            max_1 = value_1;
            argmax = j;
        }
    }
    float min_2 = opaque<float>(p[0]);
    int argmin_1 = 0;
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        const float value_2 = p[j];
        if (value_2 < min_2 || (is_nan<float>(value_2) && !is_nan<float>(min_2))) {
            min_2 = value_2;
            argmin_1 = j;
        }
    }
    float max_2 = opaque<float>(p[0]);
    int argmax_1 = 0;
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        const float value_3 = p[j];
        if (value_3 > max_2 || (is_nan<float>(value_3) && !is_nan<float>(max_2))) {
            max_2 = value_3;
            argmax_1 = j;
        }
    }
    out_0_value = (long long)argmin;
    out_1_value = (long long)argmax;
    out_2_value = (long long)argmin_1;
    out_3_value = (long long)argmax_1;
}

extern "C" __global__ void __launch_bounds__(128, 8)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 5);
    const float* __restrict__ const p_in = work.of<const float>(0, 3);
    long long* __restrict__ const out_0 = work.of<long long>(1, 1);
    long long* __restrict__ const out_1 = work.of<long long>(2, 1);
    long long* __restrict__ const out_2 = work.of<long long>(3, 1);
    long long* __restrict__ const out_3 = work.of<long long>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 3, out_0[row], out_1[row], out_2[row], out_3[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<3, 3, 128>(p_tiles + ahead * 3072, p_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<3, 3, 128>(p_tiles + ((turn + 1) % 2) * 3072, p_in, first + 1024, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 2 * 3072 + row * 3, out_0[first + row], out_1[first + row], out_2[first + row], out_3[first + row]);
        }
    }
#endif
}
