// kernels: lambda_kernel
// two axes
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float* __restrict__ b, float* __restrict__ out_row)
{
    const float value = b[6];
    VISPARK_UNROLL
    for (int j = 0; j < 4; ++j) {
        out_row[j] = (b[j] + (value * b[j + 8]));
    }
}

extern "C" __global__ void __launch_bounds__(128, 7)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const b_in = work.of<const float>(0, 12);
    float* __restrict__ const out = work.of<float>(1, 4);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(b_in + row * 12, out + row * 4);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const b_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 24576);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<12, 12, 128>(b_tiles + ahead * 3072, b_in, ahead * 256ll, work.count, 256);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 256, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<12, 12, 128>(b_tiles + ((turn + 1) % 2) * 3072, b_in, first + 256, work.count, 256);
        rows::end_group();
        const int count = rows::least(work.count - first, 256);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(b_tiles + turn % 2 * 3072 + row * 12, out_row_tile + row * 4);
        }
        rows::barrier();
        rows::give<4, 4, 128>(out + first * 4, out_row_tile, count);
    }
#endif
}
