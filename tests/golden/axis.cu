// kernels: lambda_kernel
// np.sum along an axis
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float* __restrict__ b, float* __restrict__ out_0_row, float* __restrict__ out_1_row)
{
    float sum_1[4];
    for (int row_1 = 0; row_1 < 4; ++row_1) {
        float sum_2 = 0.0f;
        VISPARK_UNROLL
        for (int j = 0; j < 3; ++j) {
            sum_2 += b[j * 4 + row_1];
        }
        sum_1[row_1] = sum_2;
    }
    float sum_4[3];
    for (int row_1 = 0; row_1 < 3; ++row_1) {
        float sum_5 = 0.0f;
        VISPARK_UNROLL
        for (int j = 0; j < 4; ++j) {
            sum_5 += b[row_1 * 4 + j];
        }
        sum_4[row_1] = sum_5;
    }
    VISPARK_UNROLL
    for (int j = 0; j < 4; ++j) {
        out_0_row[j] = sum_1[j];
    }
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        out_1_row[j] = sum_4[j];
    }
}

extern "C" __global__ void __launch_bounds__(128, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 3);
    const float* __restrict__ const b_in = work.of<const float>(0, 12);
    float* __restrict__ const out_0 = work.of<float>(1, 4);
    float* __restrict__ const out_1 = work.of<float>(2, 3);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(b_in + row * 12, out_0 + row * 4, out_1 + row * 3);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const b_tiles = (float*)(memory + 0);
    float* const out_0_row_tile = (float*)(memory + 24576);
    float* const out_1_row_tile = (float*)(memory + 28672);
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
            lambda(b_tiles + turn % 2 * 3072 + row * 12, out_0_row_tile + row * 4, out_1_row_tile + row * 3);
        }
        rows::barrier();
        rows::give<4, 4, 128>(out_0 + first * 4, out_0_row_tile, count);
        rows::give<3, 3, 128>(out_1 + first * 3, out_1_row_tile, count);
    }
#endif
}
