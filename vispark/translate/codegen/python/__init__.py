"""Lowerings of Python's own functions and of ``math``."""
