"""Runtime of plans: their transport to workers and the life of cached data; in the driver, and in Spark's tasks
(``executor``).
"""
