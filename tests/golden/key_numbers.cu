// kernels: lambda_fold
// numbers by key
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const int k, const float v, int& out_0_value, float& out_1_value)
{
    out_0_value = k;
    out_1_value = v;
}

extern "C" __global__ void __launch_bounds__(32, 21)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, long long* __restrict__ out_0_counts, long long* __restrict__ out_0_least, long long* __restrict__ out_0_greatest, double* __restrict__ out_1_folds_partial)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const k_in = work.of<const int>(0, 1);
    const float* __restrict__ const v_in = work.of<const float>(1, 1);
#ifdef VISPARK_ON_HOST
    if (threadIdx.x != 0) return;
    long long* __restrict__ const out_0_cells = out_0_counts + blockIdx.x * 3ll;
    for (int i = 0; i < 3; ++i) out_0_cells[i] = Add::identity<long long>();
    double* __restrict__ const out_1_folds_cells = out_1_folds_partial + blockIdx.x * 3ll;
    for (int i = 0; i < 3; ++i) out_1_folds_cells[i] = Add::identity<double>();
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    for (long long row = 0; row < work.count; ++row) {
        int out_0_value;
        float out_1_value;
        lambda(k_in[row], v_in[row], out_0_value, out_1_value);
        const long long key = rows::key_of(out_0_value);
        least.take(key);
        greatest.take(key);
        if (key >= 0 && key < 3) {
            out_0_cells[key] += 1;
            rows::take<Add, Value>(out_1_folds_cells[key], out_1_value);
        }
    }
    out_0_least[blockIdx.x] = least.value;
    out_0_greatest[blockIdx.x] = greatest.value;
#else
    extern __shared__ __align__(16) unsigned char memory[];
    int* const k_tiles = (int*)(memory + 0);
    float* const v_tiles = (float*)(memory + 4096);
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    long long* const out_0_cells = (long long*)(memory + 8192) + threadIdx.x / 32 * 3;
    rows::clear<Add, 3>(out_0_cells);
    double* const out_1_folds_cells = (double*)(memory + 8224) + threadIdx.x / 32 * 3;
    rows::clear<Add, 3>(out_1_folds_cells);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<1, 1, 32>(k_tiles + ahead * 512, k_in, ahead * 512ll, work.count, 512);
        rows::fetch<1, 1, 32>(v_tiles + ahead * 512, v_in, ahead * 512ll, work.count, 512);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 512, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<1, 1, 32>(k_tiles + ((turn + 1) % 2) * 512, k_in, first + 512, work.count, 512);
        rows::fetch<1, 1, 32>(v_tiles + ((turn + 1) % 2) * 512, v_in, first + 512, work.count, 512);
        rows::end_group();
        const int count = rows::least(work.count - first, 512);
        for (int start = 0; start < count; start += 32) {
            const int row = start + threadIdx.x;
            int out_0_value;
            float out_1_value;
            long long key = -1;
            if (row < count) {
                lambda(*(k_tiles + turn % 2 * 512 + row), *(v_tiles + turn % 2 * 512 + row), out_0_value, out_1_value);
                key = rows::key_of(out_0_value);
                least.take(key);
                greatest.take(key);
            }
            rows::Turns<1> turns(key >= 0 && key < 3, key);
            while (turns.next()) {
                if (turns.mine()) {
                    out_0_cells[key] += 1;
                    rows::take<Add, Value>(out_1_folds_cells[key], out_1_value);
                }
            }
        }
    }
    rows::leave<1, 1, 32, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 32, Maximum>(out_0_greatest, (long long*)memory, &greatest);
    rows::leave_cells<Add, 3, 32>(out_0_counts, out_0_cells);
    rows::leave_cells<Add, 3, 32>(out_1_folds_partial, out_1_folds_cells);
#endif
}
