// kernels: zipped_kernel
// for over zip
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
zipped_kernel(const float* __restrict__ p_in, float* __restrict__ out, const float* __restrict__ w, const long long n)
{
    const long long element = blockIdx.x * 128LL + threadIdx.x;
#ifdef STAGED
    const long long first = blockIdx.x * 128LL;
    const int rows = n - first < 128 ? (int)(n - first) : 128;
    __shared__ __align__(16) float p_tile[640];
    load_tile<5, 5>(p_tile, p_in + first * 5, rows);
    __barrier_sync(0);
    const float* p = p_tile + threadIdx.x * 5;
#else
    const float* __restrict__ p = p_in + element * 5;
#endif
    if (element < n) {
        float s = 0.0f;
        for (int i = 0; i < 5; ++i) {
            float a = p[i];
            float b = w[i];
            s = s + (a * b);
        }
        out[element] = s;
    }
}
