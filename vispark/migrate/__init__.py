"""Migration of PySpark programs onto the GPU: what qualifies, a port, and proofs of both; the command ``vispark``.

``import vispark`` imports nothing of this package.

Place 8 of 8 in the order of the data; run by: driver, command.
"""
