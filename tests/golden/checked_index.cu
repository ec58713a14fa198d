// kernels: lambda_kernel
// an item by a computed index
#if !defined(STAGED) && !defined(__CUDA_ON_HOST__)
#define STAGED 1
#endif

// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b)
{
    if (b == 0 || (T(-1) < 0 && b == T(-1))) return 0;
    const T rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}
template <class T> __device__ __forceinline__ T absolute(T a) { return a < 0 ? (T)(0ull - (unsigned long long)a) : a; }
// An index that counts from the end if it is negative. Outside the array the kernel ends with a fault.
template <int length> __device__ __forceinline__ int checked_index(long long i)
{
    if (i < 0) i += length;
    if (i < 0 || i >= length) __trap();
    return (int)i;
}
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
lambda_kernel(const int* __restrict__ p_in, int* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 128LL + threadIdx.x;
#ifdef STAGED
    const long long first = blockIdx.x * 128LL;
    const int rows = n - first < 128 ? (int)(n - first) : 128;
    __shared__ __align__(16) int p_tile[640];
    load_tile<5, 5>(p_tile, p_in + first * 5, rows);
    __barrier_sync(0);
    const int* p = p_tile + threadIdx.x * 5;
#else
    const int* __restrict__ p = p_in + element * 5;
#endif
    if (element < n) {
        const int i = checked_index<5>(floor_remainder<int>(absolute<int>(p[0]), 5));
        out[element] = p[i];
    }
}
