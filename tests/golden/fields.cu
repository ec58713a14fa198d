// kernels: lambda_kernel
// fields by name
#if !defined(STAGED) && !defined(__CUDA_ON_HOST__)
#define STAGED 1
#endif

// Rows between memory and a tile of shared memory, flat and 16 bytes at a time; in the tile they have a stride.
template <int width, int stride, class T> __device__ __forceinline__ void load_tile(T* tile, const T* rows, int count)
{
    constexpr int lanes = 16 / sizeof(T);
    struct __align__(16) Lanes { T item[lanes]; };
    const int total = count * width;
    int done = 0;
    if ((unsigned long long)rows % 16 == 0) {
        for (int i = threadIdx.x * lanes; i + lanes <= total; i += blockDim.x * lanes) {
            const Lanes lane = *(const Lanes*)(rows + i);
            for (int k = 0; k < lanes; ++k) tile[(i + k) / width * stride + (i + k) % width] = lane.item[k];
        }
        done = total / lanes * lanes;
    }
    for (int i = done + threadIdx.x; i < total; i += blockDim.x) tile[i / width * stride + i % width] = rows[i];
}

extern "C" __global__ void __launch_bounds__(128)
lambda_kernel(const long long* __restrict__ y_in, const float* __restrict__ z_in, double* __restrict__ out, const double k, const long long n)
{
    const long long element = blockIdx.x * 128LL + threadIdx.x;
#ifdef STAGED
    const long long first = blockIdx.x * 128LL;
    const int rows = n - first < 128 ? (int)(n - first) : 128;
    __shared__ __align__(16) float z_tile[384];
    load_tile<2, 3>(z_tile, z_in + first * 2, rows);
    __barrier_sync(0);
    const float* z = z_tile + threadIdx.x * 3;
#else
    const float* __restrict__ z = z_in + element * 2;
#endif
    if (element < n) {
        const long long y = y_in[element];
        out[element] = (((double)y) * k) + ((double)z[1]);
    }
}
