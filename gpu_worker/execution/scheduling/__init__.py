"""Scheduling of a plan's work: devices and streams for its partitions, plans in flight, how far the work has come.

Place 1 of 10 in ``gpu_worker.execution``; run by: device process.
"""
