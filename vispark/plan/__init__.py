"""Recorded programs: frozen operations, the calls that they stand for, and CUDA sources."""
