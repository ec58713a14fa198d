// The gradient of logistic regression over rows of (label, D features), label -1 or 1, and a sum over records.
extern "C" __global__ void gradient(const float* points, float* gradients, const float* w, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const float* row = points + (size_t)i * (D + 1);
    float y = row[0], margin = 0;
    for (int j = 0; j < D; ++j)
        margin += w[j] * row[1 + j];
    float scale = (1 / (1 + expf(-y * margin)) - 1) * y;
    for (int j = 0; j < D; ++j)
        gradients[(size_t)i * D + j] = scale * row[1 + j];
}

// One block a column: 256 threads add every 256th row, then a tree in shared memory adds their sums.
extern "C" __global__ void local_reduce(const float* gradients, float* sum, int n)
{
    __shared__ double partial[256];
    double total = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        total += gradients[(size_t)i * D + blockIdx.x];
    partial[threadIdx.x] = total;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sum[blockIdx.x] = partial[0];
}
