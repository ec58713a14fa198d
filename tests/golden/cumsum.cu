// kernels: lambda_kernel
// np.cumsum
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float* __restrict__ out_row)
{
    float running[5];
    float total = p[0];
    running[0] = total;
    for (int j = 0; j < 4; ++j) {
        total = total + p[j + 1];
        running[j + 1] = total;
    }
    VISPARK_UNROLL
    for (int j = 0; j < 5; ++j) {
        out_row[j] = running[j];
    }
}

extern "C" __global__ void __launch_bounds__(128, 2)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 5);
    float* __restrict__ const out = work.of<float>(1, 5);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 5, out + row * 5);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 61440);
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<5, 5, 128>(p_tiles + ahead * 5120, p_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<5, 5, 128>(p_tiles + ((turn + 2) % 3) * 5120, p_in, first + 2048, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 3 * 5120 + row * 5, out_row_tile + row * 5);
        }
        rows::barrier();
        rows::give<5, 5, 128>(out + first * 5, out_row_tile, count);
    }
#endif
}
