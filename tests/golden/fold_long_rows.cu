// kernels: gradient_fold
// a sum of rows that several threads share
#include "vispark/rows.h"

#if VISPARK_ALONE
static __device__ __forceinline__ void
gradient(const float* __restrict__ p, float (&out_row)[99], const float* __restrict__ w)
{
    const float y = p[0];
    float dot = 0.0f;
    VISPARK_SUM(dot)
    for (int j = 0; j < 99; ++j) {
        dot += (w[j] * p[j + 1]);
    }
    const float value = ((1.0f / (1.0f + expf((-y) * dot))) - 1.0f) * y;
    for (int j = 0; j < 99; ++j) {
        out_row[j] = (value * p[j + 1]);
    }
}
#else
static __device__ __forceinline__ void
gradient(const float* __restrict__ p, float (&out_row)[13], const float* __restrict__ w, const int lane, unsigned char* const scratch)
{
    const float y = p[0];
    float dot = (w[lane] * p[lane + 1]);
    VISPARK_UNROLL
    for (int slot = 1; slot < 13; ++slot) {
        const int j = slot * 8 + lane;
        if (j < 99) {
            dot += (w[j] * p[j + 1]);
        }
    }
    VISPARK_UNROLL
    for (int offset = 4; offset > 0; offset /= 2) {
        const float other = rows::exchange(rows::row_mask<8>(), dot, offset);
        dot += other;
    }
    dot += 0.0f;
    const float value = ((1.0f / (1.0f + expf((-y) * dot))) - 1.0f) * y;
    VISPARK_UNROLL
    for (int slot = 0; slot < 13; ++slot) {
        const int j = slot * 8 + lane;
        if (j < 99) {
            out_row[slot] = (value * p[j + 1]);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(128, 4)
gradient_fold(const long long* __restrict__ works, void* const* __restrict__ ports, double* __restrict__ out_folds_partial, const float* __restrict__ w)
{
    const rows::Work work(works, ports, 1);
    const float* __restrict__ const p_in = work.of<const float>(0, 100);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    rows::Columns<Add, Value, float, double, 99> out_folds;
    for (long long first = 0; first < work.count; first += 1) {
        float out_row[99];
        gradient(p_in + first * 100, out_row, w);
        out_folds.take(out_row);
        if (first % 16 == 15) {
            out_folds.flush();
        }
    }
    rows::leave_alone<Add, 99>(out_folds_partial, out_folds);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    const int lane = threadIdx.x % 8, group = threadIdx.x / 8;
    unsigned char* const scratch = nullptr;
    rows::Fold<Add, Value, float, double> out_folds[13];
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<100, 100, 128>(p_tiles + ahead * 3200, p_in, ahead * 32ll, work.count, 32);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 32, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<100, 100, 128>(p_tiles + ((turn + 2) % 3) * 3200, p_in, first + 64, work.count, 32);
        rows::end_group();
        const int count = rows::least(work.count - first, 32);
        for (int row = group; row < count; row += 16) {
            float out_row[13];
            gradient(p_tiles + turn % 3 * 3200 + row * 100, out_row, w, lane, scratch);
            VISPARK_UNROLL
            for (int j = 0; j < 13; ++j) if (j * 8 + lane < 99) out_folds[j].take(out_row[j]);
        }
        if (turn % 8 == 7) {
            VISPARK_UNROLL
            for (int j = 0; j < 13; ++j) out_folds[j].flush();
        }
    }
    rows::leave<8, 99, 128, Add>(out_folds_partial, (double*)memory, out_folds);
#endif
}
