// kernels: rows_by_key<uint4>, rows_by_key<unsigned long long>, rows_by_key<unsigned char>
#include "vispark/target.h"

// Rows of `chunks` chunks each by key: that at places[key] of `in`, or zeros where that is below 0.
template <typename C>
__global__ void rows_by_key(const C* in, C* out, const long long* places, long long keys, long long chunks)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < keys * chunks; i += all) {
        const long long key = i / chunks, place = places[key];
        out[i] = place < 0 ? C() : in[place * chunks + (i - key * chunks)];
    }
}
