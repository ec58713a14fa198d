// kernels: pushed_then_energy_kernel
// two functions one after the other; the first one's speed is not wanted
#include "vispark/rows.h"

static __device__ __forceinline__ void
pushed_then_energy(const float* __restrict__ x, const float* __restrict__ v, const float m, float* __restrict__ out_x_row, float& out_e_value, const double dt)
{
    float x_1[3];
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        x_1[j] = (x[j] + (v[j] * ((float)dt)));
    }
    float sum_1 = 0.0f;
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        sum_1 += (x_1[j] * x_1[j]);
    }
    out_e_value = m * sum_1;
    VISPARK_UNROLL
    for (int j = 0; j < 3; ++j) {
        out_x_row[j] = x_1[j];
    }
}

extern "C" __global__ void __launch_bounds__(128, 6)
pushed_then_energy_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const double dt)
{
    const rows::Work work(works, ports, 5);
    const float* __restrict__ const x_in = work.of<const float>(0, 3);
    const float* __restrict__ const v_in = work.of<const float>(1, 3);
    const float* __restrict__ const m_in = work.of<const float>(2, 1);
    float* __restrict__ const out_x = work.of<float>(3, 3);
    float* __restrict__ const out_e = work.of<float>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        pushed_then_energy(x_in + row * 3, v_in + row * 3, m_in[row], out_x + row * 3, out_e[row], dt);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const x_tiles = (float*)(memory + 0);
    float* const v_tiles = (float*)(memory + 12288);
    float* const m_tiles = (float*)(memory + 24576);
    float* const out_x_row_tile = (float*)(memory + 28672);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<3, 3, 128>(x_tiles + ahead * 1536, x_in, ahead * 512ll, work.count, 512);
        rows::fetch<3, 3, 128>(v_tiles + ahead * 1536, v_in, ahead * 512ll, work.count, 512);
        rows::fetch<1, 1, 128>(m_tiles + ahead * 512, m_in, ahead * 512ll, work.count, 512);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 512, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<3, 3, 128>(x_tiles + ((turn + 1) % 2) * 1536, x_in, first + 512, work.count, 512);
        rows::fetch<3, 3, 128>(v_tiles + ((turn + 1) % 2) * 1536, v_in, first + 512, work.count, 512);
        rows::fetch<1, 1, 128>(m_tiles + ((turn + 1) % 2) * 512, m_in, first + 512, work.count, 512);
        rows::end_group();
        const int count = rows::least(work.count - first, 512);
        for (int row = threadIdx.x; row < count; row += 128) {
            pushed_then_energy(x_tiles + turn % 2 * 1536 + row * 3, v_tiles + turn % 2 * 1536 + row * 3, *(m_tiles + turn % 2 * 512 + row), out_x_row_tile + row * 3, out_e[first + row], dt);
        }
        rows::barrier();
        rows::give<3, 3, 128>(out_x + first * 3, out_x_row_tile, count);
    }
#endif
}
