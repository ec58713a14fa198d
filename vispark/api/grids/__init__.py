"""Grids of cells: arrays and files are scattered to blocks, gathered from them, reduced and drawn.

Place 6 of 8 in ``vispark.api``; run by: driver, task.
"""
