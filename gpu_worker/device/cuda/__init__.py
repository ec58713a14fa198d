"""NVIDIA GPUs: PyCUDA, the driver through cuda-bindings, NVRTC."""
