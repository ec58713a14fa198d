// kernels: lambda_kernel
// a row times a larger matrix
#include "vispark/tensor_products.h"

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float* __restrict__ out_row, const float* __restrict__ p_by_m, const float* __restrict__ m)
{
    VISPARK_UNROLL
    for (int j = 0; j < 10; ++j) {
        out_row[j] = p_by_m[j];
    }
}

extern "C" __global__ void __launch_bounds__(128, 3)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const float* __restrict__ m)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 12);
    float* __restrict__ const out = work.of<float>(1, 10);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    const rows::Turned<rows::Matrix<float, 12, 10, 0, 10, 1>, float> p_by_m_matrix({m});
    for (long long row = 0; row < work.count; ++row) {
        float p_by_m[10];
        p_by_m_matrix.row(p_by_m, p_in + row * 12 + 0);
        lambda(p_in + row * 12, out + row * 10, p_by_m, m);
    }
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 36864);
    typedef rows::TensorMultiply<rows::Matrix<float, 12, 10, 0, 10, 1>, 256, 12, 0, 11, 128, 16, 4, 8, 1> p_by_m_multiply;
    float* const p_by_m_part = (float*)(memory + 47104);
    float* const p_by_m_tile = (float*)(memory + 49152);
    p_by_m_multiply::bring(p_by_m_part, {m});
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<12, 12, 128>(p_tiles + ahead * 3072, p_in, ahead * 256ll, work.count, 256);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 256, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<12, 12, 128>(p_tiles + ((turn + 2) % 3) * 3072, p_in, first + 512, work.count, 256);
        rows::end_group();
        const int count = rows::least(work.count - first, 256);
        p_by_m_multiply::tile(p_by_m_tile, p_tiles + turn % 3 * 3072, p_by_m_part, {m});
        rows::barrier();
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 3 * 3072 + row * 12, out_row_tile + row * 10, p_by_m_tile + row * 11, m);
        }
        rows::barrier();
        rows::give<10, 10, 128>(out + first * 10, out_row_tile, count);
    }
#endif
}
