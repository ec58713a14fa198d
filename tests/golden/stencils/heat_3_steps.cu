// kernels: heat_3_steps
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

static __device__ __forceinline__ void heat_cell(float& out, const float u_0_0_0, const float u_1_0_0, const float
    u_m1_0_0, const float u_0_1_0, const float u_0_m1_0, const float u_0_0_1, const float u_0_0_m1, const double k)
{
    out = u_0_0_0 + (((float)k) * ((((((u_1_0_0 + u_m1_0_0) + u_0_1_0) + u_0_m1_0) + u_0_0_1) + u_0_0_m1) - (6.0f * u_0_0_0)));
}

// A tile's steps; whether cells beyond the grid may be in it: rows and planes, ends of rows.
template <bool rim_rows, bool rim_ends> static __device__ __forceinline__ void
heat_3_steps_tile(unsigned char* shared, const float* __restrict__ u_in, float* __restrict__ out, const vp_region& region, const double k)
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
    const float* u_from = u_in + (first - 3) * region.plane;
    float* out_to = out + (first - 6) * region.plane + (long long)row * region.pitch + x;
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
    typedef float (*Edges)[12][2][128];
    typedef float (*Planes)[12][3][128];
    const Edges edges = (Edges)shared;
    const Planes u_ring = (Planes)((float*)shared + 27648);
    float u[3][3][3][4] = {};
    const int warp_above = max(warp - 1, 0), warp_below = min(warp + 1, 11);
    if (first - 3 + 0 < last + 3) {
        vispark::copy_ahead<16>(&u_ring[0][warp][0][lane * 4], u_from + row_0);
        vispark::copy_ahead<16>(&u_ring[0][warp][1][lane * 4], u_from + row_1);
        vispark::copy_ahead<16>(&u_ring[0][warp][2][lane * 4], u_from + row_2);
        u_from += region.plane;
    }
    vispark::end_group();
    if (first - 3 + 1 < last + 3) {
        vispark::copy_ahead<16>(&u_ring[1][warp][0][lane * 4], u_from + row_0);
        vispark::copy_ahead<16>(&u_ring[1][warp][1][lane * 4], u_from + row_1);
        vispark::copy_ahead<16>(&u_ring[1][warp][2][lane * 4], u_from + row_2);
        u_from += region.plane;
    }
    vispark::end_group();
    if (first - 3 + 2 < last + 3) {
        vispark::copy_ahead<16>(&u_ring[2][warp][0][lane * 4], u_from + row_0);
        vispark::copy_ahead<16>(&u_ring[2][warp][1][lane * 4], u_from + row_1);
        vispark::copy_ahead<16>(&u_ring[2][warp][2][lane * 4], u_from + row_2);
        u_from += region.plane;
    }
    vispark::end_group();
    for (int s = first - 3; s < last + 3;) {
        vispark::wait_for_groups<2>();
        vp_load<4>(u[0][2][0], &u_ring[0][warp][0][lane * 4]);
        vp_load<4>(u[0][2][1], &u_ring[0][warp][1][lane * 4]);
        vp_load<4>(u[0][2][2], &u_ring[0][warp][2][lane * 4]);
        if (s + 3 < last + 3) {
            vispark::copy_ahead<16>(&u_ring[0][warp][0][lane * 4], u_from + row_0);
            vispark::copy_ahead<16>(&u_ring[0][warp][1][lane * 4], u_from + row_1);
            vispark::copy_ahead<16>(&u_ring[0][warp][2][lane * 4], u_from + row_2);
            u_from += region.plane;
        }
        vispark::end_group();
        vp_move<4>(&edges[0][warp][0][lane * 4], u[0][2][0]);
        vp_move<4>(&edges[0][warp][1][lane * 4], u[0][2][2]);
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[6][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[6][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[0][1][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[0][1][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[0][1][r][0], 1);
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(u[1][2][r][l], u_around[r + 1][l + 1], u[0][2][r][l], u[0][0][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 1 >= bottom && s - 1 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        u[1][2][r][l] = vp_pick(mask, u[1][2][r][l], u[0][1][r][l]);
                    }
            }
        vp_move<4>(&edges[1][warp][0][lane * 4], u[1][2][0]);
        vp_move<4>(&edges[1][warp][1][lane * 4], u[1][2][2]);
        }
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[7][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[7][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[1][1][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[1][1][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[1][1][r][0], 1);
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(u[2][2][r][l], u_around[r + 1][l + 1], u[1][2][r][l], u[1][0][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 2 >= bottom && s - 2 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        u[2][2][r][l] = vp_pick(mask, u[2][2][r][l], u[1][1][r][l]);
                    }
            }
        vp_move<4>(&edges[2][warp][0][lane * 4], u[2][2][0]);
        vp_move<4>(&edges[2][warp][1][lane * 4], u[2][2][2]);
        }
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[8][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[8][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[2][1][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[2][1][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[2][1][r][0], 1);
            }
            float out_computed[3][4];
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(out_computed[r][l], u_around[r + 1][l + 1], u[2][2][r][l], u[2][0][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 3 >= bottom && s - 3 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        out_computed[r][l] = vp_pick(mask, out_computed[r][l], u[2][1][r][l]);
                    }
            }
            if (written && s - 3 >= first)
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    if (written >> r & 1) {
                        if (whole) {
                            vp_store<4>(out_to + r * region.pitch, out_computed[r]);
                        } else {
                            for (int l = 0; l < 4; ++l)
                                if (x + l >= region.low[2] && x + l < region.high[2]) {
                                    out_to[r * region.pitch + l] = out_computed[r][l];
                                }
                        }
                    }
        }
        __syncthreads();
        out_to += region.plane;
        if (++s >= last + 3) break;
        vispark::wait_for_groups<2>();
        vp_load<4>(u[0][0][0], &u_ring[1][warp][0][lane * 4]);
        vp_load<4>(u[0][0][1], &u_ring[1][warp][1][lane * 4]);
        vp_load<4>(u[0][0][2], &u_ring[1][warp][2][lane * 4]);
        if (s + 3 < last + 3) {
            vispark::copy_ahead<16>(&u_ring[1][warp][0][lane * 4], u_from + row_0);
            vispark::copy_ahead<16>(&u_ring[1][warp][1][lane * 4], u_from + row_1);
            vispark::copy_ahead<16>(&u_ring[1][warp][2][lane * 4], u_from + row_2);
            u_from += region.plane;
        }
        vispark::end_group();
        vp_move<4>(&edges[3][warp][0][lane * 4], u[0][0][0]);
        vp_move<4>(&edges[3][warp][1][lane * 4], u[0][0][2]);
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[0][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[0][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[0][2][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[0][2][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[0][2][r][0], 1);
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(u[1][0][r][l], u_around[r + 1][l + 1], u[0][0][r][l], u[0][1][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 1 >= bottom && s - 1 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        u[1][0][r][l] = vp_pick(mask, u[1][0][r][l], u[0][2][r][l]);
                    }
            }
        vp_move<4>(&edges[4][warp][0][lane * 4], u[1][0][0]);
        vp_move<4>(&edges[4][warp][1][lane * 4], u[1][0][2]);
        }
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[1][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[1][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[1][2][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[1][2][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[1][2][r][0], 1);
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(u[2][0][r][l], u_around[r + 1][l + 1], u[1][0][r][l], u[1][1][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 2 >= bottom && s - 2 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        u[2][0][r][l] = vp_pick(mask, u[2][0][r][l], u[1][2][r][l]);
                    }
            }
        vp_move<4>(&edges[5][warp][0][lane * 4], u[2][0][0]);
        vp_move<4>(&edges[5][warp][1][lane * 4], u[2][0][2]);
        }
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[2][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[2][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[2][2][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[2][2][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[2][2][r][0], 1);
            }
            float out_computed[3][4];
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(out_computed[r][l], u_around[r + 1][l + 1], u[2][0][r][l], u[2][1][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 3 >= bottom && s - 3 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        out_computed[r][l] = vp_pick(mask, out_computed[r][l], u[2][2][r][l]);
                    }
            }
            if (written && s - 3 >= first)
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    if (written >> r & 1) {
                        if (whole) {
                            vp_store<4>(out_to + r * region.pitch, out_computed[r]);
                        } else {
                            for (int l = 0; l < 4; ++l)
                                if (x + l >= region.low[2] && x + l < region.high[2]) {
                                    out_to[r * region.pitch + l] = out_computed[r][l];
                                }
                        }
                    }
        }
        __syncthreads();
        out_to += region.plane;
        if (++s >= last + 3) break;
        vispark::wait_for_groups<2>();
        vp_load<4>(u[0][1][0], &u_ring[2][warp][0][lane * 4]);
        vp_load<4>(u[0][1][1], &u_ring[2][warp][1][lane * 4]);
        vp_load<4>(u[0][1][2], &u_ring[2][warp][2][lane * 4]);
        if (s + 3 < last + 3) {
            vispark::copy_ahead<16>(&u_ring[2][warp][0][lane * 4], u_from + row_0);
            vispark::copy_ahead<16>(&u_ring[2][warp][1][lane * 4], u_from + row_1);
            vispark::copy_ahead<16>(&u_ring[2][warp][2][lane * 4], u_from + row_2);
            u_from += region.plane;
        }
        vispark::end_group();
        vp_move<4>(&edges[6][warp][0][lane * 4], u[0][1][0]);
        vp_move<4>(&edges[6][warp][1][lane * 4], u[0][1][2]);
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[3][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[3][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[0][0][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[0][0][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[0][0][r][0], 1);
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(u[1][1][r][l], u_around[r + 1][l + 1], u[0][1][r][l], u[0][2][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 1 >= bottom && s - 1 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        u[1][1][r][l] = vp_pick(mask, u[1][1][r][l], u[0][0][r][l]);
                    }
            }
        vp_move<4>(&edges[7][warp][0][lane * 4], u[1][1][0]);
        vp_move<4>(&edges[7][warp][1][lane * 4], u[1][1][2]);
        }
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[4][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[4][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[1][0][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[1][0][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[1][0][r][0], 1);
            }
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(u[2][1][r][l], u_around[r + 1][l + 1], u[1][1][r][l], u[1][2][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 2 >= bottom && s - 2 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        u[2][1][r][l] = vp_pick(mask, u[2][1][r][l], u[1][0][r][l]);
                    }
            }
        vp_move<4>(&edges[8][warp][0][lane * 4], u[2][1][0]);
        vp_move<4>(&edges[8][warp][1][lane * 4], u[2][1][2]);
        }
        {
            float u_around[5][6];
            vp_load<4>(u_around[0] + 1, &edges[5][warp_above][1][lane * 4]);
            vp_load<4>(u_around[4] + 1, &edges[5][warp_below][0][lane * 4]);
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                for (int l = 0; l < 4; ++l) u_around[r + 1][l + 1] = u[2][0][r][l];
                u_around[r + 1][0] = __shfl_up_sync(0xffffffffu, u[2][0][r][3], 1);
                u_around[r + 1][5] = __shfl_down_sync(0xffffffffu, u[2][0][r][0], 1);
            }
            float out_computed[3][4];
            #pragma unroll
            for (int r = 0; r < 3; ++r)
                #pragma unroll
                for (int l = 0; l < 4; ++l)
                    heat_cell(out_computed[r][l], u_around[r + 1][l + 1], u[2][1][r][l], u[2][2][r][l], u_around[r + 2][l + 1], u_around[r + 0][l + 1], u_around[r + 1][l + 2], u_around[r + 1][l + 0], k);
            if (rim_ends) {
                const unsigned deep = s - 3 >= bottom && s - 3 < top ? ~0u : 0u;
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    #pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];
                        out_computed[r][l] = vp_pick(mask, out_computed[r][l], u[2][0][r][l]);
                    }
            }
            if (written && s - 3 >= first)
                #pragma unroll
                for (int r = 0; r < 3; ++r)
                    if (written >> r & 1) {
                        if (whole) {
                            vp_store<4>(out_to + r * region.pitch, out_computed[r]);
                        } else {
                            for (int l = 0; l < 4; ++l)
                                if (x + l >= region.low[2] && x + l < region.high[2]) {
                                    out_to[r * region.pitch + l] = out_computed[r][l];
                                }
                        }
                    }
        }
        __syncthreads();
        out_to += region.plane;
        if (++s >= last + 3) break;
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
heat_3_steps(const float* __restrict__ u_in, float* __restrict__ out, const vp_region region, const double k)
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
    float u[4][3][36][128];
    const int left = 0, right = width;
    const int above = (int)max(-region.origin[1] - top, 0LL);
    const int below = (int)min(region.shape[1] - region.origin[1] - top, (long long)height);
    for (int s = base; s < last + 3; ++s) {
        for (int r = 0; r < height; ++r) {
            const long long place = s * region.plane + (long long)(top + r) * region.pitch + corner;
            for (int l = 0; l < width; ++l) u[0][(s - base) % 3][r][l] = u_in[place + l];
        }
        for (int t = 0; t < 3; ++t) {
            const int at = s - t - 1;
            if (at < first - (3 - t - 1) || at >= last + (3 - t - 1)) continue;
            const int lower = (at - 1 - base) % 3, middle = (at - base) % 3, upper = (at + 1 - base) % 3;
            const bool deep = region.origin[0] + at >= 0 && region.origin[0] + at < region.shape[0];
            for (int r = t + 1; r < height - t - 1; ++r) {
                const float* __restrict__ u_row_0_0 = u[t][middle][r];
                const float* __restrict__ u_row_1_0 = u[t][upper][r];
                const float* __restrict__ u_row_m1_0 = u[t][lower][r];
                const float* __restrict__ u_row_0_1 = u[t][middle][r + 1];
                const float* __restrict__ u_row_0_m1 = u[t][middle][r - 1];
                float* __restrict__ out_computed = u[t + 1][middle][r];
                const bool alive = deep && r >= above && r < below;
                const int from = alive ? max(left, t + 1) : width - t - 1;
                const int to = alive ? min(right, width - t - 1) : width - t - 1;
                #pragma GCC ivdep
                for (int l = from; l < to; ++l)
                    heat_cell(out_computed[l], u_row_0_0[l], u_row_1_0[l], u_row_m1_0[l], u_row_0_1[l], u_row_0_m1[l], u_row_0_0[l + 1], u_row_0_0[l - 1], k);
                for (int l = t + 1; l < min(from, width - t - 1); ++l) out_computed[l] = u[t][middle][r][l];
                for (int l = max(to, t + 1); l < width - t - 1; ++l) out_computed[l] = u[t][middle][r][l];
            }
        }
        const int done = s - 3;
        if (done < first) continue;
        for (int r = 3; r < min(33, region.high[1] - top); ++r) {
            const long long place = done * region.plane + (long long)(top + r) * region.pitch + corner;
            for (int l = max(4, region.low[2] - corner); l < min(124, region.high[2] - corner); ++l) {
                out[place + l] = u[3][(done - base) % 3][r][l];
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
        heat_3_steps_tile<false, false>(shared, u_in, out, region, k);
    else if (rows_within)
        heat_3_steps_tile<false, true>(shared, u_in, out, region, k);
    else
        heat_3_steps_tile<true, true>(shared, u_in, out, region, k);
#endif
}
