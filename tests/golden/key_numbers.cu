// kernels: lambda_fold
// numbers by key
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const int k, const float v, int& out_0_value, float& out_1_value)
{
    out_0_value = k;
    out_1_value = v;
}

extern "C" __global__ void __launch_bounds__(128, 6)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, long long* __restrict__ out_0_counts, long long* __restrict__ out_0_least, long long* __restrict__ out_0_greatest, double* __restrict__ out_1_folds_partial)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const k_in = work.of<const int>(0, 1);
    const float* __restrict__ const v_in = work.of<const float>(1, 1);
#if VISPARK_ALONE
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
    float* const v_tiles = (float*)(memory + 8192);
    rows::Fold<Minimum, Value, long long, long long> least;
    rows::Fold<Maximum, Value, long long, long long> greatest;
    unsigned int* const out_0_cells = (unsigned int*)(memory + 16384) + threadIdx.x;
    for (int i = 0; i < 3; ++i) out_0_cells[i * 128] = Add::identity<unsigned int>();
    double* const out_1_folds_cells = (double*)(memory + 17920) + threadIdx.x;
    for (int i = 0; i < 3; ++i) out_1_folds_cells[i * 128] = Add::identity<double>();
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<1, 1, 128>(k_tiles + ahead * 1024, k_in, ahead * 1024ll, work.count, 1024);
        rows::fetch<1, 1, 128>(v_tiles + ahead * 1024, v_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<1, 1, 128>(k_tiles + ((turn + 1) % 2) * 1024, k_in, first + 1024, work.count, 1024);
        rows::fetch<1, 1, 128>(v_tiles + ((turn + 1) % 2) * 1024, v_in, first + 1024, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            int out_0_value;
            float out_1_value;
            lambda(*(k_tiles + turn % 2 * 1024 + row), *(v_tiles + turn % 2 * 1024 + row), out_0_value, out_1_value);
            const long long key = rows::key_of(out_0_value);
            least.take(key);
            greatest.take(key);
            if (key >= 0 && key < 3) {
                out_0_cells[key * 128] += 1;
                rows::take<Add, Value>(out_1_folds_cells[key * 128], out_1_value);
            }
        }
    }
    rows::leave_thread_cells<Add, 3, 128>(out_0_counts, out_0_cells);
    rows::leave_thread_cells<Add, 3, 128>(out_1_folds_partial, out_1_folds_cells);
    rows::leave<1, 1, 128, Minimum>(out_0_least, (long long*)memory, &least);
    rows::leave<1, 1, 128, Maximum>(out_0_greatest, (long long*)memory, &greatest);
#endif
}
