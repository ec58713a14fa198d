// kernels: gradient_kernel
// logistic regression's gradient
#include "vispark/rows.h"

static __device__ __forceinline__ void
gradient(const float* __restrict__ p, float* __restrict__ out_row, const float* __restrict__ w)
{
    const float y = p[0];
    float dot = 0.0f;
    VISPARK_SUM(dot)
    for (int j = 0; j < 39; ++j) {
        dot += (w[j] * p[j + 1]);
    }
    const float value = ((1.0f / (1.0f + expf((-y) * dot))) - 1.0f) * y;
    VISPARK_UNROLL
    for (int j = 0; j < 39; ++j) {
        out_row[j] = (value * p[j + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(128, 2)
gradient_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const float* __restrict__ w)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 40);
    float* __restrict__ const out = work.of<float>(1, 39);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        gradient(p_in + row * 40, out + row * 39, w);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 67584);
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<40, 44, 128>(p_tiles + ahead * 5632, p_in, ahead * 128ll, work.count, 128);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 128, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<40, 44, 128>(p_tiles + ((turn + 2) % 3) * 5632, p_in, first + 256, work.count, 128);
        rows::end_group();
        const int count = rows::least(work.count - first, 128);
        for (int row = threadIdx.x; row < count; row += 128) {
            gradient(p_tiles + turn % 3 * 5632 + row * 44, out_row_tile + row * 39, w);
        }
        rows::barrier();
        rows::give<39, 39, 128>(out + first * 39, out_row_tile, count);
    }
#endif
}
