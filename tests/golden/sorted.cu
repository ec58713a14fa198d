// kernels: lambda_kernel
// np.sort
#include "vispark/rows.h"

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
lambda(const float* __restrict__ p, float* __restrict__ out_row)
{
    float sorted[7];
    VISPARK_UNROLL
    for (int j = 0; j < 7; ++j) {
        sorted[j] = p[j];
    }
    sort_row<7>(&sorted[0]);
    VISPARK_UNROLL
    for (int j = 0; j < 7; ++j) {
        out_row[j] = sorted[j];
    }
}

extern "C" __global__ void __launch_bounds__(128, 5)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 7);
    float* __restrict__ const out = work.of<float>(1, 7);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 7, out + row * 7);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_row_tile = (float*)(memory + 28672);
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
            lambda(p_tiles + turn % 2 * 3584 + row * 7, out_row_tile + row * 7);
        }
        rows::barrier();
        rows::give<7, 7, 128>(out + first * 7, out_row_tile, count);
    }
#endif
}
