// kernels: heat_then_leaning_3
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

template <int n, class T> static __device__ __forceinline__ void vp_move(T* to, const T* from)
{
    vp_lanes<T, n> lanes;
    #pragma unroll
    for (int l = 0; l < n; ++l) lanes.item[l] = from[l];
    *(vp_lanes<T, n>*)to = lanes;
}

// One of two numbers by a mask of all bits or none.
template <class T> static __device__ __forceinline__ T vp_pick(unsigned mask, T yes, T no) { return mask ? yes : no; }
template <> __device__ __forceinline__ float vp_pick<float>(unsigned mask, float yes, float no)
{
    return __uint_as_float((__float_as_uint(yes) & mask) | (__float_as_uint(no) & ~mask));
}

// A place beyond a periodic grid, as the one it stands for.
static __device__ __forceinline__ long long vp_wrapped(long long place, long long extent)
{
    return place < 0 ? place + extent : place >= extent ? place - extent : place;
}

namespace cells_0 {
static __device__ __forceinline__ void heat_cell(float& out, const float u_0_0_0, const float u_1_0_0, const float
    u_m1_0_0, const float u_0_1_0, const float u_0_m1_0, const float u_0_0_1, const float u_0_0_m1, const double k)
{
    out = u_0_0_0 + (((float)k) * ((((((u_1_0_0 + u_m1_0_0) + u_0_1_0) + u_0_m1_0) + u_0_0_1) + u_0_0_m1) - (6.0f * u_0_0_0)));
}
}
namespace cells_1 {
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

template <bool exact> static __device__ __forceinline__ void leaning_cell(float& out, const float u_0_1_m1, const
    float u_0_m1_1, const float u_1_0_0, const long long coordinate_0, const long long coordinate_2, const double k,
    bool& sure)
{
    out = ((common_quotient<exact>(u_0_1_m1, 7.0f, sure) + (((float)k) * (u_0_m1_1 - u_1_0_0))) + ((float)(((double)coordinate_2) * 0.01))) + ((float)coordinate_0);
}
}
// A tile's steps; whether cells beyond the grid may be in it: rows and planes, ends of rows.
template <bool rim_rows, bool rim_ends> static __device__ __forceinline__ void
heat_then_leaning_3_tile(unsigned char* shared, const float* __restrict__ cells_0f_in, float* __restrict__ cells_0f_out, const vp_region& region, const double k_0, const double k_1, const double k_2)
{
    const int lane = threadIdx.x, warp = threadIdx.y;
    const int x = (region.low[2] & ~3) + (int)blockIdx.x * 120 - 4 + lane * 4;
    const int row = region.low[1] + (int)blockIdx.y * 30 - 3 + warp * 3;
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    const int at_x = min(x, (region.high[2] + 2) & ~3);
    const long long row_0 = (long long)min(row, region.high[1] - 1 + 3) * region.pitch + at_x;
    const long long row_1 = (long long)min(row + 1, region.high[1] - 1 + 3) * region.pitch + at_x;
    const long long row_2 = (long long)min(row + 2, region.high[1] - 1 + 3) * region.pitch + at_x;
    const float* cells_0f_from = cells_0f_in + (first - 3) * region.plane;
    float* cells_0f_out_to = cells_0f_out + (first - 6) * region.plane + (long long)row * region.pitch + x;
    const bool whole = x >= region.low[2] && x + 4 <= region.high[2];
    const bool inside = lane >= 1 && lane < 31 && x < region.high[2] && x + 4 > region.low[2];
    unsigned written = 0;
    #pragma unroll
    for (int r = 0; r < 3; ++r) {
        const int place = warp * 3 + r;
        written |= (unsigned)(inside && place >= 3 && place < 33 && row + r < region.high[1]) << r;
    }
    unsigned alive_x[4], alive_row[3];
    #pragma unroll
    for (int l = 0; l < 4; ++l)
        alive_x[l] = ~0u;
    #pragma unroll
    for (int r = 0; r < 3; ++r)
        alive_row[r] = region.origin[1] + row + r >= 0 && region.origin[1] + row + r < region.shape[1] ? ~0u : 0u;
    const int bottom = (int)max(-region.origin[0], -2147483647LL);
    const int top = (int)min(region.shape[0] - region.origin[0], 2147483647LL);
    const int rows_before = (int)max(-region.origin[1] - row, -2147483647LL);
    const int rows_behind = (int)min(region.shape[1] - region.origin[1] - row + 1, 2147483647LL);
    typedef float (*Edges)[12][2][128];
    typedef float (*Planes)[12][3][128];
    const Edges edges = (Edges)shared;
    const Planes cells_0f_ring = (Planes)((float*)shared + 27648);
    float cells_0f[3][3][3][4] = {};
    const int warp_above = max(warp - 1, 0), warp_below = min(warp + 1, 11);
    if (first - 3 + 0 < last + 3) {
        vispark::copy_ahead<16>(&cells_0f_ring[0][warp][0][lane * 4], cells_0f_from + row_0);
        vispark::copy_ahead<16>(&cells_0f_ring[0][warp][1][lane * 4], cells_0f_from + row_1);
        vispark::copy_ahead<16>(&cells_0f_ring[0][warp][2][lane * 4], cells_0f_from + row_2);
        cells_0f_from += region.plane;
    }
    vispark::end_group();
    if (first - 3 + 1 < last + 3) {
        vispark::copy_ahead<16>(&cells_0f_ring[1][warp][0][lane * 4], cells_0f_from + row_0);
        vispark::copy_ahead<16>(&cells_0f_ring[1][warp][1][lane * 4], cells_0f_from + row_1);
        vispark::copy_ahead<16>(&cells_0f_ring[1][warp][2][lane * 4], cells_0f_from + row_2);
        cells_0f_from += region.plane;
    }
    vispark::end_group();
    if (first - 3 + 2 < last + 3) {
        vispark::copy_ahead<16>(&cells_0f_ring[2][warp][0][lane * 4], cells_0f_from + row_0);
        vispark::copy_ahead<16>(&cells_0f_ring[2][warp][1][lane * 4], cells_0f_from + row_1);
        vispark::copy_ahead<16>(&cells_0f_ring[2][warp][2][lane * 4], cells_0f_from + row_2);
        cells_0f_from += region.plane;
    }
    vispark::end_group();
    for (int s = first - 3; s < last + 3;) {
        vispark::wait_for_groups<2>();
        vp_load<4>(cells_0f[0][2][0], &cells_0f_ring[0][warp][0][lane * 4]);
        vp_load<4>(cells_0f[0][2][1], &cells_0f_ring[0][warp][1][lane * 4]);
        vp_load<4>(cells_0f[0][2][2], &cells_0f_ring[0][warp][2][lane * 4]);
        if (s + 3 < last + 3) {
            vispark::copy_ahead<16>(&cells_0f_ring[0][warp][0][lane * 4], cells_0f_from + row_0);
            vispark::copy_ahead<16>(&cells_0f_ring[0][warp][1][lane * 4], cells_0f_from + row_1);
            vispark::copy_ahead<16>(&cells_0f_ring[0][warp][2][lane * 4], cells_0f_from + row_2);
            cells_0f_from += region.plane;
        }
        vispark::end_group();
        vp_move<4>(&edges[0][warp][0][lane * 4], cells_0f[0][2][0]);
        vp_move<4>(&edges[0][warp][1][lane * 4], cells_0f[0][2][2]);
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[6][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[6][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[0][1][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[0][1][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[0][1][r][0], 1);
            }
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 1; l < 5; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::heat_cell(cells_0f[1][2][r][l], cells_0f_around[r + 1][l + 1], cells_0f[0][2][r][l], (rim_rows && s - 1 == bottom ? cells_0f[0][1][r][l] : cells_0f[0][0][r][l]), cells_0f_around[r + 2][l + 1], cells_0f_around[r + 0][l + 1], cells_0f_around[r + 1][l + 2], cells_0f_around[r + 1][l + 0], k_0);
            if (rim_ends) {
                const unsigned deep = s - 1 >= bottom && s - 1 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f[1][2][r][l] = vp_pick(mask, cells_0f[1][2][r][l], cells_0f[0][1][r][l]);
                    }
            }
        vp_move<4>(&edges[1][warp][0][lane * 4], cells_0f[1][2][0]);
        vp_move<4>(&edges[1][warp][1][lane * 4], cells_0f[1][2][2]);
        }
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[7][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[7][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[1][1][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[1][1][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[1][1][r][0], 1);
            }
            cells_0f_around[0][0] = __shfl_up_sync(0xffffffffu, cells_0f_around[0][4], 1);
            cells_0f_around[0][5] = __shfl_down_sync(0xffffffffu, cells_0f_around[0][1], 1);
            cells_0f_around[4][0] = __shfl_up_sync(0xffffffffu, cells_0f_around[4][4], 1);
            cells_0f_around[4][5] = __shfl_down_sync(0xffffffffu, cells_0f_around[4][1], 1);
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 0; l < 6; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_1::leaning_cell<false>(cells_0f[2][2][r][l], cells_0f_around[r + 2][l + 0], cells_0f_around[r + 0][l + 2], cells_0f[1][2][r][l], region.origin[0] + s - 2, vp_wrapped(region.origin[2] + x + l, region.shape[2]), k_1, sure);
            if (!sure)
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_1::leaning_cell<true>(cells_0f[2][2][r][l], cells_0f_around[r + 2][l + 0], cells_0f_around[r + 0][l + 2], cells_0f[1][2][r][l], region.origin[0] + s - 2, vp_wrapped(region.origin[2] + x + l, region.shape[2]), k_1, sure);
            if (rim_ends) {
                const unsigned deep = s - 2 >= bottom && s - 2 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f[2][2][r][l] = vp_pick(mask, cells_0f[2][2][r][l], cells_0f[1][1][r][l]);
                    }
            }
        vp_move<4>(&edges[2][warp][0][lane * 4], cells_0f[2][2][0]);
        vp_move<4>(&edges[2][warp][1][lane * 4], cells_0f[2][2][2]);
        }
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[8][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[8][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[2][1][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[2][1][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[2][1][r][0], 1);
            }
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 1; l < 5; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            float cells_0f_out_made[3][4];
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::heat_cell(cells_0f_out_made[r][l], cells_0f_around[r + 1][l + 1], cells_0f[2][2][r][l], (rim_rows && s - 3 == bottom ? cells_0f[2][1][r][l] : cells_0f[2][0][r][l]), cells_0f_around[r + 2][l + 1], cells_0f_around[r + 0][l + 1], cells_0f_around[r + 1][l + 2], cells_0f_around[r + 1][l + 0], k_2);
            if (rim_ends) {
                const unsigned deep = s - 3 >= bottom && s - 3 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f_out_made[r][l] = vp_pick(mask, cells_0f_out_made[r][l], cells_0f[2][1][r][l]);
                    }
            }
            if (written && s - 3 >= first)
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    if (written >> r & 1) {
                        if (whole) {
                            vp_store<4>(cells_0f_out_to + r * region.pitch, cells_0f_out_made[r]);
                        } else {
                            for (int l = 0; l < 4; ++l)
                                if (x + l >= region.low[2] && x + l < region.high[2]) {
                                    cells_0f_out_to[r * region.pitch + l] = cells_0f_out_made[r][l];
                                }
                        }
                    }
        }
        __syncthreads();
        cells_0f_out_to += region.plane;
        if (++s >= last + 3) break;
        vispark::wait_for_groups<2>();
        vp_load<4>(cells_0f[0][0][0], &cells_0f_ring[1][warp][0][lane * 4]);
        vp_load<4>(cells_0f[0][0][1], &cells_0f_ring[1][warp][1][lane * 4]);
        vp_load<4>(cells_0f[0][0][2], &cells_0f_ring[1][warp][2][lane * 4]);
        if (s + 3 < last + 3) {
            vispark::copy_ahead<16>(&cells_0f_ring[1][warp][0][lane * 4], cells_0f_from + row_0);
            vispark::copy_ahead<16>(&cells_0f_ring[1][warp][1][lane * 4], cells_0f_from + row_1);
            vispark::copy_ahead<16>(&cells_0f_ring[1][warp][2][lane * 4], cells_0f_from + row_2);
            cells_0f_from += region.plane;
        }
        vispark::end_group();
        vp_move<4>(&edges[3][warp][0][lane * 4], cells_0f[0][0][0]);
        vp_move<4>(&edges[3][warp][1][lane * 4], cells_0f[0][0][2]);
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[0][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[0][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[0][2][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[0][2][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[0][2][r][0], 1);
            }
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 1; l < 5; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::heat_cell(cells_0f[1][0][r][l], cells_0f_around[r + 1][l + 1], cells_0f[0][0][r][l], (rim_rows && s - 1 == bottom ? cells_0f[0][2][r][l] : cells_0f[0][1][r][l]), cells_0f_around[r + 2][l + 1], cells_0f_around[r + 0][l + 1], cells_0f_around[r + 1][l + 2], cells_0f_around[r + 1][l + 0], k_0);
            if (rim_ends) {
                const unsigned deep = s - 1 >= bottom && s - 1 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f[1][0][r][l] = vp_pick(mask, cells_0f[1][0][r][l], cells_0f[0][2][r][l]);
                    }
            }
        vp_move<4>(&edges[4][warp][0][lane * 4], cells_0f[1][0][0]);
        vp_move<4>(&edges[4][warp][1][lane * 4], cells_0f[1][0][2]);
        }
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[1][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[1][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[1][2][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[1][2][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[1][2][r][0], 1);
            }
            cells_0f_around[0][0] = __shfl_up_sync(0xffffffffu, cells_0f_around[0][4], 1);
            cells_0f_around[0][5] = __shfl_down_sync(0xffffffffu, cells_0f_around[0][1], 1);
            cells_0f_around[4][0] = __shfl_up_sync(0xffffffffu, cells_0f_around[4][4], 1);
            cells_0f_around[4][5] = __shfl_down_sync(0xffffffffu, cells_0f_around[4][1], 1);
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 0; l < 6; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_1::leaning_cell<false>(cells_0f[2][0][r][l], cells_0f_around[r + 2][l + 0], cells_0f_around[r + 0][l + 2], cells_0f[1][0][r][l], region.origin[0] + s - 2, vp_wrapped(region.origin[2] + x + l, region.shape[2]), k_1, sure);
            if (!sure)
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_1::leaning_cell<true>(cells_0f[2][0][r][l], cells_0f_around[r + 2][l + 0], cells_0f_around[r + 0][l + 2], cells_0f[1][0][r][l], region.origin[0] + s - 2, vp_wrapped(region.origin[2] + x + l, region.shape[2]), k_1, sure);
            if (rim_ends) {
                const unsigned deep = s - 2 >= bottom && s - 2 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f[2][0][r][l] = vp_pick(mask, cells_0f[2][0][r][l], cells_0f[1][2][r][l]);
                    }
            }
        vp_move<4>(&edges[5][warp][0][lane * 4], cells_0f[2][0][0]);
        vp_move<4>(&edges[5][warp][1][lane * 4], cells_0f[2][0][2]);
        }
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[2][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[2][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[2][2][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[2][2][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[2][2][r][0], 1);
            }
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 1; l < 5; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            float cells_0f_out_made[3][4];
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::heat_cell(cells_0f_out_made[r][l], cells_0f_around[r + 1][l + 1], cells_0f[2][0][r][l], (rim_rows && s - 3 == bottom ? cells_0f[2][2][r][l] : cells_0f[2][1][r][l]), cells_0f_around[r + 2][l + 1], cells_0f_around[r + 0][l + 1], cells_0f_around[r + 1][l + 2], cells_0f_around[r + 1][l + 0], k_2);
            if (rim_ends) {
                const unsigned deep = s - 3 >= bottom && s - 3 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f_out_made[r][l] = vp_pick(mask, cells_0f_out_made[r][l], cells_0f[2][2][r][l]);
                    }
            }
            if (written && s - 3 >= first)
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    if (written >> r & 1) {
                        if (whole) {
                            vp_store<4>(cells_0f_out_to + r * region.pitch, cells_0f_out_made[r]);
                        } else {
                            for (int l = 0; l < 4; ++l)
                                if (x + l >= region.low[2] && x + l < region.high[2]) {
                                    cells_0f_out_to[r * region.pitch + l] = cells_0f_out_made[r][l];
                                }
                        }
                    }
        }
        __syncthreads();
        cells_0f_out_to += region.plane;
        if (++s >= last + 3) break;
        vispark::wait_for_groups<2>();
        vp_load<4>(cells_0f[0][1][0], &cells_0f_ring[2][warp][0][lane * 4]);
        vp_load<4>(cells_0f[0][1][1], &cells_0f_ring[2][warp][1][lane * 4]);
        vp_load<4>(cells_0f[0][1][2], &cells_0f_ring[2][warp][2][lane * 4]);
        if (s + 3 < last + 3) {
            vispark::copy_ahead<16>(&cells_0f_ring[2][warp][0][lane * 4], cells_0f_from + row_0);
            vispark::copy_ahead<16>(&cells_0f_ring[2][warp][1][lane * 4], cells_0f_from + row_1);
            vispark::copy_ahead<16>(&cells_0f_ring[2][warp][2][lane * 4], cells_0f_from + row_2);
            cells_0f_from += region.plane;
        }
        vispark::end_group();
        vp_move<4>(&edges[6][warp][0][lane * 4], cells_0f[0][1][0]);
        vp_move<4>(&edges[6][warp][1][lane * 4], cells_0f[0][1][2]);
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[3][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[3][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[0][0][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[0][0][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[0][0][r][0], 1);
            }
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 1; l < 5; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::heat_cell(cells_0f[1][1][r][l], cells_0f_around[r + 1][l + 1], cells_0f[0][1][r][l], (rim_rows && s - 1 == bottom ? cells_0f[0][0][r][l] : cells_0f[0][2][r][l]), cells_0f_around[r + 2][l + 1], cells_0f_around[r + 0][l + 1], cells_0f_around[r + 1][l + 2], cells_0f_around[r + 1][l + 0], k_0);
            if (rim_ends) {
                const unsigned deep = s - 1 >= bottom && s - 1 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f[1][1][r][l] = vp_pick(mask, cells_0f[1][1][r][l], cells_0f[0][0][r][l]);
                    }
            }
        vp_move<4>(&edges[7][warp][0][lane * 4], cells_0f[1][1][0]);
        vp_move<4>(&edges[7][warp][1][lane * 4], cells_0f[1][1][2]);
        }
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[4][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[4][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[1][0][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[1][0][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[1][0][r][0], 1);
            }
            cells_0f_around[0][0] = __shfl_up_sync(0xffffffffu, cells_0f_around[0][4], 1);
            cells_0f_around[0][5] = __shfl_down_sync(0xffffffffu, cells_0f_around[0][1], 1);
            cells_0f_around[4][0] = __shfl_up_sync(0xffffffffu, cells_0f_around[4][4], 1);
            cells_0f_around[4][5] = __shfl_down_sync(0xffffffffu, cells_0f_around[4][1], 1);
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 0; l < 6; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            bool sure = true;
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_1::leaning_cell<false>(cells_0f[2][1][r][l], cells_0f_around[r + 2][l + 0], cells_0f_around[r + 0][l + 2], cells_0f[1][1][r][l], region.origin[0] + s - 2, vp_wrapped(region.origin[2] + x + l, region.shape[2]), k_1, sure);
            if (!sure)
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_1::leaning_cell<true>(cells_0f[2][1][r][l], cells_0f_around[r + 2][l + 0], cells_0f_around[r + 0][l + 2], cells_0f[1][1][r][l], region.origin[0] + s - 2, vp_wrapped(region.origin[2] + x + l, region.shape[2]), k_1, sure);
            if (rim_ends) {
                const unsigned deep = s - 2 >= bottom && s - 2 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f[2][1][r][l] = vp_pick(mask, cells_0f[2][1][r][l], cells_0f[1][0][r][l]);
                    }
            }
        vp_move<4>(&edges[8][warp][0][lane * 4], cells_0f[2][1][0]);
        vp_move<4>(&edges[8][warp][1][lane * 4], cells_0f[2][1][2]);
        }
        {
            float cells_0f_around[5][6];
            vp_load<4>(cells_0f_around[0] + 1, &edges[5][warp_above][1][lane * 4]);
            vp_load<4>(cells_0f_around[4] + 1, &edges[5][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) cells_0f_around[r + 1][l + 1] = cells_0f[2][0][r][l];
                cells_0f_around[r + 1][0] = __shfl_up_sync(0xffffffffu, cells_0f[2][0][r][3], 1);
                cells_0f_around[r + 1][5] = __shfl_down_sync(0xffffffffu, cells_0f[2][0][r][0], 1);
            }
            if (rim_rows) {
                #pragma unroll
                for (int r = 1; r < 5; ++r)
                    if (r == rows_behind) for (int l = 1; l < 5; ++l) cells_0f_around[r][l] = cells_0f_around[r - 1][l];
            }
            float cells_0f_out_made[3][4];
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    cells_0::heat_cell(cells_0f_out_made[r][l], cells_0f_around[r + 1][l + 1], cells_0f[2][1][r][l], (rim_rows && s - 3 == bottom ? cells_0f[2][0][r][l] : cells_0f[2][2][r][l]), cells_0f_around[r + 2][l + 1], cells_0f_around[r + 0][l + 1], cells_0f_around[r + 1][l + 2], cells_0f_around[r + 1][l + 0], k_2);
            if (rim_ends) {
                const unsigned deep = s - 3 >= bottom && s - 3 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        cells_0f_out_made[r][l] = vp_pick(mask, cells_0f_out_made[r][l], cells_0f[2][0][r][l]);
                    }
            }
            if (written && s - 3 >= first)
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    if (written >> r & 1) {
                        if (whole) {
                            vp_store<4>(cells_0f_out_to + r * region.pitch, cells_0f_out_made[r]);
                        } else {
                            for (int l = 0; l < 4; ++l)
                                if (x + l >= region.low[2] && x + l < region.high[2]) {
                                    cells_0f_out_to[r * region.pitch + l] = cells_0f_out_made[r][l];
                                }
                        }
                    }
        }
        __syncthreads();
        cells_0f_out_to += region.plane;
        if (++s >= last + 3) break;
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
heat_then_leaning_3(const float* __restrict__ cells_0f_in, float* __restrict__ cells_0f_out, const vp_region region, const double k_0, const double k_1, const double k_2)
{
#if VISPARK_ALONE
    if (threadIdx.x != 0 || threadIdx.y != 0) return;
    const int corner = (region.low[2] & ~3) + (int)blockIdx.x * 120 - 4;
    const int top = region.low[1] + (int)blockIdx.y * 30 - 3;
    const int width = min(128, region.high[2] + 3 - corner);
    const int height = min(36, region.high[1] + 3 - top);
    const long long planes = region.high[0] - region.low[0];
    const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);
    const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);
    const int base = first - 3;
    // Of each step three planes: the cells of plane z are at [(z - base) % 3].
    float cells_0f[4][3][36][128];
    const int left = 0, right = width;
    const int above = (int)max(-region.origin[1] - top, 0LL);
    const int below = (int)min(region.shape[1] - region.origin[1] - top, (long long)height);
    for (int s = base; s < last + 3; ++s) {
        for (int r = 0; r < height; ++r) {
            const long long place = s * region.plane + (long long)(top + r) * region.pitch + corner;
            for (int l = 0; l < width; ++l) cells_0f[0][(s - base) % 3][r][l] = cells_0f_in[place + l];
        }
        for (int t = 0; t < 1; ++t) {
            const int at = s - t - 1;
            if (at < first - (3 - t - 1) || at >= last + (3 - t - 1)) continue;
            const int lower = (at - 1 - base) % 3, middle = (at - base) % 3, upper = (at + 1 - base) % 3;
            const bool deep = region.origin[0] + at >= 0 && region.origin[0] + at < region.shape[0];
            for (int r = t + 1; r < height - t - 1; ++r) {
                const float* __restrict__ u_row_0_0 = cells_0f[t][middle][r];
                const float* __restrict__ u_row_1_0 = cells_0f[t][upper][r];
                const float* __restrict__ u_row_m1_0 = cells_0f[t][region.origin[0] + at == 0 ? middle : lower][r];
                const float* __restrict__ u_row_0_1 = cells_0f[t][middle][r == below - 1 ? r : r + 1];
                const float* __restrict__ u_row_0_m1 = cells_0f[t][middle][r - 1];
                float* __restrict__ out_made = cells_0f[t + 1][middle][r];
                const bool alive = deep && r >= above && r < below;
                const int from = alive ? max(left, t + 1) : width - t - 1;
                const int to = alive ? min(right, width - t - 1) : width - t - 1;
                #pragma GCC ivdep
                for (int l = from; l < to; ++l)
                    cells_0::heat_cell(out_made[l], u_row_0_0[l], u_row_1_0[l], u_row_m1_0[l], u_row_0_1[l], u_row_0_m1[l], u_row_0_0[l + 1], u_row_0_0[l - 1], k_0);
                for (int l = t + 1; l < min(from, width - t - 1); ++l) out_made[l] = cells_0f[t][middle][r][l];
                for (int l = max(to, t + 1); l < width - t - 1; ++l) out_made[l] = cells_0f[t][middle][r][l];
            }
        }
        for (int t = 1; t < 2; ++t) {
            const int at = s - t - 1;
            if (at < first - (3 - t - 1) || at >= last + (3 - t - 1)) continue;
            const int lower = (at - 1 - base) % 3, middle = (at - base) % 3, upper = (at + 1 - base) % 3;
            const bool deep = region.origin[0] + at >= 0 && region.origin[0] + at < region.shape[0];
            for (int r = t + 1; r < height - t - 1; ++r) {
                const float* __restrict__ u_row_0_1 = cells_0f[t][middle][r == below - 1 ? r : r + 1];
                const float* __restrict__ u_row_0_m1 = cells_0f[t][middle][r - 1];
                const float* __restrict__ u_row_1_0 = cells_0f[t][upper][r];
                float* __restrict__ out_made = cells_0f[t + 1][middle][r];
                const bool alive = deep && r >= above && r < below;
                const int from = alive ? max(left, t + 1) : width - t - 1;
                const int to = alive ? min(right, width - t - 1) : width - t - 1;
                bool sure = true;
                #pragma GCC ivdep
                for (int l = from; l < to; ++l)
                    cells_1::leaning_cell<true>(out_made[l], u_row_0_1[l - 1], u_row_0_m1[l + 1], u_row_1_0[l], region.origin[0] + at, vp_wrapped(region.origin[2] + corner + l, region.shape[2]), k_1, sure);
                for (int l = t + 1; l < min(from, width - t - 1); ++l) out_made[l] = cells_0f[t][middle][r][l];
                for (int l = max(to, t + 1); l < width - t - 1; ++l) out_made[l] = cells_0f[t][middle][r][l];
            }
        }
        for (int t = 2; t < 3; ++t) {
            const int at = s - t - 1;
            if (at < first - (3 - t - 1) || at >= last + (3 - t - 1)) continue;
            const int lower = (at - 1 - base) % 3, middle = (at - base) % 3, upper = (at + 1 - base) % 3;
            const bool deep = region.origin[0] + at >= 0 && region.origin[0] + at < region.shape[0];
            for (int r = t + 1; r < height - t - 1; ++r) {
                const float* __restrict__ u_row_0_0 = cells_0f[t][middle][r];
                const float* __restrict__ u_row_1_0 = cells_0f[t][upper][r];
                const float* __restrict__ u_row_m1_0 = cells_0f[t][region.origin[0] + at == 0 ? middle : lower][r];
                const float* __restrict__ u_row_0_1 = cells_0f[t][middle][r == below - 1 ? r : r + 1];
                const float* __restrict__ u_row_0_m1 = cells_0f[t][middle][r - 1];
                float* __restrict__ out_made = cells_0f[t + 1][middle][r];
                const bool alive = deep && r >= above && r < below;
                const int from = alive ? max(left, t + 1) : width - t - 1;
                const int to = alive ? min(right, width - t - 1) : width - t - 1;
                #pragma GCC ivdep
                for (int l = from; l < to; ++l)
                    cells_0::heat_cell(out_made[l], u_row_0_0[l], u_row_1_0[l], u_row_m1_0[l], u_row_0_1[l], u_row_0_m1[l], u_row_0_0[l + 1], u_row_0_0[l - 1], k_2);
                for (int l = t + 1; l < min(from, width - t - 1); ++l) out_made[l] = cells_0f[t][middle][r][l];
                for (int l = max(to, t + 1); l < width - t - 1; ++l) out_made[l] = cells_0f[t][middle][r][l];
            }
        }
        const int done = s - 3;
        if (done < first) continue;
        for (int r = 3; r < min(33, region.high[1] - top); ++r) {
            const long long place = done * region.plane + (long long)(top + r) * region.pitch + corner;
            for (int l = max(4, region.low[2] - corner); l < min(124, region.high[2] - corner); ++l) {
                cells_0f_out[place + l] = cells_0f[3][(done - base) % 3][r][l];
            }
        }
    }
#else
    extern __shared__ __align__(128) unsigned char shared[];
    const long long x = region.origin[2] + (region.low[2] & ~3) + (long long)blockIdx.x * 120;
    const long long row = region.origin[1] + region.low[1] + (long long)blockIdx.y * 30;
    const long long planes = region.high[0] - region.low[0], start = region.origin[0] + region.low[0];
    const long long first = start + planes * blockIdx.z / gridDim.z;
    const long long last = start + planes * (blockIdx.z + 1) / gridDim.z;
    const bool rows_within = first >= 3 && last + 3 <= region.shape[0] && row >= 3 && row + 30 + 3 <= region.shape[1];
    const bool ends_within = true;
    if (rows_within && ends_within)
        heat_then_leaning_3_tile<false, false>(shared, cells_0f_in, cells_0f_out, region, k_0, k_1, k_2);
    else if (rows_within)
        heat_then_leaning_3_tile<false, true>(shared, cells_0f_in, cells_0f_out, region, k_0, k_1, k_2);
    else
        heat_then_leaning_3_tile<true, true>(shared, cells_0f_in, cells_0f_out, region, k_0, k_1, k_2);
#endif
}
