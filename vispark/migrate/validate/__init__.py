"""Validation of a port: results of two runs compared value by value, and the verdict on them.

Place 8 of 13 in ``vispark.migrate``; run by: command.
"""
