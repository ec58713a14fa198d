"""One pass of a plan: its context, the interface of its steps' handlers, its times and its results, by planes where a
grid does not fit its device.

Place 8 of 10 in ``gpu_worker.execution``; run by: device process.
"""
