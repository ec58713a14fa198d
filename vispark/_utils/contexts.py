"""State of Spark contexts."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import SparkSession

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


def is_case_sensitive(sc: SparkContext) -> bool:
    """Return whether names of columns that differ in case alone are different ones, as ``spark.sql.caseSensitive`` of
    the active session says, or of the context where there is none.
    """
    session = SparkSession.getActiveSession()
    key = "spark.sql.caseSensitive"
    setting = sc.getConf().get(key, "false") if session is None else session.conf.get(key, "false")
    return str(setting).lower() == "true"
