"""RDDs: that of recorded operations, those whose records are the driver's or come back, and what explains their plans.

Place 1 of 8 in ``vispark.api``; run by: driver, task.
"""
