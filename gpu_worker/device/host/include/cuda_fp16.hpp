#error cuda_fp16.hpp is not available on the host device; use plain CUDA C++, or ask for a cuda device
