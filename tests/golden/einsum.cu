// kernels: lambda_kernel
// np.einsum of rows
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float& out_0_value, float* __restrict__ out_1_row, float* __restrict__ out_2_row, float& out_3_value, const float* __restrict__ m)
{
    float sum = 0.0f;
    VISPARK_UNROLL
    for (int j = 0; j < 5; ++j) {
        sum += (p[j] * p[j]);
    }
    float sum_2[4];
    for (int row_1 = 0; row_1 < 4; ++row_1) {
        float sum_3 = 0.0f;
        VISPARK_UNROLL
        for (int j = 0; j < 5; ++j) {
            sum_3 += (p[j] * m[j * 4 + row_1]);
        }
        sum_2[row_1] = sum_3;
    }
    float sum_4 = 0.0f;
    VISPARK_UNROLL
    for (int j = 0; j < 5; ++j) {
        sum_4 += p[j];
    }
    out_0_value = sum;
    VISPARK_UNROLL
    for (int j = 0; j < 4; ++j) {
        out_1_row[j] = sum_2[j];
    }
    VISPARK_UNROLL
    for (int j = 0; j < 5; ++j) {
        for (int j_1 = 0; j_1 < 5; ++j_1) {
            out_2_row[j * 5 + j_1] = (p[j] * p[j_1]);
        }
    }
    out_3_value = sum_4;
}

extern "C" __global__ void __launch_bounds__(32, 2)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const float* __restrict__ m)
{
    const rows::Work work(works, ports, 5);
    const float* __restrict__ const p_in = work.of<const float>(0, 5);
    float* __restrict__ const out_0 = work.of<float>(1, 1);
    float* __restrict__ const out_1 = work.of<float>(2, 4);
    float* __restrict__ const out_2 = work.of<float>(3, 25);
    float* __restrict__ const out_3 = work.of<float>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 5, out_0[row], out_1 + row * 4, out_2 + row * 25, out_3[row], m);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_1_row_tile = (float*)(memory + 30720);
    float* const out_2_row_tile = (float*)(memory + 38912);
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<5, 5, 32>(p_tiles + ahead * 2560, p_in, ahead * 512ll, work.count, 512);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 512, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<5, 5, 32>(p_tiles + ((turn + 2) % 3) * 2560, p_in, first + 1024, work.count, 512);
        rows::end_group();
        const int count = rows::least(work.count - first, 512);
        for (int row = threadIdx.x; row < count; row += 32) {
            lambda(p_tiles + turn % 3 * 2560 + row * 5, out_0[first + row], out_1_row_tile + row * 4, out_2_row_tile + row * 25, out_3[first + row], m);
        }
        rows::barrier();
        rows::give<4, 4, 32>(out_1 + first * 4, out_1_row_tile, count);
        rows::give<25, 25, 32>(out_2 + first * 25, out_2_row_tile, count);
    }
#endif
}
