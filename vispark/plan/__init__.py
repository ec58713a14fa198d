"""Recorded programs: frozen operations, the calls that they stand for, and CUDA sources.

Place 4 of 8 in the order of the data; run by: driver, task.
"""
