// kernels: lambda_kernel
// two layers
#include "vispark/tensor_products.h"

// NumPy's maximum and minimum give NaN where an operand is; fmax and fmin the other operand.
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a >= b || a != a ? a : b; }

static __device__ __forceinline__ void
lambda_staged(const float* __restrict__ p, float* __restrict__ staged, const float* __restrict__ p_by_m, const float* __restrict__ m, const float* __restrict__ n_1)
{
    VISPARK_UNROLL
    for (int j = 0; j < 10; ++j) {
        staged[j] = maximum<float>(p_by_m[j], 0.0f);
    }
}
static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float* __restrict__ out_row, const float* __restrict__ p_by_m, const float* __restrict__ staged_by_n_1, const float* __restrict__ staged, const float* __restrict__ m, const float* __restrict__ n_1)
{
    VISPARK_UNROLL
    for (int j = 0; j < 9; ++j) {
        out_row[j] = staged_by_n_1[j];
    }
}

extern "C" __global__ void __launch_bounds__(128, 2)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const float* __restrict__ m, const float* __restrict__ n_1)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 12);
    float* __restrict__ const out = work.of<float>(1, 9);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    const rows::Turned<rows::Matrix<float, 12, 10, 0, 10, 1>, float> p_by_m_matrix({m});
    const rows::Turned<rows::Matrix<float, 10, 9, 0, 9, 1>, float> staged_by_n_1_matrix({n_1});
    for (long long row = 0; row < work.count; ++row) {
        float p_by_m[10];
        p_by_m_matrix.row(p_by_m, p_in + row * 12 + 0);
        float staged[10];
        lambda_staged(p_in + row * 12, staged, p_by_m, m, n_1);
        float staged_by_n_1[9];
        staged_by_n_1_matrix.row(staged_by_n_1, staged + 0);
        lambda(p_in + row * 12, out + row * 9, p_by_m, staged_by_n_1, staged, m, n_1);
    }
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 36864);
    typedef rows::TensorMultiply<rows::Matrix<float, 12, 10, 0, 10, 1>, 256, 12, 0, 11, 128, 16, 4, 8, 1> p_by_m_multiply;
    float* const p_by_m_part = (float*)(memory + 46080);
    float* const p_by_m_tile = (float*)(memory + 48128);
    p_by_m_multiply::bring(p_by_m_part, {m});
    typedef rows::TensorMultiply<rows::Matrix<float, 10, 9, 0, 9, 1>, 256, 10, 0, 9, 128, 16, 4, 8, 1> staged_by_n_1_multiply;
    float* const staged_by_n_1_part = (float*)(memory + 59392);
    float* const staged_by_n_1_tile = (float*)(memory + 61440);
    staged_by_n_1_multiply::bring(staged_by_n_1_part, {n_1});
    float* const staged_tile = (float*)(memory + 70656);
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
        for (int row = threadIdx.x; row < count; row += 128)
            lambda_staged(p_tiles + turn % 3 * 3072 + row * 12, staged_tile + row * 10, p_by_m_tile + row * 11, m, n_1);
        rows::barrier();
        staged_by_n_1_multiply::tile(staged_by_n_1_tile, staged_tile, staged_by_n_1_part, {n_1});
        rows::barrier();
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 3 * 3072 + row * 12, out_row_tile + row * 9, p_by_m_tile + row * 11, staged_by_n_1_tile + row * 9, staged_tile + row * 10, m, n_1);
        }
        rows::barrier();
        rows::give<9, 9, 128>(out + first * 9, out_row_tile, count);
    }
#endif
}
