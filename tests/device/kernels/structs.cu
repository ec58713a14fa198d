// Structures by value, vector types, and operators on them.
struct Range { float low, high; int bins; };

__device__ inline float4 operator+(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

extern "C" __global__ void add4(const float4* a, const float4* b, float4* c, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

extern "C" __global__ void digitize(const float* x, int* bin, Range range, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const float place = (x[i] - range.low) / (range.high - range.low) * range.bins;
    bin[i] = max(0, min(range.bins - 1, __float2int_rd(place)));
}

extern "C" __global__ void luma(const uchar4* pixels, unsigned char* gray, dim3 size)
{
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= size.x || y >= size.y)
        return;
    const uchar4 p = pixels[y * size.x + x];
    gray[y * size.x + x] = (unsigned char)((77 * p.x + 151 * p.y + 28 * p.z) >> 8);
}
