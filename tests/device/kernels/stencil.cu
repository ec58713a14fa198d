// A 7-point heat step on a 3-D grid with a 3-D launch.
#define AT(x, y, z) (((size_t)(z) * ny + (y)) * nx + (x))

extern "C" __global__ void __launch_bounds__(256) heat(const float* u, float* v, int nx, int ny, int nz, float k)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz)
        return;
    float here = u[AT(x, y, z)];
    if (x == 0 || y == 0 || z == 0 || x == nx - 1 || y == ny - 1 || z == nz - 1) {
        v[AT(x, y, z)] = here;
        return;
    }
    v[AT(x, y, z)] = here + k * (u[AT(x + 1, y, z)] + u[AT(x - 1, y, z)] + u[AT(x, y + 1, z)] + u[AT(x, y - 1, z)]
                                 + u[AT(x, y, z + 1)] + u[AT(x, y, z - 1)] - 6.0f * here);
}
