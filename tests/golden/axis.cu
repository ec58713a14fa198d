// kernels: lambda_kernel
// np.sum along an axis
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
template <int width, int stride, class T> __device__ __forceinline__ void store_tile(T* rows, const T* tile, int count)
{
    constexpr int lanes = 16 / sizeof(T);
    struct __align__(16) Lanes { T item[lanes]; };
    const int total = count * width;
    int done = 0;
    if ((unsigned long long)rows % 16 == 0) {
        for (int i = threadIdx.x * lanes; i + lanes <= total; i += blockDim.x * lanes) {
            Lanes lane;
            for (int k = 0; k < lanes; ++k) lane.item[k] = tile[(i + k) / width * stride + (i + k) % width];
            *(Lanes*)(rows + i) = lane;
        }
        done = total / lanes * lanes;
    }
    for (int i = done + threadIdx.x; i < total; i += blockDim.x) rows[i] = tile[i / width * stride + i % width];
}

extern "C" __global__ void __launch_bounds__(128)
lambda_kernel(const float* __restrict__ b_in, float* __restrict__ out_0, float* __restrict__ out_1, const long long n)
{
    const long long element = blockIdx.x * 128LL + threadIdx.x;
#ifdef STAGED
    const long long first = blockIdx.x * 128LL;
    const int rows = n - first < 128 ? (int)(n - first) : 128;
    __shared__ __align__(16) float b_tile[1664];
    load_tile<12, 13>(b_tile, b_in + first * 12, rows);
    __shared__ __align__(16) float out_0_row_tile[640];
    __shared__ __align__(16) float out_1_row_tile[384];
    __barrier_sync(0);
    const float* b = b_tile + threadIdx.x * 13;
    float* out_0_row = out_0_row_tile + threadIdx.x * 5;
    float* out_1_row = out_1_row_tile + threadIdx.x * 3;
#else
    const float* __restrict__ b = b_in + element * 12;
    float* __restrict__ out_0_row = out_0 + element * 4;
    float* __restrict__ out_1_row = out_1 + element * 3;
#endif
    if (element < n) {
        float sum_1[4];
        for (int row = 0; row < 4; ++row) {
            float sum_2 = 0.0f;
            for (int j = 0; j < 3; ++j) {
                sum_2 += b[j * 4 + row];
            }
            sum_1[row] = sum_2;
        }
        float sum_4[3];
        for (int row = 0; row < 3; ++row) {
            float sum_5 = 0.0f;
            for (int j = 0; j < 4; ++j) {
                sum_5 += b[row * 4 + j];
            }
            sum_4[row] = sum_5;
        }
        for (int j = 0; j < 4; ++j) {
            out_0_row[j] = sum_1[j];
        }
        for (int j = 0; j < 3; ++j) {
            out_1_row[j] = sum_4[j];
        }
    }
#ifdef STAGED
    __barrier_sync(0);
    store_tile<4, 5>(out_0 + first * 4, out_0_row_tile, rows);
    store_tile<3, 3>(out_1 + first * 3, out_1_row_tile, rows);
#endif
}
