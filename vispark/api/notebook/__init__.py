"""Extension of IPython, loaded by ``%load_ext vispark``: a profile of a cell, and the sessions of a worker.

Place 8 of 8 in ``vispark.api``; run by: driver.
"""
