// kernels: lambda_fold
// numbers and counts by keys whose exact sums all blocks have together
#include "vispark/cells.h"

static __device__ __forceinline__ void
lambda(const int k, const float v, int& out_0_value, float& out_1_0_value, long long& out_1_1_value)
{
    out_0_value = k;
    out_1_0_value = v;
    out_1_1_value = 1LL;
}

extern "C" __global__ void
lambda_fold_cells(rows::Word* scratch)
{
#if !VISPARK_ALONE
    const long long first = blockIdx.x * 256ll + threadIdx.x, step = 100096;
    if (first == 0) scratch[0] = 0;
    rows::start_cells<rows::Cell<Add, One, long long, long long>>(scratch + 1, 100000, first, step);
    rows::start_cells<rows::Cell<Add, Value, float, double>>(scratch + 100001, 100000, first, step);
    rows::start_cells<rows::Cell<Add, Value, long long, long long>>(scratch + 1300001, 100000, first, step);
    rows::start_cells<rows::Cell<Add, Size, long long, double>>(scratch + 1400001, 100000, first, step);
#endif
}

extern "C" __global__ void __launch_bounds__(512, 2)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, long long* __restrict__ out_0_counts, long long* __restrict__ out_0_least, long long* __restrict__ out_0_greatest, double* __restrict__ out_1_0_folds_partial, long long* __restrict__ out_1_1_folds_partial, double* __restrict__ out_1_1_sizes_partial, rows::Word* scratch)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const k_in = work.of<const int>(0, 1);
    const float* __restrict__ const v_in = work.of<const float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    long long* __restrict__ const out_0_cells = out_0_counts + blockIdx.x * 100000ll;
    for (int i = 0; i < 100000; ++i) out_0_cells[i] = Add::identity<long long>();
    double* __restrict__ const out_1_0_folds_cells = out_1_0_folds_partial + blockIdx.x * 100000ll;
    for (int i = 0; i < 100000; ++i) out_1_0_folds_cells[i] = Add::identity<double>();
    long long* __restrict__ const out_1_1_folds_cells = out_1_1_folds_partial + blockIdx.x * 100000ll;
    for (int i = 0; i < 100000; ++i) out_1_1_folds_cells[i] = Add::identity<long long>();
    double* __restrict__ const out_1_1_sizes_cells = out_1_1_sizes_partial + blockIdx.x * 100000ll;
    for (int i = 0; i < 100000; ++i) out_1_1_sizes_cells[i] = Add::identity<double>();
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    for (long long row = 0; row < work.count; ++row) {
        int out_0_value;
        float out_1_0_value;
        long long out_1_1_value;
        lambda(k_in[row], v_in[row], out_0_value, out_1_0_value, out_1_1_value);
        const long long key = rows::key_of(out_0_value);
        least.take(key);
        greatest.take(key);
        if (key >= 0 && key < 100000) {
            out_0_cells[key] += 1;
            rows::take<Add, Value>(out_1_0_folds_cells[key], out_1_0_value);
            rows::take<Add, Value>(out_1_1_folds_cells[key], out_1_1_value);
            rows::take<Add, Size>(out_1_1_sizes_cells[key], out_1_1_value);
        }
    }
    out_0_least[blockIdx.x] = least.value;
    out_0_greatest[blockIdx.x] = greatest.value;
#else
    extern __shared__ __align__(16) unsigned char memory[];
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    rows::Word* const out_0_cells = scratch + 1;
    rows::Word* const out_1_0_folds_cells = scratch + 100001;
    rows::Word* const out_1_1_folds_cells = scratch + 1300001;
    rows::Word* const out_1_1_sizes_cells = scratch + 1400001;
    for (long long row = threadIdx.x * 2; row < work.count; row += 1024) {
        if (row + 2 <= work.count) {
            const rows::Pack<int, 2> k = *(const rows::Pack<int, 2>*)(k_in + row);
            const rows::Pack<float, 2> v = *(const rows::Pack<float, 2>*)(v_in + row);
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) {
                int out_0_value;
                float out_1_0_value;
                long long out_1_1_value;
                lambda(k.item[i], v.item[i], out_0_value, out_1_0_value, out_1_1_value);
                const long long key = rows::key_of(out_0_value);
                least.take(key);
                greatest.take(key);
                if (key >= 0 && key < 100000) {
                    rows::cell_of(out_0_cells, key, 100000).count();
                    rows::Cell<Add, Value, float, double>::take(rows::cell_of(out_1_0_folds_cells, key, 100000), out_1_0_value);
                    rows::Cell<Add, Value, long long, long long>::take(rows::cell_of(out_1_1_folds_cells, key, 100000), out_1_1_value);
                    rows::Cell<Add, Size, long long, double>::take(rows::cell_of(out_1_1_sizes_cells, key, 100000), out_1_1_value);
                }
            }
        } else {
            for (long long last = row; last < work.count; ++last) {
                int out_0_value;
                float out_1_0_value;
                long long out_1_1_value;
                lambda(k_in[last], v_in[last], out_0_value, out_1_0_value, out_1_1_value);
                const long long key = rows::key_of(out_0_value);
                least.take(key);
                greatest.take(key);
                if (key >= 0 && key < 100000) {
                    rows::cell_of(out_0_cells, key, 100000).count();
                    rows::Cell<Add, Value, float, double>::take(rows::cell_of(out_1_0_folds_cells, key, 100000), out_1_0_value);
                    rows::Cell<Add, Value, long long, long long>::take(rows::cell_of(out_1_1_folds_cells, key, 100000), out_1_1_value);
                    rows::Cell<Add, Size, long long, double>::take(rows::cell_of(out_1_1_sizes_cells, key, 100000), out_1_1_value);
                }
            }
        }
    }
    const bool all = rows::comes_last(scratch);
    rows::leave_cells<rows::Cell<Add, One, long long, long long>, Add>(out_0_counts, out_0_cells, 100000, all);
    rows::leave_cells<rows::Cell<Add, Value, float, double>, Add>(out_1_0_folds_partial, out_1_0_folds_cells, 100000, all);
    rows::leave_cells<rows::Cell<Add, Value, long long, long long>, Add>(out_1_1_folds_partial, out_1_1_folds_cells, 100000, all);
    rows::leave_cells<rows::Cell<Add, Size, long long, double>, Add>(out_1_1_sizes_partial, out_1_1_sizes_cells, 100000, all);
    rows::leave<1, 1, 512, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 512, Maximum>(out_0_greatest, (long long*)memory, &greatest);
#endif
}
