"""Transformations of PySpark's that bring a VRDD's records back to Python, which the user is told of.

Those whose name says that Python or a shuffle does the work (``map``, ``mapPartitions``, ``groupByKey``, ``join``...)
are not among them; folds by key are, unless the keys are objects, which workers never see.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from vispark._utils.boundary import brief
from vispark.api.keys.keyed import pairs_of
from vispark.api.rdds.fallback import is_asked_for_by_user, report_fallback
from vispark.data.records.pairs import not_pairs

_Class = TypeVar("_Class", bound=type)

_HOW = "brings the records back to Python, where an action on the result is a Spark job"
_MEETS = "records of two RDDs meet in Spark, not in the workers; "
_COMPARED = "records are compared in Python; do it before they are sent"

#: Why each is not done in the workers, and what is written instead where the data is to stay there.
_REASONS = {
    "cartesian": _MEETS + "give the smaller one to vmap as an argument, as an array",
    "intersection": _COMPARED,
    "subtract": _COMPARED,
    "union": _MEETS + 'send their union: a.union(b).cache("GPU")',
    "zip": _MEETS + 'send both as one record: a.zip(b).map(lambda r: {"a": r[0], "b": r[1]}).cache("GPU")',
}

#: Folds by key that workers have no kernels for.
_FOLDS_BY_KEY = "aggregateByKey", "combineByKey", "foldByKey"
_REDUCED = ("of the folds by key reduceByKey is the workers': a vmap before it makes of each value what is added up, "
            "as (key, (value, 1))")


def tells_of_transformations(cls: _Class) -> _Class:
    """Have a class of VRDDs apply ``spark.vispark.fallback`` where a user calls one of these on data that is cached."""
    for name, reason in _REASONS.items():
        setattr(cls, name, brief(_telling(getattr(cls, name), name, reason)))
    for name in _FOLDS_BY_KEY:
        setattr(cls, name, brief(_telling_by_key(getattr(cls, name), name)))
    return cls


def _telling(method: Callable[..., Any], name: str, reason: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        if self._is_held() and is_asked_for_by_user():
            report_fallback(self.ctx, name, f"VRDD {self._shown()}", reason, _HOW)
        return method(self, *arguments, **named)
    return called


def _telling_by_key(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_asked_for_by_user():
            pairs_of(self, name, not_pairs, _REDUCED)
        return method(self, *arguments, **named)
    return called
