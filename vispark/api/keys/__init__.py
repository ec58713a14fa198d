"""Operations by key, in place of Spark's shuffles, and RDDs of what they return.

Place 3 of 8 in ``vispark.api``; run by: driver, task.
"""
