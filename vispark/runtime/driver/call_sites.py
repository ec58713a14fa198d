"""Call sites of the Spark jobs that vispark runs: the user's lines, in Spark's pages, event logs and profiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.traceback_utils import SCCallSiteSync

from vispark._utils.callers import user_line


@contextmanager
def at_user_line(context: SparkContext, name: str) -> Iterator[None]:
    """Name the jobs within after the user's line, as "load at job.py:12"; within a method of PySpark's, it does so.

    Parameters
    ----------
    context : SparkContext
        What runs the jobs.
    name : str
        What they do.
    """
    place = user_line().partition(": ")[0]
    if not place or SCCallSiteSync._spark_stack_depth or context._jsc is None:
        yield
        return
    context._jsc.setCallSite(f"{name} at {place}")
    SCCallSiteSync._spark_stack_depth += 1
    try:
        yield
    finally:
        SCCallSiteSync._spark_stack_depth -= 1
        if context._jsc is not None:
            context._jsc.setCallSite(None)
