"""Runs of a program that note what it does: each a process of its own, which is the program's driver.

Place 5 of 13 in ``vispark.migrate``; run by: driver, task.
"""
