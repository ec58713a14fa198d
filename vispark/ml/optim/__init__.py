"""Optimisers of the driver, on NumPy arrays: quasi-Newton methods with MLlib's stopping rules, and least squares."""
