"""Spark's tasks: what an executor's Python worker does."""
