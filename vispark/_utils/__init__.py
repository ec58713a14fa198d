"""Helpers that know nothing of vispark.

Place 1 of 8 in the order of the data; run by: driver, task, command.
"""
