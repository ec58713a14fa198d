"""Summaries of training that MLlib's Java makes once they are asked for: planning one takes longer than most fits."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class LazySummary:
    """Summary of a fit, which a model and its copies share.

    Parameters
    ----------
    make : callable
        Returns a Java option that holds the summary. It holds no DataFrame, as data on the devices would stay with it.
    """

    def __init__(self, make: Callable[[], Any]):
        self._make: Callable[[], Any] | None = make
        self._made: Any = None
        self._lock = threading.Lock()

    def java(self) -> Any:
        """Return the Java option, made once."""
        with self._lock:
            if self._make is not None:
                self._made = self._make()
                self._make = None
        return self._made


@dataclass(frozen=True)
class FittedModel:
    """Java model of a fit, and its summary."""

    model: Any
    summary: LazySummary


class SummarizedModel:
    """Model of pyspark's whose Java model has no summary yet; it comes before pyspark's class among the bases."""

    _java_obj: Any
    _pending: LazySummary | None = None

    def _call_java(self, name: str, *arguments: Any) -> Any:
        if self._pending is not None and name == "hasSummary":
            return True
        if self._pending is not None and name == "summary":
            self._java_obj.setSummary(self._pending.java())
            self._pending = None
        theirs: Any = super()
        return theirs._call_java(name, *arguments)


def with_summary(model: Any, summary: LazySummary) -> Any:
    """Return a model of pyspark's, which has a summary from now on."""
    kind: Any = type(model)
    model.__class__ = _summarized(kind)
    model._pending = summary
    return model


@functools.cache
def _summarized(kind: Any) -> Any:
    """Return the subclass of a model's class, under the same name."""
    return type(kind.__name__, (SummarizedModel, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
