// threadIdx, blockIdx, blockDim, gridDim and warpSize are built into NVRTC.
#pragma once
