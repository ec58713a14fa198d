// kernels: lambda_fold
// numbers by so many keys that a block has some digits of the sums of some of them
#include "vispark/cells.h"

static __device__ __forceinline__ void
lambda(const int k, const float v, int& out_0_value, float& out_1_value)
{
    out_0_value = k;
    out_1_value = v;
}

extern "C" __global__ void
lambda_fold_cells(rows::Word* scratch)
{
#if !VISPARK_ALONE
    const long long first = blockIdx.x * 256ll + threadIdx.x, step = 16384;
    if (first == 0) scratch[0] = 0;
    rows::start_cells<rows::Cell<Add, One, long long, long long>>(scratch + 1, 20000, first, step);
    rows::start_cells<rows::Cell<Add, Value, float, double>>(scratch + 20001, 20000, first, step);
#endif
}

extern "C" __global__ void __launch_bounds__(1024, 1)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, long long* __restrict__ out_0_counts, long long* __restrict__ out_0_least, long long* __restrict__ out_0_greatest, double* __restrict__ out_1_folds_partial, rows::Word* scratch)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const k_in = work.of<const int>(0, 1);
    const float* __restrict__ const v_in = work.of<const float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    long long* __restrict__ const out_0_cells = out_0_counts + blockIdx.x * 20000ll;
    for (int i = 0; i < 20000; ++i) out_0_cells[i] = Add::identity<long long>();
    double* __restrict__ const out_1_folds_cells = out_1_folds_partial + blockIdx.x * 20000ll;
    for (int i = 0; i < 20000; ++i) out_1_folds_cells[i] = Add::identity<double>();
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    for (long long row = 0; row < work.count; ++row) {
        int out_0_value;
        float out_1_value;
        lambda(k_in[row], v_in[row], out_0_value, out_1_value);
        const long long key = rows::key_of(out_0_value);
        least.take(key);
        greatest.take(key);
        if (key >= 0 && key < 20000) {
            out_0_cells[key] += 1;
            rows::take<Add, Value>(out_1_folds_cells[key], out_1_value);
        }
    }
    out_0_least[blockIdx.x] = least.value;
    out_0_greatest[blockIdx.x] = greatest.value;
#else
    extern __shared__ __align__(16) unsigned char memory[];
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    rows::Word* const out_0_cells = scratch + 1;
    unsigned* const out_0_cells_near = (unsigned*)(memory + 0);
    rows::Word* const out_1_folds_cells = scratch + 20001;
    unsigned* const out_1_folds_cells_near = (unsigned*)(memory + 53344);
    __shared__ int out_1_folds_cells_first;
    if (threadIdx.x == 0) out_1_folds_cells_first = -1;
    rows::Window out_1_folds_cells_window(&out_1_folds_cells_first);
    for (int part = 0; part < 20000; part += 6667) {
        rows::start_cells<rows::Cell<Add, One, long long, long long>, 1>(out_0_cells_near, 6667, threadIdx.x, 1024);
        rows::start_cells<rows::Cell<Add, Value, float, double>, 3>(out_1_folds_cells_near, 6667, threadIdx.x, 1024);
        rows::barrier();
        for (long long row = threadIdx.x * 4; row < work.count; row += 4096) {
            if (row + 4 <= work.count) {
                const rows::Pack<int, 4> k = *(const rows::Pack<int, 4>*)(k_in + row);
                const rows::Pack<float, 4> v = *(const rows::Pack<float, 4>*)(v_in + row);
                VISPARK_UNROLL
                for (int i = 0; i < 4; ++i) {
                    int out_0_value;
                    float out_1_value;
                    lambda(k.item[i], v.item[i], out_0_value, out_1_value);
                    const long long key = rows::key_of(out_0_value);
                    least.take(key);
                    greatest.take(key);
                    const long long part_key = key - part;
                    if (part_key >= 0 && part_key < 6667 && key < 20000) {
                        rows::cell_of(out_0_cells_near, part_key, 6667).count();
                        rows::Cell<Add, Value, float, double>::take(rows::InBoth<3, 11>{rows::cell_of(out_1_folds_cells_near, part_key, 6667), rows::cell_of(out_1_folds_cells, key, 20000), out_1_folds_cells_window}, out_1_value);
                    }
                }
            } else {
                for (long long last = row; last < work.count; ++last) {
                    int out_0_value;
                    float out_1_value;
                    lambda(k_in[last], v_in[last], out_0_value, out_1_value);
                    const long long key = rows::key_of(out_0_value);
                    least.take(key);
                    greatest.take(key);
                    const long long part_key = key - part;
                    if (part_key >= 0 && part_key < 6667 && key < 20000) {
                        rows::cell_of(out_0_cells_near, part_key, 6667).count();
                        rows::Cell<Add, Value, float, double>::take(rows::InBoth<3, 11>{rows::cell_of(out_1_folds_cells_near, part_key, 6667), rows::cell_of(out_1_folds_cells, key, 20000), out_1_folds_cells_window}, out_1_value);
                    }
                }
            }
        }
        rows::barrier();
        rows::hand_on<1>(out_0_cells, 20000, part * 1, out_0_cells_near, 6667, 0);
        rows::hand_on<3>(out_1_folds_cells, 20000, part * 1, out_1_folds_cells_near, 6667, out_1_folds_cells_first);
    }
    const bool all = rows::comes_last(scratch);
    rows::leave_cells<rows::Cell<Add, One, long long, long long>, Add>(out_0_counts, out_0_cells, 20000, all);
    rows::leave_cells<rows::Cell<Add, Value, float, double>, Add>(out_1_folds_partial, out_1_folds_cells, 20000, all);
    rows::leave<1, 1, 1024, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 1024, Maximum>(out_0_greatest, (long long*)memory, &greatest);
#endif
}
