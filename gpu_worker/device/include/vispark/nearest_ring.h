// What nearest_roles.h and nearest_pair.h share: how rows are added to sums in registers, barriers in shared memory, a
// ring of tiles, parts of a row's products, and rows that get labels by their distances.
#pragma once

namespace nearest {

// Adds `row` to the `centre`-th of L runs of C sums. For warpgroups the translator writes it for each L and C, by a jump.
template <int L, int C> struct Jump {
    static __device__ __forceinline__ void add(float (&sums)[L * C], unsigned centre, const float (&row)[C])
    {
        for (int c = 0; c < C; c++) sums[centre * C + c] += row[c];
    }
};

typedef unsigned long long Bar;

// A warp's arrival, when all its lanes are through.
__device__ __forceinline__ void arrive(Bar& bar)
{
    __syncwarp();
    if (tensor::thread() % 32 == 0) tensor::arrive(tensor::shared_of(&bar));
}
__device__ __forceinline__ void wait(Bar& bar, unsigned turn)
{
    tensor::wait(tensor::shared_of(&bar), turn & 1);
}

// Whether the t-th lane's columns of a step of 16 are columns of a row.
template <int D> __device__ __forceinline__ bool has_columns(int step, int t)
{
    return D % 16 == 0 || step < D / 16 || 4 * t < D % 16;
}

// Four numbers' squares and a sum before them.
__device__ __forceinline__ float squares(float4 x, float sum)
{
    return fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, sum))));
}

// The labels of eight rows, one in the first of each four lanes: those whose first lane is in `open` get them by their
// distances, one after the other.
template <int N, int K, int D, Nan nan, class Rows, class C>
__device__ __forceinline__ int labels_of_open(Rows row, const C* centres, unsigned open,
                                              unsigned long long candidates, bool all, int label)
{
    #pragma unroll 1
    for (; open; open &= open - 1) {
        const int from = __ffs(open) - 1;
        const int nearest = again<N, K, D, nan>([&](int q) { return __shfl_sync(~0u, candidates, from + q); },
                                              __shfl_sync(~0u, (int)all, from), row(from / 4), centres);
        if (tensor::thread() % 32 == from) label = nearest;
    }
    return label;
}

}  // namespace nearest
