"""Sources of RDDs and VRDDs: tables, text, and what other applications have published.

Place 5 of 8 in ``vispark.api``; run by: driver, task.
"""
