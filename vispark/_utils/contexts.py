"""State of Spark contexts."""

from __future__ import annotations

from pyspark import SparkContext

from gpu_worker.protocol.errors import PlanError


def check_running(sc: SparkContext) -> None:
    """Check that a context was not stopped.

    Raises
    ------
    PlanError
        If it was; Spark itself raises an AttributeError of its own.
    """
    if sc._jsc is None:
        raise PlanError("the SparkContext was stopped: make a new one, and what was read or scattered by this one anew")
