// kernels: lambda_kernel
// an item by a computed index
#include "vispark/rows.h"

// -a, which wraps.
template <class T> __device__ __forceinline__ T wrapped_negative(T a) { return vispark::negative<T>(a); }
// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b) { return vispark::floor_rest<T>(a, b); }
template <class T> __device__ __forceinline__ T absolute(T a)
{
    const T negative = wrapped_negative<T>(a);
    return (sizeof(T) < 4 ? a < 0 : a < negative) ? negative : a;
}
// Ends the kernel. In a place that outlives it, which its worker gave it, the first thread says which index it was, of
// how long an axis, and at which subscript of the function.
VISPARK_REPORT(vispark_report)
static __device__ unsigned vispark_reports;
static __device__ __noinline__ __attribute__((noreturn)) void
index_outside(long long index, long long length, long long subscript)
{
    if (vispark_report) {
        if (atomicCAS(&vispark_reports, 0u, 1u) == 0u) {
            volatile long long* const report = vispark_report;
            report[1] = index;
            report[2] = length;
            report[3] = subscript;
            __threadfence_system();
            report[0] = 1;
            __threadfence_system();
            atomicExch(&vispark_reports, 2u);
        } else {
            for (int turn = 0; turn < 1 << 20 && *(volatile unsigned*)&vispark_reports != 2u; ++turn) {}
        }
    }
    __trap();
}
// An index that counts from the end if it is negative. Outside the array the kernel ends with a fault.
template <int length> __device__ __forceinline__ int checked_index(long long index, long long subscript)
{
    const long long i = index < 0 ? index + length : index;
    if (i < 0 || i >= length) index_outside(index, length, subscript);
    return (int)i;
}

static __device__ __forceinline__ void
lambda(const int* __restrict__ p, int& out_value)
{
    const int i = checked_index<5>(floor_remainder<int>(absolute<int>(p[0]), 5), 0xb7f74bd601);
    out_value = p[i];
}

extern "C" __global__ void __launch_bounds__(128, 5)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const int* __restrict__ const p_in = work.of<const int>(0, 5);
    int* __restrict__ const out = work.of<int>(1, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(p_in + row * 5, out[row]);
#else
    extern __shared__ __align__(16) unsigned char memory[];
    int* const p_tiles = (int*)(memory + 0);
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
