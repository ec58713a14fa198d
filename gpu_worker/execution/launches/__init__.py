"""Launches of a plan's kernels, and the deals of their work over partitions and thread blocks.

Place 4 of 10 in ``gpu_worker.execution``; run by: device process.
"""
