"""Actions of a VRDD that workers answer: records, folds, statistics, samples; and its publication.

Place 4 of 8 in ``vispark.api``; run by: driver, task.
"""
