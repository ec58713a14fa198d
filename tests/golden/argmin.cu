// kernels: lambda_kernel
// np.argmin, np.argmax
#if !defined(STAGED) && !defined(__CUDA_ON_HOST__)
#define STAGED 1
#endif

template <class T> __device__ __forceinline__ bool is_nan(T a) { return a != a; }
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
lambda_kernel(const float* __restrict__ p_in, long long* __restrict__ out_0, long long* __restrict__ out_1, long long* __restrict__ out_2, long long* __restrict__ out_3, const long long n)
{
    const long long element = blockIdx.x * 128LL + threadIdx.x;
#ifdef STAGED
    const long long first = blockIdx.x * 128LL;
    const int rows = n - first < 128 ? (int)(n - first) : 128;
    __shared__ __align__(16) float p_tile[384];
    load_tile<3, 3>(p_tile, p_in + first * 3, rows);
    __barrier_sync(0);
    const float* p = p_tile + threadIdx.x * 3;
#else
    const float* __restrict__ p = p_in + element * 3;
#endif
    if (element < n) {
        float min_1 = p[0];
        int argmin = 0;
        for (int j = 0; j < 3; ++j) {
            const float value = p[j];
            if (value < min_1 || (is_nan<float>(value) && !is_nan<float>(min_1))) {
                min_1 = value;
                argmin = j;
            }
        }
        float max_1 = p[0];
        int argmax = 0;
        for (int j = 0; j < 3; ++j) {
            const float value_1 = p[j];
            if (value_1 > max_1 || (is_nan<float>(value_1) && !is_nan<float>(max_1))) {
                max_1 = value_1;
                argmax = j;
            }
        }
        float min_2 = p[0];
        int argmin_1 = 0;
        for (int j = 0; j < 3; ++j) {
            const float value_2 = p[j];
            if (value_2 < min_2 || (is_nan<float>(value_2) && !is_nan<float>(min_2))) {
                min_2 = value_2;
                argmin_1 = j;
            }
        }
        float max_2 = p[0];
        int argmax_1 = 0;
        for (int j = 0; j < 3; ++j) {
            const float value_3 = p[j];
            if (value_3 > max_2 || (is_nan<float>(value_3) && !is_nan<float>(max_2))) {
                max_2 = value_3;
                argmax_1 = j;
            }
        }
        out_0[element] = (long long)argmin;
        out_1[element] = (long long)argmax;
        out_2[element] = (long long)argmin_1;
        out_3[element] = (long long)argmax_1;
    }
}
