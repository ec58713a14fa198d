// kernels: lambda_kernel
// nested tuples as a result
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, bool& out_0_value, float* __restrict__ out_1_0_row, long long& out_1_1_value)
{
    out_0_value = p[0] > opaque<float>(0.0f);
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        out_1_0_row[j] = p[j];
    }
    out_1_1_value = 1LL;
}

extern "C" __global__ void __launch_bounds__(128, 4)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const float* __restrict__ const p_in = work.of<const float>(0, 3);
    bool* __restrict__ const out_0 = work.of<bool>(1, 1);
    float* __restrict__ const out_1_0 = work.of<float>(2, 3);
    long long* __restrict__ const out_1_1 = work.of<long long>(3, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 3, out_0[row], out_1_0 + row * 3, out_1_1[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_1_0_row_tile = (float*)(memory + 36864);
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<3, 3, 128>(p_tiles + ahead * 3072, p_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<3, 3, 128>(p_tiles + ((turn + 2) % 3) * 3072, p_in, first + 2048, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 3 * 3072 + row * 3, out_0[first + row], out_1_0_row_tile + row * 3, out_1_1[first + row]);
        }
        rows::barrier();
        rows::give<3, 3, 128>(out_1_0 + first * 3, out_1_0_row_tile, count);
    }
#endif
}
