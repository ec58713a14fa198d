"""Nearest centres: recognised in a function, written as matrix products."""
