// kernels: lambda_fold
// rows by so many keys that their sums lie in memory
#include "vispark/rows.h"

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
lambda(const float* __restrict__ p, long long& out_0_value, float (&out_1_row)[16], const int lane, unsigned char* const scratch)
{
    out_0_value = to_integer<long long>(p[0]);
    VISPARK_UNROLL
    for (int slot = 0; slot < 16; ++slot) {
        const int j = slot * 4 + lane;
        if (j < 64) {
            out_1_row[slot] = p[j + 1];
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(32, 6)
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
    float* const p_tiles = (float*)(memory + 0);
    const int lane = threadIdx.x % 4, group = threadIdx.x / 4;
    unsigned char* const scratch = nullptr;
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    long long* const out_0_cells = out_0_counts + blockIdx.x * 1000ll;
    rows::clear<Add, 1000>(out_0_cells);
    double* const out_1_folds_cells = out_1_folds_partial + blockIdx.x * 64000ll;
    rows::clear<Add, 64000>(out_1_folds_cells);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<65, 65, 32>(p_tiles + ahead * 4160, p_in, ahead * 64ll, work.count, 64);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 64, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<65, 65, 32>(p_tiles + ((turn + 1) % 2) * 4160, p_in, first + 64, work.count, 64);
        rows::end_group();
        const int count = rows::least(work.count - first, 64);
        for (int start = 0; start < count; start += 8) {
            const int row = start + group;
            long long out_0_value;
            float out_1_row[16];
            long long key = -1;
            if (row < count) {
                lambda(p_tiles + turn % 2 * 4160 + row * 65, out_0_value, out_1_row, lane, scratch);
                key = rows::key_of(out_0_value);
                least.take(key);
                greatest.take(key);
            }
            rows::Turns<4> turns(key >= 0 && key < 1000, key);
            while (turns.next()) {
                if (turns.mine()) {
                    if (lane == 0) out_0_cells[key] += 1;
                    VISPARK_UNROLL
                    for (int j = 0; j < 16; ++j) rows::take<Add, Value>(out_1_folds_cells[key * 64 + j * 4 + lane], out_1_row[j]);
                }
            }
        }
    }
    rows::leave<1, 1, 32, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 32, Maximum>(out_0_greatest, (long long*)memory, &greatest);
#endif
}
