"""Files that a run of a program leaves: recording, results, Spark's event log, journal of plans.

Place 3 of 13 in ``vispark.migrate``; run by: driver, command.
"""
