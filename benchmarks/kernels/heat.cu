// A step of the heat equation, 7 points, over an array of NZ x NY x NX that is 0 outside.

// A cell a thread, as everybody writes it first.
extern "C" __global__ void plain(const float* __restrict__ u, float* __restrict__ out, float k)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x >= NX || y >= NY)
        return;
    const long long at = ((long long)z * NY + y) * NX + x;
    const float c = u[at];
    const float around = (z + 1 < NZ ? u[at + (long long)NY * NX] : 0) + (z > 0 ? u[at - (long long)NY * NX] : 0)
                       + (y + 1 < NY ? u[at + NX] : 0) + (y > 0 ? u[at - NX] : 0)
                       + (x + 1 < NX ? u[at + 1] : 0) + (x > 0 ? u[at - 1] : 0);
    out[at] = c + k * (around - 6 * c);
}

// Four cells along x a thread, which walks DEPTH planes along z with three of them in registers.
#define DEPTH 8
__device__ __forceinline__ float4 load(const float* u, int z, int y, int x)
{
    return z < 0 || z >= NZ || y < 0 || y >= NY ? make_float4(0, 0, 0, 0)
                                                : *(const float4*)(u + ((long long)z * NY + y) * NX + x);
}

extern "C" __global__ void __launch_bounds__(256) marching(const float* __restrict__ u, float* __restrict__ out, float k)
{
    const int x = (blockIdx.x * blockDim.x + threadIdx.x) * 4, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= NX || y >= NY)
        return;
    const int first = blockIdx.z * DEPTH, last = min(NZ, first + DEPTH);
    float4 below = load(u, first - 1, y, x), here = load(u, first, y, x);
    for (int z = first; z < last; ++z) {
        const float4 above = load(u, z + 1, y, x), north = load(u, z, y - 1, x), south = load(u, z, y + 1, x);
        const long long at = ((long long)z * NY + y) * NX + x;
        const float left = x > 0 ? u[at - 1] : 0, right = x + 4 < NX ? u[at + 4] : 0;
        float4 next;
        next.x = here.x + k * (below.x + above.x + north.x + south.x + left + here.y - 6 * here.x);
        next.y = here.y + k * (below.y + above.y + north.y + south.y + here.x + here.z - 6 * here.y);
        next.z = here.z + k * (below.z + above.z + north.z + south.z + here.y + here.w - 6 * here.z);
        next.w = here.w + k * (below.w + above.w + north.w + south.w + here.z + right - 6 * here.w);
        __stcs((float4*)(out + at), next);
        below = here;
        here = above;
    }
}
