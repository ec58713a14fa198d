"""Translated functions over the columns of DataFrames: in ``select``, ``withColumn`` and SQL.

``returns`` says which column types results become, ``task`` computes joined batches in the node's worker, ``plain`` in
Python, ``translated`` is what users call, ``added`` adds columns where Spark has no UDFs of Arrow arrays.

Place 7 of 8 in ``vispark.api``; run by: driver, task.
"""
