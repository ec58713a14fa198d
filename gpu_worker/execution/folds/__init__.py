"""Folds on devices by the operators of ``fold.cu``: of elements, records, pieces and keys; joins of partial ones.

Place 3 of 10 in ``gpu_worker.execution``; run by: device process.
"""
