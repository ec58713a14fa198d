// Row functions as one would first write them: a row a thread; COLUMNS float32 a row.
extern "C" __global__ void best(const float* rows, long long* places, long long count)
{
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const float* cells = rows + row * COLUMNS;
    int at = 0;
    for (int i = 1; i < COLUMNS; ++i)
        if (cells[i] > cells[at]) at = i;
    places[row] = at;
}

extern "C" __global__ void softmax(const float* rows, float* shares, long long count)
{
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const float* cells = rows + row * COLUMNS;
    float* powers = shares + row * COLUMNS;
    float largest = cells[0], sum = 0;
    for (int i = 1; i < COLUMNS; ++i) largest = fmaxf(largest, cells[i]);
    for (int i = 0; i < COLUMNS; ++i) sum += powers[i] = expf(cells[i] - largest);
    for (int i = 0; i < COLUMNS; ++i) powers[i] /= sum;
}

extern "C" __global__ void length(const float* rows, float* lengths, long long count)
{
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const float* cells = rows + row * COLUMNS;
    float sum = 0;
    for (int i = 0; i < COLUMNS; ++i) sum += cells[i] * cells[i];
    lengths[row] = sqrtf(sum);
}

extern "C" __global__ void by_key(const int* keys, const float* values, double* sums, long long count)
{
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < count) atomicAdd(sums + keys[row], (double)values[row]);
}

// How many cells of each row of two patches differ in a bit; a thread a row.
extern "C" __global__ void differing(const unsigned* a, const unsigned* b, unsigned* counts, long long pitch,
                                     long long plane, int nx, int ny, int nz)
{
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= (long long)ny * nz) return;
    const long long first = row / ny * plane + row % ny * pitch;
    unsigned differing = 0;
    for (int x = 0; x < nx; ++x) differing += a[first + x] != b[first + x];
    counts[row] = differing;
}
