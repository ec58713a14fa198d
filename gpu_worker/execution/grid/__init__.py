"""Execution of grid steps: patches of blocks in device memory, exchanges of ghost cells, stencils and loops.

Axes are always three, in the order z, y, x; a grid of fewer dimensions has leading extents of 1. Cells are numbered
over the whole grid, and the ghost cells around it have numbers below 0 or from the extent on.

Place 6 of 10 in ``gpu_worker.execution``; run by: device process.
"""
