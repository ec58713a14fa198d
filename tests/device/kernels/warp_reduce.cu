// kernels: reduce<float, 128>, reduce<double, 256>, reduce<int, 64>
// A block's sum with warp shuffles, for any type.
template <typename T>
__device__ __forceinline__ T warp_sum(T value)
{
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS) reduce(const T* in, T* out, int n)
{
    __shared__ T warps[THREADS / 32];
    T sum = T(0);
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        sum += in[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : T(0);
        sum = warp_sum(sum);
        if (threadIdx.x == 0)
            atomicAdd(out, sum);
    }
}
