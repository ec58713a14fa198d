// Products of float16 by a warp, for a CPU: what tensor.h has of PTX for them.
#pragma once

namespace tensor {

__device__ __forceinline__ unsigned pack(float first, float second)
{
    const _Float16 pair[2] = {(_Float16)first, (_Float16)second};
    unsigned bits;
    __builtin_memcpy(&bits, pair, 4);
    return bits;
}
__device__ __forceinline__ float part_of(unsigned pair, int i)
{
    _Float16 parts[2];
    __builtin_memcpy(parts, &pair, 4);
    return parts[i];
}
__device__ __forceinline__ float first_of(unsigned pair) { return part_of(pair, 0); }
__device__ __forceinline__ float second_of(unsigned pair) { return part_of(pair, 1); }

// Lane 4 g + t gives of the rows g and g + 8, and of the other factor's row g, the columns 2 t, 2 t + 1, 2 t + 8 and
// 2 t + 9; it has of the sums rows g and g + 8, columns 2 t and 2 t + 1.
__device__ inline void mma(float* acc, const unsigned (&a)[4], const unsigned (&b)[2])
{
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    for (int q = 0; q < 4; q++) {
        unsigned row[4], other[2][2];
        for (int i = 0; i < 4; i++) row[i] = __shfl_sync(~0u, a[i], 4 * g + q);
        for (int i = 0; i < 2; i++)
            for (int n = 0; n < 2; n++) other[n][i] = __shfl_sync(~0u, b[i], 4 * (2 * t + n) + q);
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                for (int part = 0; part < 2; part++)
                    acc[i] += part_of(row[i / 2 + 2 * half], part) * part_of(other[i % 2][half], part);
    }
}

}  // namespace tensor
