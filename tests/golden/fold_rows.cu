// kernels: gradient_fold
// logistic regression: map and fold in one pass
#include "vispark/rows.h"

static __device__ __forceinline__ void
gradient(const float* __restrict__ p, float (&out_row)[40], const float* __restrict__ w)
{
    const float y = p[0];
    float dot = 0.0f;
    VISPARK_SUM(dot)
    for (int j = 0; j < 40; ++j) {
        dot += (w[j] * p[j + 1]);
    }
    const float value = ((1.0f / (1.0f + expf((-y) * dot))) - 1.0f) * y;
    VISPARK_UNROLL
    for (int j = 0; j < 40; ++j) {
        out_row[j] = (value * p[j + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(128, 2)
gradient_fold(const long long* __restrict__ works, void* const* __restrict__ ports, double* __restrict__ out_folds_partial, const float* __restrict__ w)
{
    const rows::Work work(works, ports, 1);
    const float* __restrict__ const p_in = work.of<const float>(0, 41);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    rows::Columns<Add, Value, float, double, 40> out_folds;
    for (long long first = 0; first < work.count; first += 1) {
        float out_row[40];
        gradient(p_in + first * 41, out_row, w);
        out_folds.take(out_row);
        if (first % 16 == 15) {
            out_folds.flush();
        }
    }
    rows::leave_alone<Add, 40>(out_folds_partial, out_folds);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    rows::Fold<Add, Value, float, double> out_folds[40];
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<41, 41, 128>(p_tiles + ahead * 5248, p_in, ahead * 128ll, work.count, 128);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 128, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<41, 41, 128>(p_tiles + ((turn + 2) % 3) * 5248, p_in, first + 256, work.count, 128);
        rows::end_group();
        const int count = rows::least(work.count - first, 128);
        for (int row = threadIdx.x; row < count; row += 128) {
            float out_row[40];
            gradient(p_tiles + turn % 3 * 5248 + row * 41, out_row, w);
            VISPARK_UNROLL
            for (int j = 0; j < 40; ++j) out_folds[j].take(out_row[j]);
        }
        if (turn % 16 == 15) {
            VISPARK_UNROLL
            for (int j = 0; j < 40; ++j) out_folds[j].flush();
        }
    }
    rows::leave<1, 40, 128, Add>(out_folds_partial, (double*)memory, out_folds);
#endif
}
