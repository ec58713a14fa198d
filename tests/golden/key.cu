// kernels: least_1_kernel
// min, max with key over a range
#include "vispark/rows.h"

static __device__ __forceinline__ void
least_1(const float* __restrict__ p, long long& out_0_value, long long& out_1_value)
{
    long long min_1;
    float key;
    bool first_1 = true;
    for (int i_2 = 0; i_2 < 6; ++i_2) {
        const float value = p[i_2];
        if (first_1 || (value < key)) {
            min_1 = i_2;
            key = value;
        }
        first_1 = false;
    }
    long long max_1;
    float key_1;
    bool first_2 = true;
    for (int i_5 = 1; i_5 < 6; ++i_5) {
        const float value_1 = (-p[i_5]) * p[i_5];
        if (first_2 || (value_1 > key_1)) {
            max_1 = i_5;
            key_1 = value_1;
        }
        first_2 = false;
    }
    out_0_value = min_1;
    out_1_value = max_1;
}

extern "C" __global__ void __launch_bounds__(128, 8)
least_1_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 3);
    const float* __restrict__ const p_in = work.of<const float>(0, 6);
    long long* __restrict__ const out_0 = work.of<long long>(1, 1);
    long long* __restrict__ const out_1 = work.of<long long>(2, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        least_1(p_in + row * 6, out_0[row], out_1[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<6, 6, 128>(p_tiles + ahead * 3072, p_in, ahead * 512ll, work.count, 512);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 512, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<6, 6, 128>(p_tiles + ((turn + 1) % 2) * 3072, p_in, first + 512, work.count, 512);
        rows::end_group();
        const int count = rows::least(work.count - first, 512);
        for (int row = threadIdx.x; row < count; row += 128) {
            least_1(p_tiles + turn % 2 * 3072 + row * 6, out_0[first + row], out_1[first + row]);
        }
    }
#endif
}
