"""Recordings of repeated plans, which are replayed in place of running the plan anew.

Place 7 of 10 in ``gpu_worker.execution``; run by: device process.
"""
