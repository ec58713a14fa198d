"""Execution of plans on devices: launches, reductions, copies, recordings that are replayed.

Place 6 of 9 in the order of the data; run by: device process.
"""
