// kernels: nearest_kernel
// nearest centre by loops
#include "vispark/rows.h"

static __device__ __forceinline__ void
nearest(const float* __restrict__ p, long long& out_value, const float* __restrict__ centres)
{
    float best = (float)__longlong_as_double(0x7ff0000000000000LL);
    long long where = 0;
    for (int i = 0; i < 4; ++i) {
        float d = 0.0f;
        for (int i_1 = 0; i_1 < 5; ++i_1) {
            float t = p[i_1] - centres[i * 5 + i_1];
            d = d + (t * t);
        }
        if (d < best) {
            const float best_1 = d;
            best = best_1;
            where = i;
        }
    }
    out_value = where;
}

extern "C" __global__ void __launch_bounds__(128, 5)
nearest_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const float* __restrict__ centres)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 5);
    long long* __restrict__ const out = work.of<long long>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        nearest(p_in + row * 5, out[row], centres);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<5, 5, 128>(p_tiles + ahead * 5120, p_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<5, 5, 128>(p_tiles + ((turn + 1) % 2) * 5120, p_in, first + 1024, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            nearest(p_tiles + turn % 2 * 5120 + row * 5, out[first + row], centres);
        }
    }
#endif
}
