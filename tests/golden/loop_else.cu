// kernels: first_divisor_kernel
// for with else
#include "vispark/rows.h"

// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b) { return vispark::floor_rest<T>(a, b); }

static __device__ __forceinline__ void
first_divisor(const int n_1, long long& out_value)
{
    long long divisor;
    bool broke = false;
    for (int i = 2; i < 6; ++i) {
        if (floor_remainder<int>(n_1, (int)i) == 0) {
            divisor = i;
            broke = true;
            break;
        }
    }
    long long divisor_1;
    if (!broke) {
        divisor_1 = -1;
    } else {
        divisor_1 = divisor;
    }
    out_value = divisor_1;
}

extern "C" __global__ void __launch_bounds__(256, 6)
first_divisor_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const n_in = work.of<const int>(0, 1);
    long long* __restrict__ const out = work.of<long long>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        first_divisor(n_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<int, 2> n_1 = *(const rows::Pack<int, 2>*)(n_in + row);
            rows::Pack<long long, 2> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) first_divisor(n_1.item[i], out_value.item[i]);
            *(rows::Pack<long long, 2>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                first_divisor(n_in[last], out[last]);
            }
        }
    }
#endif
}
