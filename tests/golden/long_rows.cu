// kernels: softmax_kernel
// a softmax by the lanes of a warp
#include "vispark/rows.h"

// NumPy's maximum and minimum give NaN where an operand is; fmax and fmin the other operand.
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a >= b || a != a ? a : b; }

#if VISPARK_ALONE
static __device__ __forceinline__ void
softmax(const float* __restrict__ p, float* __restrict__ out_row)
{
    float max_1 = p[0];
    for (int j = 0; j < 783; ++j) {
        max_1 = maximum<float>(max_1, p[j + 1]);
    }
    float e[784];
    for (int j = 0; j < 784; ++j) {
        e[j] = expf(p[j] - max_1);
    }
    float sum = 0.0f;
    VISPARK_SUM(sum)
    for (int j = 0; j < 784; ++j) {
        sum += e[j];
    }
    for (int j = 0; j < 784; ++j) {
        out_row[j] = (e[j] / sum);
    }
}
#else
static __device__ __forceinline__ void
softmax(const float* __restrict__ p, float* __restrict__ out_row, const int lane, unsigned char* const scratch)
{
    float max_1 = p[lane];
    VISPARK_UNROLL
    for (int slot = 1; slot < 25; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 784) {
            max_1 = maximum<float>(max_1, p[j]);
        }
    }
    VISPARK_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = rows::exchange(rows::row_mask<32>(), max_1, offset);
        max_1 = maximum<float>(max_1, other);
    }
    float* const e = (float*)(scratch + 0);
    rows::settle<32>();
    VISPARK_UNROLL
    for (int slot = 0; slot < 25; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 784) {
            e[j] = expf(p[j] - max_1);
        }
    }
    rows::settle<32>();
    float sum = e[lane];
    VISPARK_UNROLL
    for (int slot = 1; slot < 25; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 784) {
            sum += e[j];
        }
    }
    VISPARK_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other_1 = rows::exchange(rows::row_mask<32>(), sum, offset);
        sum += other_1;
    }
    sum += 0.0f;
    VISPARK_UNROLL
    for (int slot = 0; slot < 25; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 784) {
            out_row[j] = (e[j] / sum);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256, 2)
softmax_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 784);
    float* __restrict__ const out = work.of<float>(1, 784);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        softmax(p_in + row * 784, out + row * 784);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    unsigned char* const scratch = memory + 75648 + group * 3136;
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<784, 788, 256>(p_tiles + ahead * 6304, p_in, ahead * 8ll, work.count, 8);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 8, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<784, 788, 256>(p_tiles + ((turn + 2) % 3) * 6304, p_in, first + 16, work.count, 8);
        rows::end_group();
        const int count = rows::least(work.count - first, 8);
        for (int row = group; row < count; row += 8) {
            softmax(p_tiles + turn % 3 * 6304 + row * 788, out + (first + row) * 784, lane, scratch);
        }
    }
#endif
}
