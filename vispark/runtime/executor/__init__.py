"""Spark tasks: the code that runs in an executor's Python worker."""
