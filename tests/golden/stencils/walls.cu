// kernels: walls_kernel
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

static __device__ __forceinline__ void walls_cell(float& out, const float u_0_0, const float u_0_1, const float
    u_0_m1, const long long coordinate_0, const long long coordinate_1, const long long extent_0)
{
    if ((coordinate_0 == 0) || (coordinate_0 == (extent_0 - 1))) {
        out = 0.0f * u_0_0;
    } else {
        out = u_0_0 + (((float)coordinate_1) * (u_0_1 - u_0_m1));
    }
}

extern "C" __global__ void __launch_bounds__(128)
walls_kernel(const float* __restrict__ u_in, float* __restrict__ out, const vp_region region)
{
#if VISPARK_ALONE
    if (threadIdx.x != 0 || threadIdx.y != 0 || blockIdx.x != 0) return;
    const int left = region.low[2], right = region.high[2];
    const int top = region.low[0] + blockIdx.z * 1;
    const int end = min(top + 1, region.high[0]);
    const long long planes = region.high[1] - region.low[1];
    const int first = region.low[1] + (int)(planes * blockIdx.y / gridDim.y);
    const int last = region.low[1] + (int)(planes * (blockIdx.y + 1) / gridDim.y);
    for (int at = first; at < last; ++at)
        for (int row = top; row < end; ++row) {
            const long long place = at * region.pitch + row * region.plane;
            const float* __restrict__ u_row_0_0 = u_in + place;
            float* __restrict__ out_to = out + place;
            #pragma GCC ivdep
            for (int x = left; x < right; ++x)
                walls_cell(out_to[x], u_row_0_0[x], u_row_0_0[x + 1], u_row_0_0[x - 1], region.origin[1] + at, region.origin[2] + x, region.shape[1]);
        }
#else
    const long long along = region.pitch, across = region.plane;
    const int x = (region.low[2] & ~3) + (blockIdx.x * 128 + threadIdx.x) * 4;
    const int row = region.low[0] + (blockIdx.z * 1 + threadIdx.y) * 1;
    const long long planes = region.high[1] - region.low[1];
    const int first = region.low[1] + (int)(planes * blockIdx.y / gridDim.y);
    const int last = region.low[1] + (int)(planes * (blockIdx.y + 1) / gridDim.y);
    if (x >= region.high[2] || row >= region.high[0]) return;
    float u[2][1][6];
    const float* u_0 = u_in + first * along + (row) * across + x;
    const int u_right_4 = min(4, region.high[2] - 1 + 1 - x);
    float* out_to = out + first * along + row * across + x;
    vp_load<4>(&u[0][0][1], u_0);
    for (int at = first; at < last;) {
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[1][0][1], u_0 + next);
            vp_load<1>(&u[0][0][0], u_0 - 1);
            vp_load<1>(&u[0][0][5], u_0 + u_right_4);
            float out_new[1][4];
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    walls_cell(out_new[r][l], u[0][r][l + 1], u[0][r][l + 2], u[0][r][l], region.origin[1] + at, region.origin[2] + x + l, region.shape[1]);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[0][0][1], u_0 + next);
            vp_load<1>(&u[1][0][0], u_0 - 1);
            vp_load<1>(&u[1][0][5], u_0 + u_right_4);
            float out_new[1][4];
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    walls_cell(out_new[r][l], u[1][r][l + 1], u[1][r][l + 2], u[1][r][l], region.origin[1] + at, region.origin[2] + x + l, region.shape[1]);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            out_to += along;
        }
        if (++at >= last) break;
    }
#endif
}
