// kernels: convection_kernel
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

static __device__ __forceinline__ void convection_cell(double& out_u, double& out_v, const float u_0_0, const float
    u_0_1, const float u_0_m1, const float u_1_0, const float u_m1_0, const float v_0_0, const float v_0_1, const
    float v_0_m1, const float v_1_0, const float v_m1_0, const double p_0_1, const double p_0_m1, const double
    p_1_0, const double p_m1_0, const double k)
{
    float along_1 = (u_0_0 * (u_0_1 - u_0_m1)) + (v_0_0 * (u_1_0 - u_m1_0));
    float across_1 = (u_0_0 * (v_0_1 - v_0_m1)) + (v_0_0 * (v_1_0 - v_m1_0));
    out_u = ((double)u_0_0) - (k * (((double)along_1) + (p_0_1 - p_0_m1)));
    out_v = ((double)v_0_0) - (k * (((double)across_1) + (p_1_0 - p_m1_0)));
}

extern "C" __global__ void __launch_bounds__(128)
convection_kernel(const float* __restrict__ u_in, const float* __restrict__ v_in, const double* __restrict__ p_in, double* __restrict__ out_u, double* __restrict__ out_v, const vp_region region, const double k)
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
            const float* __restrict__ u_row_0_1 = u_in + place + region.pitch;
            const float* __restrict__ u_row_0_m1 = u_in + place - region.pitch;
            const float* __restrict__ v_row_0_0 = v_in + place;
            const float* __restrict__ v_row_0_1 = v_in + place + region.pitch;
            const float* __restrict__ v_row_0_m1 = v_in + place - region.pitch;
            const double* __restrict__ p_row_0_0 = p_in + place;
            const double* __restrict__ p_row_0_1 = p_in + place + region.pitch;
            const double* __restrict__ p_row_0_m1 = p_in + place - region.pitch;
            double* __restrict__ out_u_to = out_u + place;
            double* __restrict__ out_v_to = out_v + place;
            #pragma GCC ivdep
            for (int x = left; x < right; ++x)
                convection_cell(out_u_to[x], out_v_to[x], u_row_0_0[x], u_row_0_0[x + 1], u_row_0_0[x - 1], u_row_0_1[x], u_row_0_m1[x], v_row_0_0[x], v_row_0_0[x + 1], v_row_0_0[x - 1], v_row_0_1[x], v_row_0_m1[x], p_row_0_0[x + 1], p_row_0_0[x - 1], p_row_0_1[x], p_row_0_m1[x], k);
        }
