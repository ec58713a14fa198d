"""Run of a program in wider floats: records that it makes or caches have float64 in place of float32, and so on.

Python workers import this module. Where NumPy has no type wider than float64, float64 stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext
from pyspark.sql import Row

#: What is narrower than float64 gets that, float64 what C calls long double: 80 bits on x86.
_WIDER: dict[int, np.dtype[Any]] = {2: np.dtype(np.float64), 4: np.dtype(np.float64), 8: np.dtype(np.longdouble)}
#: Attribute of a cached RDD: the same with wider records.
_WIDE = "_vispark_wider"


def wider(record: Any) -> Any:
    """Return a record with wider floats; keys of dicts, and all that is no float, stay.

    Examples
    --------
    >>> wider((1, np.float32(0.5), np.zeros(2, "f4")))
    (1, np.float64(0.5), array([0., 0.]))
    """
    if isinstance(record, np.ndarray | np.floating) and record.dtype.kind == "f" and record.dtype.itemsize in _WIDER:
        return record.astype(_WIDER[record.dtype.itemsize])
    if isinstance(record, float):
        return np.longdouble(record)
    if isinstance(record, tuple):
        parts = [wider(each) for each in record]
        if isinstance(record, Row):
            return Row(**dict(zip(record.__fields__, parts, strict=True)))
        return type(record)(*parts) if hasattr(record, "_fields") else tuple(parts)
    if isinstance(record, list):
        return [wider(each) for each in record]
    if isinstance(record, dict):
        return {key: wider(each) for key, each in record.items()}
    return record


def has_floats(record: Any) -> bool:
    """Return whether :func:`wider` would change a record."""
    if isinstance(record, np.ndarray | np.floating):
        return record.dtype.kind == "f" and record.dtype.itemsize in _WIDER
    if isinstance(record, tuple | list):
        return any(map(has_floats, record))
    return isinstance(record, float) or (isinstance(record, dict) and any(map(has_floats, record.values())))


def widen(noted: Callable[[], None]) -> None:
    """Have this process's RDDs have wider floats: those of ``parallelize``, and what operations read of cached ones.

    Parameters
    ----------
    noted : callable
        Called at least once where a record has a float.
    """
    _widen_sources(noted)
    _widen_cached(noted)


def _widen_sources(noted: Callable[[], None]) -> None:
    original = SparkContext.parallelize

    @functools.wraps(original)
    def parallelized(self: SparkContext, c: Any, *args: Any, **options: Any) -> RDD[Any]:
        if not isinstance(c, range):
            c = list(c)
            if any(map(has_floats, c)):
                noted()
                c = [wider(each) for each in c]
        return original(self, c, *args, **options)

    setattr(SparkContext, "parallelize", parallelized)      # noqa: B010 - mypy lets nobody assign to methods


def _widen_cached(noted: Callable[[], None]) -> None:
    operation = RDD.mapPartitionsWithIndex

    @functools.wraps(operation)
    def read(self: RDD[Any], *args: Any, **options: Any) -> RDD[Any]:
        return operation(getattr(self, _WIDE, self), *args, **options)

    def kept(name: str) -> None:
        original = getattr(RDD, name)

        @functools.wraps(original)
        def cached(self: RDD[Any], *args: Any, **options: Any) -> Any:
            cached_rdd = original(self, *args, **options)
            if not hasattr(self, _WIDE) and not getattr(self, "_vispark_is_wider", False):
                if any(map(has_floats, self.take(1))):
                    noted()
                wider = operation(self, _widened, preservesPartitioning=True)
                wider._vispark_is_wider = True  # type: ignore[attr-defined]
                setattr(self, _WIDE, original(wider, *args, **options))
            return cached_rdd

        setattr(RDD, name, cached)

    kept("persist")
    kept("cache")
    setattr(RDD, "mapPartitionsWithIndex", read)      # noqa: B010 - as above


def _widened(_: int, records: Iterable[Any]) -> Iterable[Any]:
    return map(wider, records)
