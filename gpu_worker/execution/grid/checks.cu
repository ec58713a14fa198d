// kernels: largest_change<float>, largest_change<double>, largest_change<Complex<float>>, largest_change<unsigned char>,
// largest_change<long long>, first_not_finite<float>, first_not_finite<Complex<double>>

// What a loop asks of its cells: how much they changed, and whether they are finite.
struct vp_region { long long pitch, plane; int low[3], high[3]; long long origin[3], shape[3]; };

template <typename T> struct Complex { T real, imaginary; };

template <typename T> __device__ double change_of(T before, T after) { return fabs((double)after - (double)before); }
template <typename T> __device__ double change_of(Complex<T> before, Complex<T> after)
{
    return hypot((double)after.real - (double)before.real, (double)after.imaginary - (double)before.imaginary);
}

template <typename T> __device__ bool is_finite(T value) { return value - value == 0; }
template <typename T> __device__ bool is_finite(Complex<T> value)
{
    return is_finite(value.real) && is_finite(value.imaginary);
}

// A change that is no number counts as the largest.
__device__ double larger(double a, double b) { return b > a || b != b ? (a != a ? a : b) : a; }

// The largest change of a cell of a region, as the bits of a double, which are in its order. Each thread block takes
// rows in turn.
template <typename T>
__global__ void largest_change(const T* before, const T* after, const vp_region region, unsigned long long* largest)
{
    __shared__ double shared[256];
    const int rows = region.high[1] - region.low[1], all = (region.high[0] - region.low[0]) * rows;
    double change = 0.0;
    for (int row = blockIdx.x; row < all; row += gridDim.x) {
        const long long start = (region.low[0] + row / rows) * region.plane + (region.low[1] + row % rows) * region.pitch;
        for (int x = region.low[2] + threadIdx.x; x < region.high[2]; x += blockDim.x)
            change = larger(change, change_of(before[start + x], after[start + x]));
    }
    shared[threadIdx.x] = change;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] = larger(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicMax(largest, (unsigned long long)__double_as_longlong(fabs(shared[0])));
}

// The first cell of a region, in the order of the whole grid, that is NaN or infinite.
template <typename T>
__global__ void first_not_finite(const T* cells, const vp_region region, unsigned long long* first)
{
    const int rows = region.high[1] - region.low[1], all = (region.high[0] - region.low[0]) * rows;
    for (int row = blockIdx.x; row < all; row += gridDim.x) {
        const int z = region.low[0] + row / rows, y = region.low[1] + row % rows;
        for (int x = region.low[2] + threadIdx.x; x < region.high[2]; x += blockDim.x)
            if (!is_finite(cells[z * region.plane + y * region.pitch + x]))
                atomicMin(first, (unsigned long long)(((region.origin[0] + z) * region.shape[1] + region.origin[1] + y)
                                                      * region.shape[2] + region.origin[2] + x));
    }
}
