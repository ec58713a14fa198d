// kernels: lambda_fold
// a sum of squares
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const float x, float& out_value)
{
    out_value = x * x;
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_fold(const long long* __restrict__ works, void* const* __restrict__ ports, double* __restrict__ out_folds_partial)
{
    const rows::Work work(works, ports, 1);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    rows::Columns<Add, Value, float, double, 256> out_folds;
    for (long long first = 0; first < work.count; first += 256) {
        float out_value[256];
        const int count = rows::least(work.count - first, 256);
        VISPARK_EACH
        for (int i = 0; i < count; ++i)
            lambda(x_in[(first + i)], out_value[i]);
        out_folds.take(out_value, count);
        if (first / 256 % 16 == 15) {
            out_folds.flush();
        }
    }
    rows::leave_alone<Add, 1>(out_folds_partial, out_folds);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    rows::Fold<Add, Value, float, double> out_folds[1];
    int turn = 0;
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) {
                lambda(x.item[i], out_value.item[i]);
                out_folds[0].take(out_value.item[i]);
            }
        } else {
            for (long long last = row; last < work.count; ++last) {
                float out_value;
                lambda(x_in[last], out_value);
                out_folds[0].take(out_value);
            }
        }
        if (++turn % 4 == 0) {
            VISPARK_UNROLL
            for (int j = 0; j < 1; ++j) out_folds[j].flush();
        }
    }
    rows::leave<1, 1, 256, Add>(out_folds_partial, (double*)memory, out_folds);
#endif
}
