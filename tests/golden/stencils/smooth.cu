// kernels: smooth_kernel
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

template <bool exact> static __device__ __forceinline__ void smooth_cell(float& out, const float u_m3, const float
    u_m1, const float u_0, const float u_1, const float u_3, bool& sure)
{
    out = common_quotient<exact>((((u_m3 + (2.0f * u_m1)) + (3.0f * u_0)) + (2.0f * u_1)) + u_3, 9.0f, sure);
}

extern "C" __global__ void __launch_bounds__(128)
smooth_kernel(const float* __restrict__ u_in, float* __restrict__ out, const vp_region region)
{
#if VISPARK_ALONE
    if (threadIdx.x != 0 || threadIdx.y != 0) return;
    const int corner = (region.low[2] & ~3) + blockIdx.x * 512;
    const int left = max(corner, region.low[2]), right = min(corner + 512, region.high[2]);
    const int top = region.low[1] + blockIdx.y * 1;
    const int end = min(top + 1, region.high[1]);
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    for (int at = first; at < last; ++at)
        for (int row = top; row < end; ++row) {
            const long long place = at * region.plane + row * region.pitch;
            const float* __restrict__ u_row_0_0 = u_in + place;
            float* __restrict__ out_to = out + place;
            bool sure = true;
            #pragma GCC ivdep
            for (int x = left; x < right; ++x)
                smooth_cell<true>(out_to[x], u_row_0_0[x - 3], u_row_0_0[x - 1], u_row_0_0[x], u_row_0_0[x + 1], u_row_0_0[x + 3], sure);
        }
#else
    const long long along = region.plane, across = region.pitch;
    const int x = (region.low[2] & ~3) + (blockIdx.x * 128 + threadIdx.x) * 4;
    const int row = region.low[1] + (blockIdx.y * 1 + threadIdx.y) * 1;
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    if (x >= region.high[2] || row >= region.high[1]) return;
    float u[2][1][12];
    const float* u_0 = u_in + first * along + (row) * across + x;
    const int u_right_4 = x + 4 < region.high[2] + 3 ? 4 : 0;
    float* out_to = out + first * along + row * across + x;
    vp_load<4>(&u[0][0][4], u_0);
    int again_from = last, again_to = first;
    for (int at = first; at < last;) {
        {
            const long long next = min(1, last - 1 - at) * along;
            vp_load<4>(&u[1][0][4], u_0 + next);
            vp_load<4>(&u[0][0][0], u_0 - 4);
            vp_load<4>(&u[0][0][8], u_0 + u_right_4);
            float out_new[1][4];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    smooth_cell<false>(out_new[r][l], u[0][r][l + 1], u[0][r][l + 3], u[0][r][l + 4], u[0][r][l + 5], u[0][r][l + 7], sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
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
            vp_load<4>(&u[0][0][4], u_0 + next);
            vp_load<4>(&u[1][0][0], u_0 - 4);
            vp_load<4>(&u[1][0][8], u_0 + u_right_4);
            float out_new[1][4];
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 1; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    smooth_cell<false>(out_new[r][l], u[1][r][l + 1], u[1][r][l + 3], u[1][r][l + 4], u[1][r][l + 5], u[1][r][l + 7], sure);
            if (!sure) {
                again_from = min(again_from, at);
                again_to = at + 1;
            }
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
    for (int at = again_from; at < again_to; ++at)
        #pragma unroll 1
        for (int r = 0; r < 1; ++r)
            #pragma unroll 1
            for (int l = 0; l < 4; ++l) {
                if (x + l < region.low[2] || x + l >= region.high[2] || row + r >= region.high[1]) continue;
                const long long base_at = at * along + (row + r) * across + x + l;
                bool sure = true;
                smooth_cell<true>(out[base_at], u_in[base_at + -3], u_in[base_at + -1], u_in[base_at + 0], u_in[base_at + 1], u_in[base_at + 3], sure);
            }
#endif
}
