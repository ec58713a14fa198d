"""Public interface: VRDD, Grid, explain, and the methods added to PySpark's RDD.

Place 6 of 8 in the order of the data; run by: driver, task.
"""
