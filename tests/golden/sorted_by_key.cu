// kernels: lambda_kernel
// sorted by a key
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
// The places that sort a row; equal keys stay in the order of their places.
template <int n, class T> __device__ __forceinline__ void sort_places(T* keys, long long* places)
{
    for (int i = 0; i < n; ++i) places[i] = i;
    by_network<n>([&](int i, int j) {
        const T one = keys[i], other = keys[j];
        const long long place = places[i];
        if (sorts_behind(one, other) || (!sorts_behind(other, one) && place > places[j])) {
            keys[i] = other;
            keys[j] = one;
            places[i] = places[j];
            places[j] = place;
        }
    });
}

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float* __restrict__ out_0_row, long long& out_1_0_value, long long& out_1_1_value, long long& out_1_2_value, long long& out_1_3_value, long long& out_1_4_value, long long& out_1_5_value, long long& out_1_6_value)
{
    const float value = p[0];
    const float value_1 = p[1];
    const float value_2 = p[2];
    const float value_3 = p[3];
    const float value_4 = p[4];
    const float value_5 = p[5];
    const float value_6 = p[6];
    const float key = fabsf(value);
    const float key_1 = fabsf(value_1);
    const float key_2 = fabsf(value_2);
    const float key_3 = fabsf(value_3);
    const float key_4 = fabsf(value_4);
    const float key_5 = fabsf(value_5);
    const float key_6 = fabsf(value_6);
    float keys[7];
    keys[0] = key;
    keys[1] = key_1;
    keys[2] = key_2;
    keys[3] = key_3;
    keys[4] = key_4;
    keys[5] = key_5;
    keys[6] = key_6;
    long long places[7];
    sort_places<7>(keys, places);
    float items[7];
    items[0] = value;
    items[1] = value_1;
    items[2] = value_2;
    items[3] = value_3;
    items[4] = value_4;
    items[5] = value_5;
    items[6] = value_6;
    float array[7];
    array[0] = items[places[0]];
    array[1] = items[places[1]];
    array[2] = items[places[2]];
    array[3] = items[places[3]];
    array[4] = items[places[4]];
    array[5] = items[places[5]];
    array[6] = items[places[6]];
    const float key_7 = -p[0];
    const float key_8 = -p[1];
    const float key_9 = -p[2];
    const float key_10 = -p[3];
    const float key_11 = -p[4];
    const float key_12 = -p[5];
    const float key_13 = -p[6];
    float keys_1[7];
    keys_1[0] = key_7;
    keys_1[1] = key_8;
    keys_1[2] = key_9;
    keys_1[3] = key_10;
    keys_1[4] = key_11;
    keys_1[5] = key_12;
    keys_1[6] = key_13;
    long long places_1[7];
    sort_places<7>(keys_1, places_1);
    long long items_1[7];
    items_1[0] = 0LL;
    items_1[1] = 1LL;
    items_1[2] = 2LL;
    items_1[3] = 3LL;
    items_1[4] = 4LL;
    items_1[5] = 5LL;
    items_1[6] = 6LL;
    VISPARK_UNROLL
    for (int j = 0; j < 7; ++j) {
        out_0_row[j] = array[j];
    }
    out_1_0_value = (long long)((int)items_1[places_1[0]]);
    out_1_1_value = (long long)((int)items_1[places_1[1]]);
    out_1_2_value = (long long)((int)items_1[places_1[2]]);
    out_1_3_value = (long long)((int)items_1[places_1[3]]);
    out_1_4_value = (long long)((int)items_1[places_1[4]]);
    out_1_5_value = (long long)((int)items_1[places_1[5]]);
    out_1_6_value = (long long)((int)items_1[places_1[6]]);
}

extern "C" __global__ void __launch_bounds__(128, 5)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 9);
    const float* __restrict__ const p_in = work.of<const float>(0, 7);
    float* __restrict__ const out_0 = work.of<float>(1, 7);
    long long* __restrict__ const out_1_0 = work.of<long long>(2, 1);
    long long* __restrict__ const out_1_1 = work.of<long long>(3, 1);
    long long* __restrict__ const out_1_2 = work.of<long long>(4, 1);
    long long* __restrict__ const out_1_3 = work.of<long long>(5, 1);
    long long* __restrict__ const out_1_4 = work.of<long long>(6, 1);
    long long* __restrict__ const out_1_5 = work.of<long long>(7, 1);
    long long* __restrict__ const out_1_6 = work.of<long long>(8, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 7, out_0 + row * 7, out_1_0[row], out_1_1[row], out_1_2[row], out_1_3[row], out_1_4[row], out_1_5[row], out_1_6[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    float* const out_0_row_tile = (float*)(memory + 28672);
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
            lambda(p_tiles + turn % 2 * 3584 + row * 7, out_0_row_tile + row * 7, out_1_0[first + row], out_1_1[first + row], out_1_2[first + row], out_1_3[first + row], out_1_4[first + row], out_1_5[first + row], out_1_6[first + row]);
        }
        rows::barrier();
        rows::give<7, 7, 128>(out_0 + first * 7, out_0_row_tile, count);
    }
#endif
}
