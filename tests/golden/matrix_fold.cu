// kernels: mistakes_fold
// a row times a matrix whose parts come one after the other, and sums of what follows
#include "vispark/tensor_products.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }
// NumPy's maximum and minimum give NaN where an operand is; fmax and fmin the other operand.
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a >= b || a != a ? a : b; }
template <class T> __device__ __forceinline__ bool is_nan(T a) { return a != a; }

#if VISPARK_ALONE
static __device__ __forceinline__ void
mistakes(const float* __restrict__ p, float (&out_0_row)[17], bool& out_1_value, const float* __restrict__ p_by_m, const float* __restrict__ m)
{
    float max_1 = p_by_m[0];
    VISPARK_UNROLL
    for (int j = 0; j < 16; ++j) {
        max_1 = maximum<float>(max_1, p_by_m[j + 1]);
    }
    float shares[17];
    VISPARK_UNROLL
    for (int j = 0; j < 17; ++j) {
        shares[j] = expf(p_by_m[j] - max_1);
    }
    float sum = 0.0f;
    VISPARK_SUM(sum)
    for (int j = 0; j < 17; ++j) {
        sum += shares[j];
    }
    float max_2 = opaque<float>(p_by_m[0]);
    int argmax = 0;
    VISPARK_UNROLL
    for (int j = 0; j < 17; ++j) {
        const float value = p_by_m[j];
        if (value > max_2 || (is_nan<float>(value) && !is_nan<float>(max_2))) {
            max_2 = value;
            argmax = j;
        }
    }
    VISPARK_UNROLL
    for (int j = 0; j < 17; ++j) {
        out_0_row[j] = (shares[j] / sum);
    }
    out_1_value = ((double)((long long)argmax)) == ((double)p[0]);
}
#else
static __device__ __forceinline__ void
mistakes(const float* __restrict__ p, float (&out_0_row)[1], bool& out_1_value, const float* __restrict__ p_by_m, const float* __restrict__ m, const int lane, unsigned char* const scratch)
{
    float max_1 = p_by_m[0];
    VISPARK_UNROLL
    for (int j = 0; j < 16; ++j) {
        max_1 = maximum<float>(max_1, p_by_m[j + 1]);
    }
    float shares[17];
    VISPARK_UNROLL
    for (int j = 0; j < 17; ++j) {
        shares[j] = expf(p_by_m[j] - max_1);
    }
    float sum = 0.0f;
    VISPARK_SUM(sum)
    for (int j = 0; j < 17; ++j) {
        sum += shares[j];
    }
    float max_2 = opaque<float>(p_by_m[0]);
    int argmax = 0;
    VISPARK_UNROLL
    for (int j = 0; j < 17; ++j) {
        const float value = p_by_m[j];
        if (value > max_2 || (is_nan<float>(value) && !is_nan<float>(max_2))) {
            max_2 = value;
            argmax = j;
        }
    }
    for (int slot = 0; slot < 1; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 17) {
            out_0_row[slot] = (shares[j] / sum);
        }
    }
    out_1_value = ((double)((long long)argmax)) == ((double)p[0]);
}
#endif

extern "C" __global__ void __launch_bounds__(128, 2)
mistakes_fold(const long long* __restrict__ works, void* const* __restrict__ ports, double* __restrict__ out_0_folds_partial, long long* __restrict__ out_1_folds_partial, const float* __restrict__ m)
{
    const rows::Work work(works, ports, 1);
    const float* __restrict__ const p_in = work.of<const float>(0, 481);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    const rows::Turned<rows::Matrix<float, 480, 17, 0, 17, 1>, float> p_by_m_matrix({m});
    rows::Columns<Add, Value, float, double, 17> out_0_folds;
    rows::Columns<Add, Value, bool, long long, 1> out_1_folds;
    for (long long first = 0; first < work.count; first += 1) {
        float out_0_row[17];
        bool out_1_value[1];
        float p_by_m[17];
        p_by_m_matrix.row(p_by_m, p_in + first * 481 + 1);
        mistakes(p_in + first * 481, out_0_row, out_1_value[0], p_by_m, m);
        out_0_folds.take(out_0_row);
        out_1_folds.take(out_1_value);
        if (first % 16 == 15) {
            out_0_folds.flush();
            out_1_folds.flush();
        }
    }
    rows::leave_alone<Add, 17>(out_0_folds_partial, out_0_folds);
    rows::leave_alone<Add, 1>(out_1_folds_partial, out_1_folds);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    unsigned char* const scratch = nullptr;
    typedef rows::TensorMultiply<rows::Matrix<float, 480, 17, 0, 17, 1>, 16, 481, 1, 17, 128, 320, 2, 2, 1> p_by_m_multiply;
    float* const p_by_m_part = (float*)(memory + 30784);
    float* const p_by_m_tile = (float*)(memory + 92224);
    p_by_m_multiply::bring(p_by_m_part, {m});
    rows::Fold<Add, Value, float, double> out_0_folds[1];
    rows::Fold<Add, Value, bool, long long> out_1_folds[1];
    for (int ahead = 0; ahead < 0; ++ahead) {
        rows::fetch<481, 481, 128>(p_tiles + ahead * 7696, p_in, ahead * 16ll, work.count, 16);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 16, ++turn) {
        rows::barrier();
        rows::fetch<481, 481, 128>(p_tiles, p_in, first, work.count, 16);
        rows::end_group();
        rows::wait_for_groups<0>();
        rows::barrier();
        const int count = rows::least(work.count - first, 16);
        p_by_m_multiply::tile(p_by_m_tile, p_tiles, p_by_m_part, {m});
        rows::barrier();
        for (int row = group; row < count; row += 4) {
            float out_0_row[1];
            bool out_1_value;
            mistakes(p_tiles + row * 481, out_0_row, out_1_value, p_by_m_tile + row * 17, m, lane, scratch);
            VISPARK_UNROLL
            for (int j = 0; j < 1; ++j) if (j * 32 + lane < 17) out_0_folds[j].take(out_0_row[j]);
            if (lane == 0) out_1_folds[0].take(out_1_value);
        }
        if (turn % 4 == 3) {
            VISPARK_UNROLL
            for (int j = 0; j < 1; ++j) out_0_folds[j].flush();
            VISPARK_UNROLL
            for (int j = 0; j < 1; ++j) out_1_folds[j].flush();
        }
    }
    rows::leave<32, 17, 128, Add>(out_0_folds_partial, (double*)memory, out_0_folds);
    rows::leave<32, 1, 128, Add>(out_1_folds_partial, (long long*)memory, out_1_folds);
#endif
}
