"""Plans as a device process has them: verified, cached, fed in chunks, run in waves or pieces where partitions do not
fit.

Place 10 of 10 in ``gpu_worker.execution``; run by: device process.
"""
