// kernels: flux_then_doubled_then_placed_then_relax_4
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

// A place beyond a periodic grid, as the one it stands for.
static __device__ __forceinline__ long long vp_wrapped(long long place, long long extent)
{
    return place < 0 ? place + extent : place >= extent ? place - extent : place;
}

namespace cells_0 {
// Quotients by one number: the product with its reciprocal, q, less what that is too much times the reciprocal, which
// is rounded as the quotient is where nothing underflows or overflows on the way (docs/decisions/0017 proves it). Where
// something may, sure becomes false, and the quotient is to be taken again with exact. Written so, nothing is too much
// of a zero, times a number below zero: it keeps its sign. Of a divisor whose reciprocal is no normal number the bounds
// are such that nothing is sure, without a branch, which compilers would draw out of loops with all that they hold.
__device__ __forceinline__ float fused_sum(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused_sum(double a, double b, double c) { return fma(a, b, c); }
template <class T> struct divisor_t {
    T size, factor, signum, least, zero;
    __device__ __forceinline__ explicit divisor_t(T b)
    {
        const bool single = sizeof(T) == 4;
        size = fabs(b);
        factor = 1 / size;
        signum = copysign(T(1), b);
        const T large = size * 4, unusual = (large - large) + (factor - factor);
        least = fmax((T)(single ? 0x1p-125 : 0x1p-1021), factor * (T)(single ? 0x1p-101 : 0x1p-968)) + unusual;
        zero = fmax(unusual, T(-1));
    }
};
template <bool exact, class T> __device__ __forceinline__ T common_quotient(T a, T b, bool& sure)
{
    if (exact) return a / b;
    const divisor_t<T> by(b);
    const T q = a * by.factor, found = fused_sum(fused_sum(by.size, q, -a), -by.factor, q);
    // Infinities have become NaN, which is not at least anything; a NaN of the dividend stays one.
    sure = sure & ((fabs(found) >= by.least) | !(fabs(a) > by.zero));
    return found * by.signum;
}

template <bool exact> static __device__ __forceinline__ void flux_cell(float& out_w, float& out_v, const float
    u_0_1, const float u_m1_0, const float u_1_1, const float v_1_m1, const float v_0_0, const double k, bool& sure)
{
    out_w = (((float)k) * (u_0_1 - u_m1_0)) + v_1_m1;
    out_v = common_quotient<exact>(v_0_0, (float)k, sure) - u_1_1;
}
}
namespace cells_1 {
static __device__ __forceinline__ void doubled_cell(float& out_v, const float v)
{
    out_v = 2.0f * v;
}
}
namespace cells_2 {
// Quotients by one number: the product with its reciprocal, q, less what that is too much times the reciprocal, which
// is rounded as the quotient is where nothing underflows or overflows on the way (docs/decisions/0017 proves it). Where
// something may, sure becomes false, and the quotient is to be taken again with exact. Written so, nothing is too much
// of a zero, times a number below zero: it keeps its sign. Of a divisor whose reciprocal is no normal number the bounds
// are such that nothing is sure, without a branch, which compilers would draw out of loops with all that they hold.
__device__ __forceinline__ float fused_sum(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused_sum(double a, double b, double c) { return fma(a, b, c); }
template <class T> struct divisor_t {
    T size, factor, signum, least, zero;
    __device__ __forceinline__ explicit divisor_t(T b)
    {
        const bool single = sizeof(T) == 4;
        size = fabs(b);
        factor = 1 / size;
        signum = copysign(T(1), b);
        const T large = size * 4, unusual = (large - large) + (factor - factor);
        least = fmax((T)(single ? 0x1p-125 : 0x1p-1021), factor * (T)(single ? 0x1p-101 : 0x1p-968)) + unusual;
        zero = fmax(unusual, T(-1));
    }
};
template <bool exact, class T> __device__ __forceinline__ T common_quotient(T a, T b, bool& sure)
{
    if (exact) return a / b;
    const divisor_t<T> by(b);
    const T q = a * by.factor, found = fused_sum(fused_sum(by.size, q, -a), -by.factor, q);
    // Infinities have become NaN, which is not at least anything; a NaN of the dividend stays one.
    sure = sure & ((fabs(found) >= by.least) | !(fabs(a) > by.zero));
    return found * by.signum;
}

template <bool exact> static __device__ __forceinline__ void placed_cell(float& out_u, float& out_w, const float
    u_m1_1, const float v_1_0, const float v_0_0, const long long coordinate_0, const long long coordinate_1, const
    long long extent_1, bool& sure)
{
    float new_1 = ((u_m1_1 + (0.5f * v_1_0)) + ((float)coordinate_0)) + ((float)common_quotient<exact>(0.25 * ((double)coordinate_1), (double)extent_1, sure));
    out_u = new_1;
    out_w = new_1 - v_0_0;
}
}
namespace cells_3 {
static __device__ __forceinline__ void relax_cell(float& out_u, const float u_0_0, const float u_0_1, const float
    u_0_m1, const float u_1_0, const float u_m1_0, const float w_0_0, const float k)
{
    out_u = u_0_0 + (k * (((((u_0_1 + u_0_m1) + u_1_0) + u_m1_0) - w_0_0) - (4.0f * u_0_0)));
}
}
// A warp's strip; whether cells beyond the grid may be in it.
template <bool rims> static __device__ __forceinline__ void
flux_then_doubled_then_placed_then_relax_4_strip(const float* __restrict__ u_v0_in, const float* __restrict__ v_v0_in, float* __restrict__ v_v2_out, float* __restrict__ w_v1_out, float* __restrict__ u_v2_out, const vp_region& region, const double k_0, const float k_3)
{
    const int strip = (region.low[2] & ~3) + (int)(blockIdx.x * 4 + threadIdx.y) * 120;
    if (strip >= region.high[2]) return;
    const long long rows = region.high[1] - region.low[1];
    const int first = region.low[1] + (int)(rows * blockIdx.y / gridDim.y);
    const int last = region.low[1] + (int)(rows * (blockIdx.y + 1) / gridDim.y);
    const int lane = threadIdx.x, x = strip - 4 + lane * 4;
    const int begin = first - 2, end = last + 3;
    const int at_x = min(x, (region.high[2] + 1) & ~3);
    const bool inside = lane >= 1 && lane < 31 && x < region.high[2] && x + 4 > region.low[2];
    const bool whole = x >= region.low[2] && x + 4 <= region.high[2];
    const int bottom = (int)max(-region.origin[1], -2147483647LL);
    const int top = (int)min(region.shape[1] - region.origin[1], 2147483647LL);
    unsigned below = 0, above = 0;
    #pragma unroll
    for (int l = 0; l < 4; ++l) {
        below |= (unsigned)(region.origin[2] + x + l < 0) << l;
        above |= (unsigned)(region.origin[2] + x + l >= region.shape[2]) << l;
    }
    const bool rim = __any_sync(0xffffffffu, (below | above) != 0);
    float u_v0[6][4] = {};
    float v_v0[6][4] = {};
    float w_v0[1][4] = {};
    float v_v1[1][4] = {};
    float v_v2[2][4] = {};
    float u_v1[3][4] = {};
    float w_v1[2][4] = {};
    float u_v2[1][4] = {};
    vp_load<4>(u_v0[0], u_v0_in + (long long)min(max(begin, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
    vp_load<4>(u_v0[1], u_v0_in + (long long)min(max(begin + 1, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
    vp_load<4>(v_v0[0], v_v0_in + (long long)min(max(begin, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
    vp_load<4>(v_v0[1], v_v0_in + (long long)min(max(begin + 1, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
    for (int s = begin; s < end;) {
        vp_load<4>(u_v0[2], u_v0_in + (long long)min(max(s + 2, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
        vp_load<4>(v_v0[2], v_v0_in + (long long)min(max(s + 2, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
        {
            float u_1[5];
            for (int l = 0; l < 4; ++l) u_1[l + 0] = u_v0[5][l];
            u_1[4] = __shfl_down_sync(0xffffffffu, u_v0[5][0], 1);
            float u_2[5];
            for (int l = 0; l < 4; ++l) u_2[l + 0] = u_v0[0][l];
            u_2[4] = __shfl_down_sync(0xffffffffu, u_v0[0][0], 1);
            float v_2[5];
            for (int l = 0; l < 4; ++l) v_2[l + 1] = v_v0[0][l];
            v_2[0] = __shfl_up_sync(0xffffffffu, v_v0[0][3], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_0::flux_cell<false>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[4][l], u_2[l + 1], v_2[l], v_v0[5][l], k_0, sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::flux_cell<true>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[4][l], u_2[l + 1], v_2[l], v_v0[5][l], k_0, sure);
        }
        {
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_1::doubled_cell(v_v2[0][l], v_v1[0][l]);
            if (rims) {
                if (s - 1 >= top) for (int l = 0; l < 4; ++l) v_v2[0][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = v_v2[0][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, v_v2[0][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        v_v2[0][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : v_v2[0][l];
                }
                if (s - 1 == bottom) for (int l = 0; l < 4; ++l) v_v2[1][l] = v_v2[0][l];
            }
            if (inside && s - 1 >= first && s - 1 < last) {
                const long long place = (long long)(s - 1) * region.pitch + x;
                if (whole) {
                    vp_store<4>(v_v2_out + place, v_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            v_v2_out[place + l] = v_v2[0][l];
                        }
                }
            }
        }
        {
            float u_0[5];
            for (int l = 0; l < 4; ++l) u_0[l + 0] = u_v0[3][l];
            u_0[4] = __shfl_down_sync(0xffffffffu, u_v0[3][0], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_2::placed_cell<false>(u_v1[0][l], w_v1[0][l], u_0[l + 1], v_v2[0][l], v_v2[1][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_2::placed_cell<true>(u_v1[0][l], w_v1[0][l], u_0[l + 1], v_v2[0][l], v_v2[1][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (rims) {
                if (s - 2 >= top) for (int l = 0; l < 4; ++l) u_v1[0][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = u_v1[0][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, u_v1[0][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        u_v1[0][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : u_v1[0][l];
                }
                if (s - 2 == bottom) for (int l = 0; l < 4; ++l) u_v1[2][l] = u_v1[0][l];
            }
            if (inside && s - 2 >= first && s - 2 < last) {
                const long long place = (long long)(s - 2) * region.pitch + x;
                if (whole) {
                    vp_store<4>(w_v1_out + place, w_v1[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            w_v1_out[place + l] = w_v1[0][l];
                        }
                }
            }
        }
        {
            float u_1[6];
            for (int l = 0; l < 4; ++l) u_1[l + 1] = u_v1[2][l];
            u_1[0] = __shfl_up_sync(0xffffffffu, u_v1[2][3], 1);
            u_1[5] = __shfl_down_sync(0xffffffffu, u_v1[2][0], 1);
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_3::relax_cell(u_v2[0][l], u_1[l + 1], u_1[l + 2], u_1[l], u_v1[0][l], u_v1[1][l], w_v1[1][l], k_3);
            if (inside && s - 3 >= first && s - 3 < last) {
                const long long place = (long long)(s - 3) * region.pitch + x;
                if (whole) {
                    vp_store<4>(u_v2_out + place, u_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            u_v2_out[place + l] = u_v2[0][l];
                        }
                }
            }
        }
        if (++s >= end) break;
        vp_load<4>(u_v0[3], u_v0_in + (long long)min(max(s + 2, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
        vp_load<4>(v_v0[3], v_v0_in + (long long)min(max(s + 2, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
        {
            float u_1[5];
            for (int l = 0; l < 4; ++l) u_1[l + 0] = u_v0[0][l];
            u_1[4] = __shfl_down_sync(0xffffffffu, u_v0[0][0], 1);
            float u_2[5];
            for (int l = 0; l < 4; ++l) u_2[l + 0] = u_v0[1][l];
            u_2[4] = __shfl_down_sync(0xffffffffu, u_v0[1][0], 1);
            float v_2[5];
            for (int l = 0; l < 4; ++l) v_2[l + 1] = v_v0[1][l];
            v_2[0] = __shfl_up_sync(0xffffffffu, v_v0[1][3], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_0::flux_cell<false>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[5][l], u_2[l + 1], v_2[l], v_v0[0][l], k_0, sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::flux_cell<true>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[5][l], u_2[l + 1], v_2[l], v_v0[0][l], k_0, sure);
        }
        {
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_1::doubled_cell(v_v2[1][l], v_v1[0][l]);
            if (rims) {
                if (s - 1 >= top) for (int l = 0; l < 4; ++l) v_v2[1][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = v_v2[1][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, v_v2[1][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        v_v2[1][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : v_v2[1][l];
                }
                if (s - 1 == bottom) for (int l = 0; l < 4; ++l) v_v2[0][l] = v_v2[1][l];
            }
            if (inside && s - 1 >= first && s - 1 < last) {
                const long long place = (long long)(s - 1) * region.pitch + x;
                if (whole) {
                    vp_store<4>(v_v2_out + place, v_v2[1]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            v_v2_out[place + l] = v_v2[1][l];
                        }
                }
            }
        }
        {
            float u_0[5];
            for (int l = 0; l < 4; ++l) u_0[l + 0] = u_v0[4][l];
            u_0[4] = __shfl_down_sync(0xffffffffu, u_v0[4][0], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_2::placed_cell<false>(u_v1[1][l], w_v1[1][l], u_0[l + 1], v_v2[1][l], v_v2[0][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_2::placed_cell<true>(u_v1[1][l], w_v1[1][l], u_0[l + 1], v_v2[1][l], v_v2[0][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (rims) {
                if (s - 2 >= top) for (int l = 0; l < 4; ++l) u_v1[1][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = u_v1[1][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, u_v1[1][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        u_v1[1][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : u_v1[1][l];
                }
                if (s - 2 == bottom) for (int l = 0; l < 4; ++l) u_v1[0][l] = u_v1[1][l];
            }
            if (inside && s - 2 >= first && s - 2 < last) {
                const long long place = (long long)(s - 2) * region.pitch + x;
                if (whole) {
                    vp_store<4>(w_v1_out + place, w_v1[1]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            w_v1_out[place + l] = w_v1[1][l];
                        }
                }
            }
        }
        {
            float u_1[6];
            for (int l = 0; l < 4; ++l) u_1[l + 1] = u_v1[0][l];
            u_1[0] = __shfl_up_sync(0xffffffffu, u_v1[0][3], 1);
            u_1[5] = __shfl_down_sync(0xffffffffu, u_v1[0][0], 1);
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_3::relax_cell(u_v2[0][l], u_1[l + 1], u_1[l + 2], u_1[l], u_v1[1][l], u_v1[2][l], w_v1[0][l], k_3);
            if (inside && s - 3 >= first && s - 3 < last) {
                const long long place = (long long)(s - 3) * region.pitch + x;
                if (whole) {
                    vp_store<4>(u_v2_out + place, u_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            u_v2_out[place + l] = u_v2[0][l];
                        }
                }
            }
        }
        if (++s >= end) break;
        vp_load<4>(u_v0[4], u_v0_in + (long long)min(max(s + 2, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
        vp_load<4>(v_v0[4], v_v0_in + (long long)min(max(s + 2, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
        {
            float u_1[5];
            for (int l = 0; l < 4; ++l) u_1[l + 0] = u_v0[1][l];
            u_1[4] = __shfl_down_sync(0xffffffffu, u_v0[1][0], 1);
            float u_2[5];
            for (int l = 0; l < 4; ++l) u_2[l + 0] = u_v0[2][l];
            u_2[4] = __shfl_down_sync(0xffffffffu, u_v0[2][0], 1);
            float v_2[5];
            for (int l = 0; l < 4; ++l) v_2[l + 1] = v_v0[2][l];
            v_2[0] = __shfl_up_sync(0xffffffffu, v_v0[2][3], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_0::flux_cell<false>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[0][l], u_2[l + 1], v_2[l], v_v0[1][l], k_0, sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::flux_cell<true>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[0][l], u_2[l + 1], v_2[l], v_v0[1][l], k_0, sure);
        }
        {
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_1::doubled_cell(v_v2[0][l], v_v1[0][l]);
            if (rims) {
                if (s - 1 >= top) for (int l = 0; l < 4; ++l) v_v2[0][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = v_v2[0][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, v_v2[0][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        v_v2[0][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : v_v2[0][l];
                }
                if (s - 1 == bottom) for (int l = 0; l < 4; ++l) v_v2[1][l] = v_v2[0][l];
            }
            if (inside && s - 1 >= first && s - 1 < last) {
                const long long place = (long long)(s - 1) * region.pitch + x;
                if (whole) {
                    vp_store<4>(v_v2_out + place, v_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            v_v2_out[place + l] = v_v2[0][l];
                        }
                }
            }
        }
        {
            float u_0[5];
            for (int l = 0; l < 4; ++l) u_0[l + 0] = u_v0[5][l];
            u_0[4] = __shfl_down_sync(0xffffffffu, u_v0[5][0], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_2::placed_cell<false>(u_v1[2][l], w_v1[0][l], u_0[l + 1], v_v2[0][l], v_v2[1][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_2::placed_cell<true>(u_v1[2][l], w_v1[0][l], u_0[l + 1], v_v2[0][l], v_v2[1][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (rims) {
                if (s - 2 >= top) for (int l = 0; l < 4; ++l) u_v1[2][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = u_v1[2][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, u_v1[2][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        u_v1[2][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : u_v1[2][l];
                }
                if (s - 2 == bottom) for (int l = 0; l < 4; ++l) u_v1[1][l] = u_v1[2][l];
            }
            if (inside && s - 2 >= first && s - 2 < last) {
                const long long place = (long long)(s - 2) * region.pitch + x;
                if (whole) {
                    vp_store<4>(w_v1_out + place, w_v1[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            w_v1_out[place + l] = w_v1[0][l];
                        }
                }
            }
        }
        {
            float u_1[6];
            for (int l = 0; l < 4; ++l) u_1[l + 1] = u_v1[1][l];
            u_1[0] = __shfl_up_sync(0xffffffffu, u_v1[1][3], 1);
            u_1[5] = __shfl_down_sync(0xffffffffu, u_v1[1][0], 1);
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_3::relax_cell(u_v2[0][l], u_1[l + 1], u_1[l + 2], u_1[l], u_v1[2][l], u_v1[0][l], w_v1[1][l], k_3);
            if (inside && s - 3 >= first && s - 3 < last) {
                const long long place = (long long)(s - 3) * region.pitch + x;
                if (whole) {
                    vp_store<4>(u_v2_out + place, u_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            u_v2_out[place + l] = u_v2[0][l];
                        }
                }
            }
        }
        if (++s >= end) break;
        vp_load<4>(u_v0[5], u_v0_in + (long long)min(max(s + 2, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
        vp_load<4>(v_v0[5], v_v0_in + (long long)min(max(s + 2, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
        {
            float u_1[5];
            for (int l = 0; l < 4; ++l) u_1[l + 0] = u_v0[2][l];
            u_1[4] = __shfl_down_sync(0xffffffffu, u_v0[2][0], 1);
            float u_2[5];
            for (int l = 0; l < 4; ++l) u_2[l + 0] = u_v0[3][l];
            u_2[4] = __shfl_down_sync(0xffffffffu, u_v0[3][0], 1);
            float v_2[5];
            for (int l = 0; l < 4; ++l) v_2[l + 1] = v_v0[3][l];
            v_2[0] = __shfl_up_sync(0xffffffffu, v_v0[3][3], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_0::flux_cell<false>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[1][l], u_2[l + 1], v_2[l], v_v0[2][l], k_0, sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::flux_cell<true>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[1][l], u_2[l + 1], v_2[l], v_v0[2][l], k_0, sure);
        }
        {
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_1::doubled_cell(v_v2[1][l], v_v1[0][l]);
            if (rims) {
                if (s - 1 >= top) for (int l = 0; l < 4; ++l) v_v2[1][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = v_v2[1][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, v_v2[1][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        v_v2[1][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : v_v2[1][l];
                }
                if (s - 1 == bottom) for (int l = 0; l < 4; ++l) v_v2[0][l] = v_v2[1][l];
            }
            if (inside && s - 1 >= first && s - 1 < last) {
                const long long place = (long long)(s - 1) * region.pitch + x;
                if (whole) {
                    vp_store<4>(v_v2_out + place, v_v2[1]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            v_v2_out[place + l] = v_v2[1][l];
                        }
                }
            }
        }
        {
            float u_0[5];
            for (int l = 0; l < 4; ++l) u_0[l + 0] = u_v0[0][l];
            u_0[4] = __shfl_down_sync(0xffffffffu, u_v0[0][0], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_2::placed_cell<false>(u_v1[0][l], w_v1[1][l], u_0[l + 1], v_v2[1][l], v_v2[0][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_2::placed_cell<true>(u_v1[0][l], w_v1[1][l], u_0[l + 1], v_v2[1][l], v_v2[0][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (rims) {
                if (s - 2 >= top) for (int l = 0; l < 4; ++l) u_v1[0][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = u_v1[0][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, u_v1[0][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        u_v1[0][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : u_v1[0][l];
                }
                if (s - 2 == bottom) for (int l = 0; l < 4; ++l) u_v1[2][l] = u_v1[0][l];
            }
            if (inside && s - 2 >= first && s - 2 < last) {
                const long long place = (long long)(s - 2) * region.pitch + x;
                if (whole) {
                    vp_store<4>(w_v1_out + place, w_v1[1]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            w_v1_out[place + l] = w_v1[1][l];
                        }
                }
            }
        }
        {
            float u_1[6];
            for (int l = 0; l < 4; ++l) u_1[l + 1] = u_v1[2][l];
            u_1[0] = __shfl_up_sync(0xffffffffu, u_v1[2][3], 1);
            u_1[5] = __shfl_down_sync(0xffffffffu, u_v1[2][0], 1);
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_3::relax_cell(u_v2[0][l], u_1[l + 1], u_1[l + 2], u_1[l], u_v1[0][l], u_v1[1][l], w_v1[0][l], k_3);
            if (inside && s - 3 >= first && s - 3 < last) {
                const long long place = (long long)(s - 3) * region.pitch + x;
                if (whole) {
                    vp_store<4>(u_v2_out + place, u_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            u_v2_out[place + l] = u_v2[0][l];
                        }
                }
            }
        }
        if (++s >= end) break;
        vp_load<4>(u_v0[0], u_v0_in + (long long)min(max(s + 2, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
        vp_load<4>(v_v0[0], v_v0_in + (long long)min(max(s + 2, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
        {
            float u_1[5];
            for (int l = 0; l < 4; ++l) u_1[l + 0] = u_v0[3][l];
            u_1[4] = __shfl_down_sync(0xffffffffu, u_v0[3][0], 1);
            float u_2[5];
            for (int l = 0; l < 4; ++l) u_2[l + 0] = u_v0[4][l];
            u_2[4] = __shfl_down_sync(0xffffffffu, u_v0[4][0], 1);
            float v_2[5];
            for (int l = 0; l < 4; ++l) v_2[l + 1] = v_v0[4][l];
            v_2[0] = __shfl_up_sync(0xffffffffu, v_v0[4][3], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_0::flux_cell<false>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[2][l], u_2[l + 1], v_2[l], v_v0[3][l], k_0, sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::flux_cell<true>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[2][l], u_2[l + 1], v_2[l], v_v0[3][l], k_0, sure);
        }
        {
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_1::doubled_cell(v_v2[0][l], v_v1[0][l]);
            if (rims) {
                if (s - 1 >= top) for (int l = 0; l < 4; ++l) v_v2[0][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = v_v2[0][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, v_v2[0][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        v_v2[0][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : v_v2[0][l];
                }
                if (s - 1 == bottom) for (int l = 0; l < 4; ++l) v_v2[1][l] = v_v2[0][l];
            }
            if (inside && s - 1 >= first && s - 1 < last) {
                const long long place = (long long)(s - 1) * region.pitch + x;
                if (whole) {
                    vp_store<4>(v_v2_out + place, v_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            v_v2_out[place + l] = v_v2[0][l];
                        }
                }
            }
        }
        {
            float u_0[5];
            for (int l = 0; l < 4; ++l) u_0[l + 0] = u_v0[1][l];
            u_0[4] = __shfl_down_sync(0xffffffffu, u_v0[1][0], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_2::placed_cell<false>(u_v1[1][l], w_v1[0][l], u_0[l + 1], v_v2[0][l], v_v2[1][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_2::placed_cell<true>(u_v1[1][l], w_v1[0][l], u_0[l + 1], v_v2[0][l], v_v2[1][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (rims) {
                if (s - 2 >= top) for (int l = 0; l < 4; ++l) u_v1[1][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = u_v1[1][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, u_v1[1][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        u_v1[1][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : u_v1[1][l];
                }
                if (s - 2 == bottom) for (int l = 0; l < 4; ++l) u_v1[0][l] = u_v1[1][l];
            }
            if (inside && s - 2 >= first && s - 2 < last) {
                const long long place = (long long)(s - 2) * region.pitch + x;
                if (whole) {
                    vp_store<4>(w_v1_out + place, w_v1[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            w_v1_out[place + l] = w_v1[0][l];
                        }
                }
            }
        }
        {
            float u_1[6];
            for (int l = 0; l < 4; ++l) u_1[l + 1] = u_v1[0][l];
            u_1[0] = __shfl_up_sync(0xffffffffu, u_v1[0][3], 1);
            u_1[5] = __shfl_down_sync(0xffffffffu, u_v1[0][0], 1);
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_3::relax_cell(u_v2[0][l], u_1[l + 1], u_1[l + 2], u_1[l], u_v1[1][l], u_v1[2][l], w_v1[1][l], k_3);
            if (inside && s - 3 >= first && s - 3 < last) {
                const long long place = (long long)(s - 3) * region.pitch + x;
                if (whole) {
                    vp_store<4>(u_v2_out + place, u_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            u_v2_out[place + l] = u_v2[0][l];
                        }
                }
            }
        }
        if (++s >= end) break;
        vp_load<4>(u_v0[1], u_v0_in + (long long)min(max(s + 2, region.low[1] - 2), region.high[1] - 1 + 3) * region.pitch + at_x);
        vp_load<4>(v_v0[1], v_v0_in + (long long)min(max(s + 2, region.low[1] - 1), region.high[1] - 1 + 3) * region.pitch + at_x);
        {
            float u_1[5];
            for (int l = 0; l < 4; ++l) u_1[l + 0] = u_v0[4][l];
            u_1[4] = __shfl_down_sync(0xffffffffu, u_v0[4][0], 1);
            float u_2[5];
            for (int l = 0; l < 4; ++l) u_2[l + 0] = u_v0[5][l];
            u_2[4] = __shfl_down_sync(0xffffffffu, u_v0[5][0], 1);
            float v_2[5];
            for (int l = 0; l < 4; ++l) v_2[l + 1] = v_v0[5][l];
            v_2[0] = __shfl_up_sync(0xffffffffu, v_v0[5][3], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_0::flux_cell<false>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[3][l], u_2[l + 1], v_2[l], v_v0[4][l], k_0, sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::flux_cell<true>(w_v0[0][l], v_v1[0][l], u_1[l + 1], u_v0[3][l], u_2[l + 1], v_2[l], v_v0[4][l], k_0, sure);
        }
        {
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_1::doubled_cell(v_v2[1][l], v_v1[0][l]);
            if (rims) {
                if (s - 1 >= top) for (int l = 0; l < 4; ++l) v_v2[1][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = v_v2[1][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, v_v2[1][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        v_v2[1][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : v_v2[1][l];
                }
                if (s - 1 == bottom) for (int l = 0; l < 4; ++l) v_v2[0][l] = v_v2[1][l];
            }
            if (inside && s - 1 >= first && s - 1 < last) {
                const long long place = (long long)(s - 1) * region.pitch + x;
                if (whole) {
                    vp_store<4>(v_v2_out + place, v_v2[1]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            v_v2_out[place + l] = v_v2[1][l];
                        }
                }
            }
        }
        {
            float u_0[5];
            for (int l = 0; l < 4; ++l) u_0[l + 0] = u_v0[2][l];
            u_0[4] = __shfl_down_sync(0xffffffffu, u_v0[2][0], 1);
            bool sure = true;
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_2::placed_cell<false>(u_v1[2][l], w_v1[1][l], u_0[l + 1], v_v2[1][l], v_v2[0][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (!sure)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_2::placed_cell<true>(u_v1[2][l], w_v1[1][l], u_0[l + 1], v_v2[1][l], v_v2[0][l], region.origin[1] + s - 2, region.origin[2] + x + l, region.shape[2], sure);
            if (rims) {
                if (s - 2 >= top) for (int l = 0; l < 4; ++l) u_v1[2][l] = 0x1p-2f;
                if (rim) {
                    float from_left[4];
                    for (int l = 1; l < 4; ++l) from_left[l] = u_v1[2][l - 1];
                    from_left[0] = __shfl_up_sync(0xffffffffu, u_v1[2][3], 1);
                    #pragma unroll
                    for (int l = 0; l < 4; ++l)
                        u_v1[2][l] = below >> l & 1 ? -0x2p0f : above >> l & 1 ? from_left[l] : u_v1[2][l];
                }
                if (s - 2 == bottom) for (int l = 0; l < 4; ++l) u_v1[1][l] = u_v1[2][l];
            }
            if (inside && s - 2 >= first && s - 2 < last) {
                const long long place = (long long)(s - 2) * region.pitch + x;
                if (whole) {
                    vp_store<4>(w_v1_out + place, w_v1[1]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            w_v1_out[place + l] = w_v1[1][l];
                        }
                }
            }
        }
        {
            float u_1[6];
            for (int l = 0; l < 4; ++l) u_1[l + 1] = u_v1[1][l];
            u_1[0] = __shfl_up_sync(0xffffffffu, u_v1[1][3], 1);
            u_1[5] = __shfl_down_sync(0xffffffffu, u_v1[1][0], 1);
            #pragma unroll
            for (int l = 0; l < 4; ++l)
                cells_3::relax_cell(u_v2[0][l], u_1[l + 1], u_1[l + 2], u_1[l], u_v1[2][l], u_v1[0][l], w_v1[0][l], k_3);
            if (inside && s - 3 >= first && s - 3 < last) {
                const long long place = (long long)(s - 3) * region.pitch + x;
                if (whole) {
                    vp_store<4>(u_v2_out + place, u_v2[0]);
                } else {
                    for (int l = 0; l < 4; ++l)
                        if (x + l >= region.low[2] && x + l < region.high[2]) {
                            u_v2_out[place + l] = u_v2[0][l];
                        }
                }
            }
        }
        if (++s >= end) break;
    }
}

extern "C" __global__ void __launch_bounds__(128)
flux_then_doubled_then_placed_then_relax_4(const float* __restrict__ u_v0_in, const float* __restrict__ v_v0_in, float* __restrict__ v_v2_out, float* __restrict__ w_v1_out, float* __restrict__ u_v2_out, const vp_region region, const double k_0, const float k_3)
{
#if VISPARK_ALONE
    if (threadIdx.x != 0 || threadIdx.y != 0 || blockIdx.x != 0) return;
    const long long rows = region.high[1] - region.low[1];
    const int first = region.low[1] + (int)(rows * blockIdx.y / gridDim.y);
    const int last = region.low[1] + (int)(rows * (blockIdx.y + 1) / gridDim.y);
    const int begin = first - 2, base = begin - 5;
    const int bottom = (int)max(-region.origin[1], -2147483647LL);
    const int top = (int)min(region.shape[1] - region.origin[1], 2147483647LL);
    float w_v0[2][2056] = {};
    float v_v1[2][2056] = {};
    float v_v2[2][2056] = {};
    float u_v1[3][2056] = {};
    float w_v1[2][2056] = {};
    for (int corner = (region.low[2] & ~3) - 4; corner + 4 < region.high[2]; corner += 2048) {
        const int width = min(2056, region.high[2] + 4 - corner);
        const int start = (int)max(-region.origin[2] - corner, 0LL);
        const int stop = (int)min(region.shape[2] - region.origin[2] - corner, (long long)width);
        for (int s = begin; s < last + 3; ++s) {
            {
                const int row = s - 1;
                if (row >= first - 1 && row < last + 2) {
                    const float* __restrict__ u_row_m1 = u_v0_in + (row - 1) * region.pitch + corner;
                    const float* __restrict__ u_row_0 = u_v0_in + (row) * region.pitch + corner;
                    const float* __restrict__ u_row_1 = u_v0_in + (row + 1) * region.pitch + corner;
                    const float* __restrict__ v_row_0 = v_v0_in + (row) * region.pitch + corner;
                    const float* __restrict__ v_row_1 = v_v0_in + (row + 1) * region.pitch + corner;
                    float* __restrict__ out_w_to = w_v0[(row - base) % 2];
                    float* __restrict__ out_v_to = v_v1[(row - base) % 2];
                    bool sure = true;
                    const int l_end = width - 1;
                    #pragma GCC ivdep
                    for (int l = 1; l < l_end; ++l)
                        cells_0::flux_cell<true>(out_w_to[l], out_v_to[l], u_row_0[l + 1], u_row_m1[l], u_row_1[l + 1], v_row_1[l - 1], v_row_0[l], k_0, sure);
                }
            }
            {
                const int row = s - 1;
                if (row >= first - 1 && row < last + 2) {
                    const float* __restrict__ v_row_0 = v_v1[(row - base) % 2];
                    float* __restrict__ out_v_to = v_v2[(row - base) % 2];
                    const int l_end = width;
                    #pragma GCC ivdep
                    for (int l = 0; l < l_end; ++l)
                        cells_1::doubled_cell(out_v_to[l], v_row_0[l]);
                    if (row >= top) for (int l = 0; l < width; ++l) out_v_to[l] = 0x1p-2f;
                    for (int l = 0; l < min(start, width); ++l) out_v_to[l] = -0x2p0f;
                    for (int l = max(stop, 0); l < width; ++l) out_v_to[l] = out_v_to[stop - 1];
                    if (row == bottom) for (int l = 0; l < width; ++l) v_v2[(row - 1 - base) % 2][l] = out_v_to[l];
                    if (row >= first && row < last)
                        for (int l = max(4, region.low[2] - corner); l < min(width - 4, region.high[2] - corner); ++l)
                            v_v2_out[(long long)row * region.pitch + corner + l] = out_v_to[l];
                }
            }
            {
                const int row = s - 2;
                if (row >= first - 1 && row < last + 1) {
                    const float* __restrict__ u_row_m1 = u_v0_in + (row - 1) * region.pitch + corner;
                    const float* __restrict__ v_row_0 = v_v2[(row - base) % 2];
                    const float* __restrict__ v_row_1 = v_v2[(row + 1 - base) % 2];
                    float* __restrict__ out_u_to = u_v1[(row - base) % 3];
                    float* __restrict__ out_w_to = w_v1[(row - base) % 2];
                    bool sure = true;
                    const int l_end = width - 1;
                    #pragma GCC ivdep
                    for (int l = 0; l < l_end; ++l)
                        cells_2::placed_cell<true>(out_u_to[l], out_w_to[l], u_row_m1[l + 1], v_row_1[l], v_row_0[l], region.origin[1] + row, region.origin[2] + corner + l, region.shape[2], sure);
                    if (row >= top) for (int l = 0; l < width; ++l) out_u_to[l] = 0x1p-2f;
                    for (int l = 0; l < min(start, width); ++l) out_u_to[l] = -0x2p0f;
                    for (int l = max(stop, 0); l < width; ++l) out_u_to[l] = out_u_to[stop - 1];
                    if (row == bottom) for (int l = 0; l < width; ++l) u_v1[(row - 1 - base) % 3][l] = out_u_to[l];
                    if (row >= first && row < last)
                        for (int l = max(4, region.low[2] - corner); l < min(width - 4, region.high[2] - corner); ++l)
                            w_v1_out[(long long)row * region.pitch + corner + l] = out_w_to[l];
                }
            }
            {
                const int row = s - 3;
                if (row >= first && row < last) {
                    const float* __restrict__ u_row_m1 = u_v1[(row - 1 - base) % 3];
                    const float* __restrict__ u_row_0 = u_v1[(row - base) % 3];
                    const float* __restrict__ u_row_1 = u_v1[(row + 1 - base) % 3];
                    const float* __restrict__ w_row_0 = w_v1[(row - base) % 2];
                    float* __restrict__ out_u_to = u_v2_out + (long long)row * region.pitch + corner;
                    const int l_end = min(width - 4, region.high[2] - corner);
                    #pragma GCC ivdep
                    for (int l = max(4, region.low[2] - corner); l < l_end; ++l)
                        cells_3::relax_cell(out_u_to[l], u_row_0[l], u_row_0[l + 1], u_row_0[l - 1], u_row_1[l], u_row_m1[l], w_row_0[l], k_3);
                }
            }
        }
    }
#else
    const int strip = (region.low[2] & ~3) + (int)(blockIdx.x * 4 + threadIdx.y) * 120;
    if (strip >= region.high[2]) return;
    const long long rows = region.high[1] - region.low[1];
    const int first = region.low[1] + (int)(rows * blockIdx.y / gridDim.y);
    const int last = region.low[1] + (int)(rows * (blockIdx.y + 1) / gridDim.y);
    if (region.origin[1] + first >= 2 && region.origin[1] + last + 3 <= region.shape[1] && region.origin[2] + strip >= 4 && region.origin[2] + strip + 124 <= region.shape[2])
        flux_then_doubled_then_placed_then_relax_4_strip<false>(u_v0_in, v_v0_in, v_v2_out, w_v1_out, u_v2_out, region, k_0, k_3);
    else
        flux_then_doubled_then_placed_then_relax_4_strip<true>(u_v0_in, v_v0_in, v_v2_out, w_v1_out, u_v2_out, region, k_0, k_3);
#endif
}
