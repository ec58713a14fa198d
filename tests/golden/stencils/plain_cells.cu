// kernels: plain_cells_kernel
#include "vispark/target.h"

struct vp_region { long long pitch, plane; int low[3], high[3]; long long origin[3], shape[3]; };

// Neighbouring cells along x, in one access.
template <class T, int n> struct __align__(sizeof(T) * n) vp_lanes { T item[n]; };
template <int n, class T> static __device__ __forceinline__ void vp_load(T* to, const T* from)
{
    const vp_lanes<T, n> lanes = *(const vp_lanes<T, n>*)from;
    #pragma unroll
    for (int l = 0; l < n; ++l) to[l] = lanes.item[l];
}

// Marked as not to be read soon, so that the cache keeps neighbours instead.
template <int n, class T> static __device__ __forceinline__ void vp_store(T* to, const T* from)
{
    vp_lanes<T, n> lanes;
    #pragma unroll
    for (int l = 0; l < n; ++l) lanes.item[l] = from[l];
    vispark::store_aside((vp_lanes<T, n>*)to, lanes);
}

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }
// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b) { return vispark::floor_quotient<T>(a, b); }

static __device__ __forceinline__ void plain_cells_cell(float& out_a, short& out_c, const float a, const short b,
    const long long k)
{
    out_a = (opaque<int>(b) > 0) ? (a * ((float)k)) : (-a);
    out_c = (short)floor_divide<int>(b, 2);
}

extern "C" __global__ void __launch_bounds__(128)
plain_cells_kernel(const float* __restrict__ a_in, const short* __restrict__ b_in, float* __restrict__ out_a, short* __restrict__ out_c, const vp_region region, const long long k)
{
#if VISPARK_ALONE
    if (threadIdx.x != 0 || threadIdx.y != 0 || blockIdx.x != 0) return;
    const int left = region.low[2], right = region.high[2];
    const int top = region.low[1] + blockIdx.y * 8;
    const int end = min(top + 8, region.high[1]);
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    for (int at = first; at < last; ++at)
        for (int row = top; row < end; ++row) {
            const long long place = at * region.plane + row * region.pitch;
            const float* __restrict__ a_row_0_0 = a_in + place;
            const short* __restrict__ b_row_0_0 = b_in + place;
            float* __restrict__ out_a_to = out_a + place;
            short* __restrict__ out_c_to = out_c + place;
            #pragma GCC ivdep
            for (int x = left; x < right; ++x)
                plain_cells_cell(out_a_to[x], out_c_to[x], a_row_0_0[x], b_row_0_0[x], k);
        }
#else
    const long long along = region.plane, across = region.pitch;
    const int x = (region.low[2] & ~7) + (blockIdx.x * 32 + threadIdx.x) * 8;
    const int row = region.low[1] + (blockIdx.y * 4 + threadIdx.y) * 2;
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    if (x >= region.high[2] || row >= region.high[1]) return;
    float a[2][2][8];
    const float* a_0 = a_in + first * along + (row) * across + x;
    const float* a_1 = a_in + first * along + (min(row + 1, region.high[1] - 1 + 0)) * across + x;
    short b[2][2][8];
    const short* b_0 = b_in + first * along + (row) * across + x;
    const short* b_1 = b_in + first * along + (min(row + 1, region.high[1] - 1 + 0)) * across + x;
    float* out_a_to = out_a + first * along + row * across + x;
    short* out_c_to = out_c + first * along + row * across + x;
    vp_load<8>(&a[0][0][0], a_0);
    vp_load<8>(&a[0][1][0], a_1);
    vp_load<8>(&b[0][0][0], b_0);
    vp_load<8>(&b[0][1][0], b_1);
    for (int at = first; at < last;) {
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<8>(&a[1][0][0], a_0 + next);
            vp_load<8>(&a[1][1][0], a_1 + next);
            vp_load<8>(&b[1][0][0], b_0 + next);
            vp_load<8>(&b[1][1][0], b_1 + next);
            float out_a_new[2][8];
            short out_c_new[2][8];
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int l = 0; l < 8; ++l)
                    plain_cells_cell(out_a_new[r][l], out_c_new[r][l], a[0][r][l], b[0][r][l], k);
            if (x >= region.low[2] && x + 8 <= region.high[2]) {
                vp_store<8>(out_a_to, out_a_new[0]);
                vp_store<8>(out_c_to, out_c_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 8; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_a_to)[l] = out_a_new[0][l];
                        (out_c_to)[l] = out_c_new[0][l];
                    }
            }
            if (x >= region.low[2] && x + 8 <= region.high[2] && row + 1 < region.high[1]) {
                vp_store<8>(out_a_to + across, out_a_new[1]);
                vp_store<8>(out_c_to + across, out_c_new[1]);
            } else if (row + 1 < region.high[1]) {
                #pragma unroll
                for (int l = 0; l < 8; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_a_to + across)[l] = out_a_new[1][l];
                        (out_c_to + across)[l] = out_c_new[1][l];
                    }
            }
            a_0 += along;
            a_1 += along;
            b_0 += along;
            b_1 += along;
            out_a_to += along;
            out_c_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<8>(&a[0][0][0], a_0 + next);
            vp_load<8>(&a[0][1][0], a_1 + next);
            vp_load<8>(&b[0][0][0], b_0 + next);
            vp_load<8>(&b[0][1][0], b_1 + next);
            float out_a_new[2][8];
            short out_c_new[2][8];
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int l = 0; l < 8; ++l)
                    plain_cells_cell(out_a_new[r][l], out_c_new[r][l], a[1][r][l], b[1][r][l], k);
            if (x >= region.low[2] && x + 8 <= region.high[2]) {
                vp_store<8>(out_a_to, out_a_new[0]);
                vp_store<8>(out_c_to, out_c_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 8; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_a_to)[l] = out_a_new[0][l];
                        (out_c_to)[l] = out_c_new[0][l];
                    }
            }
            if (x >= region.low[2] && x + 8 <= region.high[2] && row + 1 < region.high[1]) {
                vp_store<8>(out_a_to + across, out_a_new[1]);
                vp_store<8>(out_c_to + across, out_c_new[1]);
            } else if (row + 1 < region.high[1]) {
                #pragma unroll
                for (int l = 0; l < 8; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_a_to + across)[l] = out_a_new[1][l];
                        (out_c_to + across)[l] = out_c_new[1][l];
                    }
            }
            a_0 += along;
            a_1 += along;
            b_0 += along;
            b_1 += along;
            out_a_to += along;
            out_c_to += along;
        }
        if (++at >= last) break;
    }
#endif
}
