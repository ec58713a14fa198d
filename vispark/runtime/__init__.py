"""Runtime of plans: their transport to workers and the life of cached data; in the driver, and in Spark's tasks
(``executor``).

Place 5 of 8 in the order of the data; run by: driver, task.
"""
