// kernels: lambda_kernel
// broadcasting
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float* __restrict__ out_row, const float* __restrict__ c)
{
    VISPARK_UNROLL
    for (int j = 0; j < 4; ++j) {
        for (int j_1 = 0; j_1 < 5; ++j_1) {
            out_row[j * 5 + j_1] = (c[j * 5 + j_1] - p[j_1]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 2)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const float* __restrict__ c)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 5);
    float* __restrict__ const out = work.of<float>(1, 20);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 5, out + row * 20, c);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 20480);
    for (int ahead = 0; ahead < 0; ++ahead) {
        rows::fetch<5, 5, 128>(p_tiles + ahead * 5120, p_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::barrier();
        rows::fetch<5, 5, 128>(p_tiles, p_in, first, work.count, 1024);
        rows::end_group();
        rows::wait_for_groups<0>();
        rows::barrier();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + row * 5, out_row_tile + row * 20, c);
        }
        rows::barrier();
        rows::give<20, 20, 128>(out + first * 20, out_row_tile, count);
    }
#endif
}
