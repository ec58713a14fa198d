// kernels: wide_kernel
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

template <bool exact> static __device__ __forceinline__ void wide_cell(double& out, const double u_1_0_0, const
    double u_m1_0_0, const double u_0_1_0, const double u_0_m1_0, const double u_0_0_1, const double u_0_0_m1, const
    double u_2_0_0, const double u_m2_0_0, const double u_0_2_0, const double u_0_m2_0, const double u_0_0_2, const
    double u_0_0_m2, const double u_0_0_0, const double k, bool& sure)
{
    double near = ((((u_1_0_0 + u_m1_0_0) + u_0_1_0) + u_0_m1_0) + u_0_0_1) + u_0_0_m1;
    double far = ((((u_2_0_0 + u_m2_0_0) + u_0_2_0) + u_0_m2_0) + u_0_0_2) + u_0_0_m2;
    out = u_0_0_0 + (k * (((1.3333333333333333 * near) - common_quotient<exact>(far, 12.0, sure)) - (7.5 * u_0_0_0)));
}

extern "C" __global__ void __launch_bounds__(128, 5)
wide_kernel(const double* __restrict__ u_in, double* __restrict__ out, const vp_region region, const double k)
{
#if VISPARK_ALONE
    if (threadIdx.x != 0 || threadIdx.y != 0 || blockIdx.x != 0) return;
    const int left = region.low[2], right = region.high[2];
    const int top = region.low[1] + blockIdx.y * 4;
    const int end = min(top + 4, region.high[1]);
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    for (int at = first; at < last; ++at)
        for (int row = top; row < end; ++row) {
            const long long place = at * region.plane + row * region.pitch;
            const double* __restrict__ u_row_1_0 = u_in + place + region.plane;
            const double* __restrict__ u_row_m1_0 = u_in + place - region.plane;
            const double* __restrict__ u_row_0_1 = u_in + place + region.pitch;
            const double* __restrict__ u_row_0_m1 = u_in + place - region.pitch;
            const double* __restrict__ u_row_0_0 = u_in + place;
            const double* __restrict__ u_row_2_0 = u_in + place + 2 * region.plane;
            const double* __restrict__ u_row_m2_0 = u_in + place - 2 * region.plane;
            const double* __restrict__ u_row_0_2 = u_in + place + 2 * region.pitch;
            const double* __restrict__ u_row_0_m2 = u_in + place - 2 * region.pitch;
            double* __restrict__ out_to = out + place;
            bool sure = true;
            #pragma GCC ivdep
            for (int x = left; x < right; ++x)
                wide_cell<true>(out_to[x], u_row_1_0[x], u_row_m1_0[x], u_row_0_1[x], u_row_0_m1[x], u_row_0_0[x + 1], u_row_0_0[x - 1], u_row_2_0[x], u_row_m2_0[x], u_row_0_2[x], u_row_0_m2[x], u_row_0_0[x + 2], u_row_0_0[x - 2], u_row_0_0[x], k, sure);
        }
#else
    const long long along = region.plane, across = region.pitch;
    const int x = (region.low[2] & ~1) + (blockIdx.x * 32 + threadIdx.x) * 2;
    const int row = region.low[1] + (blockIdx.y * 4 + threadIdx.y) * 1;
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    if (x >= region.high[2] || row >= region.high[1]) return;
    double u[6][5][6];
    const double* u_0 = u_in + first * along + (row - 2) * across + x;
    const double* u_1 = u_in + first * along + (row - 1) * across + x;
    const double* u_2 = u_in + first * along + (row) * across + x;
    const double* u_3 = u_in + first * along + (row + 1) * across + x;
    const double* u_4 = u_in + first * along + (row + 2) * across + x;
    const int u_right_2 = x + 2 < region.high[2] + 2 ? 2 : 0;
    double* out_to = out + first * along + row * across + x;
    vp_load<2>(&u[0][2][2], u_2 - 2 * along);
    vp_load<2>(&u[1][2][2], u_2 - along);
    vp_load<2>(&u[2][2][2], u_2);
    vp_load<2>(&u[3][2][2], u_2 + along);
    vp_load<2>(&u[4][2][2], u_2 + 2 * along);
    int again_from = last, again_to = first;
    for (int at = first; at < last;) {
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<2>(&u[5][2][2], u_2 + next + 2 * along);
            vp_load<2>(&u[2][0][2], u_0);
            vp_load<2>(&u[2][1][2], u_1);
            vp_load<2>(&u[2][3][2], u_3);
            vp_load<2>(&u[2][4][2], u_4);
            vp_load<2>(&u[2][2][0], u_2 - 2);
            vp_load<2>(&u[2][2][4], u_2 + u_right_2);
            double out_new[1][2];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    wide_cell<false>(out_new[r][l], u[3][r + 2][l + 2], u[1][r + 2][l + 2], u[2][r + 3][l + 2], u[2][r + 1][l + 2], u[2][r + 2][l + 3], u[2][r + 2][l + 1], u[4][r + 2][l + 2], u[0][r + 2][l + 2], u[2][r + 4][l + 2], u[2][r][l + 2], u[2][r + 2][l + 4], u[2][r + 2][l], u[2][r + 2][l + 2], k, sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
            if (x >= region.low[2] && x + 2 <= region.high[2]) {
                vp_store<2>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            u_4 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<2>(&u[0][2][2], u_2 + next + 2 * along);
            vp_load<2>(&u[3][0][2], u_0);
            vp_load<2>(&u[3][1][2], u_1);
            vp_load<2>(&u[3][3][2], u_3);
            vp_load<2>(&u[3][4][2], u_4);
            vp_load<2>(&u[3][2][0], u_2 - 2);
            vp_load<2>(&u[3][2][4], u_2 + u_right_2);
            double out_new[1][2];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    wide_cell<false>(out_new[r][l], u[4][r + 2][l + 2], u[2][r + 2][l + 2], u[3][r + 3][l + 2], u[3][r + 1][l + 2], u[3][r + 2][l + 3], u[3][r + 2][l + 1], u[5][r + 2][l + 2], u[1][r + 2][l + 2], u[3][r + 4][l + 2], u[3][r][l + 2], u[3][r + 2][l + 4], u[3][r + 2][l], u[3][r + 2][l + 2], k, sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
            if (x >= region.low[2] && x + 2 <= region.high[2]) {
                vp_store<2>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            u_4 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<2>(&u[1][2][2], u_2 + next + 2 * along);
            vp_load<2>(&u[4][0][2], u_0);
            vp_load<2>(&u[4][1][2], u_1);
            vp_load<2>(&u[4][3][2], u_3);
            vp_load<2>(&u[4][4][2], u_4);
            vp_load<2>(&u[4][2][0], u_2 - 2);
            vp_load<2>(&u[4][2][4], u_2 + u_right_2);
            double out_new[1][2];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    wide_cell<false>(out_new[r][l], u[5][r + 2][l + 2], u[3][r + 2][l + 2], u[4][r + 3][l + 2], u[4][r + 1][l + 2], u[4][r + 2][l + 3], u[4][r + 2][l + 1], u[0][r + 2][l + 2], u[2][r + 2][l + 2], u[4][r + 4][l + 2], u[4][r][l + 2], u[4][r + 2][l + 4], u[4][r + 2][l], u[4][r + 2][l + 2], k, sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
            if (x >= region.low[2] && x + 2 <= region.high[2]) {
                vp_store<2>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            u_4 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<2>(&u[2][2][2], u_2 + next + 2 * along);
            vp_load<2>(&u[5][0][2], u_0);
            vp_load<2>(&u[5][1][2], u_1);
            vp_load<2>(&u[5][3][2], u_3);
            vp_load<2>(&u[5][4][2], u_4);
            vp_load<2>(&u[5][2][0], u_2 - 2);
            vp_load<2>(&u[5][2][4], u_2 + u_right_2);
            double out_new[1][2];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    wide_cell<false>(out_new[r][l], u[0][r + 2][l + 2], u[4][r + 2][l + 2], u[5][r + 3][l + 2], u[5][r + 1][l + 2], u[5][r + 2][l + 3], u[5][r + 2][l + 1], u[1][r + 2][l + 2], u[3][r + 2][l + 2], u[5][r + 4][l + 2], u[5][r][l + 2], u[5][r + 2][l + 4], u[5][r + 2][l], u[5][r + 2][l + 2], k, sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
            if (x >= region.low[2] && x + 2 <= region.high[2]) {
                vp_store<2>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            u_4 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<2>(&u[3][2][2], u_2 + next + 2 * along);
            vp_load<2>(&u[0][0][2], u_0);
            vp_load<2>(&u[0][1][2], u_1);
            vp_load<2>(&u[0][3][2], u_3);
            vp_load<2>(&u[0][4][2], u_4);
            vp_load<2>(&u[0][2][0], u_2 - 2);
            vp_load<2>(&u[0][2][4], u_2 + u_right_2);
            double out_new[1][2];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    wide_cell<false>(out_new[r][l], u[1][r + 2][l + 2], u[5][r + 2][l + 2], u[0][r + 3][l + 2], u[0][r + 1][l + 2], u[0][r + 2][l + 3], u[0][r + 2][l + 1], u[2][r + 2][l + 2], u[4][r + 2][l + 2], u[0][r + 4][l + 2], u[0][r][l + 2], u[0][r + 2][l + 4], u[0][r + 2][l], u[0][r + 2][l + 2], k, sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
            if (x >= region.low[2] && x + 2 <= region.high[2]) {
                vp_store<2>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            u_4 += along;
            out_to += along;
        }
        if (++at >= last) break;
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<2>(&u[4][2][2], u_2 + next + 2 * along);
            vp_load<2>(&u[1][0][2], u_0);
            vp_load<2>(&u[1][1][2], u_1);
            vp_load<2>(&u[1][3][2], u_3);
            vp_load<2>(&u[1][4][2], u_4);
            vp_load<2>(&u[1][2][0], u_2 - 2);
            vp_load<2>(&u[1][2][4], u_2 + u_right_2);
            double out_new[1][2];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    wide_cell<false>(out_new[r][l], u[2][r + 2][l + 2], u[0][r + 2][l + 2], u[1][r + 3][l + 2], u[1][r + 1][l + 2], u[1][r + 2][l + 3], u[1][r + 2][l + 1], u[3][r + 2][l + 2], u[5][r + 2][l + 2], u[1][r + 4][l + 2], u[1][r][l + 2], u[1][r + 2][l + 4], u[1][r + 2][l], u[1][r + 2][l + 2], k, sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
            if (x >= region.low[2] && x + 2 <= region.high[2]) {
                vp_store<2>(out_to, out_new[0]);
            } else {
                #pragma unroll
                for (int l = 0; l < 2; ++l)
                    if (x + l >= region.low[2] && x + l < region.high[2]) {
                        (out_to)[l] = out_new[0][l];
                    }
            }
            u_0 += along;
            u_1 += along;
            u_2 += along;
            u_3 += along;
            u_4 += along;
            out_to += along;
        }
        if (++at >= last) break;
    }
    for (int at = again_from; at < again_to; ++at)
        #pragma unroll 1
        for (int r = 0; r < 1; ++r)
            #pragma unroll 1
            for (int l = 0; l < 2; ++l) {
                if (x + l < region.low[2] || x + l >= region.high[2] || row + r >= region.high[1]) continue;
                const long long base_at = at * along + (row + r) * across + x + l;
                bool sure = true;
                wide_cell<true>(out[base_at], u_in[base_at + 0 + along], u_in[base_at + 0 - along], u_in[base_at + 0 + across], u_in[base_at + 0 - across], u_in[base_at + 1], u_in[base_at + -1], u_in[base_at + 0 + 2 * along], u_in[base_at + 0 - 2 * along], u_in[base_at + 0 + 2 * across], u_in[base_at + 0 - 2 * across], u_in[base_at + 2], u_in[base_at + -2], u_in[base_at + 0], k, sure);
            }
#endif
}
