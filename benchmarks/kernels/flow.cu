// An inner iteration of the fractional step on staggered cells, a cell a thread, over arrays of NY x NX that are 0
// outside. u is on the left face of a cell, v on the lower one, p in the middle.

static __device__ __forceinline__ float at(const float* __restrict__ f, int y, int x)
{
    return y < 0 || y >= NY || x < 0 || x >= NX ? 0 : f[(long long)y * NX + x];
}

#define CELL                                                                                                            \
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;                     \
    if (x >= NX || y >= NY)                                                                                             \
        return;                                                                                                         \
    const long long here = (long long)y * NX + x;

extern "C" __global__ void predict(const float* __restrict__ u, const float* __restrict__ v, float* __restrict__ u_star,
                                   float* __restrict__ v_star, float dt, float h, float nu)
{
    CELL
    const float u0 = at(u, y, x), ur = at(u, y, x + 1), ul = at(u, y, x - 1), ua = at(u, y + 1, x),
                ub = at(u, y - 1, x), ubr = at(u, y - 1, x + 1);
    const float v0 = at(v, y, x), vr = at(v, y, x + 1), vl = at(v, y, x - 1), va = at(v, y + 1, x),
                vb = at(v, y - 1, x), val = at(v, y + 1, x - 1);
    const float uu = ((u0 + ur) * (u0 + ur) - (ul + u0) * (ul + u0)) / 4;
    const float vv = ((v0 + va) * (v0 + va) - (vb + v0) * (vb + v0)) / 4;
    const float uv_up = ((va + val) * (u0 + ua) - (v0 + vl) * (u0 + ub)) / 4;
    const float uv_right = ((ur + ubr) * (v0 + vr) - (u0 + ub) * (v0 + vl)) / 4;
    u_star[here] = u0 + dt * (nu * (ur + ul + ua + ub - 4 * u0) / h - uu - uv_up) / h;
    v_star[here] = v0 + dt * (nu * (vr + vl + va + vb - 4 * v0) / h - vv - uv_right) / h;
}

extern "C" __global__ void divergence(const float* __restrict__ u_star, const float* __restrict__ v_star,
                                      float* __restrict__ source, float dt, float h)
{
    CELL
    source[here] = (at(u_star, y, x + 1) - u_star[here] + at(v_star, y + 1, x) - v_star[here]) * h / dt;
}

extern "C" __global__ void sweep(const float* __restrict__ p, const float* __restrict__ source, float* __restrict__ next,
                                 float weight)
{
    CELL
    const float around = at(p, y, x + 1) + at(p, y, x - 1) + at(p, y + 1, x) + at(p, y - 1, x);
    next[here] = p[here] + weight * ((around - source[here]) / 4 - p[here]);
}

extern "C" __global__ void correct(const float* __restrict__ u_star, const float* __restrict__ v_star,
                                   const float* __restrict__ p, float* __restrict__ u, float* __restrict__ v, float dt,
                                   float h)
{
    CELL
    u[here] = u_star[here] - dt / h * (p[here] - at(p, y, x - 1));
    v[here] = v_star[here] - dt / h * (p[here] - at(p, y - 1, x));
}
