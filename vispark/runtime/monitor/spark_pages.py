"""Links from Spark's own pages to a dashboard.

Spark shows links in descriptions of jobs, to paths below its own pages alone. So one of these paths leads on, by the
same function of Spark's by which its first page leads to that of the jobs. It is no part of Spark's interface: where it
is another, there is no way and no link.
"""

from __future__ import annotations

from pyspark import SparkContext

from vispark.runtime.driver.spark_errors import CALL_FAILED

#: Below Spark's pages.
_PATH = "/vispark"
#: The arguments behind source and target have defaults: three in Spark 3.5, four since 4.
_OPTIONAL = (4, 3)


def lead(context: SparkContext, address: str) -> str:
    """Have a path below Spark's pages lead to an address, and return it; an empty one where Spark has no pages."""
    for optional in _OPTIONAL:
        try:
            pages = context._jsc.sc().ui()
            if pages.isEmpty():
                return ""
            jetty = context._jvm.org.apache.spark.ui.JettyUtils  # type: ignore[union-attr]
            defaults = [getattr(jetty, f"createRedirectHandler$default${place}")() for place in range(3, 3 + optional)]
            pages.get().attachHandler(jetty.createRedirectHandler(_PATH, address, *defaults))
        except CALL_FAILED:
            continue
        return f"{_PATH}/"
    return ""


def end(context: SparkContext) -> None:
    """Remove the path from Spark's pages; a context that has stopped has none."""
    try:
        if context._jsc is not None and not context._jsc.sc().ui().isEmpty():
            context._jsc.sc().ui().get().detachHandler(_PATH)
    except (*CALL_FAILED, ReferenceError):      # its JVM, or the context itself, is gone
        return
