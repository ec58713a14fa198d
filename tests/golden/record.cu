// kernels: lambda_kernel
// a record by its fields, as by map
#include "vispark/rows.h"

static __device__ __forceinline__ void
lambda(const long long y, const float* __restrict__ z, double& out_value, const double k)
{
    out_value = (((double)y) * k) + ((double)z[1]);
}

extern "C" __global__ void __launch_bounds__(128, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const double k)
{
    const rows::Work work(works, ports, 3);
    const long long* __restrict__ const y_in = work.of<const long long>(0, 1);
    const float* __restrict__ const z_in = work.of<const float>(1, 2);
    double* __restrict__ const out = work.of<double>(2, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(y_in[row], z_in + row * 2, out[row], k);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    long long* const y_tiles = (long long*)(memory + 0);
    float* const z_tiles = (float*)(memory + 16384);
    for (int ahead = 0; ahead < 1; ++ahead) {
        rows::fetch<1, 1, 128>(y_tiles + ahead * 1024, y_in, ahead * 1024ll, work.count, 1024);
        rows::fetch<2, 2, 128>(z_tiles + ahead * 2048, z_in, ahead * 1024ll, work.count, 1024);
        rows::end_group();
    }
    int turn = 0;
    for (long long first = 0; first < work.count; first += 1024, ++turn) {
        rows::wait_for_groups<0>();
        rows::barrier();
        rows::fetch<1, 1, 128>(y_tiles + ((turn + 1) % 2) * 1024, y_in, first + 1024, work.count, 1024);
        rows::fetch<2, 2, 128>(z_tiles + ((turn + 1) % 2) * 2048, z_in, first + 1024, work.count, 1024);
        rows::end_group();
        const int count = rows::least(work.count - first, 1024);
        for (int row = threadIdx.x; row < count; row += 128) {
            lambda(*(y_tiles + turn % 2 * 1024 + row), z_tiles + turn % 2 * 2048 + row * 2, out[first + row], k);
        }
    }
#endif
}
