"""Installer of vispark's operations in :class:`pyspark.RDD`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import RDD, SparkContext, StorageLevel

from vispark._utils.boundary import brief
from vispark._utils.lazy import LazyModule
from vispark.errors import PlanError, SparkConnectError

if TYPE_CHECKING:
    from vispark.api import vrdd
    from vispark.api.vrdd import VRDD
    from vispark.plan import storage_levels
    from vispark.runtime.driver import session
    from vispark.runtime.profiling import profiler
else:
    storage_levels = LazyModule("vispark.plan.storage_levels")
    vrdd = LazyModule("vispark.api.vrdd")
    profiler = LazyModule("vispark.runtime.profiling.profiler")
    session = LazyModule("vispark.runtime.driver.session")

_CACHE, _PERSIST, _STOP = RDD.cache, RDD.persist, SparkContext.stop


def install() -> None:
    """Add the operations; once is enough, and importing vispark does it.

    Raises
    ------
    SparkConnectError
        In a Spark Connect process, whose sessions have no RDDs.
    """
    if "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ \
            or os.environ.get("SPARK_API_MODE") == "connect":
        raise SparkConnectError("vispark works on RDDs, which Spark Connect sessions do not have: use a classic one "
                                "(unset SPARK_REMOTE, or SparkSession.builder.config('spark.api.mode', 'classic'))")
    added: dict[str, Any] = {"cache": _cache, "persist": _persist, "send": _send, "uncache": _uncache, "vmap": _vmap,
             "vreduce": _vreduce}
    added |= {name: _on_vrdd_only(name)
              for name in ("htod", "dtoh", "recv", "exec", "halo_extract", "halo_append", "iterate")}
    for name, method in added.items():
        setattr(RDD, name, brief(method))
    setattr(SparkContext, "stop", _stop)  # noqa: B010 - mypy knows the method


@functools.wraps(_CACHE)
def _cache(self: RDD[Any], level: str | None = None) -> RDD[Any]:
    return _CACHE(self) if level is None else _persist(self, level)


@functools.wraps(_PERSIST)
def _persist(self: RDD[Any], storageLevel: StorageLevel | str = StorageLevel.MEMORY_ONLY) -> RDD[Any]:
    if not isinstance(storageLevel, str):
        return _PERSIST(self, storageLevel)
    if storage_levels.spills_of(storageLevel):
        return vrdd.send(self).persist(storageLevel)
    return vrdd.send(self).htod().cache()


def _send(self: RDD[Any]) -> VRDD:
    """Send an RDD's records to the GPU workers' host memory, when an action asks for them.

    Records are numbers, arrays, tuples of numbers, dicts of numbers and arrays, or pairs with such values; all of a
    partition alike.

    Raises
    ------
    RecordError
        At the action, for records that cannot be held.

    Examples
    --------
    >>> sc.parallelize([(0, 1.5), (1, 2.5)]).send().collect()
    [(0, 1.5), (1, 2.5)]
    """
    return vrdd.send(self)


def _vmap(self: RDD[Any], f: Callable[..., Any], *arguments: Any, of: str | None = None) -> VRDD:
    """Apply a plain Python function to every element on the device; see :meth:`vispark.VRDD.vmap`."""
    return vrdd.send(self).htod().vmap(f, *arguments, of=of)


def _vreduce(self: RDD[Any], f: Callable[[Any, Any], Any]) -> VRDD:
    """Fold inside each record on the device; see :meth:`vispark.VRDD.vreduce`."""
    return vrdd.send(self).htod().vreduce(f)


def _uncache(self: RDD[Any]) -> RDD[Any]:
    """Release the copy that ``cache`` keeps; the same as ``unpersist``."""
    return self.unpersist()


def _on_vrdd_only(name: str) -> Callable[..., VRDD]:
    def refuse(self: RDD[Any], *arguments: Any, **named: Any) -> VRDD:
        raise PlanError(f"{name}() works on data in a GPU worker, and this is a plain RDD: call .send().htod() or "
                        ".cache(\"GPU\") on it first")
    refuse.__name__ = name
    refuse.__doc__ = f"Refuse: {name} is an operation of a VRDD."
    return refuse


@functools.wraps(_STOP)
def _stop(self: SparkContext) -> None:
    if session.__name__ in sys.modules:     # else this process has done nothing that would have to end
        profiler.leaving(self)
        session.Session.end(self)
    _STOP(self)