#else
    const long long along = region.pitch, across = region.plane;
    const int x = (region.low[2] & ~3) + (blockIdx.x * 128 + threadIdx.x) * 4;
    const int row = region.low[0] + (blockIdx.z * 1 + threadIdx.y) * 1;
    const long long planes = region.high[1] - region.low[1];
    const int first = region.low[1] + (int)(planes * blockIdx.y / gridDim.y);
    const int last = region.low[1] + (int)(planes * (blockIdx.y + 1) / gridDim.y);
    if (x >= region.high[2] || row >= region.high[0]) return;
    float u[4][1][6];
    const float* u_0 = u_in + first * along + (row) * across + x;
    const int u_right_4 = min(4, region.high[2] - 1 + 1 - x);
    float v[4][1][6];
    const float* v_0 = v_in + first * along + (row) * across + x;
    const int v_right_4 = min(4, region.high[2] - 1 + 1 - x);
    double p[4][1][6];
    const double* p_0 = p_in + first * along + (row) * across + x;
    const int p_right_4 = min(4, region.high[2] - 1 + 1 - x);
    double* out_u_to = out_u + first * along + row * across + x;
    double* out_v_to = out_v + first * along + row * across + x;
    vp_load<4>(&u[0][0][1], u_0 - along);
    vp_load<4>(&u[1][0][1], u_0);
    vp_load<4>(&u[2][0][1], u_0 + along);
    vp_load<4>(&v[0][0][1], v_0 - along);
    vp_load<4>(&v[1][0][1], v_0);
    vp_load<4>(&v[2][0][1], v_0 + along);
    vp_load<4>(&p[0][0][1], p_0 - along);
    vp_load<4>(&p[1][0][1], p_0);
    vp_load<4>(&p[2][0][1], p_0 + along);
    for (int at = first; at < last;) {
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[3][0][1], u_0 + next + along);
            vp_load<4>(&v[3][0][1], v_0 + next + along);
            vp_load<4>(&p[3][0][1], p_0 + next + along);
            vp_load<1>(&u[1][0][0], u_0 - 1);
            vp_load<1>(&u[1][0][5], u_0 + u_right_4);
            vp_load<1>(&v[1][0][0], v_0 - 1);
            vp_load<1>(&v[1][0][5], v_0 + v_right_4);
            vp_load<1>(&p[1][0][0], p_0 - 1);
            vp_load<1>(&p[1][0][5], p_0 + p_right_4);
            double out_u_new[1][4];
            double out_v_new[1][4];
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    convection_cell(out_u_new[r][l], out_v_new[r][l], u[1][r][l + 1], u[1][r][l + 2], u[1][r][l], u[2][r][l + 1], u[0][r][l + 1], v[1][r][l + 1], v[1][r][l + 2], v[1][r][l], v[2][r][l + 1], v[0][r][l + 1], p[1][r][l + 2], p[1][r][l], p[2][r][l + 1], p[0][r][l + 1], k);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_u_to, out_u_new[0]);
                vp_store<4>(out_v_to, out_v_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_u_to)[l] = out_u_new[0][l];
                        (out_v_to)[l] = out_v_new[0][l];
                    }
            }
            u_0 += along;
            v_0 += along;
            p_0 += along;
            out_u_to += along;
            out_v_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[0][0][1], u_0 + next + along);
            vp_load<4>(&v[0][0][1], v_0 + next + along);
            vp_load<4>(&p[0][0][1], p_0 + next + along);
            vp_load<1>(&u[2][0][0], u_0 - 1);
            vp_load<1>(&u[2][0][5], u_0 + u_right_4);
            vp_load<1>(&v[2][0][0], v_0 - 1);
            vp_load<1>(&v[2][0][5], v_0 + v_right_4);
            vp_load<1>(&p[2][0][0], p_0 - 1);
            vp_load<1>(&p[2][0][5], p_0 + p_right_4);
            double out_u_new[1][4];
            double out_v_new[1][4];
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    convection_cell(out_u_new[r][l], out_v_new[r][l], u[2][r][l + 1], u[2][r][l + 2], u[2][r][l], u[3][r][l + 1], u[1][r][l + 1], v[2][r][l + 1], v[2][r][l + 2], v[2][r][l], v[3][r][l + 1], v[1][r][l + 1], p[2][r][l + 2], p[2][r][l], p[3][r][l + 1], p[1][r][l + 1], k);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_u_to, out_u_new[0]);
                vp_store<4>(out_v_to, out_v_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_u_to)[l] = out_u_new[0][l];
                        (out_v_to)[l] = out_v_new[0][l];
                    }
            }
            u_0 += along;
            v_0 += along;
            p_0 += along;
            out_u_to += along;
            out_v_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[1][0][1], u_0 + next + along);
            vp_load<4>(&v[1][0][1], v_0 + next + along);
            vp_load<4>(&p[1][0][1], p_0 + next + along);
            vp_load<1>(&u[3][0][0], u_0 - 1);
            vp_load<1>(&u[3][0][5], u_0 + u_right_4);
            vp_load<1>(&v[3][0][0], v_0 - 1);
            vp_load<1>(&v[3][0][5], v_0 + v_right_4);
            vp_load<1>(&p[3][0][0], p_0 - 1);
            vp_load<1>(&p[3][0][5], p_0 + p_right_4);
            double out_u_new[1][4];
            double out_v_new[1][4];
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    convection_cell(out_u_new[r][l], out_v_new[r][l], u[3][r][l + 1], u[3][r][l + 2], u[3][r][l], u[0][r][l + 1], u[2][r][l + 1], v[3][r][l + 1], v[3][r][l + 2], v[3][r][l], v[0][r][l + 1], v[2][r][l + 1], p[3][r][l + 2], p[3][r][l], p[0][r][l + 1], p[2][r][l + 1], k);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_u_to, out_u_new[0]);
                vp_store<4>(out_v_to, out_v_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_u_to)[l] = out_u_new[0][l];
                        (out_v_to)[l] = out_v_new[0][l];
                    }
            }
            u_0 += along;
            v_0 += along;
            p_0 += along;
            out_u_to += along;
            out_v_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[2][0][1], u_0 + next + along);
            vp_load<4>(&v[2][0][1], v_0 + next + along);
            vp_load<4>(&p[2][0][1], p_0 + next + along);
            vp_load<1>(&u[0][0][0], u_0 - 1);
            vp_load<1>(&u[0][0][5], u_0 + u_right_4);
            vp_load<1>(&v[0][0][0], v_0 - 1);
            vp_load<1>(&v[0][0][5], v_0 + v_right_4);
            vp_load<1>(&p[0][0][0], p_0 - 1);
            vp_load<1>(&p[0][0][5], p_0 + p_right_4);
            double out_u_new[1][4];
            double out_v_new[1][4];
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    convection_cell(out_u_new[r][l], out_v_new[r][l], u[0][r][l + 1], u[0][r][l + 2], u[0][r][l], u[1][r][l + 1], u[3][r][l + 1], v[0][r][l + 1], v[0][r][l + 2], v[0][r][l], v[1][r][l + 1], v[3][r][l + 1], p[0][r][l + 2], p[0][r][l], p[1][r][l + 1], p[3][r][l + 1], k);
            if (x >= region.low[2] && x + 4 <= region.high[2]) {
                vp_store<4>(out_u_to, out_u_new[0]);
                vp_store<4>(out_v_to, out_v_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_u_to)[l] = out_u_new[0][l];
                        (out_v_to)[l] = out_v_new[0][l];
                    }
            }
            u_0 += along;
            v_0 += along;
            p_0 += along;
            out_u_to += along;
            out_v_to += along;
        }
        if (++at >= last) break;
    }
#endif
}
