// kernels: lambda_fold
// rows by so many keys that their sums lie in memory
#include "vispark/sorted_keys.h"

// Truncation; beyond the range it saturates and NaN gives 0.
template <class I, class F> __device__ __forceinline__ I to_integer(F a)
{
    if (sizeof(I) < 4) return (I)to_integer<int>(a);
    const bool is_signed = I(-1) < 0;
    const I top = (I)(~0ull >> (64 - 8 * sizeof(I) + is_signed)), bottom = is_signed ? (I)(-top - 1) : I(0);
    return a != a ? I(0) : a >= (F)top ? top : a <= (F)bottom ? bottom : (I)a;
}

#if VISPARK_ALONE
static __device__ __forceinline__ void
lambda(const float* __restrict__ p, long long& out_0_value, float (&out_1_row)[64])
{
    out_0_value = to_integer<long long>(p[0]);
    VISPARK_UNROLL
    for (int j = 0; j < 64; ++j) {
        out_1_row[j] = p[j + 1];
    }
}
#else
static __device__ __forceinline__ void
lambda(const float* __restrict__ p, long long& out_0_value, float (&out_1_row)[2], const int lane, unsigned char* const scratch)
{
    out_0_value = to_integer<long long>(p[0]);
    VISPARK_UNROLL
    for (int slot = 0; slot < 2; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 64) {
            out_1_row[slot] = p[j + 1];
        }
    }
}
#endif
#if !VISPARK_ALONE
static __device__ __forceinline__ void
lambda_key(const float* __restrict__ p, long long& out_0_value)
{
    out_0_value = to_integer<long long>(p[0]);
}
#endif

extern "C" __global__ void __launch_bounds__(512, 1)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, long long* __restrict__ out_0_counts, long long* __restrict__ out_0_least, long long* __restrict__ out_0_greatest, double* __restrict__ out_1_folds_partial)
{
    const rows::Work work(works, ports, 1);
    const float* __restrict__ const p_in = work.of<const float>(0, 65);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    long long* __restrict__ const out_0_cells = out_0_counts + blockIdx.x * 1000ll;
    for (int i = 0; i < 1000; ++i) out_0_cells[i] = Add::identity<long long>();
    double* __restrict__ const out_1_folds_cells = out_1_folds_partial + blockIdx.x * 64000ll;
    for (int i = 0; i < 64000; ++i) out_1_folds_cells[i] = Add::identity<double>();
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    for (long long row = 0; row < work.count; ++row) {
        long long out_0_value;
        float out_1_row[64];
        lambda(p_in + row * 65, out_0_value, out_1_row);
        const long long key = rows::key_of(out_0_value);
        least.take(key);
        greatest.take(key);
        if (key >= 0 && key < 1000) {
            out_0_cells[key] += 1;
            VISPARK_UNROLL
            for (int j = 0; j < 64; ++j) rows::take<Add, Value>(out_1_folds_cells[key * 64 + j], out_1_row[j]);
        }
    }
    out_0_least[blockIdx.x] = least.value;
    out_0_greatest[blockIdx.x] = greatest.value;
#else
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    unsigned char* const scratch = nullptr;
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    typedef rows::SortedRows<1000, 512, 32768> Sorted;
    Sorted sorted(memory);
    for (long long first = 0; first < work.count || first == 0; first += 32768) {
        const int count = rows::least(work.count - first, 32768);
        VISPARK_UNROLL_SOME(4)
        for (int place = threadIdx.x; place < count; place += 512) {
            const long long row = first + place;
            long long out_0_value;
            lambda_key(p_in + row * 65, out_0_value);
            const long long key = rows::key_of(out_0_value);
            least.take(key);
            greatest.take(key);
            sorted.set(place, key);
        }
        sorted.sort(count);
        for (int key = group; key < 1000; key += 16) {
            const int begin = sorted.starts[key], end = sorted.starts[key + 1];
            if (begin == end && first) continue;
            if (lane == 0) out_0_counts[blockIdx.x * 1000ll + key] = (first ? out_0_counts[blockIdx.x * 1000ll + key] : 0) + end - begin;
            rows::Fold<Add, Value, float, double> out_1_folds[2];
            VISPARK_UNROLL_SOME(8)
            for (int place = begin; place < end; ++place) {
                const long long row = first + sorted.order[place];
                long long out_0_value;
                float out_1_row[2];
                lambda(p_in + row * 65, out_0_value, out_1_row, lane, scratch);
                VISPARK_UNROLL
                for (int j = 0; j < 2; ++j) out_1_folds[j].take(out_1_row[j]);
                VISPARK_UNROLL
                for (int j = 0; j < 2; ++j) out_1_folds[j].flush();
            }
            rows::leave_key<Add, 64>(out_1_folds_partial + (blockIdx.x * 1000ll + key) * 64, out_1_folds, first == 0);
        }
        rows::barrier();
    }
    rows::leave<1, 1, 512, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 512, Maximum>(out_0_greatest, (long long*)memory, &greatest);
#endif
}
