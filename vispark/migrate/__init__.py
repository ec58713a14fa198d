"""Way of a PySpark program onto the GPU: what qualifies, a port, and proofs of both; the command ``vispark``.

``import vispark`` imports nothing of this package.
"""
