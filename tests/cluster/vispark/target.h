// The machine of machine.h as kernels see it, by the names of the devices' target.h.
#pragma once

#define VISPARK_ALONE 0
#define VISPARK_WARPGROUPS 1
#define VISPARK_ONE_PASS 1

namespace vispark {

inline unsigned own_place() { return threadIdx.x; }
inline unsigned places() { return blockDim.x; }

}  // namespace vispark
