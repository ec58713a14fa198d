// kernels: lambda_fold
// rows by key
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
lambda(const float* __restrict__ p, long long& out_0_value, float (&out_1_0_row)[64], long long& out_1_1_value)
{
    out_0_value = to_integer<long long>(p[0]);
    VISPARK_UNROLL
    for (int j = 0; j < 64; ++j) {
        out_1_0_row[j] = p[j + 1];
    }
    out_1_1_value = 1LL;
}
#else
static __device__ __forceinline__ void
lambda(const float* __restrict__ p, long long& out_0_value, float (&out_1_0_row)[2], long long& out_1_1_value, const int lane, unsigned char* const scratch)
{
    out_0_value = to_integer<long long>(p[0]);
    VISPARK_UNROLL
    for (int slot = 0; slot < 2; ++slot) {
        const int j = slot * 32 + lane;
        if (j < 64) {
            out_1_0_row[slot] = p[j + 1];
        }
    }
    out_1_1_value = 1LL;
}
#endif

extern "C" __global__ void __launch_bounds__(256, 3)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, long long* __restrict__ out_0_counts, long long* __restrict__ out_0_least, long long* __restrict__ out_0_greatest, double* __restrict__ out_1_0_folds_partial, long long* __restrict__ out_1_1_folds_partial)
{
    const rows::Work work(works, ports, 1);
    const float* __restrict__ const p_in = work.of<const float>(0, 65);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    long long* __restrict__ const out_0_cells = out_0_counts + blockIdx.x * 10ll;
    for (int i = 0; i < 10; ++i) out_0_cells[i] = Add::identity<long long>();
    double* __restrict__ const out_1_0_folds_cells = out_1_0_folds_partial + blockIdx.x * 640ll;
    for (int i = 0; i < 640; ++i) out_1_0_folds_cells[i] = Add::identity<double>();
    long long* __restrict__ const out_1_1_folds_cells = out_1_1_folds_partial + blockIdx.x * 10ll;
    for (int i = 0; i < 10; ++i) out_1_1_folds_cells[i] = Add::identity<long long>();
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    for (long long row = 0; row < work.count; ++row) {
        long long out_0_value;
        float out_1_0_row[64];
        long long out_1_1_value;
        lambda(p_in + row * 65, out_0_value, out_1_0_row, out_1_1_value);
        const long long key = rows::key_of(out_0_value);
        least.take(key);
        greatest.take(key);
        if (key >= 0 && key < 10) {
            out_0_cells[key] += 1;
            VISPARK_UNROLL
            for (int j = 0; j < 64; ++j) rows::take<Add, Value>(out_1_0_folds_cells[key * 64 + j], out_1_0_row[j]);
            rows::take<Add, Value>(out_1_1_folds_cells[key], out_1_1_value);
        }
    }
    out_0_least[blockIdx.x] = least.value;
    out_0_greatest[blockIdx.x] = greatest.value;
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    unsigned char* const scratch = nullptr;
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    long long* const out_0_cells = (long long*)(memory + 16640) + threadIdx.x / 32 * 10;
    rows::clear<Add, 10>(out_0_cells);
    double* const out_1_0_folds_cells = (double*)(memory + 17280) + threadIdx.x / 32 * 640;
    rows::clear<Add, 640>(out_1_0_folds_cells);
    long long* const out_1_1_folds_cells = (long long*)(memory + 58240) + threadIdx.x / 32 * 10;
    rows::clear<Add, 10>(out_1_1_folds_cells);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<65, 65, 256>(p_tiles + ahead * 2080, p_in, ahead * 32ll, work.count, 32);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 32, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<65, 65, 256>(p_tiles + ((turn + 1) % 2) * 2080, p_in, first + 32, work.count, 32);
        rows::end_group();
        const int count = rows::least(work.count - first, 32);
        for (int start = 0; start < count; start += 8) {
            const int row = start + group;
            long long out_0_value;
            float out_1_0_row[2];
            long long out_1_1_value;
            long long key = -1;
            if (row < count) {
                lambda(p_tiles + turn % 2 * 2080 + row * 65, out_0_value, out_1_0_row, out_1_1_value, lane, scratch);
                key = rows::key_of(out_0_value);
                least.take(key);
                greatest.take(key);
            }
            rows::Turns<32> turns(key >= 0 && key < 10, key);
            while (turns.next()) {
                if (turns.is_own()) {
                    if (lane == 0) out_0_cells[key] += 1;
                    VISPARK_UNROLL
                    for (int j = 0; j < 2; ++j) rows::take<Add, Value>(out_1_0_folds_cells[key * 64 + j * 32 + lane], out_1_0_row[j]);
                    if (lane == 0) rows::take<Add, Value>(out_1_1_folds_cells[key], out_1_1_value);
                }
            }
        }
    }
    rows::leave_warp_cells<Add, 10, 256>(out_0_counts, out_0_cells);
    rows::leave_warp_cells<Add, 640, 256>(out_1_0_folds_partial, out_1_0_folds_cells);
    rows::leave_warp_cells<Add, 10, 256>(out_1_1_folds_partial, out_1_1_folds_cells);
    rows::leave<1, 1, 256, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 256, Maximum>(out_0_greatest, (long long*)memory, &greatest);
#endif
}
