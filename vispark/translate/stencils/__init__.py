"""Kernels of a grid's cells."""
