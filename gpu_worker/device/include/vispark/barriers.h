// Barriers in shared memory that groups of warps wait at, and places of rings that these guard.
#pragma once

#include "vispark/tensor.h"

#if VISPARK_ONE_PASS

namespace rows {

// A place of a ring of SLOTS, and how often it was passed.
template <int SLOTS> struct Turning {
    int slot;
    unsigned turn;
    __device__ __forceinline__ Turning() : slot(0), turn(0) {}
    __device__ __forceinline__ void next()
    {
        if (++slot == SLOTS) slot = 0, ++turn;
    }
};

typedef unsigned long long Bar;

__device__ __forceinline__ void arrive(Bar& bar)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) tensor::arrive(tensor::shared_of(&bar));
}
__device__ __forceinline__ void wait(Bar& bar, unsigned turn) { tensor::wait(tensor::shared_of(&bar), turn & 1); }

}  // namespace rows

#endif
