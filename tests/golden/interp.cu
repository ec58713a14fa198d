// kernels: lambda_kernel
// np.interp
#include "vispark/rows.h"

// NumPy's order for sorting: what has a NaN comes last.
template <class T> __device__ __forceinline__ bool sorts_behind(T a, T b) { return a > b || (a != a && b == b); }
// How many of a sorted row's numbers are before a number, or not behind it.
template <bool after, class T, class Row> __device__ __forceinline__ int place_of(T value, int count, Row row)
{
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        const T one = row(middle);
        if (after ? !sorts_behind(one, value) : sorts_behind(value, one)) low = middle + 1;
        else high = middle;
    }
    return low;
}
template <class P, class V> __device__ __forceinline__ double interpolate(double at, int count, P places, V values,
                                                                          double left, double right)
{
    if (at != at) return at;
    const int next = place_of<true>(at, count, places);
    if (next == 0) return left;
    const double place = places(next - 1), value = values(next - 1);
    if (next == count) return at > place ? right : value;
    if (at == place) return value;
    const double slope = (values(next) - value) / (places(next) - place), result = slope * (at - place) + value;
    if (result == result) return result;
    const double back = slope * (at - places(next)) + values(next);
    return back != back && value == values(next) ? value : back;
}

static __device__ __forceinline__ void
lambda(const double* __restrict__ p, double* __restrict__ out_0_row, double& out_1_value, const double* __restrict__ at, const float* __restrict__ values)
{
    const double value = (double)values[0];
    const double value_1 = (double)values[3];
    const double value_2 = 0.0;
    const double value_3 = __longlong_as_double(0x7ff8000000000000LL);
    VISPARK_UNROLL
    for (int j = 0; j < 5; ++j) {
        out_0_row[j] = interpolate(p[j], 4, [&](int place) { return at[place]; }, [&](int place) { return (double)values[place]; }, value, value_1);
    }
    out_1_value = interpolate(p[0], 4, [&](int place) { return at[place]; }, [&](int place) { return (double)values[place]; }, value_2, value_3);
}

extern "C" __global__ void __launch_bounds__(128, 2)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const double* __restrict__ at, const float* __restrict__ values)
{
    const rows::Work work(works, ports, 3);
    const double* __restrict__ const p_in = work.of<const double>(0, 5);
    double* __restrict__ const out_0 = work.of<double>(1, 5);
    double* __restrict__ const out_1 = work.of<double>(2, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 5, out_0 + row * 5, out_1[row], at, values);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    double* const p_tiles = (double*)(memory + 0);
    double* const out_0_row_tile = (double*)(memory + 61440);
    for (int ahead = 0; ahead < 2; ++ahead) {
        rows::fetch<5, 5, 128>(p_tiles + ahead * 2560, p_in, ahead * 512ll, work.count, 512);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 512, ++turn) {
        rows::wait_for_groups<1>();
        rows::barrier();
        rows::fetch<5, 5, 128>(p_tiles + ((turn + 2) % 3) * 2560, p_in, first + 1024, work.count, 512);
        rows::end_group();
        const int count = rows::least(work.count - first, 512);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 3 * 2560 + row * 5, out_0_row_tile + row * 5, out_1[first + row], at, values);
        }
        rows::barrier();
        rows::give<5, 5, 128>(out_0 + first * 5, out_0_row_tile, count);
    }
#endif
}
