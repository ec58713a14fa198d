// kernels: box_kernel
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

static __device__ __forceinline__ void box_cell(float& out, const float u_1_1_0, const float u_1_m1_0, const float
    u_1_0_1, const float u_1_0_m1, const float u_m1_1_0, const float u_m1_m1_0, const float u_m1_0_1, const float
    u_m1_0_m1, const float u_0_1_1, const float u_0_1_m1, const float u_0_m1_1, const float u_0_m1_m1, const float
    u_1_1_1, const float u_1_1_m1, const float u_1_m1_1, const float u_1_m1_m1, const float u_m1_1_1, const float
    u_m1_1_m1, const float u_m1_m1_1, const float u_m1_m1_m1, const float u_0_0_0, const float u_1_0_0, const float
    u_m1_0_0, const float u_0_1_0, const float u_0_m1_0, const float u_0_0_1, const float u_0_0_m1, const float*
    __restrict__ COEFFICIENTS)
{
    float edges_1 = (((((((u_1_1_0 + u_1_m1_0) + u_1_0_1) + u_1_0_m1) + u_m1_1_0) + u_m1_m1_0) + u_m1_0_1) + u_m1_0_m1) + (((u_0_1_1 + u_0_1_m1) + u_0_m1_1) + u_0_m1_m1);
    float corners = ((((((u_1_1_1 + u_1_1_m1) + u_1_m1_1) + u_1_m1_m1) + u_m1_1_1) + u_m1_1_m1) + u_m1_m1_1) + u_m1_m1_m1;
    out = (((COEFFICIENTS[0] * u_0_0_0) + (COEFFICIENTS[1] * (((((u_1_0_0 + u_m1_0_0) + u_0_1_0) + u_0_m1_0) + u_0_0_1) + u_0_0_m1))) + (COEFFICIENTS[2] * edges_1)) + (COEFFICIENTS[3] * corners);
}

extern "C" __global__ void __launch_bounds__(128)
box_kernel(const float* __restrict__ u_in, float* __restrict__ out, const vp_region region, const float* __restrict__ COEFFICIENTS)
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
            const float* __restrict__ u_row_1_1 = u_in + place + region.plane + region.pitch;
            const float* __restrict__ u_row_1_m1 = u_in + place + region.plane - region.pitch;
            const float* __restrict__ u_row_1_0 = u_in + place + region.plane;
            const float* __restrict__ u_row_m1_1 = u_in + place - region.plane + region.pitch;
            const float* __restrict__ u_row_m1_m1 = u_in + place - region.plane - region.pitch;
            const float* __restrict__ u_row_m1_0 = u_in + place - region.plane;
            const float* __restrict__ u_row_0_1 = u_in + place + region.pitch;
            const float* __restrict__ u_row_0_m1 = u_in + place - region.pitch;
            const float* __restrict__ u_row_0_0 = u_in + place;
            float* __restrict__ out_to = out + place;
            #pragma GCC ivdep
            for (int x = left; x < right; ++x)
                box_cell(out_to[x], u_row_1_1[x], u_row_1_m1[x], u_row_1_0[x + 1], u_row_1_0[x - 1], u_row_m1_1[x], u_row_m1_m1[x], u_row_m1_0[x + 1], u_row_m1_0[x - 1], u_row_0_1[x + 1], u_row_0_1[x - 1], u_row_0_m1[x + 1], u_row_0_m1[x - 1], u_row_1_1[x + 1], u_row_1_1[x - 1], u_row_1_m1[x + 1], u_row_1_m1[x - 1], u_row_m1_1[x + 1], u_row_m1_1[x - 1], u_row_m1_m1[x + 1], u_row_m1_m1[x - 1], u_row_0_0[x], u_row_1_0[x], u_row_m1_0[x], u_row_0_1[x], u_row_0_m1[x], u_row_0_0[x + 1], u_row_0_0[x - 1], COEFFICIENTS);
        }
