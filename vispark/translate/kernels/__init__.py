"""The row function, and the kernels around it."""
