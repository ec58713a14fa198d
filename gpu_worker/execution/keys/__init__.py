"""Rows by their keys on one device: sorted, exchanged, folded in runs, and the messages that carry them to other nodes.

Place 5 of 10 in ``gpu_worker.execution``; run by: device process.
"""