#else
    const long long along = region.plane, across = region.pitch;
    const int x = (region.low[2] & ~3) + (blockIdx.x * 32 + threadIdx.x) * 4;
    const int row = region.low[1] + (blockIdx.y * 4 + threadIdx.y) * 2;
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    if (x >= region.high[2] || row >= region.high[1]) return;
    float u[4][4][6];
    const float* u_0 = u_in + first * along + (row - 1) * across + x;
    const float* u_1 = u_in + first * along + (row) * across + x;
    const float* u_2 = u_in + first * along + (min(row + 1, region.high[1] - 1 + 1)) * across + x;
    const float* u_3 = u_in + first * along + (min(row + 2, region.high[1] - 1 + 1)) * across + x;
    const int u_right_4 = min(4, region.high[2] - 1 + 1 - x);
    float* out_to = out + first * along + row * across + x;
    vp_load<4>(&u[0][0][1], u_0 - along);
    vp_load<4>(&u[1][0][1], u_0);
    vp_load<4>(&u[2][0][1], u_0 + along);
    vp_load<4>(&u[0][1][1], u_1 - along);
    vp_load<4>(&u[1][1][1], u_1);
    vp_load<4>(&u[2][1][1], u_1 + along);
    vp_load<4>(&u[0][2][1], u_2 - along);
    vp_load<4>(&u[1][2][1], u_2);
    vp_load<4>(&u[2][2][1], u_2 + along);
    vp_load<4>(&u[0][3][1], u_3 - along);
    vp_load<4>(&u[1][3][1], u_3);
    vp_load<4>(&u[2][3][1], u_3 + along);
    vp_load<1>(&u[0][0][0], u_0 - along - 1);
    vp_load<1>(&u[1][0][0], u_0 - 1);
    vp_load<1>(&u[2][0][0], u_0 + along - 1);
    vp_load<1>(&u[0][0][5], u_0 - along + u_right_4);
    vp_load<1>(&u[1][0][5], u_0 + u_right_4);
    vp_load<1>(&u[2][0][5], u_0 + along + u_right_4);
    vp_load<1>(&u[0][1][0], u_1 - along - 1);
    vp_load<1>(&u[1][1][0], u_1 - 1);
    vp_load<1>(&u[2][1][0], u_1 + along - 1);
    vp_load<1>(&u[0][1][5], u_1 - along + u_right_4);
    vp_load<1>(&u[1][1][5], u_1 + u_right_4);
    vp_load<1>(&u[2][1][5], u_1 + along + u_right_4);
    vp_load<1>(&u[0][2][0], u_2 - along - 1);
    vp_load<1>(&u[1][2][0], u_2 - 1);
    vp_load<1>(&u[2][2][0], u_2 + along - 1);
    vp_load<1>(&u[0][2][5], u_2 - along + u_right_4);
    vp_load<1>(&u[1][2][5], u_2 + u_right_4);
    vp_load<1>(&u[2][2][5], u_2 + along + u_right_4);
    vp_load<1>(&u[0][3][0], u_3 - along - 1);
    vp_load<1>(&u[1][3][0], u_3 - 1);
    vp_load<1>(&u[2][3][0], u_3 + along - 1);
    vp_load<1>(&u[0][3][5], u_3 - along + u_right_4);
    vp_load<1>(&u[1][3][5], u_3 + u_right_4);
    vp_load<1>(&u[2][3][5], u_3 + along + u_right_4);
    for (int at = first; at < last;) {
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[3][0][1], u_0 + next + along);
            vp_load<4>(&u[3][1][1], u_1 + next + along);
            vp_load<4>(&u[3][2][1], u_2 + next + along);
            vp_load<4>(&u[3][3][1], u_3 + next + along);
            vp_load<1>(&u[3][0][0], u_0 + next + along - 1);
            vp_load<1>(&u[3][0][5], u_0 + next + along + u_right_4);
            vp_load<1>(&u[3][1][0], u_1 + next + along - 1);
            vp_load<1>(&u[3][1][5], u_1 + next + along + u_right_4);
            vp_load<1>(&u[3][2][0], u_2 + next + along - 1);
            vp_load<1>(&u[3][2][5], u_2 + next + along + u_right_4);
            vp_load<1>(&u[3][3][0], u_3 + next + along - 1);
            vp_load<1>(&u[3][3][5], u_3 + next + along + u_right_4);
            float out_new[2][4];
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    box_cell(out_new[r][l], u[2][r + 2][l + 1], u[2][r][l + 1], u[2][r + 1][l + 2], u[2][r + 1][l], u[0][r + 2][l + 1], u[0][r][l + 1], u[0][r + 1][l + 2], u[0][r + 1][l], u[1][r + 2][l + 2], u[1][r + 2][l], u[1][r][l + 2], u[1][r][l], u[2][r + 2][l + 2], u[2][r + 2][l], u[2][r][l + 2], u[2][r][l], u[0][r + 2][l + 2], u[0][r + 2][l], u[0][r][l + 2], u[0][r][l], u[1][r + 1][l + 1], u[2][r + 1][l + 1], u[0][r + 1][l + 1], u[1][r + 2][l + 1], u[1][r][l + 1], u[1][r + 1][l + 2], u[1][r + 1][l], COEFFICIENTS);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            if (x >= region.low[2] && x + 4 <= region.high[2] && row + 1 < region.high[1]) {
                vp_store<4>(out_to + across, out_new[1]);
            } else if (row + 1 < region.high[1]) {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to + across)[l] = out_new[1][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[0][0][1], u_0 + next + along);
            vp_load<4>(&u[0][1][1], u_1 + next + along);
            vp_load<4>(&u[0][2][1], u_2 + next + along);
            vp_load<4>(&u[0][3][1], u_3 + next + along);
            vp_load<1>(&u[0][0][0], u_0 + next + along - 1);
            vp_load<1>(&u[0][0][5], u_0 + next + along + u_right_4);
            vp_load<1>(&u[0][1][0], u_1 + next + along - 1);
            vp_load<1>(&u[0][1][5], u_1 + next + along + u_right_4);
            vp_load<1>(&u[0][2][0], u_2 + next + along - 1);
            vp_load<1>(&u[0][2][5], u_2 + next + along + u_right_4);
            vp_load<1>(&u[0][3][0], u_3 + next + along - 1);
            vp_load<1>(&u[0][3][5], u_3 + next + along + u_right_4);
            float out_new[2][4];
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    box_cell(out_new[r][l], u[3][r + 2][l + 1], u[3][r][l + 1], u[3][r + 1][l + 2], u[3][r + 1][l], u[1][r + 2][l + 1], u[1][r][l + 1], u[1][r + 1][l + 2], u[1][r + 1][l], u[2][r + 2][l + 2], u[2][r + 2][l], u[2][r][l + 2], u[2][r][l], u[3][r + 2][l + 2], u[3][r + 2][l], u[3][r][l + 2], u[3][r][l], u[1][r + 2][l + 2], u[1][r + 2][l], u[1][r][l + 2], u[1][r][l], u[2][r + 1][l + 1], u[3][r + 1][l + 1], u[1][r + 1][l + 1], u[2][r + 2][l + 1], u[2][r][l + 1], u[2][r + 1][l + 2], u[2][r + 1][l], COEFFICIENTS);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            if (x >= region.low[2] && x + 4 <= region.high[2] && row + 1 < region.high[1]) {
                vp_store<4>(out_to + across, out_new[1]);
            } else if (row + 1 < region.high[1]) {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to + across)[l] = out_new[1][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[1][0][1], u_0 + next + along);
            vp_load<4>(&u[1][1][1], u_1 + next + along);
            vp_load<4>(&u[1][2][1], u_2 + next + along);
            vp_load<4>(&u[1][3][1], u_3 + next + along);
            vp_load<1>(&u[1][0][0], u_0 + next + along - 1);
            vp_load<1>(&u[1][0][5], u_0 + next + along + u_right_4);
            vp_load<1>(&u[1][1][0], u_1 + next + along - 1);
            vp_load<1>(&u[1][1][5], u_1 + next + along + u_right_4);
            vp_load<1>(&u[1][2][0], u_2 + next + along - 1);
            vp_load<1>(&u[1][2][5], u_2 + next + along + u_right_4);
            vp_load<1>(&u[1][3][0], u_3 + next + along - 1);
            vp_load<1>(&u[1][3][5], u_3 + next + along + u_right_4);
            float out_new[2][4];
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    box_cell(out_new[r][l], u[0][r + 2][l + 1], u[0][r][l + 1], u[0][r + 1][l + 2], u[0][r + 1][l], u[2][r + 2][l + 1], u[2][r][l + 1], u[2][r + 1][l + 2], u[2][r + 1][l], u[3][r + 2][l + 2], u[3][r + 2][l], u[3][r][l + 2], u[3][r][l], u[0][r + 2][l + 2], u[0][r + 2][l], u[0][r][l + 2], u[0][r][l], u[2][r + 2][l + 2], u[2][r + 2][l], u[2][r][l + 2], u[2][r][l], u[3][r + 1][l + 1], u[0][r + 1][l + 1], u[2][r + 1][l + 1], u[3][r + 2][l + 1], u[3][r][l + 1], u[3][r + 1][l + 2], u[3][r + 1][l], COEFFICIENTS);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            if (x >= region.low[2] && x + 4 <= region.high[2] && row + 1 < region.high[1]) {
                vp_store<4>(out_to + across, out_new[1]);
            } else if (row + 1 < region.high[1]) {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to + across)[l] = out_new[1][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[2][0][1], u_0 + next + along);
            vp_load<4>(&u[2][1][1], u_1 + next + along);
            vp_load<4>(&u[2][2][1], u_2 + next + along);
            vp_load<4>(&u[2][3][1], u_3 + next + along);
            vp_load<1>(&u[2][0][0], u_0 + next + along - 1);
            vp_load<1>(&u[2][0][5], u_0 + next + along + u_right_4);
            vp_load<1>(&u[2][1][0], u_1 + next + along - 1);
            vp_load<1>(&u[2][1][5], u_1 + next + along + u_right_4);
            vp_load<1>(&u[2][2][0], u_2 + next + along - 1);
            vp_load<1>(&u[2][2][5], u_2 + next + along + u_right_4);
            vp_load<1>(&u[2][3][0], u_3 + next + along - 1);
            vp_load<1>(&u[2][3][5], u_3 + next + along + u_right_4);
            float out_new[2][4];
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    box_cell(out_new[r][l], u[1][r + 2][l + 1], u[1][r][l + 1], u[1][r + 1][l + 2], u[1][r + 1][l], u[3][r + 2][l + 1], u[3][r][l + 1], u[3][r + 1][l + 2], u[3][r + 1][l], u[0][r + 2][l + 2], u[0][r + 2][l], u[0][r][l + 2], u[0][r][l], u[1][r + 2][l + 2], u[1][r + 2][l], u[1][r][l + 2], u[1][r][l], u[3][r + 2][l + 2], u[3][r + 2][l], u[3][r][l + 2], u[3][r][l], u[0][r + 1][l + 1], u[1][r + 1][l + 1], u[3][r + 1][l + 1], u[0][r + 2][l + 1], u[0][r][l + 1], u[0][r + 1][l + 2], u[0][r + 1][l], COEFFICIENTS);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            if (x >= region.low[2] && x + 4 <= region.high[2] && row + 1 < region.high[1]) {
                vp_store<4>(out_to + across, out_new[1]);
            } else if (row + 1 < region.high[1]) {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to + across)[l] = out_new[1][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            out_to += along;
        }
        if (++at >= last) break;
    }
#endif
}
