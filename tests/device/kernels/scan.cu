// Hillis and Steele's inclusive scan of one block, double-buffered; the array is declared at file scope.
extern __shared__ int buffers[];

extern "C" __global__ void scan(const int* in, int* out, int n)
{
    int t = threadIdx.x, from = 0, to = 1;
    buffers[t] = t < n ? in[blockIdx.x * n + t] : 0;
    __syncthreads();
    for (int step = 1; step < (int)blockDim.x; step *= 2) {
        int value = buffers[from * blockDim.x + t];
        if (t >= step)
            value += buffers[from * blockDim.x + t - step];
        buffers[to * blockDim.x + t] = value;
        __syncthreads();
        from ^= 1;
        to ^= 1;
    }
    if (t < n)
        out[blockIdx.x * n + t] = buffers[from * blockDim.x + t];
}
