// kernels: lambda_kernel
// a generator over two iterables
#include "vispark/rows.h"

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }

static __device__ __forceinline__ void
lambda(const float* __restrict__ p, float& out_value)
{
    float sum = 0.0f;
    for (int i_2 = 0; i_2 < 5; ++i_2) {
        float a_1 = p[i_2];
        for (int i_3 = 0; i_3 < 5; ++i_3) {
            float b_1 = p[i_3];
            if ((a_1 > opaque<float>(0.0f))) {
                sum += (a_1 * b_1);
            }
        }
    }
    out_value = sum;
}

extern "C" __global__ void __launch_bounds__(128, 5)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const p_in = work.of<const float>(0, 5);
    float* __restrict__ const out = work.of<float>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 5, out[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    float* const p_tiles = (float*)(memory + 0);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<5, 5, 128>(p_tiles + ahead * 5120, p_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<5, 5, 128>(p_tiles + ((turn + 1) % 2) * 5120, p_in, first + 1024, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(p_tiles + turn % 2 * 5120 + row * 5, out[first + row]);
        }
    }
#endif
}
