// kernels: lambda_kernel
// np.median
#include "vispark/rows.h"

template <class T> __device__ __forceinline__ bool is_nan(T a) { return a != a; }
// NumPy's order for sorting: what has a NaN comes last.
template <class T> __device__ __forceinline__ bool sorts_behind(T a, T b) { return a > b || (a != a && b == b); }
// Batcher's odd-even merge sort: which items are compared depends on their number alone.
template <int n, class Order> __device__ __forceinline__ void by_network(Order exchange)
{
    for (int merged = 1; merged < n; merged *= 2)
        for (int distance = merged; distance > 0; distance /= 2)
            for (int first = distance % merged; first + distance < n; first += 2 * distance)
                for (int i = first; i < first + distance && i + distance < n; ++i)
                    if (i / (2 * merged) == (i + distance) / (2 * merged)) exchange(i, i + distance);
}
template <int n, class T> __device__ __forceinline__ void sort_row(T* row)
{
    by_network<n>([&](int i, int j) {
        const T one = row[i], other = row[j];
        if (sorts_behind(one, other)) {
            row[i] = other;
            row[j] = one;
        }
    });
}

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float& out_0_value, float& out_1_value, float& out_2_value)
{
    float sorted[7];
    VISPARK_UNROLL
    for (int j = 0; j < 7; ++j) {
        sorted[j] = p[j];
    }
    sort_row<7>(&sorted[0]);
    float sum = 0.0f;
    sum += sorted[(0) + 3];
    float sorted_1[4];
    VISPARK_UNROLL
    for (int j = 0; j < 4; ++j) {
        sorted_1[j] = p[j];
    }
    sort_row<4>(&sorted_1[0]);
    float sum_1 = 0.0f;
    VISPARK_UNROLL
    for (int j = 0; j < 2; ++j) {
        sum_1 += sorted_1[(j) + 1];
    }
    float sorted_2[1];
    sorted_2[0] = p[1];
    float sum_2 = 0.0f;
    sum_2 += sorted_2[(0) + 0];
    out_0_value = is_nan<float>(sorted[6]) ? sorted[6] : (sum / 1.0f);
    out_1_value = is_nan<float>(sorted_1[3]) ? sorted_1[3] : (sum_1 / 2.0f);
    out_2_value = is_nan<float>(sorted_2[0]) ? sorted_2[0] : (sum_2 / 1.0f);
}

extern "C" __global__ void __launch_bounds__(128, 7)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const float* __restrict__ const p_in = work.of<const float>(0, 7);
    float* __restrict__ const out_0 = work.of<float>(1, 1);
    float* __restrict__ const out_1 = work.of<float>(2, 1);
    float* __restrict__ const out_2 = work.of<float>(3, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 7, out_0[row], out_1[row], out_2[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<7, 7, 128>(p_tiles + ahead * 3584, p_in, ahead * 512ll, work.count, 512);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 512, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<7, 7, 128>(p_tiles + ((turn + 1) % 2) * 3584, p_in, first + 512, work.count, 512);
        rows::end_group();
        const int count = rows::least(work.count - first, 512);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 2 * 3584 + row * 7, out_0[first + row], out_1[first + row], out_2[first + row]);
        }
    }
#endif
}
