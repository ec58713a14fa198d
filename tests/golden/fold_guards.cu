// kernels: lambda_fold
// a sum of Python ints and a minimum, with what tells whether they can be trusted
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const double* __restrict__ x, const long long n_1, double& out_0_value, long long& out_1_value)
{
    double sum = 0.0;
    VISPARK_UNROLL
    for (int j = 0; j < 5; ++j) {
        sum += x[j];
    }
    out_0_value = sum;
    out_1_value = n_1;
}

extern "C" __global__ void __launch_bounds__(128, 7)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, double* __restrict__ out_0_folds_partial, double* __restrict__ out_0_nans_partial, long long* __restrict__ out_1_folds_partial, double* __restrict__ out_1_sizes_partial)
{
    const rows::Work work(works, ports, 2);
    const double* __restrict__ const x_in = work.of<const double>(0, 5);
    const long long* __restrict__ const n_in = work.of<const long long>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    rows::Columns<Minimum, Value, double, double, 256> out_0_folds;
    rows::Columns<Add, IsNan, double, double, 256> out_0_nans;
    rows::Columns<Add, Value, long long, long long, 256> out_1_folds;
    rows::Columns<Add, Size, long long, double, 256> out_1_sizes;
    for (long long first = 0; first < work.count; first += 256) {
        double out_0_value[256];
        long long out_1_value[256];
        const int count = rows::least(work.count - first, 256);
        VISPARK_EACH
        for (int i = 0; i < count; ++i)
            lambda(x_in + (first + i) * 5, n_in[(first + i)], out_0_value[i], out_1_value[i]);
        out_0_folds.take(out_0_value, count);
        out_0_nans.take(out_0_value, count);
        out_1_folds.take(out_1_value, count);
        out_1_sizes.take(out_1_value, count);
    }
    rows::leave_alone<Minimum, 1>(out_0_folds_partial, out_0_folds);
    rows::leave_alone<Add, 1>(out_0_nans_partial, out_0_nans);
    rows::leave_alone<Add, 1>(out_1_folds_partial, out_1_folds);
    rows::leave_alone<Add, 1>(out_1_sizes_partial, out_1_sizes);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    double* const x_tiles = (double*)(memory + 0);
    long long* const n_1_tiles = (long long*)(memory + 20480);
    rows::Fold<Minimum, Value, double, double> out_0_folds[1];
    rows::Fold<Add, IsNan, double, double> out_0_nans[1];
    rows::Fold<Add, Value, long long, long long> out_1_folds[1];
    rows::Fold<Add, Size, long long, double> out_1_sizes[1];
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<5, 5, 128>(x_tiles + ahead * 1280, x_in, ahead * 256ll, work.count, 256);
        rows::fetch<1, 1, 128>(n_1_tiles + ahead * 256, n_in, ahead * 256ll, work.count, 256);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 256, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<5, 5, 128>(x_tiles + ((turn + 1) % 2) * 1280, x_in, first + 256, work.count, 256);
        rows::fetch<1, 1, 128>(n_1_tiles + ((turn + 1) % 2) * 256, n_in, first + 256, work.count, 256);
        rows::end_group();
        const int count = rows::least(work.count - first, 256);
        for (int row = threadIdx.x; row < count; row += 128) {
            double out_0_value;
            long long out_1_value;
            lambda(x_tiles + turn % 2 * 1280 + row * 5, *(n_1_tiles + turn % 2 * 256 + row), out_0_value, out_1_value);
            out_0_folds[0].take(out_0_value);
            out_0_nans[0].take(out_0_value);
            out_1_folds[0].take(out_1_value);
            out_1_sizes[0].take(out_1_value);
        }
    }
    rows::leave<1, 1, 128, Minimum>(out_0_folds_partial, (double*)memory, out_0_folds);
    rows::leave<1, 1, 128, Add>(out_0_nans_partial, (double*)memory, out_0_nans);
    rows::leave<1, 1, 128, Add>(out_1_folds_partial, (long long*)memory, out_1_folds);
    rows::leave<1, 1, 128, Add>(out_1_sizes_partial, (double*)memory, out_1_sizes);
#endif
}
