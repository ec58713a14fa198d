"""Profiling of a program's time: plans, Spark's jobs, and the shares of both."""
