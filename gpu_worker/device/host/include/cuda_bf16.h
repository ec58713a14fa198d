#error cuda_bf16.h is not available on the host device; use plain CUDA C++, or ask for a cuda device
